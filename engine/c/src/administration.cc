// The administration of a server, by its clients and by the application that embeds it.

#include <remora/c/administration.h>

#include "call.h"
#include "handles.h"

namespace remora::c {
namespace {

remora_session_info to_session_info(const SessionInfo& session) noexcept {
  remora_session_info to{};
  to.id = session.id;
  to.age_ms = static_cast<std::uint64_t>(session.age.count());
  to.open_regions = session.open_regions;
  to.transport = static_cast<std::uint32_t>(session.transport);
  to.client_proven = session.client_proven ? 1 : 0;
  to.lost = session.lost ? 1 : 0;
  to.own = session.own ? 1 : 0;
  copy_text(to.client_name, session.client_name);
  copy_text(to.peer, session.peer);
  copy_text(to.device, session.device);
  return to;
}

Status give_state(const Result<DrainState>& state, remora_drain_state* to) noexcept {
  if (!state) return state.error();
  fill(to, remora_drain_state{.size = 0,
                              .remaining_ms = static_cast<std::uint64_t>(state->remaining.count()),
                              .sessions = state->sessions,
                              .lost_sessions = state->lost_sessions,
                              .open_regions = state->open_regions,
                              .draining = state->draining ? 1U : 0U,
                              .reserved = 0});
  return {};
}

}  // namespace
}  // namespace remora::c

using remora::Status;
using remora::c::Call;
using remora::c::fill;
using remora::c::give_state;
using remora::c::is_live;

void remora_session_list_free(remora_session_list* list) noexcept { remora::c::free_handle(list); }

size_t remora_session_list_count(const remora_session_list* list) noexcept {
  return is_live(list) ? list->object.size() : 0;
}

int remora_session_list_get(const remora_session_list* list, size_t index,
                            remora_session_info* info, remora_error* error) noexcept {
  Call call{"remora_session_list_get", error};
  return call.on(list).fills(info, "info").run([&]() -> Status {
    if (index >= list->object.size())
      return remora::Error{remora::Code::kOutOfRange, call.operation()}
          .with_subject("index")
          .with_limit(index, list->object.size());
    fill(info, remora::c::to_session_info(list->object[index]));
    return {};
  });
}

int remora_session_ping(const remora_session* session, uint64_t* took_ns,
                        remora_error* error) noexcept {
  Call call{"remora_session_ping", error};
  call.on(session);
  if (took_ns != nullptr) call.into(took_ns, "took_ns");
  return call.run([&]() -> Status {
    const auto took = session->object.ping();
    if (!took) return took.error();
    if (took_ns != nullptr) *took_ns = static_cast<std::uint64_t>(took->count());
    return {};
  });
}

int remora_session_sessions(const remora_session* session, remora_session_list** list,
                            remora_error* error) noexcept {
  return Call{"remora_session_sessions", error}.on(session).into(list, "list").run([&] {
    return remora::c::make_handle(session->object.sessions(), list);
  });
}

int remora_session_end_session(const remora_session* session, uint64_t id,
                               remora_error* error) noexcept {
  return Call{"remora_session_end_session", error}.on(session).run(
      [&] { return session->object.end_session(id); });
}

int remora_session_drain(const remora_session* session, remora_drain_state* state,
                         remora_error* error) noexcept {
  return Call{"remora_session_drain", error}.on(session).fills_any(state, "state").run([&] {
    return give_state(session->object.drain(), state);
  });
}

int remora_session_end_drain(const remora_session* session, remora_drain_state* state,
                             remora_error* error) noexcept {
  return Call{"remora_session_end_drain", error}.on(session).fills_any(state, "state").run([&] {
    return give_state(session->object.end_drain(), state);
  });
}

int remora_session_drain_state(const remora_session* session, remora_drain_state* state,
                               remora_error* error) noexcept {
  return Call{"remora_session_drain_state", error}.on(session).fills(state, "state").run([&] {
    return give_state(session->object.drain_state(), state);
  });
}

int remora_server_sessions(const remora_server* server, remora_session_list** list,
                           remora_error* error) noexcept {
  return Call{"remora_server_sessions", error}.on(server).into(list, "list").run([&] {
    return remora::c::make_handle(server->object.sessions(), list);
  });
}

int remora_server_end_session(const remora_server* server, uint64_t id,
                              remora_error* error) noexcept {
  return Call{"remora_server_end_session", error}.on(server).run(
      [&] { return server->object.end_session(id); });
}

int remora_server_drain(const remora_server* server, remora_drain_state* state,
                        remora_error* error) noexcept {
  return Call{"remora_server_drain", error}.on(server).fills_any(state, "state").run([&] {
    return give_state(server->object.drain(), state);
  });
}

int remora_server_end_drain(const remora_server* server, remora_drain_state* state,
                            remora_error* error) noexcept {
  return Call{"remora_server_end_drain", error}.on(server).fills_any(state, "state").run([&] {
    return give_state(server->object.end_drain(), state);
  });
}

int remora_server_drain_state(const remora_server* server, remora_drain_state* state,
                              remora_error* error) noexcept {
  return Call{"remora_server_drain_state", error}.on(server).fills(state, "state").run([&] {
    return give_state(server->object.drain_state(), state);
  });
}

int remora_server_alive(const remora_server* server, remora_error* error) noexcept {
  return Call{"remora_server_alive", error}.on(server).run([&] { return server->object.alive(); });
}
