// Opening volumes, and the synchronous operations on them.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <remora/c/volume.h>
#include <remora/volume/cluster.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/management.h>
#include <remora/volume/open_store.h>
#include <remora/volume/remedy.h>
#include <remora/volume/uri.h>
#include <remora/volume/volume.h>

#include "call.h"
#include "handles.h"
#include "libcurl.h"
#include "volume_queue_handle.h"

namespace remora::c {
namespace {

using volume::VolumeEventKind;

constexpr int to_change(VolumeEventKind kind) noexcept { return static_cast<int>(kind) + 1; }
static_assert(to_change(VolumeEventKind::kGroupLost) == REMORA_VOLUME_GROUP_LOST &&
              to_change(VolumeEventKind::kGroupUnreachable) == REMORA_VOLUME_GROUP_UNREACHABLE &&
              to_change(VolumeEventKind::kGroupRevoked) == REMORA_VOLUME_GROUP_REVOKED &&
              to_change(VolumeEventKind::kMemberRemoved) == REMORA_VOLUME_MEMBER_REMOVED &&
              to_change(VolumeEventKind::kWriterLost) == REMORA_VOLUME_WRITER_LOST &&
              to_change(VolumeEventKind::kCopyBegun) == REMORA_VOLUME_COPY_BEGUN &&
              to_change(VolumeEventKind::kCopyDone) == REMORA_VOLUME_COPY_DONE &&
              to_change(VolumeEventKind::kCopyFailed) == REMORA_VOLUME_COPY_FAILED);

constexpr bool has_error(VolumeEventKind kind) noexcept {
  return kind != VolumeEventKind::kCopyBegun && kind != VolumeEventKind::kCopyDone;
}

Error wrong_field(Operation operation, Operation field) {
  return Error{Code::kInvalidArgument, operation}.with_subject(field.text());
}

Result<volume::VolumeOptions> to_options(const remora_volume_options& from, Operation operation) {
  if (from.transport < REMORA_TRANSPORT_AUTO || from.transport > REMORA_TRANSPORT_TCP)
    return wrong_field(operation, "transport");
  if (from.partial > 1) return wrong_field(operation, "partial");
  volume::VolumeOptions to;
  if (from.rights != 0) {
    const auto rights = to_rights(from.rights, operation);
    if (!rights) return rights.error();
    to.rights = *rights;
  }
  to.transport = static_cast<TransportKind>(from.transport);
  if (from.operation_deadline_ns != 0) to.operation_deadline = duration(from.operation_deadline_ns);
  to.partial = from.partial == 1;
  if (from.on_event == nullptr) return to;
  to.on_event = [call = from.on_event,
                 context = from.event_context](const volume::VolumeEvent& event) {
    const remora_volume_event told{
        .size = sizeof(remora_volume_event),
        .server = event.server.c_str(),
        .group = event.group,
        .change = to_change(event.kind),
        .code = has_error(event.kind) ? to_code(event.error.code()) : int{REMORA_OK},
        .reason = to_reason(event.error.reason()),
    };
    call(context, &told);
  };
  return to;
}

/// A file has no options: their variables and files are not looked at.
Result<volume::StoreOptions> to_store_options(const remora_volume_options& from,
                                              volume::StoreKind store, Operation operation) {
  if (store == volume::StoreKind::kFile) return volume::StoreOptions{};
  if (const Status loaded = check_libcurl(operation); !loaded) return loaded.error();
  auto to = volume::store_options_of_environment();
  if (!to) return to;
  if (from.etcd_ca_file != nullptr) to->ca_file = from.etcd_ca_file;
  if (from.etcd_certificate_file != nullptr) to->certificate_file = from.etcd_certificate_file;
  if (from.etcd_key_file != nullptr) to->key_file = from.etcd_key_file;
  if (from.etcd_user != nullptr) to->user = from.etcd_user;
  if (from.etcd_password != nullptr) to->password = from.etcd_password;
  return to;
}

Result<volume::Volume> open_volume(const Engine& engine, const char* uri,
                                   const remora_volume_options& given, Operation operation) {
  const auto named = volume::parse_volume_uri(uri);
  if (!named) return named.error();
  const auto options = to_options(given, operation);
  if (!options) return options.error();
  const auto store = to_store_options(given, named->store, operation);
  if (!store) return store.error();
  std::chrono::nanoseconds limit = volume::Cluster::kLimit;
  if (given.store_deadline_ns != 0)
    limit = std::clamp<std::chrono::nanoseconds>(
        duration(given.store_deadline_ns), std::chrono::milliseconds{1}, std::chrono::hours{1});
  const auto cluster = volume::Cluster::open(*named, *store, limit);
  if (!cluster) return cluster.error();
  return volume::Volume::open(engine, *cluster, named->volume, *options);
}

Result<volume::ClaimOptions> to_claim_options(const remora_volume_claim_options& from,
                                              Operation operation) {
  if (from.steal > 1) return wrong_field(operation, "steal");
  if (from.exclusive > 1) return wrong_field(operation, "exclusive");
  volume::ClaimOptions to;
  to.steal = from.steal == 1;
  to.exclusive = from.exclusive == 1;
  if (from.identity != nullptr) to.identity = from.identity;
  return to;
}

Result<volume::MaintenanceOptions> to_repair_options(const remora_volume_repair_options& from,
                                                     Operation operation) {
  constexpr std::uint32_t kZonesAtOnceMax = 64;
  if (from.groups_at_once > volume::kGroupsAtOnceMax)
    return wrong_field(operation, "groups_at_once").with_limit(from.groups_at_once, 64);
  if (from.zones_at_once > kZonesAtOnceMax)
    return wrong_field(operation, "zones_at_once").with_limit(from.zones_at_once, kZonesAtOnceMax);
  volume::MaintenanceOptions to;
  to.bytes_per_second_max = from.bytes_per_second_max;
  if (from.step_deadline_ns != 0) to.step_limit = duration(from.step_deadline_ns);
  if (from.groups_at_once != 0) to.groups_at_once = from.groups_at_once;
  if (from.zones_at_once != 0) to.zones_at_once = from.zones_at_once;
  if (from.on_progress != nullptr)
    to.progress = [call = from.on_progress,
                   context = from.context](const volume::MaintenanceProgress& now) {
      const remora_volume_progress told{.size = sizeof(remora_volume_progress),
                                        .work = now.work.c_str(),
                                        .done_bytes = now.done_bytes,
                                        .all_bytes = now.all_bytes};
      try {
        call(context, &told);
      } catch (...) {
        // A handler must not throw; what it has thrown does not concern the copies.
      }
    };
  if (from.should_stop != nullptr)
    to.stop = [call = from.should_stop, context = from.context] {
      try {
        return call(context) != 0;
      } catch (...) {
        return true;  // as above; the program can tell by kCancelled
      }
    };
  return to;
}

/// With its detail, which the error alone has no place for.
std::string text_of(const volume::Failure& failure) {
  std::string text = failure.detail.empty() ? "" : failure.detail + ": ";
  text.append(failure.error.message());
  if (const auto remedy = volume::remedy(failure.error); !remedy.empty())
    text.append("; ").append(remedy);
  return text;
}

Status give_report(const volume::MaintenanceReport& from, remora_volume_repair_report* report,
                   char** left, Operation operation) {
  fill(report, remora_volume_repair_report{.size = 0,
                                           .groups = from.groups,
                                           .copies_made = from.members_added,
                                           .bytes_copied = from.bytes_copied,
                                           .regions_removed = from.regions_removed,
                                           .left_count = from.left.size()});
  if (left == nullptr || from.left.empty()) return {};
  std::string text;
  for (const std::string& each : from.left) text.append(each).append("\n");
  return hand_over_text(text, left, nullptr, operation);
}

remora_volume_info to_volume_info(const volume::Volume& volume) {
  const volume::VolumeRecord& record = volume.record();
  remora_volume_info to{};
  to.size_bytes = record.size_bytes;
  to.block_bytes = record.block_bytes;
  to.stripe_bytes = record.stripe_bytes;
  to.group_bytes = record.group_bytes;
  to.group_count = record.group_count();
  to.width = record.width;
  to.rights = static_cast<std::uint32_t>(volume.rights());
  to.copies = record.copies;
  for (const volume::GroupState& group : volume.groups())
    if (group.transport != TransportKind::kAuto)
      to.transports |= 1U << static_cast<unsigned>(group.transport);
  copy_text(to.name, record.name);
  return to;
}

remora_volume_group to_group(const volume::GroupState& group) noexcept {
  remora_volume_group to{};
  to.index = group.index;
  to.transport = static_cast<std::int32_t>(group.transport);
  to.connected = group.connected ? 1 : 0;
  to.copies = static_cast<std::int32_t>(group.copies);
  copy_text(to.server, group.server);
  copy_text(to.region, group.region);
  copy_text(to.error, group.error);
  return to;
}

}  // namespace
}  // namespace remora::c

