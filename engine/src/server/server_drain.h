#pragma once

/// How a server that stops waits for its clients: they are told and have limits.drain_timeout to
/// leave.

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
  /// The event for a session that is admitted while the server stops. None: it does not stop.
  [[nodiscard]] std::optional<control::Event> event() const;

 private:
  void tell_all(const control::Event& event);

  ServerCore& server_;
  std::atomic<bool> expedited_{false};
  std::atomic<Clock::rep> until_{0};  ///< 0: the server does not stop
};

}  // namespace remora::detail
