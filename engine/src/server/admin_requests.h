#pragma once

/// The requests of one session about the server itself: its sessions, the end of one, and a drain.
/// For clients with the right `admin`; with 'auth: none' every client has it.

#include "protocol/messages.h"
#include "server/server_request.h"

namespace remora::detail {

class RegionRequests;
class ServerCore;
class ServerSession;

/// Worker only.
class AdminRequests {
 public:
  /// `rights`: says whether the session's client may do what it asks for.
  AdminRequests(ServerCore& server, ServerSession& session, const RegionRequests& rights) noexcept
      : server_{server}, session_{session}, rights_{rights} {}

  /// Sessions whose clients are admitted, and those that wait for their clients: a page in the
  /// order of their ids.
  Result<ServerReply> sessions(const control::SessionsRequest& request);
  /// Begins or ends a drain, or says how far it is.
  Result<ServerReply> drain(const control::DrainRequest& request);
  /// Replies itself, when the session has ended and given everything back.
  void end_session(const ServerRequest& asked, const control::EndSessionRequest& request);

 private:
  [[nodiscard]] control::SessionDescription describe(const ServerSession& session) const;

  ServerCore& server_;
  ServerSession& session_;
  const RegionRequests& rights_;
};

}  // namespace remora::detail
