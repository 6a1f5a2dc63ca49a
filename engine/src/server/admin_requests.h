#pragma once

/// The requests of one session about the server itself: the list of sessions, the end of a session,
/// and a drain. They need the right `admin`; with 'auth: none' every client has it.

#include "protocol/messages.h"
#include "server/server_request.h"

namespace remora::detail {

class RegionRequests;
class ServerCore;
class ServerSession;

/// Worker only.
class AdminRequests {
 public:
  /// `rights`: answers whether the session's client may make its request.
  AdminRequests(ServerCore& server, ServerSession& session, const RegionRequests& rights) noexcept
      : server_{server}, session_{session}, rights_{rights} {}

  /// A page of the sessions, in the order of their ids: those whose clients are admitted, and those
  /// that wait for their clients.
  Result<ServerReply> sessions(const control::SessionsRequest& request);
  /// Begins or ends a drain, or reports its progress.
  Result<ServerReply> drain(const control::DrainRequest& request);
  /// Ends a session. Sends the reply itself, when the session has ended and released everything.
  void end_session(const ServerRequest& asked, const control::EndSessionRequest& request);

 private:
  ServerCore& server_;
  ServerSession& session_;
  const RegionRequests& rights_;
};

}  // namespace remora::detail
