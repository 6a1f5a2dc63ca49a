#include "server/region_manager.h"

#include <algorithm>
#include <future>
#include <utility>
#include <vector>

#include "base/log.h"
#include "server/client_registry.h"

namespace remora::detail {

namespace {

Rights rights_from(bool read, bool write, bool atomic) {
  Rights rights = Rights::kNone;
  if (read) rights = rights | Rights::kRead;
  if (write) rights = rights | Rights::kWrite;
  if (atomic) rights = rights | Rights::kAtomic;
  return rights;
}

std::vector<RegionAccess> access_from(const config::RegionConfig& region) {
  std::vector<RegionAccess> list;
  list.reserve(region.access.size());
  for (const config::RegionAccess& each : region.access)
    list.push_back({.client = each.client,
                    .rights = rights_from(each.read, each.write, each.atomic),
                    .admin = each.admin});
  return list;
}

/// Whether any client has fewer rights with `now` than with `before`.
bool is_narrower(const RegionInfo& before, const RegionInfo& now) {
  const auto may_less = [&](const KnownClient* client) {
    const Permission had = permission_of(before, client);
    const Permission has = permission_of(now, client);
    return !includes(has.rights, had.rights) || (had.admin && !has.admin);
  };
  if (may_less(nullptr)) return true;
  std::vector<std::string> names{""};  // for the clients that are on neither list
  for (const RegionInfo* const info : {&before, &now})
    for (const RegionAccess& access : info->access) names.push_back(access.client);
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    const KnownClient client{.name = name};
    return may_less(&client);
  });
}

}  // namespace

RegionManager::RegionManager(const config::ServerConfig& config, const RunningLimits& limits,
                             const ServerMetrics& metrics, const ListenerSet& listeners,
                             std::shared_ptr<Pool> pool, Worker& worker, RegionJournal* journal)
    : config_{config},
      limits_{limits},
      metrics_{metrics},
      listeners_{listeners},
      worker_{worker},
      pool_{std::move(pool)},
      catalog_{pool_, limits.get().regions_max, journal},
      revocations_{limits.get().revoke_grace},
      allocation_queue_{[this](std::uint64_t size_bytes) { return pool_->must_wait(size_bytes); }} {
}

void RegionManager::start() {
  pool_->on_cleaned([this] { run_waiting(); });
}

void RegionManager::take_limits() {
  catalog_.set_regions_max(limits_.get().regions_max);
  worker_.enqueue([this] { revocations_.set_grace(limits_.get().revoke_grace); });
}

void RegionManager::remove_outdated() {
  close_unheld_orphans();
  remove_expired();
  run_waiting();  // ends the requests whose deadline has passed
}

bool RegionManager::drop_waiting() noexcept {
  if (allocation_queue_.empty()) return false;
  allocation_queue_.clear();
  return true;
}

/// Any thread.
void RegionManager::run_waiting() {
  if (!allocation_queue_.empty()) worker_.enqueue([this] { allocation_queue_.run_ready(); });
}

/// Has the worker close the memory, since that may take long.
void RegionManager::close_unheld_orphans() {
  (void)pool_->orphaned_bytes();
  auto unheld = std::make_shared<std::vector<UniqueFd>>(pool_->take_unheld_orphans());
  if (!unheld->empty()) worker_.enqueue([unheld] { unheld->clear(); });
}

Status RegionManager::create_configured(const StepsFor& steps_for, const std::stop_token& stop) {
  std::uint64_t total_bytes = 0;
  for (const config::RegionConfig& region : config_.regions) total_bytes += region.size_bytes;
  std::uint64_t done_bytes = 0;
  for (const config::RegionConfig& region : config_.regions) {
    if (stop.stop_requested()) return Error{Code::kCancelled, "start"};
    if (is_restored(region)) {
      done_bytes += region.size_bytes;
      continue;
    }
    if (!region.shm && !listeners_.offers(TransportKind::kRdma) &&
        !listeners_.offers(TransportKind::kTcp))
      return Error{Code::kUnsupported, "region that no transport opens"}.with_subject("regions: " +
                                                                                      region.name);
    RegionSpec spec{
        .name = region.name,
        .size_bytes = region.size_bytes,
        .block_bytes = region.block_bytes,
        .rights = rights_from(region.rights.read, region.rights.write, region.rights.atomic),
        .atomic_domain = region.atomics,
        .shm = region.shm,
        .access = access_from(region)};
    const std::string device = first_device_for(spec);
    auto created =
        create(std::move(spec), device, {}, deadline_after(limits_.get().request_timeout),
               steps_for(done_bytes, total_bytes), 0);
    if (!created) return created.error().with_subject("regions: " + region.name);
    done_bytes += region.size_bytes;
  }
  return {};
}

