#include "server/administration.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <future>
#include <memory>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

SessionInfo Administration::describe(const ServerSession& session) const {
  const SessionHandshake& handshake = session.handshake();
  const auto age =
      std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - handshake.began());
  return {.id = session.id(),
          .client_name = handshake.client_name(),
          .client_proven = handshake.proven(),
          .transport = session.endpoint().kind(),
          .peer = session.endpoint().peer(),
          .device = session.endpoint().device(),
          .age = std::max(age, std::chrono::milliseconds{0}),
          .open_regions = session.grants().open_count(),
          .lost = session.detached(),
          .own = &session == asking_};
}

std::vector<SessionInfo> Administration::page(std::uint64_t after, std::size_t max) const {
  std::vector<SessionInfo> described;
  for (const auto& session : server_.session_table().page(after, max))
    described.push_back(describe(*session));
  return described;
}

DrainState Administration::drain_state() const {
  const ServerDrain& drain = server_.drain();
  const SessionTable& table = server_.session_table();
  const std::size_t admitted = table.admitted_count();
  DrainState state;
  state.draining = drain.requested();
  if (state.draining)
    if (const auto event = drain.event())
      state.remaining = std::chrono::milliseconds{event->draining().remaining_ms()};
  state.sessions = admitted - std::min<std::size_t>(admitted, asking_ == nullptr ? 0 : 1);
  // Sessions of the process before may still come back.
  state.lost_sessions = table.kept().size() + server_.restored_sessions().size();
  state.open_regions =
      static_cast<std::uint64_t>(std::max<std::int64_t>(server_.metrics().open_grants(), 0));
  return state;
}

Status Administration::end_session(std::uint64_t id, std::function<void()> then) const {
  constexpr Operation kOperation{"end session"};
  const std::string name = fmt::format("{:x}", id);
  if (asking_ != nullptr && id == asking_->id())
    return Error{Code::kInvalidArgument, kOperation}.with_subject(name + " is the one that asks");
  if (!server_.ender().end_by_admin(id))
    return Error{Code::kNotFound, kOperation}.with_subject(name);
  // After the job that releases the session.
  server_.enqueue(std::move(then));
  return {};
}

namespace {

/// The result of `job`, which the worker runs; it passes the result on itself.
template <typename Made>
Made await_job(ServerCore& server, Operation operation,
               std::function<void(std::function<void(Made)>)> job) {
  const auto made = std::make_shared<std::promise<Made>>();
  const bool taken = server.enqueue([made, job = std::move(job)] {
    job([made](Made result) { made->set_value(std::move(result)); });
  });
  // A worker that has taken a job runs it, also while the server stops.
  if (!taken) return Error{Code::kClosed, operation};
  return made->get_future().get();
}

}  // namespace

Result<std::vector<SessionInfo>> Administration::await_sessions() const {
  using Made = Result<std::vector<SessionInfo>>;
  return await_job<Made>(server_, "sessions", [this](const std::function<void(Made)>& tell) {
    tell(page(0, SIZE_MAX));
  });
}

Status Administration::await_end(std::uint64_t id) const {
  return await_job<Status>(server_, "end session",
                           [this, id](const std::function<void(Status)>& tell) {
                             if (const Status ended = end_session(id, [tell] { tell({}); }); !ended)
                               return tell(ended);
                             log::info({"session.ended_by_admin", "ended:x"},
                                       "session {:x}: the application has ended it", id);
                           });
}

Result<DrainState> Administration::await_drain(DrainStep step) const {
  using Made = Result<DrainState>;
  return await_job<Made>(server_, "drain", [this, step](const std::function<void(Made)>& tell) {
    switch (step) {
      case DrainStep::kNone: break;
      case DrainStep::kBegin:
        log::info({"server.drained"},
                  "the application drains the server: no client can create or open a region, and "
                  "the sessions are told");
        server_.drain().begin();
        break;
      case DrainStep::kEnd:
        log::info({"server.drain_ended"}, "the application ends the drain of the server");
        server_.drain().end();
        break;
    }
    tell(drain_state());
  });
}

}  // namespace remora::detail
