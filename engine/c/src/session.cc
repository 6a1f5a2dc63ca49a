// Control requests: the regions of a server, and its description of itself.

#include <cstring>

#include "call.h"
#include "handles.h"

namespace remora::c {

remora_region_info to_info(const RegionInfo& info) noexcept {
  remora_region_info to{};
  to.size_bytes = info.size_bytes;
  to.block_bytes = info.block_bytes;
  to.epoch = info.epoch;
  to.incarnation = info.incarnation;
  to.memory_id = info.memory_id;
  to.extent_count = info.extent_count;
  to.open_count = info.open_count;
  to.ttl_ms = static_cast<std::uint64_t>(info.ttl.count());
  to.lifetime = static_cast<std::uint32_t>(info.lifetime);
  to.rights = static_cast<std::uint32_t>(info.rights);
  to.shm = info.shm ? 1 : 0;
  copy_text(to.name, info.name);
  copy_text(to.atomic_domain, info.atomic_domain);
  copy_text(to.owner, info.owner);
  return to;
}

Status give_info(const Result<RegionInfo>& info, remora_region_info* to) noexcept {
  if (!info) return info.error();
  fill(to, to_info(*info));
  return {};
}

namespace {

Error wrong(Operation operation, Operation field) {
  return Error{Code::kInvalidArgument, operation}.with_subject(field.text());
}

}  // namespace

Result<RegionSpec> to_spec(const remora_region_spec& spec, Operation operation) {
  if (spec.name == nullptr) return wrong(operation, "name").with_reason(Reason::kNullPointer);
  if (spec.lifetime > REMORA_LIFETIME_TTL) return wrong(operation, "lifetime");
  if (spec.rights > REMORA_RIGHT_ALL) return wrong(operation, "rights");
  if (spec.shm > 1) return wrong(operation, "shm");
  if (spec.access == nullptr && spec.access_count != 0)
    return wrong(operation, "access").with_reason(Reason::kNullPointer);
  if (spec.access_count > kMaxRegionAccess)
    return Error{Code::kLimitExceeded, operation}
        .with_subject("access_count")
        .with_limit(spec.access_count, kMaxRegionAccess);
  RegionSpec to;
  to.name = spec.name;
  to.size_bytes = spec.size_bytes;
  if (spec.block_bytes != 0) to.block_bytes = spec.block_bytes;
  if (spec.rights != 0) to.rights = static_cast<Rights>(spec.rights);
  if (spec.atomic_domain != nullptr) to.atomic_domain = spec.atomic_domain;
  to.shm = spec.shm == 1;
  to.lifetime = static_cast<Lifetime>(spec.lifetime);
  constexpr std::uint64_t kLongestMs = std::uint64_t{1} << 48U;  // refused by the server
  to.ttl = std::chrono::milliseconds{std::min(spec.ttl_ms, kLongestMs)};
  for (std::size_t i = 0; i < spec.access_count; ++i) {
    const remora_region_access& entry = spec.access[i];
    if (entry.rights > REMORA_RIGHT_ALL || entry.admin > 1)
      return wrong(operation, "an entry of access");
    to.access.push_back({.client{entry.client, ::strnlen(entry.client, sizeof(entry.client))},
                         .rights = static_cast<Rights>(entry.rights),
                         .admin = entry.admin == 1});
  }
  return to;
}

Result<Removal> to_removal(int removal, Operation operation) {
  if (removal < REMORA_REMOVE_IF_UNUSED || removal > REMORA_REMOVE_NOW)
    return wrong(operation, "removal");
  return static_cast<Removal>(removal);
}

static_assert(static_cast<int>(Removal::kNow) == REMORA_REMOVE_NOW);
static_assert(static_cast<int>(Lifetime::kTtl) == REMORA_LIFETIME_TTL);
static_assert(static_cast<int>(TransportKind::kTcp) == REMORA_TRANSPORT_TCP);
static_assert(static_cast<unsigned>(Rights::kAll) == REMORA_RIGHT_ALL);

}  // namespace remora::c

using remora::Status;
using remora::c::Call;
using remora::c::fill;
using remora::c::is_live;

int remora_engine_connect(const remora_engine* engine, const char* uri, remora_session** session,
                          remora_error* error) noexcept {
  Call call{"remora_engine_connect", error};
  return call.on(engine).text(uri, "uri").into(session, "session").run([&] {
    return remora::c::make_handle(engine->object.connect(uri), session);
  });
}
void remora_session_free(remora_session* session) noexcept { remora::c::free_handle(session); }

int remora_session_server(const remora_session* session, remora_server_info* info,
                          remora_error* error) noexcept {
  Call call{"remora_session_server", error};
  return call.on(session).fills(info, "info").run([&]() -> Status {
    const remora::ServerInfo& told = session->object.server();
    remora_server_info to{};
    to.boot_id = told.boot_id;
    to.memory_id = told.memory_id;
    to.pool_bytes = told.pool_bytes;
    to.pool_free_bytes = told.pool_free_bytes;
    for (const remora::TransportKind kind : told.transports)
      to.transports |= 1U << static_cast<unsigned>(kind);
    remora::c::copy_text(to.name, told.name);
    remora::c::copy_text(to.device, told.device);
    fill(info, to);
    return {};
  });
}

