#pragma once

/// Local memory and its keys; slots cut from a slab.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remora/assert.h>
#include <remora/engine/buffer.h>
#include <remora/mutex.h>
#include <remora/owned.h>
#include <remora/result.h>

#include "base/placement.h"
#include "transport/memory_domain.h"

namespace remora::detail {

/// Devices one engine may use at once: the size of each memory's key table.
inline constexpr std::size_t kMaxMemoryDomains = 8;
/// The index for transports that need no keys: all memory has a key there, which is not used.
inline constexpr std::size_t kNoMemoryDomain = kMaxMemoryDomains;
/// An index at which no memory ever has a key: that of revoked grants.
inline constexpr std::size_t kKeylessDomain = kMaxMemoryDomains + 1;
/// Added to the index of a domain: the key words for operations that are in no queue's table.
/// Memory with handles has no key word there, so such an operation fails the quick check. The full
/// check counts it as a use of its memory (MemoryUse). Other operations pay nothing for that.
inline constexpr std::size_t kAloneWords = kMaxMemoryDomains + 2;

/// A range of local memory and its local key on each memory domain of the engine. Does not own the
/// bytes. Thread-safe; key() is wait-free.
class LocalMemory {
 public:
  /// How long it lives. kNone: its owner outlives every operation on it, as for slots. kCopied: as
  /// long as its handles, the last of which may be destroyed earlier than that (memory_releaser.h).
  enum class Handles : std::uint8_t { kNone, kCopied };
  explicit LocalMemory(std::span<std::byte> bytes, Handles handles = Handles::kNone) noexcept
      : bytes_{bytes}, handles_{handles} {
    key_words_[kNoMemoryDomain] = key_words_[kNoMemoryDomain + kAloneWords] = kRegistered;
  }

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool contains(const std::byte* at, std::size_t length_bytes) const noexcept {
    return at >= bytes_.data() && length_bytes <= bytes_.size() &&
           at <= bytes_.data() + (bytes_.size() - length_bytes);
  }

  /// Whether key() may be called for the domain.
  [[nodiscard]] bool registered(std::size_t domain_index) const noexcept {
    return key_word(domain_index) != 0;
  }
  [[nodiscard]] std::uint32_t key(std::size_t domain_index) const noexcept {
    return static_cast<std::uint32_t>(key_word(domain_index));
  }
  /// registered() and key() in one word: 0, or kRegistered with the key in the lower half. Relaxed:
  /// it publishes no other memory.
  [[nodiscard]] std::uint64_t key_word(std::size_t domain_index) const noexcept {
    return key_words_[domain_index].load(std::memory_order_relaxed);
  }
  /// The memory of every empty slot, without bytes and handles. It distinguishes an empty slot from
  /// other memory without bytes. There is one in a process.
  static LocalMemory* of_empty_slot() noexcept;

  /// Registers with the domain unless that is done already. Blocks while pages are pinned.
  Status register_with(transport::MemoryDomain& domain, std::size_t domain_index);
  /// Takes the keys of a device that may have gone and returned. Memory that the device has not
  /// taken again is not registered any more.
  void renew_key(std::size_t domain_index) noexcept;

  /// For memory with handles.

  /// An operation that is in no queue's table begins, while there is a handle, or ends.
  void begin_use() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
  void end_use() noexcept {
    const std::uint32_t before = uses_.fetch_sub(1, std::memory_order_release);
    REMORA_ASSERT_HOT(before > 0, "a use of memory ends once");
  }
  [[nodiscard]] bool has_handles() const noexcept { return handles_ == Handles::kCopied; }
  [[nodiscard]] bool counted_in_use() const noexcept {
    return uses_.load(std::memory_order_acquire) != 0;
  }
  /// The number of the release of its last handle, from 1 on. The releaser alone calls this and the
  /// functions that follow.
  [[nodiscard]] std::uint64_t released() const noexcept { return released_; }
  void set_released(std::uint64_t number) noexcept { released_ = number; }
  [[nodiscard]] std::unique_ptr<LocalMemory> take_next() noexcept { return std::move(next_); }
  void put_before(std::unique_ptr<LocalMemory> next) noexcept { next_ = std::move(next); }

