#pragma once

/// The series of cached registrations: one set for each device in a registry, for all engines that
/// have caches of the device. They show the sum over the caches; the counts of a cache that has
/// gone stay as long as another cache exists.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/mutex.h>
#include <remora/verbs/mr_cache.h>

namespace remora::transport::rdma {

/// The counters of one cache, and of decisions that were made without asking the cache.
struct CacheNumbers {
  verbs::MrCacheCounters counters;
  std::uint64_t refusals = 0;
  std::uint64_t failures = 0;
};

/// Thread safety: any thread; an object of `Member` has one owner.
class CacheSeries {
 public:
  /// A cache's part in the series. Destroying it waits for a scrape in progress.
  class Member {
   public:
    Member() = default;
    /// Any thread calls `read` until this object is destroyed. Series that the registry refuses are
    /// missing, and the log says so.
    Member(const std::shared_ptr<metrics::Registry>& registry, const std::string& device,
           std::function<CacheNumbers()> read);
    ~Member();
    Member(const Member&) = delete;
    Member& operator=(const Member&) = delete;

   private:
    friend class CacheSeries;
    std::function<CacheNumbers()> read_;
    std::shared_ptr<CacheSeries> series_;
  };

  explicit CacheSeries(std::shared_ptr<metrics::Registry> registry) noexcept
      : registry_{std::move(registry)} {}

 private:
  Status show(const std::string& device);
  [[nodiscard]] CacheNumbers sum() const;
  void leave(Member& member) noexcept;

  const std::shared_ptr<metrics::Registry> registry_;
  mutable remora::detail::Mutex mutex_;
  std::vector<Member*> members_ REMORA_GUARDED_BY(mutex_);
  CacheNumbers gone_ REMORA_GUARDED_BY(mutex_);
  std::vector<metrics::CallbackHandle> handles_;  // they call sum(), so they are destroyed first
};

}  // namespace remora::transport::rdma
