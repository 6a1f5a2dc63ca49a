/// The functions of Session. Each sends one kind of request of the control protocol.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>

#include "base/clock.h"
#include "base/closed.h"
#include "client/session/session_core.h"
#include "protocol/authentication.h"
#include "protocol/messages.h"

namespace remora {

using detail::closed;

namespace {

/// The info of a region, from a reply of the session's server.
Result<RegionInfo> told_of(const control::Region& region, const detail::SessionCore& session) {
  auto info = control::to_info(region);
  if (info) info->memory_id = session.server().memory_id;
  return info;
}

/// The error of a request about the region `name`. Keeps a subject that the server has given.
Error about(const Error& error, std::string_view name) noexcept {
  return error.subject().empty() ? error.with_subject(name) : error;
}

/// The error of a request that this server does not know.
Error from_older_server(Operation operation, const detail::SessionCore& session) noexcept {
  return Error{Code::kUnsupported, operation}
      .with_server(session.server_address())
      .with_subject("the server is an older one");
}

TransportKind transport_of(std::uint32_t number) noexcept {
  for (const TransportKind kind : {TransportKind::kRdma, TransportKind::kShm, TransportKind::kTcp})
    if (number == static_cast<std::uint32_t>(kind)) return kind;
  return TransportKind::kAuto;
}

/// A time that a server has told. Nanoseconds hold it.
std::chrono::milliseconds milliseconds_of(std::uint64_t told) noexcept {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max() / 1'000'000;
  return std::chrono::milliseconds{
      static_cast<std::int64_t>(std::min(told, static_cast<std::uint64_t>(kMax)))};
}

SessionInfo to_info(const control::SessionDescription& session) {
  return {.id = session.session_id(),
          .client_name = session.client_name(),
          .client_proven = session.proven(),
          .transport = transport_of(session.transport()),
          .peer = session.peer(),
          .device = session.device(),
          .age = milliseconds_of(session.age_ms()),
          .open_regions = session.grants(),
          .lost = session.lost(),
          .own = session.own()};
}

Result<DrainState> ask_for_drain(detail::SessionCore& session, control::Drain drain) {
  if (!session.administration()) return from_older_server("drain", session);
  control::Request request;
  request.mutable_drain()->set_drain(drain);
  auto answer = session.call(std::move(request), "drain");
  if (!answer) return answer.error();
  const control::DrainReply& state = answer->reply.drain();
  return DrainState{.draining = state.draining(),
                    .remaining = milliseconds_of(state.remaining_ms()),
                    .sessions = state.sessions(),
                    .lost_sessions = state.lost_sessions(),
                    .open_regions = state.grants()};
}

}  // namespace

const ServerInfo& Session::server() const noexcept {
  static const ServerInfo none;  // for a session that was moved from
  return core_ == nullptr ? none : core_->server();
}
TransportKind Session::transport() const noexcept {
  return core_ == nullptr ? TransportKind::kAuto : core_->kind();
}
bool Session::connected() const noexcept { return core_ != nullptr && core_->connected(); }
Status Session::settled(std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) return closed("settled", core_);
  return core_->settled(deadline_after(deadline));
}

Result<RegionInfo> Session::create_region(const RegionSpec& spec) const {
  if (core_ == nullptr) return closed("create", core_);
  if (spec.lifetime != Lifetime::kPersistent && core_->version() < 2)
    return Error{Code::kUnsupported, "create with a lifetime (an older server)"}
        .with_server(core_->server_address())
        .with_subject(spec.name);
  control::Request request;
  control::Region& region = *request.mutable_create()->mutable_region();
  region.set_name(spec.name);
  region.set_size_bytes(spec.size_bytes);
  region.set_block_bytes(spec.block_bytes);
  region.set_rights(static_cast<std::uint32_t>(spec.rights));
  region.set_atomic_domain(spec.atomic_domain);
  region.set_shm(spec.shm);
  // An older server would ignore the list, and give every client access.
  if (!spec.access.empty() && core_->version() < control::kVersionOfKeys)
    return Error{Code::kUnsupported, "create with an access list: the server is an older one"}
        .with_server(core_->server_address())
        .with_subject(spec.name);
  control::add_access(spec.access, region);
  region.set_lifetime(static_cast<control::Lifetime>(spec.lifetime));
  region.set_ttl_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(spec.ttl.count(), 0)));
  auto answer = core_->call(std::move(request), "create");
  if (!answer) return about(answer.error(), spec.name);
  return told_of(answer->reply.create().region(), *core_);
}

Result<std::vector<RegionInfo>> Session::regions() const {
  if (core_ == nullptr) return closed("list", core_);
  std::vector<RegionInfo> found;
  while (true) {
    control::Request request;
    request.mutable_list()->set_after(found.empty() ? "" : found.back().name);
    auto answer = core_->call(std::move(request), "list");
    if (!answer) return answer.error();
    const control::ListReply& page = answer->reply.list();
    for (const control::Region& region : page.regions()) {
      auto info = told_of(region, *core_);
      if (!info) return info.error();
      // A server that repeats a page must not make this loop endless.
      if (!found.empty() && info->name <= found.back().name)
        return Error{Code::kProtocol, "list"}.with_subject(info->name);
      found.push_back(std::move(*info));
    }
    if (!page.more() || page.regions().empty()) return found;
  }
}

