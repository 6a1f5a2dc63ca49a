#include "client/datapath/cq_capacities.h"

#include <map>
#include <utility>

#include <remora/owned.h>

namespace remora::detail {

namespace {

using CapacityKey = std::pair<const metrics::Registry*, TransportKind>;
struct AllCapacities {
  Mutex mutex;
  std::map<CapacityKey, std::weak_ptr<CqCapacities>> by_key REMORA_GUARDED_BY(mutex);
};
PerProcess<AllCapacities> g_capacities;

}  // namespace

std::shared_ptr<CqCapacities> CqCapacities::of(const metrics::Registry& registry,
                                               TransportKind transport, metrics::Gauge smallest) {
  AllCapacities& all = g_capacities.get();
  const MutexLock lock{all.mutex};
  std::erase_if(all.by_key, [](const auto& entry) { return entry.second.expired(); });
  auto& known = all.by_key[{&registry, transport}];
  auto alive = known.lock();
  if (alive == nullptr) known = alive = std::make_shared<CqCapacities>(smallest);
  return alive;
}

void CqCapacities::add(std::uint32_t capacity) {
  const MutexLock lock{mutex_};
  all_.insert(capacity);
  smallest_.set(*all_.begin());
}

void CqCapacities::remove(std::uint32_t capacity) noexcept {
  const MutexLock lock{mutex_};
  if (const auto found = all_.find(capacity); found != all_.end()) all_.erase(found);
  smallest_.set(all_.empty() ? 0 : *all_.begin());
}

}  // namespace remora::detail
