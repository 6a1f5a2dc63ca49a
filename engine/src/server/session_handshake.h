#pragma once

/// The handshake of one session, from hello to admission, and its outcome: the protocol version,
/// the client's name and the key that proves it.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <remora/config/server_config.h>
#include <remora/result.h>

#include "base/clock.h"
#include "protocol/messages.h"
#include "protocol/server_handshake.h"
#include "server/server_request.h"

namespace remora::detail {

class ServerCore;
class ServerSession;

/// The outcome for a session that a client wants to resume.
enum class Resumption : std::uint8_t {
  kNone,     ///< the client wants none, or there is none: its session is a new one
  kResumed,  ///< it continues, with its grants
  kRestored  ///< it continues from the previous process; the client attaches its grants again
};

/// Worker only, except the functions that say otherwise. The states: hello expected, proof expected
/// (auth: keys), complete. A refusal ends the session.
class SessionHandshake {
 public:
  SessionHandshake(ServerCore& server, ServerSession& session) noexcept
      : server_{server}, session_{session} {}
  SessionHandshake(const SessionHandshake&) = delete;
  SessionHandshake& operator=(const SessionHandshake&) = delete;

  /// Whether the client is admitted. Any thread.
  [[nodiscard]] bool complete() const noexcept { return complete_.load(); }
  /// The version of the protocol, once complete. Any thread.
  [[nodiscard]] std::uint32_t version() const noexcept { return version_.load(); }
  /// The name that the client gives itself. Any thread, once the session is admitted.
  [[nodiscard]] const std::string& client_name() const noexcept { return client_name_; }
  /// The key that has proven the name; empty with 'auth: none'. Any thread, as client_name().
  [[nodiscard]] const std::optional<config::SecretKey>& proven_key() const noexcept {
    return proven_key_;
  }
  [[nodiscard]] bool proven() const noexcept { return proven_key_.has_value(); }
  /// Whether the session may use several devices; then it shares no registration.
  [[nodiscard]] bool has_rails() const noexcept { return rails_; }
  /// Whether the client may resume the session after its connection is lost: until it says goodbye.
  /// Any thread.
  [[nodiscard]] bool resumable() const noexcept { return resumable_.load(); }
  void forbid_resumption() noexcept { resumable_.store(false); }
  /// The lost session that the client wants to resume.
  [[nodiscard]] const std::optional<control::Resume>& wanted() const noexcept { return wanted_; }
  /// Whether both have the same name, and both have proven it or neither has.
  [[nodiscard]] bool same_client(const SessionHandshake& other) const noexcept {
    return client_name_ == other.client_name_ && proven() == other.proven();
  }

  [[nodiscard]] Clock::time_point began() const noexcept { return began_; }
  /// Whether the server has waited longer than `patience` for the client's next message of the
  /// handshake. Any thread; for a session that has no unanswered message: the time until the worker
  /// answers does not count.
  [[nodiscard]] bool late(Clock::time_point now, std::chrono::nanoseconds patience) const noexcept {
    return !complete() && now - Clock::time_point{Clock::duration{waits_since_.load()}} > patience;
  }

  /// Whether the request is allowed in the present state.
  [[nodiscard]] bool expects(const control::Request& request) const noexcept;
  using Raw = std::span<const std::byte>;  ///< a message as it arrived
  Result<ServerReply> hello(const control::Hello& hello, Raw raw);
  Result<ServerReply> prove(const control::ProveRequest& request, Raw raw);
  /// Whether the proof is expected.
  [[nodiscard]] bool challenged() const noexcept { return challenge_.has_value(); }
  /// The challenge is about to be sent, as `raw`.
  void challenge_sent(Raw raw) noexcept;

 private:
  using Refusal = ServerMetrics::Refusal;

  Result<ServerReply> challenge(const control::Hello& hello, Raw raw);
  Result<control::Welcome> admit(const std::string& client_name,
                                 const std::optional<config::SecretKey>& proven_key);
  [[nodiscard]] control::Welcome welcome(Resumption how) const;
  /// Adds the serving devices to the answer.
  void add_rails(control::Welcome& welcome) const;
  void finish(const control::Welcome& welcome);

  ServerCore& server_;
  ServerSession& session_;
  std::optional<control::Resume> wanted_;
  std::optional<control::ServerHandshake> challenge_;  ///< between hello and proof
  bool rails_ = false;                                 ///< the session may use several devices
  std::string client_name_;                            ///< fixed before the session is admitted
  std::optional<config::SecretKey> proven_key_;        ///< fixed before the session is admitted
  std::atomic<bool> complete_{false};
  std::atomic<bool> resumable_{false};
  std::atomic<std::uint32_t> version_{0};
  const Clock::time_point began_ = Clock::now();
  std::atomic<Clock::rep> waits_since_{began_.time_since_epoch().count()};
};

}  // namespace remora::detail
