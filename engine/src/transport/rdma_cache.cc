#include "transport/rdma_cache.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <iterator>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>

#include "support/clock.h"
#include "support/log.h"

namespace remora::transport::rdma {

namespace {

using verbs::MrCacheCounters;
using verbs::MrLease;

/// After a registration failed, none is tried for so long: each would cost a system call, and what
/// it lacks (memlock, most often) does not come back at once. The same holds for memory that cannot
/// be kept.
constexpr std::chrono::seconds kPause{1};

/// Of the limit of locked memory, the part that kept registrations may have: slots, sessions and
/// what the application registers need theirs.
constexpr std::uint64_t kLimitShare = 4;

std::uint64_t budget(std::uint64_t asked_bytes) noexcept {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
      ::geteuid() == 0)
    return asked_bytes;
  return std::min<std::uint64_t>(asked_bytes, limit.rlim_cur / kLimitShare);
}

/// Buffers that were refused a moment ago: asking again costs several system calls. Thread-safe; a
/// lost entry costs one question.
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

class RdmaRegistrationCache final : public RegistrationCache {
 public:
  explicit RdmaRegistrationCache(verbs::MrCache cache) noexcept : cache_{std::move(cache)} {}

  MemoryLease lease(std::span<std::byte> bytes, Deadline deadline) noexcept override {
    const std::int64_t at = now();
    if (refused_.holds(bytes.data(), at)) {
      refusals_.fetch_add(1, std::memory_order_relaxed);
      return {};
    }
    if (paused_until_.load(std::memory_order_relaxed) > at) return find(bytes);
    auto lease = cache_.acquire(bytes, verbs::Access::kLocalWrite, deadline);
    if (lease) return {lease->detach()};
    learn(bytes, lease.error());
    return {};
  }
  MemoryLease find(std::span<std::byte> bytes) noexcept override {
    MrLease lease = cache_.find(bytes, verbs::Access::kLocalWrite);
    if (lease.empty()) failures_.fetch_add(1, std::memory_order_relaxed);
    return {lease.detach()};
  }
  void give_back(MemoryLease lease) noexcept override {
    MrLease::attach(lease.registration, {}).drop_soon();
  }
  bool trim() noexcept override { return cache_.trim() != 0; }
  [[nodiscard]] Key key_of(MemoryLease lease, std::span<std::byte> part) const noexcept override {
    MrLease view = MrLease::attach(lease.registration, part);
    const verbs::MrPiece piece = view.piece(0);
    (void)view.detach();
    return {piece.lkey, piece.length_bytes};
  }

  /// Errors: as metrics::Registry.
  Status export_to(metrics::Registry& registry, const std::string& device);

 private:
  static std::int64_t now() noexcept { return Clock::now().time_since_epoch().count(); }

  void learn(std::span<std::byte> bytes, const Error& error) noexcept {
    const std::int64_t until = now() + std::chrono::nanoseconds{kPause}.count();
    const bool unkept = error.code() == Code::kUnsupported;
    if (!unkept) failures_.fetch_add(1, std::memory_order_relaxed);
    if (unkept || error.system_errno() == EFAULT) refused_.add(bytes.data(), until);
    // A spent budget and a late answer say nothing of the next.
    if (error.system_errno() != ENOMEM && error.system_errno() != EAGAIN) return;
    paused_until_.store(until, std::memory_order_relaxed);
    if (!warned_.exchange(true, std::memory_order_relaxed))
      log::warn(
          "long transfers of memory that is not registered are copied for want of a "
          "registration: {}",
          error.message());
  }

