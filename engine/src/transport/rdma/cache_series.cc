#include "transport/rdma/cache_series.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <new>
#include <utility>

#include <remora/owned.h>

#include "base/log.h"

namespace remora::transport::rdma {

namespace {

using verbs::MrCacheCounters;

using SeriesKey = std::pair<const metrics::Registry*, std::string>;
struct AllSeries {
  // Held while series are added and removed: the series of a new engine wait until those of the
  // last engine have gone.
  remora::detail::Mutex mutex;
  std::map<SeriesKey, std::weak_ptr<CacheSeries>> by_key REMORA_GUARDED_BY(mutex);
};
remora::detail::PerProcess<AllSeries> g_series;

constexpr std::uint64_t MrCacheCounters::*kGrowing[] = {
    &MrCacheCounters::hits,       &MrCacheCounters::misses,       &MrCacheCounters::unkept,
    &MrCacheCounters::refused,    &MrCacheCounters::evictions,    &MrCacheCounters::superseded,
    &MrCacheCounters::unmapped,   &MrCacheCounters::remapped,     &MrCacheCounters::removed,
    &MrCacheCounters::explicitly, &MrCacheCounters::registrations};

/// Adds the counters, which only grow; the caller adds the bytes that are pinned now.
void add_growing(CacheNumbers& to, const CacheNumbers& more) {
  for (const auto counter : kGrowing) to.counters.*counter += more.counters.*counter;
  for (const auto& [number, count] : more.counters.failures) to.counters.failures[number] += count;
  to.refusals += more.refusals;
  to.failures += more.failures;
}

}  // namespace

CacheSeries::Member::Member(const std::shared_ptr<metrics::Registry>& registry,
                            const std::string& device, std::function<CacheNumbers()> read)
    : read_{std::move(read)} {
  AllSeries& all = g_series.get();
  const remora::detail::MutexLock coming{all.mutex};
  auto& known = all.by_key[{registry.get(), device}];
  series_ = known.lock();
  if (series_ == nullptr) {
    known = series_ = std::make_shared<CacheSeries>(registry);
    if (const Status shown = series_->show(device); !shown)
      log::warn({"metrics.no_room", "device reason"},
                "{}: not all series of kept registrations are shown: {}", device,
                shown.error().message());
  }
  const remora::detail::MutexLock lock{series_->mutex_};
  series_->members_.push_back(this);
}

CacheSeries::Member::~Member() {
  if (series_ == nullptr) return;
  AllSeries& all = g_series.get();
  const remora::detail::MutexLock going{all.mutex};
  series_->leave(*this);
  series_.reset();
  std::erase_if(all.by_key, [](const auto& entry) { return entry.second.expired(); });
}

void CacheSeries::leave(Member& member) noexcept {
  const remora::detail::MutexLock lock{mutex_};
  std::erase(members_, &member);
  try {
    add_growing(gone_, member.read_());
  } catch (const std::bad_alloc&) {  // the counts of the cache are lost
  }
}

CacheNumbers CacheSeries::sum() const {
  const remora::detail::MutexLock lock{mutex_};
  CacheNumbers all = gone_;
  for (const Member* const member : members_) {
    const CacheNumbers one = member->read_();
    add_growing(all, one);
    all.counters.pinned_bytes += one.counters.pinned_bytes;
    all.counters.pinned_registrations += one.counters.pinned_registrations;
  }
  return all;
}

namespace {

/// A fixed set of labels: every other errno is counted as "other".
constexpr std::array<std::pair<const char*, int>, 4> kNamedErrnos{
    {{"EAGAIN", EAGAIN}, {"EFAULT", EFAULT}, {"EINVAL", EINVAL}, {"ENOMEM", ENOMEM}}};

double failures_by(const MrCacheCounters& counters, int number) {
  const auto found = counters.failures.find(number);
  return found == counters.failures.end() ? 0.0 : static_cast<double>(found->second);
}

std::uint64_t failures_by_others(const MrCacheCounters& counters) {
  std::uint64_t others = 0;
  for (const auto& [number, count] : counters.failures)
    if (std::none_of(kNamedErrnos.begin(), kNamedErrnos.end(),
                     [failed_by = number](const auto& named) { return named.second == failed_by; }))
      others += count;
  return others;
}

}  // namespace

Status CacheSeries::show(const std::string& device) {
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
      handles_.push_back(std::move(*handle));
    else if (status)
      status = handle.error();
  };
  const auto total = [&](const char* name, const char* help, const metrics::Labels& with_labels,
                         Read read) {
    keep(registry_->counter_callback(name, help, with_labels, [this, read] {
      return static_cast<double>(read(sum().counters));
    }));
  };
  const auto level = [&](const char* name, const char* help, Read read) {
    keep(registry_->gauge_callback(
        name, help, labels, [this, read] { return static_cast<double>(read(sum().counters)); }));
  };
  const char* const acquires = "remora_client_mr_cache_acquires_total";
  const char* const asked =
      "Long transfers of memory that is not registered, by what the cache had";
  total(acquires, asked, with("result", "hit"), [](const auto& now) { return now.hits; });
  total(acquires, asked, with("result", "miss"), [](const auto& now) { return now.misses; });
  keep(registry_->counter_callback(acquires, asked, with("result", "refused"), [this] {
    const CacheNumbers all = sum();
    return static_cast<double>(all.counters.refused + all.refusals);
  }));
  keep(registry_->counter_callback(acquires, asked, with("result", "failed"),
                                   [this] { return static_cast<double>(sum().failures); }));
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
  for (const auto& [name, number] : kNamedErrnos)
    keep(registry_->counter_callback(
        failures, failed, with("errno", name),
        [this, wanted = number] { return failures_by(sum().counters, wanted); }));
  total(failures, failed, with("errno", "other"), failures_by_others);
  level("remora_client_mr_cache_pinned_bytes", "Memory that kept registrations pin, in whole pages",
        [](const auto& now) { return now.pinned_bytes; });
  level("remora_client_mr_cache_kept", "Registrations that the cache has, in use or idle",
        [](const auto& now) { return now.pinned_registrations; });
  return status;
}

}  // namespace remora::transport::rdma