using remora::ByteOffset;
using remora::Status;
using remora::c::Call;
using remora::c::duration;
using remora::c::is_live;

int remora_engine_open_volume(const remora_engine* engine, const char* uri,
                              const remora_volume_options* options, remora_volume** volume,
                              remora_error* error) noexcept {
  Call call{"remora_engine_open_volume", error};
  remora_volume_options given{};
  call.on(engine).text(uri, "uri").into(volume, "volume");
  if (options != nullptr) call.copies(options, given, "options: its size");
  return call.run([&] {
    return remora::c::make_handle(
        remora::c::open_volume(engine->object, uri, given, call.operation()), volume);
  });
}

void remora_volume_free(remora_volume* volume) noexcept { remora::c::free_handle(volume); }

int remora_volume_info_of(const remora_volume* volume, remora_volume_info* info,
                          remora_error* error) noexcept {
  return Call{"remora_volume_info_of", error}.on(volume).fills(info, "info").run([&]() -> Status {
    remora::c::fill(info, remora::c::to_volume_info(volume->object));
    return {};
  });
}

int remora_volume_groups(const remora_volume* volume, remora_volume_group* groups, size_t capacity,
                         size_t* count, remora_error* error) noexcept {
  Call call{"remora_volume_groups", error};
  call.on(volume).into(count, "count");
  if (capacity != 0) call.into(groups, "groups");
  return call.run([&]() -> Status {
    const std::vector<remora::volume::GroupState> found = volume->object.groups();
    for (std::size_t i = 0; i < std::min(capacity, found.size()); ++i)
      groups[i] = remora::c::to_group(found[i]);
    *count = found.size();
    return {};
  });
}