  verbs::MrCache cache_;
  Refused refused_;
  std::atomic<std::uint64_t> refusals_{0};  ///< without asking the cache again
  std::atomic<std::uint64_t> failures_{0};
  std::atomic<std::int64_t> paused_until_{0};
  std::atomic<bool> warned_{false};
  std::vector<metrics::CallbackHandle> series_;  // call the cache: they go first
};

Status RdmaRegistrationCache::export_to(metrics::Registry& registry, const std::string& device) {
  using Read = std::uint64_t (*)(const MrCacheCounters&);
  const metrics::Labels labels{{"device", device}};
  const auto with = [&](const char* name, const char* value) {
    metrics::Labels more = labels;
    more.push_back({name, value});
    return more;
  };
  Status status;
  const auto keep = [&](Result<metrics::CallbackHandle> handle) {
    if (handle)
      series_.push_back(std::move(*handle));
    else if (status)
      status = handle.error();
  };
  const auto total = [&](const char* name, const char* help, const metrics::Labels& with_labels,
                         Read read) {
    keep(registry.counter_callback(name, help, with_labels, [this, read] {
      return static_cast<double>(read(cache_.counters()));
    }));
  };
  const auto level = [&](const char* name, const char* help, Read read) {
    keep(registry.gauge_callback(
        name, help, labels, [this, read] { return static_cast<double>(read(cache_.counters())); }));
  };
  const char* const acquires = "remora_client_mr_cache_acquires_total";
  const char* const asked =
      "Long transfers of memory that is not registered, by what the cache had";
  total(acquires, asked, with("result", "hit"), [](const auto& now) { return now.hits; });
  total(acquires, asked, with("result", "miss"), [](const auto& now) { return now.misses; });
  keep(registry.counter_callback(acquires, asked, with("result", "refused"), [this] {
    return static_cast<double>(cache_.counters().refused + refusals_.load());
  }));
  keep(registry.counter_callback(acquires, asked, with("result", "failed"),
                                 [this] { return static_cast<double>(failures_.load()); }));
  const char* const ends = "remora_client_mr_cache_ends_total";
  const char* const ended = "Kept registrations that ended, by cause";
  total(ends, ended, with("cause", "evicted"), [](const auto& now) { return now.evictions; });
  total(ends, ended, with("cause", "superseded"), [](const auto& now) { return now.superseded; });
  total(ends, ended, with("cause", "unmapped"), [](const auto& now) { return now.unmapped; });
  total(ends, ended, with("cause", "remapped"), [](const auto& now) { return now.remapped; });
  total(ends, ended, with("cause", "removed"), [](const auto& now) { return now.removed; });
  total("remora_client_mr_cache_registrations_total", "Registrations made by the cache", labels,
        [](const auto& now) { return now.registrations; });
  const char* const failures = "remora_client_mr_cache_failures_total";
  const char* const failed = "Verbs calls of the cache that failed, by errno";
  // A fixed set: whatever else a provider answers is "other".
  static constexpr std::pair<const char*, int> kNamed[] = {
      {"EAGAIN", EAGAIN}, {"EFAULT", EFAULT}, {"EINVAL", EINVAL}, {"ENOMEM", ENOMEM}};
  for (const auto& [name, number] : kNamed)
    keep(registry.counter_callback(failures, failed, with("errno", name), [this, number = number] {
      const auto counters = cache_.counters();
      const auto found = counters.failures.find(number);
      return found == counters.failures.end() ? 0.0 : static_cast<double>(found->second);
    }));
  total(failures, failed, with("errno", "other"), [](const auto& now) {
    std::uint64_t others = 0;
    for (const auto& [number, count] : now.failures)
      if (std::none_of(std::begin(kNamed), std::end(kNamed),
                       [number = number](const auto& named) { return named.second == number; }))
        others += count;
    return others;
  });
  level("remora_client_mr_cache_pinned_bytes", "Memory that kept registrations pin, in whole pages",
        [](const auto& now) { return now.pinned_bytes; });
  level("remora_client_mr_cache_kept", "Registrations that the cache has, in use or idle",
        [](const auto& now) { return now.pinned_registrations; });
  return status;
}

}  // namespace

std::shared_ptr<RegistrationCache> make_cache(const verbs::ProtectionDomain& domain,
                                              const RegistrationCache::Options& options) {
  auto cache = verbs::MrCache::create(
      domain, {.bytes_max = budget(options.bytes_max), .unkept = verbs::Unkept::kRefuse});
  const std::string device{domain.device().name()};
  if (!cache) {
    log::warn("{}: no cache of registrations: {}", device, cache.error().message());
    return nullptr;
  }
  const bool automatic = cache->automatic();
  if (!automatic)
    log::warn("{}: registrations are not kept, memory that is not registered is copied: {}", device,
              cache->why_not_automatic());
  if (options.registry != nullptr) {
    // Another engine of the process may have said it already.
    auto known = options.registry->gauge(
        "remora_client_mr_cache_automatic",
        "1: changes of mappings are noticed and registrations kept; 0: they are not",
        {{"device", device}});
    if (known) known->set(automatic ? 1 : 0);
  }
  if (!automatic) return nullptr;
  auto made = std::make_shared<RdmaRegistrationCache>(std::move(*cache));
  if (options.registry != nullptr)
    if (const Status exported = made->export_to(*options.registry, device); !exported)
      log::debug("{}: not all series of the cache are shown: {}", device,
                 exported.error().message());
  return made;
}

}  // namespace remora::transport::rdma
