#pragma once

/// RegistrationSlab: memory for the parts of registrations that hits access, one cache line next to
/// the other. Internal.
///
/// A hit among thousands of registrations waits for the cache line of one. On the heap each line is
/// followed by bytes that hits do not access, and hits among 10,000 registrations took half as long
/// again.
///
/// Thread safety: all calls concurrently.

#include <array>
#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include <remora/mutex.h>

namespace remora::verbs::detail {

template <typename Line>
class RegistrationSlab {
 public:
  static_assert(sizeof(Line) == 64 && alignof(Line) == 64);

  RegistrationSlab() = default;
  RegistrationSlab(const RegistrationSlab&) = delete;
  RegistrationSlab& operator=(const RegistrationSlab&) = delete;

  /// Uninitialised memory for one object. Throws std::bad_alloc.
  [[nodiscard]] void* take() {
    const remora::detail::MutexLock lock{mutex_};
    if (free_ != nullptr) return std::exchange(free_, free_->next);
    if (used_ == kBlockSlots) {
      blocks_.push_back(std::make_unique_for_overwrite<Block>());
      used_ = 0;
    }
    return &blocks_.back()->slots[used_++];
  }
  /// Frees memory from take(), after the destructor of its object.
  void give_back(void* room) noexcept {
    auto* const slot = new (room) Slot{};
    const remora::detail::MutexLock lock{mutex_};
    slot->next = free_;
    free_ = slot;
  }

 private:
  static constexpr std::size_t kBlockSlots = 1023;  ///< 64 KiB, with the bookkeeping of the heap
  struct alignas(64) Slot {
    Slot* next;
  };
  struct Block {
    std::array<Slot, kBlockSlots> slots;
  };
  remora::detail::Mutex mutex_;
  std::vector<std::unique_ptr<Block>> blocks_ REMORA_GUARDED_BY(mutex_);
  std::size_t used_ REMORA_GUARDED_BY(mutex_) = kBlockSlots;  ///< of the last block
  Slot* free_ REMORA_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace remora::verbs::detail
