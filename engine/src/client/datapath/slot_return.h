#pragma once

#include <cstdint>
#include <utility>

#include <remora/assert.h>
#include <remora/engine/buffer.h>

#include "client/datapath/local_memory.h"
#include "client/datapath/slot_store.h"

namespace remora::detail {

/// Gives slots back when it is destroyed: consecutive slots of one store with one exchange. A local
/// object of the thread that takes completions.
class SlotReturn {
 public:
  SlotReturn() = default;
  ~SlotReturn() { flush(); }
  SlotReturn(const SlotReturn&) = delete;
  SlotReturn& operator=(const SlotReturn&) = delete;

  /// The local memory of a slot; LocalMemory::of_empty_slot() if it is empty, or a parent's.
  [[nodiscard]] static LocalMemory* memory_of(const Slot& slot) noexcept {
    const SlotStore* const store = slot.store_;
    if (store == nullptr || store->foreign()) [[unlikely]]
      return LocalMemory::of_empty_slot();
    return store->memory().get();
  }
  /// Moves `from` to `to`, which must be another slot. For callers that move each slot once.
  static void move(Slot& from, Slot& to) noexcept {
    REMORA_ASSERT_HOT(&from != &to, "a slot of the caller is in no place of a table");
    if (to.store_ != nullptr) [[unlikely]]
      to.release();
    to.store_ = std::exchange(from.store_, nullptr);
    to.bytes_ = std::exchange(from.bytes_, {});
    to.index_ = from.index_;
  }

  /// Takes over `slot`, and leaves it empty. Ignores an empty slot.
  void add(Slot& slot) noexcept {
    SlotStore* const store = std::exchange(slot.store_, nullptr);
    if (store == nullptr) return;
    slot.bytes_ = {};
    if (store != store_) {
      flush();
      store_ = store;
      first_ = slot.index_;
    } else {
      store->chain(last_, slot.index_);
    }
    last_ = slot.index_;
    ++count_;
  }

 private:
  void flush() noexcept {
    if (store_ != nullptr) std::exchange(store_, nullptr)->give_back(first_, last_, count_);
    count_ = 0;
  }
  SlotStore* store_ = nullptr;
  std::uint32_t first_ = 0;
  std::uint32_t last_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace remora::detail
