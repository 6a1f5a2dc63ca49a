#include "mr_cache_core.h"

#include <algorithm>
#include <bit>
#include <thread>
#include <unistd.h>

#include <remora/assert.h>
#include <remora/verbs/teardown.h>

#include "range.h"
#include "reader_epoch.h"

namespace remora::verbs::detail {
namespace {

using Registration = CachedRegistration;

// A change that waits is read within microseconds; what waits longer is registered by itself.
constexpr int kUnsettledTries = 64;

const std::uintptr_t g_page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));

std::uintptr_t page_floor(std::uintptr_t address) noexcept { return address & ~(g_page_bytes - 1); }
std::uintptr_t page_ceiling(std::uintptr_t address) noexcept {
  return page_floor(address + g_page_bytes - 1);
}
Registration& registration_of(Interval& interval) noexcept {
  return static_cast<Registration&>(interval);
}
constexpr Access kRemoteRights =
    Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic | Access::kWindowBind;

/// Whether check_range() would find no fault; makes no error, since each hit asks.
bool is_sound(std::span<std::byte> bytes, Access access) noexcept {
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const std::uintptr_t last = UINTPTR_MAX - g_page_bytes;
  return begin != 0 && begin <= last && !bytes.empty() && bytes.size() <= last - begin &&
         !contains(access, Access::kZeroBased) &&
         ((access & (Access::kRemoteWrite | Access::kRemoteAtomic)) == Access::kNone ||
          contains(access, Access::kLocalWrite));
}

Status check_range(std::span<std::byte> bytes, Access access) {
  constexpr Operation kOperation = "MrCache::acquire";
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const Error wrong{Code::kInvalidArgument, kOperation};
  if (const Status checked = check_span(bytes, kOperation); !checked) return checked;
  if (begin + bytes.size() > UINTPTR_MAX - g_page_bytes)
    return wrong.with_subject(hexadecimal("bytes at ", begin) + " wrap around")
        .with_limit(bytes.size(), UINTPTR_MAX - g_page_bytes - begin);
  if (contains(access, Access::kZeroBased)) return wrong.with_subject("zero-based");
  if ((access & (Access::kRemoteWrite | Access::kRemoteAtomic)) != Access::kNone &&
      !contains(access, Access::kLocalWrite))
    return wrong.with_subject("remote-write and remote-atomic need local-write");
  return {};
}

}  // namespace

void RegistrationRest::destroy() noexcept {
  const std::unique_ptr<RegistrationRest> self{this};
  std::destroy_at(line);
  lines->give_back(line);
}

std::unique_ptr<Registration, Registration::Destroy> Registration::make(
    const std::shared_ptr<RegistrationLines>& lines) {
  auto rest = std::make_unique<RegistrationRest>();
  auto* const line = new (lines->take()) Registration;
  rest->line = line;
  rest->lines = lines;
  line->rest = rest.release();
  return std::unique_ptr<Registration, Destroy>{line};
}

/// Room in the budgets, given back unless it was used.
struct MrCacheCore::Reservation {
  explicit Reservation(MrCacheCore& owner) noexcept : core{owner} {}
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;
  ~Reservation() {
    if (held.bytes == 0) return;
    const remora::detail::MutexLock lock{core.mutex_};
    core.counters_.pinned_bytes -= held.bytes;
    core.counters_.pinned_registrations -= held.count;
  }
  MrCacheCore& core;
  Pinned held;
};

MrCacheCore::MrCacheCore(const ProtectionDomain& domain, const MrCacheOptions& options)
    : domain_{domain},
      options_{options},
      explicit_{options.invalidation == Invalidation::kExplicit},
      piece_bytes_{options.piece_bytes} {
  follow_forks();
  const std::uint64_t longest = domain.device().attributes().max_mr_bytes;
  if (longest >= g_page_bytes) piece_bytes_ = std::min(piece_bytes_, std::bit_floor(longest));
}

MrCacheCore::~MrCacheCore() = default;

