#pragma once

/// How a stopping server waits for its clients: it tells them, and they have limits.drain_timeout
/// to leave. A drain on request tells them the same, and the server continues.

#include <atomic>
#include <optional>

#include "base/clock.h"
#include "protocol/messages.h"

namespace remora::detail {

class ServerCore;

/// Thread-safe.
class ServerDrain {
 public:
  explicit ServerDrain(ServerCore& server) noexcept : server_{server} {}

  /// See Server::expedite_stop().
  void expedite() noexcept { expedited_ = true; }
  /// Tells each client that the server stops, and waits until all sessions have left. Does not wait
  /// for connections that are not admitted. Blocks: limits.drain_timeout at most.
  void await_clients() noexcept;
  /// Worker. Drains the server on request: tells each client, and from now on requested() is true.
  /// Another call before end() changes nothing.
  void begin();
  /// Any thread. Ends the drain on request; a stop continues.
  void end() noexcept;
  /// Whether the server is being drained on request.
  [[nodiscard]] bool requested() const noexcept { return requested_until_.load() != 0; }
  /// The event for a session that is admitted while the server stops or is drained. Empty: neither.
  [[nodiscard]] std::optional<control::Event> event() const;

 private:
  void tell_all(const control::Event& event);

  ServerCore& server_;
  std::atomic<bool> expedited_{false};
  std::atomic<Clock::rep> until_{0};            ///< 0: the server does not stop
  std::atomic<Clock::rep> requested_until_{0};  ///< 0: it is not drained on request
};

}  // namespace remora::detail
