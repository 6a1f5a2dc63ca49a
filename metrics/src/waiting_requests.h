#pragma once

/// Connections whose request has not come yet: they cost a descriptor, and no thread.

#include <cstddef>
#include <deque>
#include <optional>
#include <poll.h>
#include <string>
#include <string_view>
#include <vector>

#include "http_socket.h"

namespace remora::metrics {

/// A connection, and what has been read of it.
struct Asked {
  Descriptor socket;
  std::string head;
  Deadline deadline;
};

/// False: these bytes cannot be the beginning of a request, as those of another protocol (TLS, a
/// Remora client).
[[nodiscard]] bool begins_as_http(std::string_view head) noexcept;

/// Reads the heads of requests. Not thread-safe; never blocks.
class WaitingRequests {
 public:
  /// Where there are more than `connections_max`, the oldest are closed.
  explicit WaitingRequests(std::size_t connections_max) noexcept : max_{connections_max} {}

  void add(Descriptor socket, Deadline deadline);
  /// Closes the oldest. False: there is none.
  bool close_oldest() noexcept;
  /// Appends what is to be polled, in order.
  void poll_for(std::vector<pollfd>& polled) const;
  /// `polled`: as poll_for() has appended it, with what poll(2) has found. Closes those whose
  /// deadline is over or whose peer has gone, and returns those whose head is there, is longer
  /// than any may be, or is not HTTP.
  std::vector<Asked> read(const pollfd* polled, Deadline now);
  [[nodiscard]] std::optional<Deadline> next_deadline() const noexcept;

 private:
  /// False: the peer has gone, and has asked for nothing.
  static bool receive(Asked& connection, bool& complete);

  std::size_t max_;
  std::deque<Asked> connections_;  ///< the oldest first, which ends first
};

}  // namespace remora::metrics
