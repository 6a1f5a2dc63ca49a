/// The functions of Session. Each sends one kind of request of the control protocol.

#include <algorithm>
#include <utility>

#include <remora/engine/engine.h>

#include "base/closed.h"
#include "client/session/session_core.h"
#include "protocol/authentication.h"
#include "protocol/messages.h"

namespace remora {

using detail::closed;

namespace {

/// The info of a region from a reply of the session's server.
Result<RegionInfo> told_of(const control::Region& region, const detail::SessionCore& session) {
  auto info = control::to_info(region);
  if (info) info->memory_id = session.server().memory_id;
  return info;
}

/// The error of a request about the region `name`. A subject that the server has given stays.
Error about(const Error& error, std::string_view name) noexcept {
  return error.subject().empty() ? error.with_subject(name) : error;
}

}  // namespace

const ServerInfo& Session::server() const noexcept {
  static const ServerInfo none;  // of a session that has been moved from
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

}  // namespace remora
