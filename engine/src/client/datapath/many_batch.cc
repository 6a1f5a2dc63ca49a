#include "client/datapath/many_batch.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

namespace remora::detail {

static_assert(std::has_single_bit(kManyInFlight), "CompletionSink needs a power of two");

ManyBatch::ManyBatch(const LaneDriver& lane)
    : records_(kManyInFlight),
      max_run_{std::clamp<std::size_t>(lane.depth(), 1, kManyInFlight)},
      ring_(kManyInFlight),
      sink_{ring_},
      order_{lane, kManyInFlight} {
  requests_.reserve(records_.size());
  for (ManyRecord& record : records_) {
    record.sink = &sink_;
    requests_.push_back(&record.request);
  }
  chain_all();
}

bool ManyBatch::chain_all() noexcept {
  if (std::exchange(chained_, true)) [[likely]]
    return false;
  free_ = nullptr;
  for (auto record = records_.rbegin(); record != records_.rend(); ++record)
    record->next = std::exchange(free_, &*record);
  return true;
}

}  // namespace remora::detail