Result<RegionInfo> Session::stat(std::string_view name) const {
  if (core_ == nullptr) return closed("stat", core_);
  control::Request request;
  request.mutable_stat()->set_name(std::string{name});
  auto answer = core_->call(std::move(request), "stat");
  if (!answer) return about(answer.error(), name);
  return told_of(answer->reply.stat().region(), *core_);
}

Status Session::remove_region(std::string_view name, Removal removal) const {
  if (core_ == nullptr) return closed("remove", core_);
  if (removal != Removal::kIfUnused && core_->version() < 2)
    return Error{Code::kUnsupported, "remove (an older server)"}
        .with_server(core_->server_address())
        .with_subject(name);
  control::Request request;
  request.mutable_remove()->set_name(std::string{name});
  request.mutable_remove()->set_removal(static_cast<control::Removal>(removal));
  auto answer = core_->call(std::move(request), "remove");
  if (!answer) return about(answer.error(), name);
  return {};
}

Result<RegionInfo> Session::resize_region(std::string_view name, std::uint64_t size_bytes) const {
  if (core_ == nullptr) return closed("resize", core_);
  if (core_->version() < 2)
    return Error{Code::kUnsupported, "resize (an older server)"}
        .with_server(core_->server_address())
        .with_subject(name);
  control::Request request;
  request.mutable_resize()->set_name(std::string{name});
  request.mutable_resize()->set_size_bytes(size_bytes);
  auto answer = core_->call(std::move(request), "resize");
  if (!answer) return about(answer.error(), name);
  return told_of(answer->reply.resize().region(), *core_);
}

Result<Usage> Session::usage() const {
  if (core_ == nullptr) return closed("usage", core_);
  if (core_->version() < 2)
    return Error{Code::kUnsupported, "usage: the server is an older one"}.with_server(
        core_->server_address());
  control::Request request;
  request.mutable_usage();
  auto answer = core_->call(std::move(request), "usage");
  if (!answer) return answer.error();
  const control::UsageReply& usage = answer->reply.usage();
  return Usage{.client_bytes = usage.client_bytes(),
               .client_quota_bytes = usage.client_quota_bytes(),
               .pool_bytes = usage.pool_bytes(),
               .pool_used_bytes = usage.pool_used_bytes(),
               .pool_freeing_bytes = usage.pool_freeing_bytes(),
               .sessions = usage.sessions(),
               .grants = usage.grants()};
}

Result<std::chrono::nanoseconds> Session::ping() const {
  if (core_ == nullptr) return closed("ping", core_);
  // While the session comes back, a ping would tell the server that all grants are attached again.
  if (!core_->connected())
    return Error{Code::kConnectionLost, "ping"}
        .with_server(core_->server_address())
        .with_reason(core_->lost_reason());
  control::Request request;
  request.mutable_ping();
  const auto began = Clock::now();
  if (auto answer = core_->call(std::move(request), "ping"); !answer) return answer.error();
  return std::chrono::nanoseconds{Clock::now() - began};
}

Result<std::vector<SessionInfo>> Session::sessions() const {
  if (core_ == nullptr) return closed("sessions", core_);
  if (!core_->administration()) return from_older_server("sessions", *core_);
  std::vector<SessionInfo> found;
  while (true) {
    control::Request request;
    request.mutable_sessions()->set_after(found.empty() ? 0 : found.back().id);
    auto answer = core_->call(std::move(request), "sessions");
    if (!answer) return answer.error();
    const control::SessionsReply& page = answer->reply.sessions();
    for (const control::SessionDescription& session : page.sessions()) {
      // A server that repeats a page must not make this loop endless.
      if (session.session_id() == 0 || (!found.empty() && session.session_id() <= found.back().id))
        return Error{Code::kProtocol, "sessions"}.with_server(core_->server_address());
      found.push_back(to_info(session));
    }
    if (!page.more() || page.sessions().empty()) return found;
  }
}

Status Session::end_session(std::uint64_t id) const {
  if (core_ == nullptr) return closed("end session", core_);
  if (!core_->administration()) return from_older_server("end session", *core_);
  control::Request request;
  request.mutable_end_session()->set_session_id(id);
  auto answer = core_->call(std::move(request), "end session");
  return answer ? Status{} : Status{answer.error()};
}

Result<DrainState> Session::drain() const {
  if (core_ == nullptr) return closed("drain", core_);
  return ask_for_drain(*core_, control::DRAIN_BEGIN);
}
Result<DrainState> Session::end_drain() const {
  if (core_ == nullptr) return closed("drain", core_);
  return ask_for_drain(*core_, control::DRAIN_END);
}
Result<DrainState> Session::drain_state() const {
  if (core_ == nullptr) return closed("drain", core_);
  return ask_for_drain(*core_, control::DRAIN_ASK);
}

}  // namespace remora
