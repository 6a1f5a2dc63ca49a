#pragma once

/// Epoch-based reclamation: readers take no lock, and writers free objects that no reader can see.
/// Internal.
///
/// A reader writes the epoch into a cache line of its own thread while it reads. A writer unlinks,
/// advances the epoch, and frees once no reader's epoch is as old as the unlinking.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace remora::verbs::detail {

class ReaderEpoch {
 public:
  static constexpr std::size_t kReadersMax = 512;

  struct alignas(64) Slot {
    std::atomic<std::uint64_t> epoch{0};  ///< 0: not reading
    std::atomic<bool> taken{false};
  };

  /// This thread's slot; null if kReadersMax other threads have one. The first call of a thread may
  /// allocate.
  static Slot* slot() noexcept;
  /// The slot of the MemoryMonitor's thread, which exists however many threads have one.
  static Slot& monitor_slot() noexcept;
  /// Called in a forked child, which does not have the threads that would leave their epochs.
  static void forget_other_threads() noexcept;
  /// The index of `slot()`, to spread counters.
  static std::size_t index_of(const Slot* slot) noexcept;

  static std::uint64_t advance() noexcept { return now.fetch_add(1); }
  /// The oldest epoch that a reader is in; UINT64_MAX if no thread reads.
  static std::uint64_t oldest() noexcept;

  class Guard {
   public:
    explicit Guard(Slot& slot) noexcept : slot_{slot} { slot_.epoch.store(now.load()); }
    ~Guard() { slot_.epoch.store(0, std::memory_order_release); }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    Slot& slot_;
  };

 private:
  inline static std::atomic<std::uint64_t> now{1};
};

}  // namespace remora::verbs::detail