int remora_session_transport(const remora_session* session) noexcept {
  return is_live(session) ? static_cast<int>(session->object.transport()) : REMORA_TRANSPORT_AUTO;
}
int remora_session_connected(const remora_session* session) noexcept {
  return is_live(session) && session->object.connected() ? 1 : 0;
}

int remora_session_settled(const remora_session* session, uint64_t deadline_ns,
                           remora_error* error) noexcept {
  return Call{"remora_session_settled", error}.on(session).run(
      [&] { return session->object.settled(remora::c::duration(deadline_ns)); });
}

int remora_session_create_region(const remora_session* session, const remora_region_spec* spec,
                                 remora_region_info* info, remora_error* error) noexcept {
  Call call{"remora_session_create_region", error};
  remora_region_spec given{};
  call.on(session).copies(spec, given, "spec: its size").fills_any(info, "info");
  return call.run([&]() -> Status {
    const auto made = remora::c::to_spec(given, call.operation());
    if (!made) return made.error();
    return remora::c::give_info(session->object.create_region(*made), info);
  });
}

int remora_session_stat(const remora_session* session, const char* name, remora_region_info* info,
                        remora_error* error) noexcept {
  return Call{"remora_session_stat", error}
      .on(session)
      .text(name, "name")
      .fills(info, "info")
      .run([&] { return remora::c::give_info(session->object.stat(name), info); });
}

int remora_session_access(const remora_session* session, const char* name,
                          remora_region_access* entries, size_t capacity, size_t* count,
                          remora_error* error) noexcept {
  Call call{"remora_session_access", error};
  call.on(session).text(name, "name").into(count, "count");
  if (capacity != 0) call.into(entries, "entries");
  return call.run([&]() -> Status {
    const auto info = session->object.stat(name);
    if (!info) return info.error();
    *count = info->access.size();
    for (std::size_t i = 0; i < std::min(capacity, *count); ++i) {
      const remora::RegionAccess& entry = info->access[i];
      remora::c::copy_text(entries[i].client, entry.client);
      entries[i].rights = static_cast<std::uint32_t>(entry.rights);
      entries[i].admin = entry.admin ? 1 : 0;
    }
    return {};
  });
}

int remora_session_remove_region(const remora_session* session, const char* name, int removal,
                                 remora_error* error) noexcept {
  Call call{"remora_session_remove_region", error};
  return call.on(session).text(name, "name").run([&]() -> Status {
    const auto how = remora::c::to_removal(removal, call.operation());
    if (!how) return how.error();
    return session->object.remove_region(name, *how);
  });
}

int remora_session_resize_region(const remora_session* session, const char* name,
                                 uint64_t size_bytes, remora_region_info* info,
                                 remora_error* error) noexcept {
  return Call{"remora_session_resize_region", error}
      .on(session)
      .text(name, "name")
      .fills_any(info, "info")
      .run([&] {
        return remora::c::give_info(session->object.resize_region(name, size_bytes), info);
      });
}

int remora_session_usage(const remora_session* session, remora_usage* usage,
                         remora_error* error) noexcept {
  return Call{"remora_session_usage", error}.on(session).fills(usage, "usage").run([&]() -> Status {
    const auto told = session->object.usage();
    if (!told) return told.error();
    fill(usage, remora_usage{.size = 0,
                             .client_bytes = told->client_bytes,
                             .client_quota_bytes = told->client_quota_bytes,
                             .pool_bytes = told->pool_bytes,
                             .pool_used_bytes = told->pool_used_bytes,
                             .pool_freeing_bytes = told->pool_freeing_bytes,
                             .sessions = told->sessions,
                             .grants = told->grants});
    return {};
  });
}

int remora_session_regions(const remora_session* session, remora_region_list** list,
                           remora_error* error) noexcept {
  return Call{"remora_session_regions", error}.on(session).into(list, "list").run([&] {
    return remora::c::make_handle(session->object.regions(), list);
  });
}
void remora_region_list_free(remora_region_list* list) noexcept { remora::c::free_handle(list); }

size_t remora_region_list_count(const remora_region_list* list) noexcept {
  return is_live(list) ? list->object.size() : 0;
}

int remora_region_list_get(const remora_region_list* list, size_t index, remora_region_info* info,
                           remora_error* error) noexcept {
  Call call{"remora_region_list_get", error};
  return call.on(list).fills(info, "info").run([&]() -> Status {
    if (index >= list->object.size())
      return remora::Error{remora::Code::kOutOfRange, call.operation()}
          .with_subject("index")
          .with_limit(index, list->object.size());
    fill(info, remora::c::to_info(list->object[index]));
    return {};
  });
}
