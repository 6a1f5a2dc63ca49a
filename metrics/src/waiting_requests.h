#pragma once

/// Connections whose request has not arrived yet: they use a descriptor, but no thread.

#include <cstddef>
#include <deque>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "http_socket.h"

namespace remora::metrics {

/// A connection, and the bytes that were read from it.
struct Asked {
  Descriptor socket;
  std::string head;
  Deadline deadline;
};

/// False: these bytes cannot begin a request, such as those of another protocol (TLS, a Remora
/// client).
[[nodiscard]] bool begins_as_http(std::string_view head) noexcept;

/// Reads the heads of requests. Not thread-safe; never blocks.
class WaitingRequests {
 public:
  /// If there are more than `connections_max`, the oldest are closed.
  explicit WaitingRequests(std::size_t connections_max) noexcept : max_{connections_max} {}

  void add(Descriptor socket, Deadline deadline);
  /// Closes the oldest. False: there is no connection.
  bool close_oldest() noexcept;
  /// Appends the descriptors to poll, in order.
  void poll_for(std::vector<pollfd>& polled) const;
  /// `polled`: the descriptors that poll_for() has appended, with the results of poll(2). Closes
  /// connections whose deadline is over or whose peer has gone, and returns those whose head is
  /// complete, is too long, or is not HTTP.
  std::vector<Asked> read(const pollfd* polled, Deadline now);
  [[nodiscard]] std::optional<Deadline> next_deadline() const noexcept;

 private:
  /// False: the peer has gone without a request.
  static bool receive(Asked& connection, bool& complete);

  std::size_t max_;
  std::deque<Asked> connections_;  ///< the oldest, which ends first, is first
};

}  // namespace remora::metrics