Status MrCacheCore::open() {
  if (explicit_) {
    why_not_ = "invalidation is explicit";
    return {};
  }
  monitor_ = MemoryMonitor::instance(why_not_);
  if (monitor_ == nullptr || monitor_->subscribe(*this)) return {};
  monitor_.reset();
  return Error{Code::kLimitExceeded, "MrCache::create"}
      .with_subject("automatic caches in one process")
      .with_limit(MemoryMonitor::kSubscribersMax + 1, MemoryMonitor::kSubscribersMax);
}

void MrCacheCore::close() noexcept {
  if (monitor_ != nullptr) monitor_->unsubscribe(*this);
  Doomed doomed;
  {
    const remora::detail::MutexLock lock{mutex_};
    closed_ = true;
    doomed = take_dead_locked();
    for (std::size_t i = 0; i < shelf_count_.load(); ++i)
      kill_touching_locked(shelves_[i].index, 0, UINTPTR_MAX, doomed);
  }
  finish(doomed);
}

Registration* MrCacheCore::find(std::uintptr_t begin, std::uintptr_t end,
                                Access access) const noexcept {
  const std::size_t count = shelf_count_.load(std::memory_order_acquire);
  for (std::size_t i = 0; i < count; ++i) {
    if (shelves_[i].access != access) continue;
    Interval* const found = shelves_[i].index.find(begin, end);
    return found == nullptr ? nullptr : &registration_of(*found);
  }
  return nullptr;
}

[[gnu::always_inline]] inline MrCacheCore::LookUp MrCacheCore::take(Registration* found,
                                                                    std::uint64_t generation,
                                                                    std::size_t shard) noexcept {
  if (found == nullptr) return LookUp::kMiss;
  __builtin_prefetch(found, 1);  // comes while the kernel is asked
  if (monitor_ != nullptr && (!monitor_->quiet() || monitor_->generation() != generation))
    return LookUp::kUnsettled;
  // A change from here on happens during acquire(): it may find the lease, or not.
  if (!found->take()) return LookUp::kMiss;
  const std::uint64_t now = time_.load(std::memory_order_relaxed);
  if (found->used.load(std::memory_order_relaxed) != now)
    found->used.store(now, std::memory_order_relaxed);
  hits_[shard].count.fetch_add(1, std::memory_order_relaxed);
  return LookUp::kHit;
}

MrCacheCore::LookUp MrCacheCore::look_up(std::uintptr_t begin, std::uintptr_t end, Access access,
                                         Registration*& found) noexcept {
  const std::uint64_t generation = monitor_ != nullptr ? monitor_->generation() : 0;
  if ((generation & 1U) != 0) return LookUp::kUnsettled;
  auto* const slot = ReaderEpoch::slot();
  if (slot == nullptr) [[unlikely]] {  // more threads than slots
    const remora::detail::MutexLock lock{mutex_};
    found = find(begin, end, access);
    return take(found, generation, 0);
  }
  const ReaderEpoch::Guard guard{*slot};
  found = find(begin, end, access);
  return take(found, generation, ReaderEpoch::index_of(slot) % kHitShards);
}

Result<MrLease> MrCacheCore::acquire(std::span<std::byte> bytes, Access access, Deadline deadline) {
  if (!is_sound(bytes, access)) [[unlikely]]
    if (const Status range = check_range(bytes, access); !range) return range.error();
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  bool keep = false;
  for (int tries = 0; keeps() && !keep && tries < kUnsettledTries; ++tries) {
    Registration* found = nullptr;
    const LookUp seen = look_up(begin, begin + bytes.size(), access, found);
    if (seen == LookUp::kHit) return MrLease{found, bytes};
    if (seen == LookUp::kUnsettled)
      std::this_thread::yield();
    else
      keep = !collect_dead();  // behind a dead one may stand a living one
  }
  return register_new(bytes, access, deadline, keep);
}

MrLease MrCacheCore::find_kept(std::span<std::byte> bytes, Access access) noexcept {
  if (!keeps() || !is_sound(bytes, access)) return {};
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  Registration* found = nullptr;
  if (look_up(begin, begin + bytes.size(), access, found) != LookUp::kHit) return {};
  return MrLease{found, bytes};
}

