#include "transport/rdma/device_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <remora/assert.h>
#include <remora/metrics/registry.h>

#include "base/clock.h"
#include "base/log.h"
#include "transport/rdma/cache_series.h"
#include "transport/rdma/local_access.h"

namespace remora::transport::rdma {

namespace {

using verbs::MrLease;

/// The pause after a failed registration, in which the cache tries none: each try would cost a
/// system call, and the cause (most often the limit of locked memory) does not end at once. The
/// same pause holds for memory that cannot be cached.
constexpr std::chrono::seconds kPause{1};

/// Cached registrations may use one part in so many of the limit of locked memory: slots, sessions
/// and registrations of the application need the rest.
constexpr std::uint64_t kLimitShare = 4;

std::uint64_t budget(std::uint64_t asked_bytes) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      ::geteuid() == 0)
    return asked_bytes;
  return std::min<std::uint64_t>(asked_bytes, limit.rlim_cur / kLimitShare);
}

/// Buffers that were refused less than a pause ago: another try costs several system calls.
/// Thread-safe; a lost entry costs one more try.
class Refused {
 public:
  [[nodiscard]] bool holds(const std::byte* at, std::int64_t now) const noexcept {
    const Entry& entry = entry_of(at);
    return entry.at.load(std::memory_order_relaxed) == at &&
           entry.until.load(std::memory_order_relaxed) > now;
  }
  void add(const std::byte* at, std::int64_t until) noexcept {
    Entry& entry = entry_of(at);
    entry.at.store(at, std::memory_order_relaxed);
    entry.until.store(until, std::memory_order_relaxed);
  }

 private:
  struct Entry {
    std::atomic<const std::byte*> at{nullptr};
    std::atomic<std::int64_t> until{0};
  };
  static std::size_t index_of(const std::byte* at) noexcept {
    return (std::bit_cast<std::uintptr_t>(at) * 0x9e3779b97f4a7c15U) >> 56U;
  }
  [[nodiscard]] const Entry& entry_of(const std::byte* at) const noexcept {
    return entries_[index_of(at)];
  }
  [[nodiscard]] Entry& entry_of(const std::byte* at) noexcept { return entries_[index_of(at)]; }
  std::array<Entry, 256> entries_;
};

/// Lets calls use a cache that another thread may close. A call costs one atomic addition and one
/// subtraction; only the thread that closes waits.
class Rundown {
 public:
  /// False: the cache is closed.
  [[nodiscard]] bool enter() noexcept {
    users_.fetch_add(1);
    if (open_.load()) return true;
    leave();
    return false;
  }
  void leave() noexcept {
    const std::uint32_t before = users_.fetch_sub(1);
    REMORA_ASSERT_HOT(before > 0, "a call that has entered leaves once");
  }
  /// On return no call uses the cache, and none will before open().
  void close() noexcept {
    constexpr std::chrono::microseconds kClosePause{50};
    open_.store(false);
    while (users_.load() != 0) std::this_thread::sleep_for(kClosePause);
  }
  void open() noexcept { open_.store(true); }

 private:
  std::atomic<bool> open_{true};
  std::atomic<std::uint32_t> users_{0};
};

class RdmaRegistrationCache final : public DeviceCache {
 public:
  /// `registry` may be null; it shows `device` as a label.
  RdmaRegistrationCache(verbs::MrCache cache, verbs::Access access,
                        const verbs::MrCacheOptions& options,
                        std::shared_ptr<metrics::Registry> registry, std::string device)
      : access_{access},
        options_{options},
        registry_{std::move(registry)},
        device_{std::move(device)},
        shown_{registry_ == nullptr} {
    cache_.emplace(std::move(cache));
  }

