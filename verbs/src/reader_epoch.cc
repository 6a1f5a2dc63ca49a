#include "reader_epoch.h"

#include <algorithm>

#include <remora/assert.h>

namespace remora::verbs::detail {
namespace {

std::array<ReaderEpoch::Slot, ReaderEpoch::kReadersMax> g_reader_slots;
ReaderEpoch::Slot g_monitor_slot;
thread_local const ReaderEpoch::Slot* t_own_slot = nullptr;

struct ReaderSlotHolder {
  ReaderSlotHolder() noexcept {
    for (auto& candidate : g_reader_slots) {
      bool taken = false;
      if (!candidate.taken.compare_exchange_strong(taken, true)) continue;
      t_own_slot = slot = &candidate;
      return;
    }
  }
  ~ReaderSlotHolder() {
    t_own_slot = nullptr;
    if (slot == nullptr) return;
    REMORA_ASSERT(slot->epoch.load() == 0, "a thread that ends reads no index");
    slot->taken.store(false);
  }
  ReaderSlotHolder(const ReaderSlotHolder&) = delete;
  ReaderSlotHolder& operator=(const ReaderSlotHolder&) = delete;
  ReaderEpoch::Slot* slot = nullptr;
};

}  // namespace

ReaderEpoch::Slot* ReaderEpoch::slot() noexcept {
  static thread_local const ReaderSlotHolder holder;
  return holder.slot;
}

ReaderEpoch::Slot& ReaderEpoch::monitor_slot() noexcept { return g_monitor_slot; }

void ReaderEpoch::forget_other_threads() noexcept {
  g_monitor_slot.epoch.store(0);
  for (auto& slot : g_reader_slots) {
    if (&slot == t_own_slot) continue;
    slot.epoch.store(0);
    slot.taken.store(false);
  }
}

std::size_t ReaderEpoch::index_of(const Slot* slot) noexcept {
  return slot == nullptr ? 0 : static_cast<std::size_t>(slot - g_reader_slots.data());
}

std::uint64_t ReaderEpoch::oldest() noexcept {
  std::uint64_t oldest = UINT64_MAX;
  const auto look = [&](const Slot& slot) {
    const std::uint64_t epoch = slot.epoch.load();
    if (epoch != 0) oldest = std::min(oldest, epoch);
  };
  look(g_monitor_slot);
  for (const auto& slot : g_reader_slots) look(slot);
  return oldest;
}

}  // namespace remora::verbs::detail