 private:
  static constexpr std::uint64_t kRegistered = std::uint64_t{1} << 32U;
  void set_key_word(std::size_t domain_index, std::uint64_t word) noexcept;
  std::span<std::byte> bytes_;
  /// kRegistered and the key, or 0.
  std::array<std::atomic<std::uint64_t>, 2 * kAloneWords> key_words_{};
  Mutex mutex_;  ///< for registering only
  std::array<std::unique_ptr<transport::Registration>, kMaxMemoryDomains> registrations_
      REMORA_GUARDED_BY(mutex_);
  Handles handles_;
  std::uint64_t released_ = 0;
  std::unique_ptr<LocalMemory> next_;
  /// Apart from the keys, which every operation reads.
  alignas(64) std::atomic<std::uint32_t> uses_{0};
};

/// Counts an operation that is in no queue's table as a use of its memory, if that has handles.
class MemoryUse {
 public:
  explicit MemoryUse(LocalMemory* memory) noexcept
      : memory_{memory != nullptr && memory->has_handles() ? memory : nullptr} {
    if (memory_ != nullptr) memory_->begin_use();
  }
  ~MemoryUse() {
    if (memory_ != nullptr) memory_->end_use();
  }
  MemoryUse(const MemoryUse&) = delete;
  MemoryUse& operator=(const MemoryUse&) = delete;

 private:
  LocalMemory* memory_;
};

/// How a slab is mapped.
struct SlabOptions {
  HugePages huge_pages = HugePages::kAuto;
  const Placement* placement = nullptr;  ///< for the call only; null: where it is touched
  bool core_dump = false;                ///< core dumps of this process contain it
};

/// An anonymous mapping, page-aligned. From 2 MiB on it takes huge pages: fewer entries of the
/// processor's TLB and of a device's translation tables.
class Slab {
 public:
  enum class Pages : std::uint8_t {
    kOrdinary,
    kTransparent,  ///< asked of the kernel, which may give them or not
    kHuge,         ///< explicit ones, all of them present
  };
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

  /// At least `size_bytes`: explicit huge pages are mapped whole. Missing huge pages are no error:
  /// explicit ones are taken where all of them are free, else the mapping is aligned for
  /// transparent ones. A process forked later has no copy of explicit huge pages: copying one
  /// needs another from the same reserve, and the lack of it kills the process that writes.
  /// Errors: kOutOfMemory.
  static Result<Slab> map(std::size_t size_bytes, const SlabOptions& options = {});
  ~Slab();
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&&) = delete;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] Pages pages() const noexcept { return pages_; }

 private:
  Slab(std::span<std::byte> bytes, Pages pages) noexcept : bytes_{bytes}, pages_{pages} {}
  /// Empty where there are not enough.
  static std::span<std::byte> map_huge(std::size_t size_bytes, const Placement* placement) noexcept;
  std::span<std::byte> bytes_;
  Pages pages_;
};

/// Equal slots of a slab and the stack of the free ones. Thread-safe and lock-free: one word holds
/// the top of the stack, the number of slots that are out, and a tag that guards against reuse
/// between load and exchange. The store lives until its last handle and its last slot are gone:
/// counting in that word spares each slot a reference count of its own.
class SlotStore {
 public:
  static Result<std::shared_ptr<SlotStore>> create(std::size_t slot_count, std::size_t slot_bytes,
                                                   const SlabOptions& options = {});
  SlotStore(const SlotStore&) = delete;
  SlotStore& operator=(const SlotStore&) = delete;

