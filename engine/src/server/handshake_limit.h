#pragma once

/// Sessions whose clients have not finished the handshake: bounded. Those whose clients are silent
/// make room for new ones, the oldest first; those that wait for the server are not sent away.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "server/server_session.h"

namespace remora::detail {

/// Bounds the sessions whose handshake is not complete. Owns none of them: SessionTable does.
/// `Session` is ServerSession, or what a test has instead. Control thread only.
template <typename Session>
class BasicHandshakeLimit {
 public:
  /// Adds a session. If there are more than `max`: the id of the oldest whose client is silent,
  /// which is to be ended. None where only the new one is silent.
  std::optional<std::uint64_t> add(const std::shared_ptr<Session>& session, std::size_t max) {
    // A weak_ptr keeps the memory block of its session allocated: those of ended sessions go.
    while (!pending_.empty() && !is_pending(pending_.front())) pending_.pop_front();
    pending_.push_back(session);
    if (pending_.size() <= max) return std::nullopt;
    forget_ended();
    if (pending_.size() <= max) return std::nullopt;
    const auto found = std::find_if(pending_.begin(), pending_.end() - 1, is_silent);
    if (found == pending_.end() - 1) return std::nullopt;
    const auto oldest = found->lock();
    pending_.erase(found);
    return oldest == nullptr ? std::nullopt : std::optional{oldest->id()};
  }
  /// Whether `max` sessions or more wait for an answer of the server. To take another connection
  /// then would only make it wait here instead of in the kernel.
  [[nodiscard]] bool all_wait_for_server(std::size_t max) {
    if (pending_.size() < max) return false;
    forget_ended();
    return pending_.size() >= max && std::none_of(pending_.begin(), pending_.end(), is_silent);
  }
  /// Whether a client waits for an answer of the server.
  [[nodiscard]] bool any_waits_for_server() {
    forget_ended();
    return !std::all_of(pending_.begin(), pending_.end(), is_silent);
  }

 private:
  using Pending = std::weak_ptr<Session>;
  static bool is_pending(const Pending& session) {
    const auto alive = session.lock();
    return alive != nullptr && !alive->handshake_complete();
  }
  /// Its client has yet to send the next message of the handshake.
  static bool is_silent(const Pending& session) {
    const auto alive = session.lock();
    return alive == nullptr || !alive->waits_for_server();
  }
  void forget_ended() {
    std::erase_if(pending_, [](const Pending& each) { return !is_pending(each); });
  }

  std::deque<Pending> pending_;  ///< in the order of their arrival
};

using HandshakeLimit = BasicHandshakeLimit<ServerSession>;

}  // namespace remora::detail