  MemoryLease acquire_lease(std::span<std::byte> bytes, Deadline deadline) noexcept override {
    show();
    const std::int64_t at = now();
    if (refused_.holds(bytes.data(), at)) {
      refusals_.fetch_add(1, std::memory_order_relaxed);
      return {};
    }
    if (paused_until_.load(std::memory_order_relaxed) > at) return find_lease(bytes);
    if (!rundown_.enter()) return {};
    auto lease = cache_->acquire(bytes, access_, deadline);
    rundown_.leave();
    if (lease) return {lease->detach()};
    learn(bytes, lease.error());
    return {};
  }
  MemoryLease find_lease(std::span<std::byte> bytes) noexcept override {
    show();
    if (!rundown_.enter()) return {};
    MrLease lease = cache_->find(bytes, access_);
    rundown_.leave();
    if (lease.empty()) failures_.fetch_add(1, std::memory_order_relaxed);
    return {lease.detach()};
  }
  void release_lease(MemoryLease lease) noexcept override {
    MrLease::attach(lease.registration, {}).drop_soon();
  }
  [[nodiscard]] bool lost(MemoryLease lease) const noexcept override {
    return lease && MrLease::device_gone(lease.registration);
  }
  bool trim() noexcept override {
    if (!rundown_.enter()) return false;
    const bool any = cache_->trim() != 0;
    rundown_.leave();
    return any;
  }
  void leave() noexcept override {
    rundown_.close();
    cache_.reset();
  }
  void arrive(const verbs::ProtectionDomain& domain) noexcept override {
    rundown_.close();
    cache_.reset();
    auto made = verbs::MrCache::create(domain, options_);
    if (!made)
      return log::warn({"cache.none", "reason"}, "no cache of registrations: {}",
                       made.error().message());
    cache_.emplace(std::move(*made));
    rundown_.open();
  }
  [[nodiscard]] Key key_of(MemoryLease lease, std::span<std::byte> part) const noexcept override {
    MrLease view = MrLease::attach(lease.registration, part);
    const verbs::MrPiece piece = view.piece(0);
    (void)view.detach();
    return {piece.lkey, piece.length_bytes};
  }

 private:
  static std::int64_t now() noexcept { return Clock::now().time_since_epoch().count(); }

  /// The series come with the first long transfer of memory that is not registered: a client that
  /// makes none has none of them. After that a call costs one load.
  void show() noexcept {
    if (shown_.load(std::memory_order_relaxed) || shown_.exchange(true)) [[likely]]
      return;
    try {
      series_.emplace(registry_, device_, [this] {
        CacheNumbers numbers{{}, refusals_.load(), failures_.load()};
        if (rundown_.enter()) {
          numbers.counters = cache_->counters();
          rundown_.leave();
        }
        return numbers;
      });
    } catch (const std::bad_alloc&) {
      log::warn({"metrics.no_room", "device reason"},
                "{}: the series of kept registrations are not shown: {}", device_, "out of memory");
    }
  }

  void learn(std::span<std::byte> bytes, const Error& error) noexcept {
    const std::int64_t until = now() + std::chrono::nanoseconds{kPause}.count();
    const bool unkept = error.code() == Code::kUnsupported;
    if (!unkept) failures_.fetch_add(1, std::memory_order_relaxed);
    if (unkept || error.system_errno() == EFAULT) refused_.add(bytes.data(), until);
    // An exhausted budget and a missed deadline do not predict the next try.
    if (error.system_errno() != ENOMEM && error.system_errno() != EAGAIN) return;
    paused_until_.store(until, std::memory_order_relaxed);
    if (!warned_.exchange(true, std::memory_order_relaxed))
      log::warn({"cache.copies", "reason"},
                "long transfers of memory that is not registered are copied for want of a "
                "registration: {}",
                error.message());
  }

  const verbs::Access access_;
  const verbs::MrCacheOptions options_;
  const std::shared_ptr<metrics::Registry> registry_;
  const std::string device_;
  mutable Rundown rundown_;
  std::optional<verbs::MrCache> cache_;  ///< used within rundown_
  Refused refused_;
  std::atomic<std::uint64_t> refusals_{0};  ///< refusals without asking the cache again
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::int64_t> paused_until_{0};
  std::atomic<bool> warned_{false};
  std::atomic<bool> shown_;
  std::optional<CacheSeries::Member> series_;  // it reads the cache, so it is destroyed first
};

}  // namespace

std::shared_ptr<DeviceCache> make_cache(const verbs::ProtectionDomain& domain,
                                        const RegistrationCache::Options& options) {
  const verbs::MrCacheOptions kept{.bytes_max = budget(options.bytes_max),
                                   .unkept = verbs::Unkept::kRefuse};
  auto cache = verbs::MrCache::create(domain, kept);
  const std::string device{domain.device().name()};
  if (!cache) {
    log::warn({"cache.none", "device reason"}, "{}: no cache of registrations: {}", device,
              cache.error().message());
    return nullptr;
  }
  const bool automatic = cache->automatic();
  if (!automatic)
    log::warn({"cache.not_automatic", "device reason"},
              "{}: registrations are not kept, memory that is not registered is copied: {}", device,
              cache->why_not_automatic());
  if (options.registry != nullptr) {
    // Another engine of the process may have reported it already.
    auto known = options.registry->gauge(
        "remora_client_mr_cache_automatic",
        "1: changes of mappings are noticed and registrations kept; 0: they are not",
        {{"device", device}});
    if (known) known->set(automatic ? 1 : 0);
  }
  if (!automatic) return nullptr;
  return std::make_shared<RdmaRegistrationCache>(std::move(*cache), local_access(domain.device()),
                                                 kept, options.registry, device);
}

}  // namespace remora::transport::rdma