  static constexpr std::uint32_t kNone = (1U << 20U) - 1;
  static constexpr std::size_t kMaxSlots = kNone;
  /// Index of a free slot, or kNone.
  [[nodiscard]] std::uint32_t take() noexcept;
  void give_back(std::uint32_t index) noexcept { give_back(index, index, 1); }
  /// Gives back `count` slots, from `first` to `last`, each of which was chained to the next.
  void give_back(std::uint32_t first, std::uint32_t last, std::uint32_t count) noexcept;
  /// Chains two slots that are in use and will be given back together.
  void chain(std::uint32_t index, std::uint32_t next) noexcept {
    REMORA_ASSERT_HOT(is_out(index) && is_out(next), "only slots that were taken are chained");
    next_[index].store(next, std::memory_order_relaxed);
  }
  [[nodiscard]] std::span<std::byte> slot(std::uint32_t index) const noexcept {
    return slab_.bytes().subspan(index * stride_bytes_, slot_bytes_);
  }
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] std::size_t slot_count() const noexcept { return next_.size(); }
  [[nodiscard]] const std::shared_ptr<LocalMemory>& memory() const noexcept { return memory_; }
  /// A parent process made it.
  [[nodiscard]] bool foreign() const noexcept { return made_in_ != this_process(); }

 private:
  SlotStore(Slab slab, std::size_t slot_count, std::size_t slot_bytes, std::size_t stride_bytes);
  ~SlotStore() = default;
  /// The last handle is gone.
  void abandon() noexcept;

  /// What stands at a slot that is out, where assertions look at it.
  static constexpr std::uint32_t kOut = UINT32_MAX;
  /// Only where kHotAssertions.
  [[nodiscard]] bool is_out(std::uint32_t index) const noexcept {
    return index < next_.size() && next_[index].load(std::memory_order_relaxed) == kOut;
  }
  /// The word: index 20 | slots out 20 | abandoned 1 | tag 23.
  static constexpr std::uint64_t kIndexMask = kNone;
  static constexpr std::uint64_t kOneOut = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t kOutMask = kIndexMask << 20U;
  static constexpr std::uint64_t kAbandoned = std::uint64_t{1} << 40U;
  static constexpr std::uint64_t kOneTag = std::uint64_t{1} << 41U;
  [[nodiscard]] static bool over(std::uint64_t head) noexcept {
    return (head & (kAbandoned | kOutMask)) == kAbandoned;
  }

  Slab slab_;
  std::size_t slot_bytes_;
  std::size_t stride_bytes_;
  const std::uint32_t made_in_ = made_here();
  std::shared_ptr<LocalMemory> memory_;  // deregistered before the slab is unmapped
  std::vector<std::atomic<std::uint32_t>> next_;
  alignas(64) std::atomic<std::uint64_t> head_{0};
};

inline std::uint32_t SlotStore::take() noexcept {
  std::uint64_t head = head_.load(std::memory_order_acquire);
  while (true) {
    const auto index = static_cast<std::uint32_t>(head & kIndexMask);
    if (index == kNone) return kNone;
    const std::uint64_t next =
        ((head & ~kIndexMask) + kOneTag + kOneOut) | next_[index].load(std::memory_order_relaxed);
    if (!head_.compare_exchange_weak(head, next, std::memory_order_acquire)) continue;
    if constexpr (kHotAssertions) next_[index].store(kOut, std::memory_order_relaxed);
    return index;
  }
}

inline void SlotStore::give_back(std::uint32_t first, std::uint32_t last,
                                 std::uint32_t count) noexcept {
  if (foreign()) [[unlikely]]
    return;  // never the last one: the store stays
  REMORA_ASSERT_HOT(is_out(last), "a slot that was taken is given back once");
  std::uint64_t head = head_.load(std::memory_order_relaxed);
  std::uint64_t next = 0;
  do {
    REMORA_ASSERT_HOT((head & kOutMask) >= count * kOneOut,
                      "no more slots are given back than were taken");
    next_[last].store(static_cast<std::uint32_t>(head & kIndexMask), std::memory_order_relaxed);
    next = ((head & ~kIndexMask) + kOneTag - count * kOneOut) | first;
  } while (!head_.compare_exchange_weak(head, next, std::memory_order_acq_rel,
                                        std::memory_order_relaxed));
  if (over(next)) delete this;
}

/// Gives slots back when it is destroyed: slots of one store that were added one after the other
/// with one exchange.
class SlotReturn {
 public:
  SlotReturn() = default;
  ~SlotReturn() { flush(); }
  SlotReturn(const SlotReturn&) = delete;
  SlotReturn& operator=(const SlotReturn&) = delete;

  /// Leaves `slot` empty; one that is empty is passed over.
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
