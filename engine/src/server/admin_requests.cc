#include "server/admin_requests.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

#include "base/log.h"
#include "server/administration.h"
#include "server/region_requests.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

namespace {

void write_session(const SessionInfo& session, control::SessionDescription& out) {
  out.set_session_id(session.id);
  out.set_client_name(session.client_name);
  out.set_proven(session.client_proven);
  out.set_transport(static_cast<std::uint32_t>(session.transport));
  out.set_peer(session.peer);
  out.set_device(session.device);
  out.set_age_ms(static_cast<std::uint64_t>(session.age.count()));
  out.set_grants(session.open_regions);
  out.set_lost(session.lost);
  out.set_own(session.own);
}

}  // namespace

Result<ServerReply> AdminRequests::sessions(const control::SessionsRequest& request) {
  if (const Status may = rights_.may_administer("sessions"); !may) return may.error();
  const auto found =
      Administration{server_, &session_}.page(request.after(), control::kSessionsPerPage + 1);
  ServerReply answer;
  control::SessionsReply& page = *answer.reply.mutable_sessions();
  page.set_more(found.size() > control::kSessionsPerPage);
  for (std::size_t i = 0; i < std::min(found.size(), control::kSessionsPerPage); ++i)
    write_session(found[i], *page.add_sessions());
  return answer;
}

Result<ServerReply> AdminRequests::drain(const control::DrainRequest& request) {
  if (const Status may = rights_.may_administer("drain"); !may) return may.error();
  ServerDrain& drain = server_.drain();
  switch (request.drain()) {
    case control::DRAIN_ASK: break;
    case control::DRAIN_BEGIN:
      log::info(
          {"server.drained", "session:x client"},
          "session {:x} ({}): drains the server: no region is created or opened, and the sessions "
          "are told",
          session_.id(), session_.handshake().client_name());
      drain.begin();
      break;
    case control::DRAIN_END:
      log::info({"server.drain_ended", "session:x client"},
                "session {:x} ({}): ends the drain of the server", session_.id(),
                session_.handshake().client_name());
      drain.end();
      break;
    default: return Error{Code::kInvalidArgument, "drain"}.with_subject("kind of drain");
  }
  const DrainState state = Administration{server_, &session_}.drain_state();
  ServerReply answer;
  control::DrainReply& told = *answer.reply.mutable_drain();
  told.set_draining(state.draining);
  told.set_remaining_ms(static_cast<std::uint64_t>(state.remaining.count()));
  told.set_sessions(state.sessions);
  told.set_lost_sessions(state.lost_sessions);
  told.set_grants(state.open_regions);
  return answer;
}

void AdminRequests::end_session(const ServerRequest& asked,
                                const control::EndSessionRequest& request) {
  if (const Status may = rights_.may_administer("end session"); !may)
    return session_.reply_later(asked, may.error());
  const std::uint64_t id = request.session_id();
  const Status ended = Administration{server_, &session_}.end_session(
      id, [&session = session_, keep = session_.shared_from_this(), asked] {
        ServerReply answer;
        answer.reply.mutable_end_session();
        session.reply_later(asked, std::move(answer));
      });
  if (!ended) return session_.reply_later(asked, ended.error());
  log::info({"session.ended_by_admin", "session:x client ended"},
            "session {:x} ({}): has ended session {}", session_.id(),
            session_.handshake().client_name(), fmt::format("{:x}", id));
}

}  // namespace remora::detail