void RegionManager::apply_access(std::vector<Catalog::Restored>& regions,
                                 std::uint64_t& next_epoch) const {
  for (const config::RegionConfig& region : config_.regions) {
    const auto found = std::find_if(regions.begin(), regions.end(), [&](const auto& each) {
      return each.info.name == region.name && each.info.owner.empty();
    });
    if (found == regions.end()) continue;
    RegionInfo& info = found->info;
    const RegionInfo before = info;
    info.access = access_from(region);
    info.rights = rights_from(region.rights.read, region.rights.write, region.rights.atomic);
    if (info.access == before.access && info.rights == before.rights) continue;
    const bool narrower = is_narrower(before, info);
    if (narrower) info.epoch = next_epoch++;
    log::info(
        {"region.access_changed", "region"},
        "region {}: clients may do what the configuration says now{}", region.name,
        narrower ? ", which is less for some: the grants of the process before have ended" : "");
  }
}

/// Whether the previous process has left the region. Its data is more important than the
/// configuration: if they differ, the region stays as it was.
bool RegionManager::is_restored(const config::RegionConfig& region) const {
  const auto found = catalog_.find(region.name);
  if (!found) return false;
  const RegionInfo is = (*found)->info();
  const bool same = is.size_bytes == region.size_bytes && is.block_bytes == region.block_bytes &&
                    is.shm == region.shm && is.owner.empty() &&
                    (region.atomics == "auto" || is.atomic_domain == region.atomics);
  if (!same)
    log::warn(
        {"region.differs", "region"},
        "region {}: the process before has left it with another size, block size, owner, atomics "
        "or shm than the configuration says; it stays as it was",
        region.name);
  return true;
}

Result<RegionInfo> RegionManager::create(RegionSpec spec, const std::string& device,
                                         std::string_view owner, Deadline deadline,
                                         std::uint64_t session_id) {
  if (!spec.shm && !listeners_.offers(TransportKind::kRdma) &&
      !listeners_.offers(TransportKind::kTcp))
    log::warn({"region.no_transport", "region"},
              "region {}: no transport of this server can open it; create it with shm", spec.name);
  const auto step = [this](std::uint64_t /*done_bytes*/) { worker_.note_step(); };
  return create(std::move(spec), device, owner, deadline,
                {.stop = populating_.get_token(), .on_step = step}, session_id);
}

Result<RegionInfo> RegionManager::create(RegionSpec spec, const std::string& device,
                                         std::string_view owner, Deadline deadline,
                                         const PopulateSteps& steps, std::uint64_t session_id) {
  const std::vector<std::string>& devices = listeners_.atomic_domains();
  if (spec.atomic_domain == "auto")
    // A client's device may have no atomics: then the CPU's are left.
    spec.atomic_domain =
        std::find(devices.begin(), devices.end(), device) == devices.end() ? "cpu" : device;
  const bool known = spec.atomic_domain == "none" || spec.atomic_domain == "cpu" ||
                     std::find(devices.begin(), devices.end(), spec.atomic_domain) != devices.end();
  if (!known)
    return Error{Code::kUnsupported, "atomic domain"}
        .with_subject(spec.atomic_domain)
        .with_reason(Reason::kUnknownDevice);
  if (spec.shm && !listeners_.offers(TransportKind::kShm))
    return Error{Code::kUnsupported, "region over shm"}.with_subject(spec.name).with_reason(
        Reason::kNotOffered);
  auto created = catalog_.create(spec, deadline, owner, steps,
                                 spec.lifetime == Lifetime::kSession ? session_id : 0);
  metrics_.regions(catalog_.size());
  return created;
}

std::string RegionManager::first_device_for(const RegionSpec& spec) const {
  return spec.shm || listeners_.atomic_domains().empty() ? "" : listeners_.atomic_domains().front();
}

Result<RegionInfo> RegionManager::create(RegionSpec spec) {
  const std::string device = first_device_for(spec);
  return create(std::move(spec), device, {}, deadline_after(limits_.get().request_timeout));
}

Status RegionManager::remove(std::string_view name, Removal removal) {
  Status removed;
  if (removal == Removal::kWhenUnused) {
    // The region's grants keep its memory; its name is free from here on.
    auto found = catalog_.find(name);
    if (!found) return found.error();
    catalog_.retire(**found);
  } else {
    removed = catalog_.remove(name);
  }
  metrics_.regions(catalog_.size());
  return removed;
}

void RegionManager::remove_now(const std::shared_ptr<RegionEntry>& region,
                               std::function<void()> then) {
  revocations_.run_in_turn(
      region, [this, region, then = std::move(then)] { revoke_and_remove(region, then); });
}