Result<MrLease> MrCacheCore::register_new(std::span<std::byte> bytes, Access access,
                                          Deadline deadline, bool keep) {
  auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  auto end = begin + bytes.size();
  const std::uintptr_t first_page = page_floor(begin);
  const std::uintptr_t last_page = page_ceiling(end);
  if (keep && (access & kRemoteRights) == Access::kNone) {
    begin = first_page;
    end = last_page;
  }
  std::uint64_t invalidations = 0;
  {
    const remora::detail::MutexLock lock{mutex_};
    invalidations = invalidations_;
  }
  const std::uint64_t generation = monitor_ != nullptr ? monitor_->generation() : 0;
  if (monitor_ != nullptr)
    keep = keep && (generation & 1U) == 0 && monitor_->watch(first_page, last_page) &&
           !monitor_->being_removed(first_page, last_page);
  if (!keep && options_.unkept == Unkept::kRefuse) {
    const remora::detail::MutexLock lock{mutex_};
    ++counters_.refused;
    return Error{Code::kUnsupported, "MrCache::acquire"}.with_subject(
        "memory whose changes are not noticed");
  }
  auto made = Registration::make(lines_);
  made->begin = begin;
  made->end = end;
  Reservation reservation{*this};
  const std::uint64_t pieces =
      end - begin <= piece_bytes_ ? 1 : (end - 1) / piece_bytes_ - begin / piece_bytes_ + 1;
  const Pinned wanted{last_page - first_page, pieces};
  if (const Status room = reserve(wanted, deadline, reservation); !room) return room.error();
  if (const Status done = register_pieces(begin, end, access, deadline, made->rest->pieces); !done)
    return done.error();
  made->rest->core = shared_from_this();
  made->single = made->rest->pieces.size() == 1;
  if (made->single) {
    made->lkey = made->rest->pieces[0].lkey();
    made->rkey = made->rest->pieces[0].rkey();
  }
  reservation.held = {};  // the registration's now
  {
    const remora::detail::MutexLock lock{mutex_};
    ++counters_.misses;
  }
  Registration* const registration = made.release();
  MrLease lease{registration, bytes};
  if (!keep || !publish(*registration, access, invalidations)) {
    registration->state.fetch_or(Registration::kDead | Registration::kUnlinked);
    const remora::detail::MutexLock lock{mutex_};
    ++counters_.unkept;
  } else {
    settle(*registration, generation);
  }
  return lease;
}

Status MrCacheCore::reserve(Pinned wanted, Deadline deadline, Reservation& reservation) {
  const auto [bytes, count] = wanted;
  const Error limit{Code::kLimitExceeded, "MrCache::acquire"};
  if (bytes > options_.bytes_max)
    return limit.with_subject("bytes_max").with_limit(bytes, options_.bytes_max);
  if (count > options_.registrations_max)
    return limit.with_subject("registrations_max").with_limit(count, options_.registrations_max);
  const Error held{Code::kOutOfMemory, "MrCache::acquire"};
  for (;;) {
    Registration* victim = nullptr;
    {
      remora::detail::MutexLock lock{mutex_};
      const std::uint64_t free_bytes =
          options_.bytes_max - std::min(options_.bytes_max, counters_.pinned_bytes);
      const std::uint64_t free_count =
          options_.registrations_max -
          std::min(options_.registrations_max, counters_.pinned_registrations);
      if (bytes <= free_bytes && count <= free_count) {
        counters_.pinned_bytes += bytes;
        counters_.pinned_registrations += count;
        reservation.held = wanted;
        return {};
      }
      victim = evict_one_locked();
      if (victim == nullptr && finishing_ > 0) {
        if (finished_.wait_until(lock, deadline) == std::cv_status::timeout)
          return Error{Code::kTimedOut, "MrCache::acquire"};
        continue;
      }
      if (victim == nullptr && dead_.load() != nullptr) {  // released, and the reaper's to finish
        lock.unlock();
        collect_dead();
        continue;
      }
      if (victim == nullptr)
        return bytes > free_bytes
                   ? held.with_subject("bytes_max, leased").with_limit(bytes, free_bytes)
                   : held.with_subject("registrations_max, leased").with_limit(count, free_count);
    }
    finish(victim);
    if (deadline != Deadline::max() && std::chrono::steady_clock::now() >= deadline)
      return Error{Code::kTimedOut, "MrCache::acquire"};
  }
}

