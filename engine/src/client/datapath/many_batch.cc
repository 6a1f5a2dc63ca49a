#include "client/datapath/many_batch.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <new>

#include "client/datapath/many_pairs.h"

namespace remora::detail {

Error of_pair(const Error& error, const std::string& region_name, std::size_t index) noexcept {
  // So much of the name that the index behind it has its place.
  constexpr int kNameBytes = 70;
  std::array<char, Error::kSubjectBytes> text{};
  const int length = std::snprintf(text.data(), text.size(), "%.*s, pair %zu", kNameBytes,
                                   region_name.c_str(), index);
  return error.with_subject(
      {text.data(), std::min(text.size() - 1, static_cast<std::size_t>(std::max(length, 0)))});
}

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

ManyBatches::~ManyBatches() {
  for (std::atomic<ManyBatch*>& place : kept_) delete place.load();
}

std::unique_ptr<ManyBatch> ManyBatches::take(const LaneDriver& lane) noexcept {
  for (std::atomic<ManyBatch*>& place : kept_)
    if (place.load(std::memory_order_relaxed) != nullptr)
      if (ManyBatch* const kept = place.exchange(nullptr, std::memory_order_acquire);
          kept != nullptr)
        return std::unique_ptr<ManyBatch>{kept};
  try {
    return std::make_unique<ManyBatch>(lane);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void ManyBatches::give_back(std::unique_ptr<ManyBatch> batch) noexcept {
  for (std::atomic<ManyBatch*>& place : kept_) {
    ManyBatch* none = nullptr;
    if (!place.compare_exchange_strong(none, batch.get(), std::memory_order_release,
                                       std::memory_order_relaxed))
      continue;
    (void)batch.release();  // the place has it
    return;
  }
}

}  // namespace remora::detail
