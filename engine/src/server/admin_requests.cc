#include "server/admin_requests.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <utility>

#include "base/log.h"
#include "server/region_requests.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

control::SessionDescription AdminRequests::describe(const ServerSession& session) const {
  const SessionHandshake& handshake = session.handshake();
  const auto age =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - handshake.began());
  control::SessionDescription out;
  out.set_session_id(session.id());
  out.set_client_name(handshake.client_name());
  out.set_proven(handshake.proven());
  out.set_transport(static_cast<std::uint32_t>(session.endpoint().kind()));
  out.set_peer(session.endpoint().peer());
  out.set_device(session.endpoint().device());
  out.set_age_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(age.count(), 0)));
  out.set_grants(session.grants().open_count());
  out.set_lost(session.detached());
  out.set_own(&session == &session_);
  return out;
}

Result<ServerReply> AdminRequests::sessions(const control::SessionsRequest& request) {
  if (const Status may = rights_.may_administer("sessions"); !may) return may.error();
  const auto found = server_.session_table().page(request.after(), control::kSessionsPerPage + 1);
  ServerReply answer;
  control::SessionsReply& page = *answer.reply.mutable_sessions();
  page.set_more(found.size() > control::kSessionsPerPage);
  for (std::size_t i = 0; i < std::min(found.size(), control::kSessionsPerPage); ++i)
    *page.add_sessions() = describe(*found[i]);
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
  const SessionTable& table = server_.session_table();
  const std::size_t admitted = table.admitted_count();
  ServerReply answer;
  control::DrainReply& state = *answer.reply.mutable_drain();
  state.set_draining(drain.requested());
  if (drain.requested())
    if (const auto event = drain.event()) state.set_remaining_ms(event->draining().remaining_ms());
  state.set_sessions(admitted - std::min<std::size_t>(admitted, 1));  // without the one that asks
  // Sessions of the process before may still come back.
  state.set_lost_sessions(table.kept().size() + server_.restored_sessions().size());
  state.set_grants(
      static_cast<std::uint64_t>(std::max<std::int64_t>(server_.metrics().open_grants(), 0)));
  return answer;
}

void AdminRequests::end_session(const ServerRequest& asked,
                                const control::EndSessionRequest& request) {
  constexpr Operation kOperation{"end session"};
  if (const Status may = rights_.may_administer(kOperation); !may)
    return session_.reply_later(asked, may.error());
  const std::uint64_t id = request.session_id();
  const std::string name = fmt::format("{:x}", id);
  if (id == session_.id())
    return session_.reply_later(asked, Error{Code::kInvalidArgument, kOperation}.with_subject(
                                           name + " is the one that asks"));
  if (!server_.ender().end_by_admin(id))
    return session_.reply_later(asked, Error{Code::kNotFound, kOperation}.with_subject(name));
  log::info({"session.ended_by_admin", "session:x client ended"},
            "session {:x} ({}): has ended session {}", session_.id(),
            session_.handshake().client_name(), name);
  // After the job that releases the session: when the client reads the answer, nothing of the ended
  // session reaches memory any more.
  server_.enqueue([&session = session_, keep = session_.shared_from_this(), asked] {
    ServerReply answer;
    answer.reply.mutable_end_session();
    session.reply_later(asked, std::move(answer));
  });
}

}  // namespace remora::detail