void MrCacheCore::requeue_first_locked(std::uint64_t at) noexcept {
  auto node = order_.extract(order_.begin());
  node.value().first = node.value().second->rest->queued_at = at;
  order_.insert(std::move(node));
}

Registration* MrCacheCore::evict_one_locked() noexcept {
  // Keys are as old as the look here: what was used since goes back with its true age.
  for (std::size_t left = 2 * order_.size(); left > 0; --left) {
    Registration* const oldest = order_.begin()->second;
    std::uint64_t idle = 0;
    const std::uint64_t used = oldest->used.load(std::memory_order_relaxed);
    const bool leased = oldest->state.load() >= Registration::kLease;
    if (leased || used > oldest->rest->queued_at) {
      // Behind all others: with the age of another one it could stay the first.
      requeue_first_locked(leased ? time_.fetch_add(1) + 1 : used);
    } else if (oldest->state.compare_exchange_strong(idle, Registration::kDead)) {
      unlink_locked(*oldest);
      oldest->state.fetch_or(Registration::kUnlinked);
      ++counters_.evictions;
      ++finishing_;
      return oldest;
    } else if ((idle & Registration::kDead) != 0) {  // the monitor's: out when it is collected
      requeue_first_locked(time_.fetch_add(1) + 1);
    }
  }
  return nullptr;
}

MrCacheCore::Shelf* MrCacheCore::shelf_locked(Access access) {
  const std::size_t count = shelf_count_.load();
  for (std::size_t i = 0; i < count; ++i)
    if (shelves_[i].access == access) return &shelves_[i];
  if (count == kShelvesMax) return nullptr;
  shelves_[count].access = access;
  shelf_count_.store(count + 1);
  return &shelves_[count];
}

bool MrCacheCore::publish(Registration& made, Access access, std::uint64_t invalidations) noexcept {
  Doomed doomed;
  bool published = false;
  {
    const remora::detail::MutexLock lock{mutex_};
    try {
      published =
          !closed_ && invalidations == invalidations_ && publish_locked(made, access, doomed);
    } catch (const std::bad_alloc&) {  // not kept, then
    }
  }
  finish(doomed);
  return published;
}

bool MrCacheCore::publish_locked(Registration& made, Access access, Doomed& doomed) {
  Shelf* const shelf = shelf_locked(access);
  if (shelf == nullptr) return false;
  while (Interval* const around = shelf->index.find(made.begin, made.end)) {
    // Another thread was faster, unless that one is dead; behind it may stand a living one.
    if ((registration_of(*around).state.load() & Registration::kDead) == 0) return false;
    unlink_locked(registration_of(*around));
  }
  RegistrationList inside;
  shelf->index.for_each_touching(made.begin, made.end, [&inside, &made](Interval& item) {
    if (item.begin >= made.begin && item.end <= made.end) inside.push(registration_of(item));
  });
  while (Registration* const registration = inside.pop()) {
    if (kill_locked(*registration, doomed))
      ++counters_.superseded;
    else
      unlink_locked(*registration);
  }
  made.rest->queued_at = time_.fetch_add(1) + 1;
  made.used.store(made.rest->queued_at);
  const auto queued = order_.emplace(made.rest->queued_at, &made).first;
  made.state.fetch_or(Registration::kFresh);
  try {
    shelf->index.insert(made, retired_);
  } catch (...) {
    order_.erase(queued);
    throw;
  }
  made.rest->index = &shelf->index;
  return true;
}

