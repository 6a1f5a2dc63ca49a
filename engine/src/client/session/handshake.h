#pragma once

/// The handshake of a session: the client and its server prove their identities to each other.

#include <atomic>
#include <chrono>
#include <cstdint>

#include <remora/config/secret_key.h>
#include <remora/engine/engine.h>
#include <remora/result.h>

#include "base/clock.h"
#include "protocol/messages.h"
#include "transport/lane_ticket.h"

namespace remora::detail {

class SessionCore;

/// Sends hello over each connection of a session, and keeps the server's answer. The first hello
/// begins the session; later ones resume it. The session owns it. One thread at a time sends hello.
class Handshake {
 public:
  explicit Handshake(SessionCore& session) noexcept : session_{session} {}
  Handshake(const Handshake&) = delete;
  Handshake& operator=(const Handshake&) = delete;

  /// Blocks until the server has admitted the client, or until `deadline`. Errors:
  /// kConnectionRefused with kAuthentication; kProtocol (with kVersion); kStaleRegion;
  /// kConnectionLost with kLapsed; those of ControlChannel::call().
  Status say_hello(Deadline deadline);

  /// From the answer to the first hello, and constant from then on:
  [[nodiscard]] const ServerInfo& server() const noexcept { return server_; }
  /// The version of the protocol; 0 before the answer. Any thread.
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  /// A server ends a session without messages after this time; 0: never.
  [[nodiscard]] std::chrono::milliseconds lease() const noexcept { return lease_; }
  /// Whether an interrupted session may be resumed.
  [[nodiscard]] bool resumable() const noexcept { return resumable_; }
  /// The ticket with which lanes are opened; each hello makes a new one.
  [[nodiscard]] const transport::LaneTicket& ticket() const noexcept { return ticket_; }
  /// The server knows the requests of an administrator. As the latest answer said: a session may go
  /// on with another process of the server. Any thread.
  [[nodiscard]] bool administration() const noexcept { return administration_; }
  /// Whether the server process is not the one that gave the grants, so that each must be attached
  /// again. The reconnector calls it.
  [[nodiscard]] bool reattaches() const noexcept { return reattaches_; }

 private:
  control::Request hello_request();
  Result<control::Welcome> request_welcome(Deadline deadline);
  Result<control::Welcome> prove(control::Request request, const config::SecretKey& key,
                                 Deadline deadline);
  void begin_session(const control::Welcome& welcome);
  Status resume_session(const control::Welcome& welcome);
  [[nodiscard]] Error name_refused_client(const Error& error) const;

  SessionCore& session_;
  ServerInfo server_;
  std::atomic<std::uint32_t> version_{0};
  std::atomic<bool> administration_{false};
  std::chrono::milliseconds lease_{0};
  bool resumable_ = false;
  bool reattaches_ = false;
  transport::LaneTicket ticket_;
};

}  // namespace remora::detail
