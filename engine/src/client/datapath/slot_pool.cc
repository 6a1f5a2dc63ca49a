// Functions of Slot and SlotPool, and the constructors of Target and Source from a slot.

#include <utility>

#include <remora/engine/buffer.h>

#include "client/datapath/local_memory.h"
#include "client/datapath/slot_store.h"

namespace remora {

Target::Target(Slot& slot) noexcept
    : bytes_{slot.bytes_}, memory_{detail::LocalMemory::of_empty_slot()} {
  if (slot.store_ == nullptr) return;
  if (slot.store_->foreign()) [[unlikely]]
    bytes_ = {};
  else
    memory_ = slot.store_->memory().get();
}

Source::Source(const Slot& slot) noexcept
    : bytes_{slot.bytes_}, memory_{detail::LocalMemory::of_empty_slot()} {
  if (slot.store_ == nullptr) return;
  if (slot.store_->foreign()) [[unlikely]]
    bytes_ = {};
  else
    memory_ = slot.store_->memory().get();
}

void Slot::give_back() noexcept {
  std::exchange(store_, nullptr)->give_back(index_);
  bytes_ = {};
}

Slot SlotPool::take() noexcept {
  if (store_ == nullptr) [[unlikely]]
    return {};
  const std::uint32_t index = store_->take();
  if (index == detail::SlotStore::kNone) return {};
  return Slot{store_.pointer().get(), store_->slot(index), index};
}

std::size_t SlotPool::take(std::span<Slot> slots) noexcept {
  for (Slot& slot : slots) slot.release();
  if (store_ == nullptr) [[unlikely]]
    return 0;
  detail::SlotStore* const store = store_.pointer().get();
  const detail::SlotStore::Taken taken = store->take_chain(slots.size());
  std::uint32_t index = taken.first;
  for (Slot& slot : slots.first(taken.count)) {
    slot.store_ = store;
    slot.bytes_ = store->slot(index);
    slot.index_ = index;
    index = store->unchain(index);
  }
  return taken.count;
}

std::size_t SlotPool::slot_bytes() const noexcept {
  return store_ == nullptr ? 0 : store_->slot_bytes();
}
std::size_t SlotPool::slot_count() const noexcept {
  return store_ == nullptr ? 0 : store_->slot_count();
}

}  // namespace remora
