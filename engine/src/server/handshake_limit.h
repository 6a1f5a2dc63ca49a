#pragma once

/// Sessions whose clients have not finished the handshake: bounded, and the oldest goes first.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "server/server_session.h"

namespace remora::detail {

/// Bounds the sessions whose handshake is not complete. Owns none of them: SessionTable does.
/// Control thread only.
class HandshakeLimit {
 public:
  /// Adds a session. If there are more than `max`: the id of the oldest, which is to be ended.
  std::optional<std::uint64_t> add(const std::shared_ptr<ServerSession>& session, std::size_t max) {
    // A weak_ptr keeps the memory block of its session allocated: those of ended sessions go.
    while (!waiting_.empty() && !waits(waiting_.front())) waiting_.pop_front();
    waiting_.push_back(session);
    if (waiting_.size() <= max) return std::nullopt;
    std::erase_if(waiting_, [](const auto& each) { return !waits(each); });
    if (waiting_.size() <= max) return std::nullopt;
    const auto oldest = waiting_.front().lock();
    waiting_.pop_front();
    return oldest == nullptr ? std::nullopt : std::optional{oldest->id()};
  }

 private:
  static bool waits(const std::weak_ptr<ServerSession>& session) {
    const auto alive = session.lock();
    return alive != nullptr && !alive->handshake_complete();
  }

  std::deque<std::weak_ptr<ServerSession>> waiting_;  ///< in the order of their arrival
};

}  // namespace remora::detail
