#include "mr_cache_core.h"

#include <algorithm>
#include <bit>
#include <thread>
#include <unistd.h>

#include <remora/assert.h>

#include "check_span.h"
#include "reader_epoch.h"

namespace remora::verbs::detail {
namespace {

using Registration = CachedRegistration;

// A change that waits is read within microseconds; a call that has tried this often registers its
// memory outside of the cache.
constexpr int kUnsettledTries = 64;

const std::uintptr_t g_page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));

/// Whether check_range() would find no fault; makes no Error, since each hit calls it.
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
  __builtin_prefetch(found, 1);  // arrives during the system call
  if (monitor_ != nullptr && (!monitor_->quiet() || monitor_->generation() != generation))
    return LookUp::kUnsettled;
  // A change from here on happens during acquire(), which may use the lease or not.
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
      keep = !collect_dead();  // there may be a live one behind a dead one
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

[[gnu::always_inline]] inline bool MrCacheCore::let_go(Registration& registration) noexcept {
  const std::uint64_t before = registration.state.fetch_sub(Registration::kLease);
  REMORA_ASSERT_HOT(before >= Registration::kLease, "a lease is released once");
  return before < 2 * Registration::kLease && (before & Registration::kUnlinked) != 0;
}

void MrCacheCore::release(Registration* registration) noexcept {
  if (let_go(*registration)) registration->rest->core->finish_last(registration);
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
