#include "server/warm/warm_memory.h"

#include <fcntl.h>
#include <new>
#include <string_view>
#include <sys/stat.h>
#include <thread>
#include <utility>

#include <remora/config/units.h>

#include "base/log.h"
#include "base/random_id.h"
#include "server/warm/kept_process.h"

namespace remora::detail {

namespace {

constexpr const char* kPoolName = "remora-pool";
constexpr const char* kCatalogName = "remora-catalog";
constexpr const char* kSessionsName = "remora-sessions";
constexpr std::string_view kPrefix = "remora-";

/// A supervisor may start this process a moment before it has noticed the end of the previous one.
constexpr std::chrono::seconds kHolderTime{10};
constexpr std::chrono::milliseconds kHolderPause{20};

std::string region_memory_name(std::uint64_t incarnation) {
  return "remora-region-" + std::to_string(incarnation);
}

Error unusable(std::string_view what) {
  return Error{Code::kProtocol, "memory of the process before"}.with_subject(what);
}

Result<UniqueFd> take_named(std::map<std::string, UniqueFd>& descriptors, const std::string& name) {
  const auto found = descriptors.find(name);
  if (found == descriptors.end())
    return unusable("the store has no " + name + " (FileDescriptorStoreMax=?)");
  UniqueFd taken = std::move(found->second);
  descriptors.erase(found);
  if (!taken) return unusable("the store has two of the name " + name);
  return taken;
}

/// Whether the memory is damaged or missing. Any other error may not return at the next start: too
/// little address space, too many mappings, a process that still serves the memory.
bool is_lost(const Error& error) noexcept {
  return error.code() == Code::kProtocol || error.code() == Code::kNotFound;
}

/// Releases the pages of the pool now: the supervisor may keep its descriptor a moment longer, and
/// the new pool needs the memory. The pages of shm regions are not released: a client that has one
/// mapped would read zeros, until it finds that its connection has ended.
void give_back_pages(const UniqueFd& pool) noexcept {
  struct stat status {};
  if (pool && ::fstat(pool.get(), &status) == 0 && S_ISREG(status.st_mode))
    (void)::fallocate(pool.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, status.st_size);
}

/// Checks that each memfd is there once: the same memory under two names would belong to two
/// regions.
Status check_distinct(const KeptMemory& kept) {
  std::set<std::pair<dev_t, ino_t>> files;
  const auto is_new = [&](int fd) {
    struct stat status {};
    return ::fstat(fd, &status) == 0 && files.emplace(status.st_dev, status.st_ino).second;
  };
  if (!is_new(kept.pool.fd())) return unusable("the descriptor of the pool");
  for (const auto& own : kept.own)
    if (own != nullptr && !is_new(own->fd())) return unusable("two regions have the same memfd");
  return {};
}

}  // namespace

Result<WarmMemory::Descriptors> WarmMemory::take(DescriptorStore& store) {
  auto taken = store.take();
  if (!taken) return taken.error();
  Descriptors descriptors;
  for (StoredDescriptor& each : *taken) {
    UniqueFd fd{each.fd};
    if (!std::string_view{each.name}.starts_with(kPrefix)) continue;  // not a name of this server
    // If two have the same name, it is unknown which one is right.
    const auto [at, is_new] = descriptors.try_emplace(std::move(each.name), std::move(fd));
    if (!is_new) at->second.reset();
  }
  return descriptors;
}

Result<std::unique_ptr<WarmMemory>> WarmMemory::open(std::shared_ptr<DescriptorStore> store,
                                                     const config::Pool& options,
                                                     metrics::Gauge ready_gauge) {
  if (store == nullptr)
    return Error{Code::kUnsupported, "pool.warm_restart"}.with_subject(
        "no supervisor keeps descriptors for this process");
  auto warm = std::make_unique<WarmMemory>(std::move(store), ready_gauge);
  auto descriptors = take(*warm->store_);
  if (!descriptors) return descriptors.error();
  std::set<std::string> names;
  for (const auto& [name, fd] : *descriptors) names.insert(name);
  if (names.empty()) {
    warm->reason_ = "no earlier process has left memory";
    log::info({"warm.new_memory", "reason"}, "warm restart: {}: the memory is new", warm->reason_);
    return warm;
  }
  const auto found = descriptors->find(kPoolName);
  const UniqueFd pool{
      found == descriptors->end() ? -1 : ::fcntl(found->second.get(), F_DUPFD_CLOEXEC, 0)};
  auto kept = warm->load(*descriptors, options);
  if (!kept && !is_lost(kept.error())) return kept.error();
  const MutexLock lock{warm->mutex_};
  if (kept) {
    warm->kept_.emplace(std::move(*kept));
    warm->memory_id_ = warm->kept_->catalog.memory_id;
    warm->stored_ = {kPoolName, kCatalogName, kSessionsName};
    for (const KeptRegion& region : warm->kept_->catalog.regions)
      if (!region.memory.empty()) warm->stored_.insert(region.memory);
  } else {
    warm->catalog_.reset();
    warm->sessions_.reset();
    warm->reason_ = kept.error().message();
    log::warn({"warm.memory_lost", "reason"},
              "warm restart: THE MEMORY OF THE PROCESS BEFORE IS LOST: {}; the memory is new, and "
              "what clients had stored is gone",
              warm->reason_);
    give_back_pages(pool);
  }
  // Memory without a region: the previous process had removed the region, or had not recorded it
  // yet.
  for (const std::string& name : names)
    if (!warm->stored_.contains(name)) warm->store_->remove(name);
  return warm;
}

WarmMemory::~WarmMemory() {
  bool recorded = true;
  {
    const MutexLock lock{mutex_};
    recorded = !catalog_ || catalog_->sequence() != 0;
  }
  if (!recorded) give_up();
}

/// Only one process at a time may use the memory.
Status WarmMemory::lock(const SealedRecord& catalog) const {
  const Deadline until = Clock::now() + kHolderTime;
  std::int64_t holder = 0;
  while (!catalog.try_lock(holder)) {
    if (Clock::now() >= until)
      return Error{Code::kTimedOut, "memory of the process before"}.with_subject(
          "process " + std::to_string(holder) + " still serves it");
    std::this_thread::sleep_for(kHolderPause);
  }
  return {};
}

Result<KeptMemory> WarmMemory::load(Descriptors& descriptors, const config::Pool& options) {
  auto catalog_fd = take_named(descriptors, kCatalogName);
  if (!catalog_fd) return catalog_fd.error();
  auto record = SealedRecord::adopt(std::move(*catalog_fd));
  if (!record) return record.error();
  if (auto locked = lock(*record); !locked) return locked.error();
  auto bytes = record->read();
  if (!bytes)
    return bytes.error().code() == Code::kNotFound
               ? unusable("the process before had recorded nothing, or could not")
               : bytes.error();
  auto catalog = decode_catalog(*bytes);
  if (!catalog) return catalog.error();

  auto sessions_fd = take_named(descriptors, kSessionsName);
  if (!sessions_fd) return sessions_fd.error();
  auto sessions_record = SealedRecord::adopt(std::move(*sessions_fd));
  if (!sessions_record) return sessions_record.error();
  auto sessions_bytes = sessions_record->read();
  if (!sessions_bytes) return sessions_bytes.error();
  auto sessions = decode_sessions(*sessions_bytes);
  if (!sessions) return sessions.error();
  if (sessions->memory_id != catalog->memory_id)
    return unusable("the sessions are those of other memory");
  if (sessions->process_namespace == 0 || sessions->process_namespace != process_namespace())
    for (KeptSession& session : sessions->sessions) session.process_id = 0;

  const std::uint64_t wanted = (options.size_bytes + config::kPoolPageBytes - 1) /
                               config::kPoolPageBytes * config::kPoolPageBytes;
  if (catalog->pool.size_bytes != wanted)
    return unusable("pool.size is " + config::format_size(wanted) + " now, and was " +
                    config::format_size(catalog->pool.size_bytes));
  auto pool_fd = take_named(descriptors, kPoolName);
  if (!pool_fd) return pool_fd.error();
  auto pool = SharedMemory::adopt(std::move(*pool_fd), catalog->pool.size_bytes, catalog->pool.huge,
                                  catalog->pool.address, options.core_dump);
  if (!pool) return pool.error();
  KeptMemory kept{.catalog = std::move(*catalog),
                  .sessions = std::move(*sessions),
                  .pool = std::move(*pool),
                  .own = {}};
  for (const KeptRegion& region : kept.catalog.regions) {
    kept.own.push_back(nullptr);
    if (region.memory.empty()) continue;
    auto fd = take_named(descriptors, region.memory);
    if (!fd) return fd.error();
    const std::uint64_t page_bytes = kept.catalog.pool.page_bytes;
    const std::uint64_t size = (region.info.size_bytes + page_bytes - 1) / page_bytes * page_bytes;
    auto own = SharedMemory::adopt(std::move(*fd), size, std::nullopt, region.memory_address,
                                   options.core_dump);
    if (!own) return own.error();
    kept.own.back() = std::make_unique<SharedMemory>(std::move(*own));
  }
  if (auto distinct = check_distinct(kept); !distinct) return distinct.error();
  const MutexLock lock{mutex_};
  catalog_.emplace(std::move(*record));
  sessions_.emplace(std::move(*sessions_record));
  for (const KeptSession& session : kept.sessions.sessions) noted_.emplace(session.id, session);
  return kept;
}

Status WarmMemory::begin(const Pool& pool) {
  const MutexLock lock{mutex_};
  pool_ = {.size_bytes = pool.bytes().size(),
           .piece_bytes = pool.piece_bytes(),
           .page_bytes = pool.page_bytes(),
           .huge = pool.huge(),
           .address = reinterpret_cast<std::uint64_t>(pool.bytes().data())};
  if (reason_.empty()) return {};
  memory_id_ = random_id();
  auto catalog = SealedRecord::create(kCatalogName);
  if (!catalog) return catalog.error();
  auto sessions = SealedRecord::create(kSessionsName);
  if (!sessions) return sessions.error();
  std::int64_t holder = 0;
  (void)catalog->try_lock(holder);  // this process has made it
  catalog_.emplace(std::move(*catalog));
  sessions_.emplace(std::move(*sessions));
  if (auto status = write_sessions(); !status) return status;
  if (auto status = store(kPoolName, pool.fd()); !status) return status;
  if (auto status = store(kSessionsName, sessions_->fd()); !status) return status;
  return store(kCatalogName, catalog_->fd());
}

Status WarmMemory::store(const std::string& name, int fd) {
  if (stored_.contains(name)) return {};
  if (auto status = store_->store(name, fd); !status) return status.error().with_subject(name);
  stored_.insert(name);
  return {};
}

void WarmMemory::remove(const std::string& name) noexcept {
  store_->remove(name);
  stored_.erase(name);
}

Status WarmMemory::keep(std::uint64_t incarnation, int memory_fd) {
  const MutexLock lock{mutex_};
  if (!writes()) return {};
  const Status stored = store(region_memory_name(incarnation), memory_fd);
  if (stored) return {};
  return Error{Code::kLimitExceeded, "descriptors that the supervisor keeps"}.with_subject(
      stored.error().message());
}

bool WarmMemory::record(std::span<const JournaledRegion> regions,
                        std::uint64_t next_epoch) noexcept {
  const MutexLock lock{mutex_};
  if (frozen_) return false;
  if (!writes()) return true;
  try {
    if (auto written = write_regions(regions, next_epoch); !written) spoil(written.error());
  } catch (const std::bad_alloc&) {
    spoil(Error{Code::kOutOfMemory, "catalog of the memory"});
  }
  return true;
}

void WarmMemory::record_nothing() noexcept {
  const MutexLock lock{mutex_};
  if (writes()) spoil(Error{Code::kOutOfMemory, "catalog of the memory"});
}

Status WarmMemory::write_regions(std::span<const JournaledRegion> regions,
                                 std::uint64_t next_epoch) {
  KeptCatalog catalog{
      .memory_id = memory_id_, .pool = pool_, .next_epoch = next_epoch, .regions = {}};
  std::set<std::string> memories{kPoolName, kCatalogName, kSessionsName};
  catalog.regions.reserve(regions.size());
  for (const JournaledRegion& region : regions) {
    KeptRegion kept{.info = region.info,
                    .session_id = region.session_id,
                    .extents = region.extents,
                    .memory = {},
                    .memory_address = 0};
    if (region.memory_fd >= 0) {
      kept.memory = region_memory_name(region.info.incarnation);
      kept.memory_address = reinterpret_cast<std::uint64_t>(region.memory);
      memories.insert(kept.memory);
      // Stored before the catalog names it.
      if (auto status = store(kept.memory, region.memory_fd); !status) return status;
    }
    catalog.regions.push_back(std::move(kept));
  }
  if (auto written = catalog_->write(encode(catalog)); !written) return written;
  std::vector<std::string> gone;
  for (const std::string& name : stored_)
    if (!memories.contains(name)) gone.push_back(name);
  for (const std::string& name : gone) remove(name);
  return {};
}

Status WarmMemory::write_sessions() {
  KeptSessions sessions{
      .memory_id = memory_id_, .process_namespace = process_namespace(), .sessions = {}};
  sessions.sessions.reserve(noted_.size());
  for (const auto& [id, session] : noted_) sessions.sessions.push_back(session);
  return sessions_->write(encode(sessions));
}

void WarmMemory::note(KeptSession session) noexcept {
  const MutexLock lock{mutex_};
  if (!writes()) return;
  try {
    const std::uint64_t id = session.id;
    noted_.insert_or_assign(id, std::move(session));
    if (auto written = write_sessions(); !written) spoil(written.error());
  } catch (const std::bad_alloc&) {
    spoil(Error{Code::kOutOfMemory, "list of the sessions"});
  }
}

void WarmMemory::forbid_resumption(std::uint64_t session_id) noexcept {
  const MutexLock lock{mutex_};
  const auto found = noted_.find(session_id);
  if (!writes() || found == noted_.end()) return;
  found->second.resumable = false;
  record_sessions();
}

void WarmMemory::forget(std::uint64_t session_id) noexcept {
  const MutexLock lock{mutex_};
  if (writes() && noted_.erase(session_id) != 0) record_sessions();
}

void WarmMemory::record_sessions() noexcept {
  try {
    if (auto written = write_sessions(); !written) spoil(written.error());
  } catch (const std::bad_alloc&) {
    spoil(Error{Code::kOutOfMemory, "list of the sessions"});
  }
}

void WarmMemory::freeze() noexcept {
  const MutexLock lock{mutex_};
  frozen_ = true;
}

bool WarmMemory::frozen() const noexcept {
  const MutexLock lock{mutex_};
  return frozen_;
}

bool WarmMemory::ready() const noexcept {
  const MutexLock lock{mutex_};
  return catalog_ && sessions_ && !spoiled_;
}

void WarmMemory::give_up() noexcept {
  const MutexLock lock{mutex_};
  if (frozen_) return;
  if (catalog_) catalog_->spoil();
  if (sessions_) sessions_->spoil();
  spoiled_ = true;
  ready_gauge_.set(0);
  while (!stored_.empty()) remove(std::string{*stored_.begin()});
}

/// A record that is out of date must not be read: the next process begins with new memory.
void WarmMemory::spoil(const Error& why) noexcept {
  catalog_->spoil();
  sessions_->spoil();
  spoiled_ = true;
  ready_gauge_.set(0);
  log::warn({"warm.impossible", "reason"},
            "warm restart: not possible any more: {}; this process serves on, and the next one "
            "begins with new memory",
            why.message());
}

}  // namespace remora::detail