uint64_t remora_volume_size_bytes(const remora_volume* volume) noexcept {
  return is_live(volume) ? volume->object.size_bytes() : 0;
}

uint32_t remora_volume_rights(const remora_volume* volume) noexcept {
  return is_live(volume) ? static_cast<std::uint32_t>(volume->object.rights()) : 0;
}

int remora_volume_connected(const remora_volume* volume) noexcept {
  bool connected = false;
  const int code = Call{"remora_volume_connected", nullptr}.on(volume).run([&]() -> Status {
    const std::vector<remora::volume::GroupState> groups = volume->object.groups();
    connected = !groups.empty() && std::all_of(groups.begin(), groups.end(),
                                               [](const auto& group) { return group.connected; });
    return {};
  });
  return code == REMORA_OK && connected ? 1 : 0;
}

int remora_volume_settled(const remora_volume* volume, uint64_t deadline_ns,
                          remora_error* error) noexcept {
  return Call{"remora_volume_settled", error}.on(volume).run(
      [&] { return volume->object.settled(duration(deadline_ns)); });
}

int remora_volume_claim(const remora_volume* volume, const remora_volume_claim_options* options,
                        remora_error* error) noexcept {
  Call call{"remora_volume_claim", error};
  remora_volume_claim_options given{};
  call.on(volume);
  if (options != nullptr) call.copies(options, given, "options: its size");
  return call.run([&]() -> Status {
    const auto wanted = remora::c::to_claim_options(given, call.operation());
    return wanted ? volume->object.claim(*wanted) : Status{wanted.error()};
  });
}

int remora_volume_release(const remora_volume* volume, remora_error* error) noexcept {
  return Call{"remora_volume_release", error}.on(volume).run(
      [&] { return volume->object.release(); });
}

int remora_volume_claimed(const remora_volume* volume) noexcept {
  return is_live(volume) && volume->object.claimed() ? 1 : 0;
}