void RegionManager::revoke_and_remove(const std::shared_ptr<RegionEntry>& region,
                                      std::function<void()> then) {
  // The region cannot be opened from here on. Another removal may have been faster.
  catalog_.retire(*region);
  metrics_.regions(catalog_.size());
  revocations_.revoke_all(region, Reason::kRevoked, RevocationCoordinator::Mapped::kDrop,
                          [then = std::move(then)](std::size_t /*left*/) { then(); });
}

Status RegionManager::remove_now(std::string_view name) {
  auto found = catalog_.find(name);
  if (!found) return found.error();
  auto gone = std::make_shared<std::promise<void>>();
  const bool begun = worker_.enqueue(
      [this, region = *found, gone] { remove_now(region, [gone] { gone->set_value(); }); });
  if (!begun) return Error{Code::kClosed, "remove"}.with_subject(name);
  // If the server stops meanwhile, all its sessions and their grants end, which ends this wait.
  gone->get_future().wait();
  return {};
}

void RegionManager::resize(const std::shared_ptr<RegionEntry>& region, std::uint64_t size_bytes,
                           Deadline deadline, MayGrow may,
                           std::function<void(const Status&)> then) {
  if (auto status = Catalog::check_size(*region, size_bytes); !status) return then(status);
  const std::uint64_t before_bytes = region->size_bytes();
  if (size_bytes == before_bytes) return then({});
  if (size_bytes > before_bytes) {
    const std::uint64_t more_bytes = catalog_.more_bytes(size_bytes, before_bytes);
    if (may)
      if (auto status = may(more_bytes); !status) return then(status);
    const Status grown = catalog_.grow(*region, size_bytes, Clock::now());
    if (grown || grown.error().code() != Code::kTimedOut || Clock::now() >= deadline)
      return then(grown);
    return allocation_queue_.join(
        more_bytes, deadline,
        [this, region, size_bytes, deadline, may = std::move(may), then = std::move(then)] {
          resize_in_turn(region, size_bytes, deadline, may, then);
        });
  }
  // Checked before any grant is revoked.
  if (auto may_shrink = Catalog::check_shrink(*region); !may_shrink) return then(may_shrink);
  revocations_.revoke_all(region, Reason::kRevoked, RevocationCoordinator::Mapped::kLeave,
                          [this, region, size_bytes, then = std::move(then)](std::size_t /*left*/) {
                            catalog_.raise_epoch(*region);
                            then(catalog_.shrink(*region, size_bytes));
                          });
}

void RegionManager::resize_in_turn(const std::shared_ptr<RegionEntry>& region,
                                   std::uint64_t size_bytes, Deadline deadline, MayGrow may,
                                   std::function<void(const Status&)> then) {
  revocations_.run_in_turn(
      region, [this, region, size_bytes, deadline, may = std::move(may), then = std::move(then)] {
        if (catalog_.holds(*region)) return resize(region, size_bytes, deadline, may, then);
        then(Error{Code::kUnknownRegion, "region"}.with_subject(region->name()));
      });
}

Result<RegionInfo> RegionManager::resize(std::string_view name, std::uint64_t size_bytes) {
  auto found = catalog_.find(name);
  if (!found) return found.error();
  // The result if the server stops before the region's turn.
  auto status = std::make_shared<Status>(Error{Code::kClosed, "resize"});
  auto ended = std::make_shared<std::promise<void>>();
  const auto end_known = ended->get_future();
  const Deadline deadline = deadline_after(limits_.get().request_timeout);
  worker_.enqueue([this, region = *found, size_bytes, deadline, status, ended = std::move(ended)] {
    const auto end = [status, ended](const Status& how) {
      *status = how;
      ended->set_value();
    };
    resize_in_turn(region, size_bytes, deadline, {}, end);
  });
  end_known.wait();
  if (!*status) return status->error().with_subject(name);
  return (*found)->info();
}

/// Queues one job at a time, since the job may wait long for the worker.
void RegionManager::remove_expired() {
  if (removes_expired_.load()) return;
  auto expired = catalog_.expired();
  if (expired.empty()) return;
  removes_expired_.store(true);
  worker_.enqueue([this, expired = std::move(expired)] {
    for (const auto& region : expired) {
      // A client has opened the region meanwhile: it is removed later.
      if (!catalog_.expire(*region)) continue;
      log::info({"region.expired", "region"}, "region {}: its ttl is over; removed",
                region->name());
    }
    metrics_.regions(catalog_.size());
    removes_expired_.store(false);
  });
}

}  // namespace remora::detail