void MrCacheCore::settle(Registration& made, std::uint64_t generation) {
  bool known = monitor_ == nullptr;
  for (int tries = 0; !known && tries < 1000; ++tries) {
    const std::uint64_t now = monitor_->generation();
    const bool missed =
        now != generation && monitor_->changed_since(generation, made.begin, made.end);
    if ((now & 1U) != 0 || monitor_->generation() != now)
      std::this_thread::yield();  // being told, perhaps to an index without it
    else if (missed)
      break;
    else
      known = true;
  }
  if (known) {
    made.state.fetch_and(~Registration::kFresh);
    return;
  }
  Doomed doomed;  // stays empty: this thread has a lease
  const remora::detail::MutexLock lock{mutex_};
  if (kill_locked(made, doomed)) ++counters_.unkept;
}

void MrCacheCore::unlink_locked(Registration& registration) noexcept {
  if (registration.rest->index == nullptr) return;
  registration.rest->index->erase(registration, retired_);
  registration.rest->index = nullptr;
  order_.erase({registration.rest->queued_at, &registration});
}

bool MrCacheCore::kill_locked(Registration& registration, Doomed& doomed) noexcept {
  if ((registration.state.fetch_or(Registration::kDead) & Registration::kDead) != 0) return false;
  unlink_locked(registration);
  doom_locked(registration, doomed);
  return true;
}

void MrCacheCore::doom_locked(Registration& registration, Doomed& doomed) noexcept {
  if (registration.state.fetch_or(Registration::kUnlinked) >= Registration::kLease) return;
  doomed.push(registration);
  ++finishing_;
}

std::size_t MrCacheCore::kill_touching_locked(const IntervalIndex& index, std::uintptr_t begin,
                                              std::uintptr_t end, Doomed& doomed) noexcept {
  RegistrationList touched;
  index.for_each_touching(begin, end, [&](Interval& item) { touched.push(registration_of(item)); });
  std::size_t killed = 0;
  while (Registration* const registration = touched.pop())
    if (kill_locked(*registration, doomed)) ++killed;
  return killed;
}

MrCacheCore::Doomed MrCacheCore::take_dead_locked() noexcept {
  Doomed doomed;
  Registration* next = dead_.exchange(nullptr);
  while (Registration* const registration = next) {
    next = registration->next_dead;
    unlink_locked(*registration);
    doom_locked(*registration, doomed);
  }
  return doomed;
}

bool MrCacheCore::collect_dead() noexcept {
  if (dead_.load() == nullptr) return false;
  Doomed doomed;
  {
    const remora::detail::MutexLock lock{mutex_};
    doomed = take_dead_locked();
  }
  finish(doomed);
  return true;
}

void MrCacheCore::changed(std::uintptr_t begin, std::uintptr_t end, MappingChange how) noexcept {
  const ReaderEpoch::Guard guard{ReaderEpoch::monitor_slot()};
  const std::size_t count = shelf_count_.load();
  for (std::size_t i = 0; i < count; ++i)
    shelves_[i].index.for_each_touching(begin, end, [&](Interval& item) {
      Registration& registration = registration_of(item);
      if ((registration.state.fetch_or(Registration::kDead) & Registration::kDead) != 0) return;
      changed_[static_cast<std::size_t>(how)].fetch_add(1, std::memory_order_relaxed);
      add_dead(registration);
    });
}

void MrCacheCore::add_dead(Registration& registration) noexcept {
  registration.next_dead = dead_.load();
  while (!dead_.compare_exchange_weak(registration.next_dead, &registration)) {
  }
}

std::size_t MrCacheCore::invalidate(std::span<std::byte> bytes) {
  if (bytes.empty()) return 0;
  const auto begin = reinterpret_cast<std::uintptr_t>(bytes.data());
  const auto end = begin + std::min<std::uintptr_t>(bytes.size(), UINTPTR_MAX - begin);
  std::size_t killed = 0;
  Doomed doomed;
  {
    const remora::detail::MutexLock lock{mutex_};
    ++invalidations_;
    for (std::size_t i = 0; i < shelf_count_.load(); ++i)
      killed += kill_touching_locked(shelves_[i].index, begin, end, doomed);
    counters_.explicitly += killed;
  }
  finish(doomed);
  return killed;
}