int remora_volume_repair(const remora_volume* volume, const remora_volume_repair_options* options,
                         remora_volume_repair_report* report, char** left,
                         remora_error* error) noexcept {
  Call call{"remora_volume_repair", error};
  remora_volume_repair_options given{};
  call.on(volume);
  if (options != nullptr) call.copies(options, given, "options: its size");
  call.fills_any(report, "report");
  if (left != nullptr) call.into(left, "left");
  // Also where another argument is wrong: the caller frees it in any case.
  if (left != nullptr && remora::c::is_aligned(left)) *left = nullptr;
  std::string failed;
  const int code = call.run([&]() -> Status {
    remora::c::fill(report, remora_volume_repair_report{});
    const auto wanted = remora::c::to_repair_options(given, call.operation());
    if (!wanted) return wanted.error();
    const auto done = remora::volume::repair_claimed(volume->object, *wanted);
    if (done) return remora::c::give_report(*done, report, left, call.operation());
    failed = remora::c::text_of(done.error());
    return done.error().error;
  });
  if (!failed.empty()) remora::c::replace_message(failed, error);
  return code;
}

int remora_volume_read(const remora_volume* volume, uint64_t offset, void* into, size_t length,
                       const remora_memory* memory, uint64_t deadline_ns,
                       remora_error* error) noexcept {
  return Call{"remora_volume_read", error}.on(volume).on_any(memory).run([&] {
    return volume->object.read(ByteOffset{offset}, remora::c::target_of(into, length, memory),
                               duration(deadline_ns));
  });
}

int remora_volume_write(const remora_volume* volume, uint64_t offset, const void* from,
                        size_t length, const remora_memory* memory, uint64_t deadline_ns,
                        remora_error* error) noexcept {
  return Call{"remora_volume_write", error}.on(volume).on_any(memory).run([&] {
    return volume->object.write(ByteOffset{offset}, remora::c::source_of(from, length, memory),
                                duration(deadline_ns));
  });
}

int remora_volume_write_zeroes(const remora_volume* volume, uint64_t offset, uint64_t length,
                               uint64_t deadline_ns, remora_error* error) noexcept {
  return Call{"remora_volume_write_zeroes", error}.on(volume).run([&] {
    return volume->object.write_zeroes(ByteOffset{offset}, length, duration(deadline_ns));
  });
}

int remora_volume_flush_visible(const remora_volume* volume, uint64_t deadline_ns,
                                remora_error* error) noexcept {
  return Call{"remora_volume_flush_visible", error}.on(volume).run(
      [&] { return volume->object.flush_visible(duration(deadline_ns)); });
}

int remora_volume_compare_swap(const remora_volume* volume, uint64_t offset, uint64_t expected,
                               uint64_t desired, uint64_t* before, uint64_t deadline_ns,
                               remora_error* error) noexcept {
  return Call{"remora_volume_compare_swap", error}.on(volume).into(before, "before").run([&] {
    return remora::c::give_before(
        volume->object.compare_swap(ByteOffset{offset}, expected, desired, duration(deadline_ns)),
        before);
  });
}

int remora_volume_fetch_add(const remora_volume* volume, uint64_t offset, uint64_t delta,
                            uint64_t* before, uint64_t deadline_ns, remora_error* error) noexcept {
  return Call{"remora_volume_fetch_add", error}.on(volume).into(before, "before").run([&] {
    return remora::c::give_before(
        volume->object.fetch_add(ByteOffset{offset}, delta, duration(deadline_ns)), before);
  });
}

int remora_volume_queue_create(const remora_volume* volume, const remora_queue_options* options,
                               remora_queue** queue, remora_error* error) noexcept {
  Call call{"remora_volume_queue_create", error};
  remora_queue_options given{};
  call.on(volume).into(queue, "queue");
  if (options != nullptr) call.copies(options, given, "options: its size");
  return call.run([&]() -> Status {
    auto made = volume->object.queue(remora::c::to_queue_options(given));
    if (!made) return made.error();
    auto handle = std::make_unique<remora::c::VolumeQueueHandle>(std::move(*made));
    *queue = handle.release()->pointer();
    return {};
  });
}
