#include "client/datapath/slot_store.h"

#include <limits>
#include <utility>

namespace remora::detail {

namespace {

constexpr std::size_t kAlignment = 64;

/// The distance from one slot to the next.
constexpr std::size_t stride_of(std::size_t slot_bytes) noexcept {
  return (slot_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

Result<std::shared_ptr<SlotStore>> SlotStore::create(std::size_t slot_count, std::size_t slot_bytes,
                                                     const SlabOptions& options) {
  constexpr std::size_t kMaxSlotBytes = std::size_t{1} << 30U;
  if (slot_bytes == 0 || slot_bytes > kMaxSlotBytes)
    return Error{Code::kInvalidArgument, "allocate_slots"}
        .with_subject("slot_bytes: 1 byte to 1 GiB")
        .with_limit(slot_bytes, kMaxSlotBytes);
  if (slot_count == 0 || slot_count > kMaxSlots)
    return Error{Code::kInvalidArgument, "allocate_slots"}
        .with_subject("count: 1 to 1048575 slots in one pool")
        .with_limit(slot_count, kMaxSlots);
  const std::size_t rounded = stride_of(slot_bytes);
  if (slot_count > std::numeric_limits<std::size_t>::max() / 2 / rounded)
    return Error{Code::kOutOfMemory, "allocate_slots"}.with_subject("count times slot_bytes");
  auto slab = Slab::map(slot_count * rounded, options);
  if (!slab) return slab.error();
  return std::shared_ptr<SlotStore>{
      new SlotStore{std::move(*slab), slot_count, slot_bytes, rounded},
      [](SlotStore* store) { store->abandon(); }};
}

SlotStore::SlotStore(Slab slab, std::size_t slot_count, std::size_t slot_bytes,
                     std::size_t stride_bytes)
    : slab_{std::move(slab)},
      slot_bytes_{slot_bytes},
      stride_bytes_{stride_bytes},
      memory_{std::make_shared<LocalMemory>(slab_.bytes())},
      next_(slot_count) {
  for (std::size_t i = 0; i < slot_count; ++i)
    next_[i].store(i + 1 < slot_count ? static_cast<std::uint32_t>(i + 1) : kNone,
                   std::memory_order_relaxed);
}

void SlotStore::abandon() noexcept {
  if (over(head_.fetch_or(kAbandoned, std::memory_order_acq_rel) | kAbandoned)) delete this;
}

}  // namespace remora::detail
