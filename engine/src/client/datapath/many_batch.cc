#include "client/datapath/many_batch.h"

#include <bit>
#include <cstddef>

namespace remora::detail {

static_assert(std::has_single_bit(kManyInFlight), "CompletionSink needs a power of two");

ManyBatch::ManyBatch(const LaneDriver& lane)
    : records_(kManyInFlight),
      free_{records_.data()},
      ring_(kManyInFlight),
      sink_{ring_},
      order_{lane, kManyInFlight} {
  for (std::size_t i = 0; i < records_.size(); ++i) {
    records_[i].next = i + 1 < records_.size() ? &records_[i + 1] : nullptr;
    records_[i].sink = &sink_;
  }
}

}  // namespace remora::detail
