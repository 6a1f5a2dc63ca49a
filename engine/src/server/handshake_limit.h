#pragma once

/// A bound on the sessions whose clients have not finished the handshake. New sessions displace the
/// oldest ones whose clients are silent; sessions that wait for the server are not displaced.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "server/server_session.h"

namespace remora::detail {

/// Bounds the sessions whose handshake is not complete. Owns none of them: SessionTable does.
/// `Session` is ServerSession, or a test's replacement. Control thread only.
template <typename Session>
class BasicHandshakeLimit {
 public:
  /// Adds a session. If there are more than `max`, returns the id of the oldest session whose
  /// client is silent, which the caller ends. Empty: only the new one is silent.
  std::optional<std::uint64_t> add(const std::shared_ptr<Session>& session, std::size_t max) {
    // A weak_ptr keeps the memory block of its session allocated, so pointers to ended sessions are
    // removed.
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
  /// Whether `max` sessions or more wait for an answer of the server. Another connection would then
  /// wait in the server instead of in the kernel.
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
  /// Whether its client has to send the next message of the handshake.
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