[[gnu::always_inline]] inline bool MrCacheCore::let_go(Registration& registration) noexcept {
  const std::uint64_t before = registration.state.fetch_sub(Registration::kLease);
  return before < 2 * Registration::kLease && (before & Registration::kUnlinked) != 0;
}

void MrCacheCore::release(Registration* registration) noexcept {
  if (let_go(*registration)) registration->rest->core->finish_last(registration);
}

void MrCacheCore::finish_last(Registration* registration) noexcept {
  if (forked()) return;  // the lock may be held by a thread that is not here
  {
    const remora::detail::MutexLock lock{mutex_};
    ++finishing_;
  }
  finish(registration);
}

void MrCacheCore::release_soon(Registration* registration) noexcept {
  if (!let_go(*registration)) return;
  // The thread that unlinked it has left it to the last lease, which was this one. Once it is in
  // the list of the dead it belongs to the reaper, and may hold the last reference to the cache.
  const std::shared_ptr<MrCacheCore> self = registration->rest->core;
  if (self->monitor_ == nullptr || self->forked()) return self->finish_last(registration);
  self->add_dead(*registration);
  if (self->closed_.load())
    self->collect_dead();  // the reaper is unsubscribed
  else
    self->monitor_->wake_reaper();
}

std::size_t MrCacheCore::trim() noexcept {
  std::size_t count = 0;
  for (;; ++count) {
    Registration* victim = nullptr;
    {
      const remora::detail::MutexLock lock{mutex_};
      victim = evict_one_locked();
    }
    if (victim == nullptr) break;
    finish(victim);
  }
  collect_dead();
  return count;
}

void MrCacheCore::finish(Doomed doomed) noexcept {
  while (Registration* const registration = doomed.pop()) finish(registration);
}

void MrCacheCore::finish(Registration* registration) noexcept {
  if (forked()) return;  // the parent's: left alone
  const std::shared_ptr<MrCacheCore> self = std::move(registration->rest->core);
  const Pinned freed = deregister(registration->rest->pieces).freed;
  const remora::detail::MutexLock lock{mutex_};
  counters_.pinned_bytes -= freed.bytes;
  counters_.pinned_registrations -= freed.count;
  retired_.add(*registration->rest);
  retired_.collect();
  REMORA_ASSERT(finishing_ > 0, "a registration is counted in finishing_ before it is finished");
  --finishing_;
  finished_.notify_all();
}

MrCacheCore::Emptied MrCacheCore::deregister(std::vector<MemoryRegion>& pieces) noexcept {
  Emptied emptied;
  for (MemoryRegion& piece : pieces) {
    const std::uint64_t bytes =
        page_ceiling(piece.address() + piece.length_bytes()) - page_floor(piece.address());
    const Status done = std::move(piece).deregister();
    if (!done) {
      count_failure(done.error());
      report_teardown_failure(done.error());
    }
    Pinned& part = done ? emptied.freed : emptied.stuck;
    part.bytes += bytes;
    ++part.count;
  }
  pieces.clear();
  return emptied;
}

void MrCacheCore::count_failure(const Error& error) noexcept {
  const int number = error.system_errno();
  if (number == 0) return;
  const remora::detail::MutexLock lock{mutex_};
  ++failures_[number > 0 && static_cast<std::size_t>(number) < kErrnosMax
                  ? static_cast<std::size_t>(number)
                  : 0];
}

MrCacheCounters MrCacheCore::counters() const {
  const remora::detail::MutexLock lock{mutex_};
  MrCacheCounters now = counters_;
  for (std::size_t number = 0; number < kErrnosMax; ++number)
    if (failures_[number] != 0) now.failures[static_cast<int>(number)] = failures_[number];
  for (const Hits& shard : hits_) now.hits += shard.count.load(std::memory_order_relaxed);
  now.unmapped = changed_[0].load(std::memory_order_relaxed);
  now.remapped = changed_[1].load(std::memory_order_relaxed);
  now.removed = changed_[2].load(std::memory_order_relaxed);
  return now;
}

}  // namespace remora::verbs::detail
