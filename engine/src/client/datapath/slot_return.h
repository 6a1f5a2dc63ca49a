#pragma once

#include <cstdint>
#include <utility>

#include <remora/engine/buffer.h>

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
