#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <remora/assert.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "transport/memory_domain.h"

namespace remora::detail {

/// Number of devices that one engine may use at once: the size of each memory's table of keys.
inline constexpr std::size_t kMaxMemoryDomains = 8;
/// The index for transports that need no keys: each memory has an unused key there.
inline constexpr std::size_t kNoMemoryDomain = kMaxMemoryDomains;
/// An index at which no memory has a key, for revoked grants.
inline constexpr std::size_t kKeylessDomain = kMaxMemoryDomains + 1;
/// Added to the index of a domain: the key words for operations that are in no queue's table.
/// Memory with handles has no key word there, so that such an operation fails the quick check; the
/// full check then counts it as a use of the memory (MemoryUse). Other operations do not pay for
/// that.
inline constexpr std::size_t kAloneWords = kMaxMemoryDomains + 2;

/// A range of local memory and its local key for each memory domain of the engine. Does not own the
/// bytes. Shared by its handles, or owned by a SlotStore. Thread-safe; key() is wait-free.
class LocalMemory {
 public:
  /// Lifetime. kNone: the owner keeps the memory until all operations on it have ended, as for
  /// slots. kCopied: the memory lives as long as its handles, the last of which may be destroyed
  /// before operations end (memory_releaser.h).
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
  /// registered() and key() in one word: 0, or kRegistered with the key in the lower half. The load
  /// is relaxed, since the word publishes no other memory.
  [[nodiscard]] std::uint64_t key_word(std::size_t domain_index) const noexcept {
    return key_words_[domain_index].load(std::memory_order_relaxed);
  }
  /// The memory of all empty slots of the process, without bytes and handles. It distinguishes an
  /// empty slot from other memory without bytes.
  static LocalMemory* of_empty_slot() noexcept { return &empty_slot; }

  /// Registers the memory with the domain, unless it is registered. Blocks while pages are pinned.
  Status register_with(transport::MemoryDomain& domain, std::size_t domain_index);
  /// Takes the new key of a device that may have failed and returned. Memory that the device has
  /// not registered again has no key from now on, until it is used or the device returns once more.
  void renew_key(std::size_t domain_index) noexcept;
  /// Deregisters the memory from a domain that no session uses, so that another domain may have the
  /// index.
  void forget_key(std::size_t domain_index) noexcept;

  /// For memory with handles:

  /// An operation that is in no queue's table begins, while a handle exists, or ends.
  void begin_use() noexcept { uses_.fetch_add(1, std::memory_order_relaxed); }
  void end_use() noexcept {
    const std::uint32_t before = uses_.fetch_sub(1, std::memory_order_release);
    REMORA_ASSERT_HOT(before > 0, "a use of memory ends once");
  }
  [[nodiscard]] bool has_handles() const noexcept { return handles_ == Handles::kCopied; }
  [[nodiscard]] bool counted_in_use() const noexcept {
    return uses_.load(std::memory_order_acquire) != 0;
  }
  /// The number of the release of the last handle, from 1 on. Only the releaser calls this function
  /// and those that follow.
  [[nodiscard]] std::uint64_t released() const noexcept { return released_; }
  void set_released(std::uint64_t number) noexcept { released_ = number; }
  [[nodiscard]] std::unique_ptr<LocalMemory> take_next() noexcept { return std::move(next_); }
  void put_before(std::unique_ptr<LocalMemory> next) noexcept { next_ = std::move(next); }

 private:
  static constexpr std::uint64_t kRegistered = std::uint64_t{1} << 32U;
  void set_key_word(std::size_t domain_index, std::uint64_t word) noexcept;
  /// At a fixed address. A static object in a function would have a guard, which each operation
  /// with a slot would check.
  static LocalMemory empty_slot;
  std::span<std::byte> bytes_;
  /// kRegistered and the key, or 0.
  std::array<std::atomic<std::uint64_t>, 2 * kAloneWords> key_words_{};
  Mutex mutex_;  ///< locked to register
  std::array<std::unique_ptr<transport::Registration>, kMaxMemoryDomains> registrations_
      REMORA_GUARDED_BY(mutex_);
  Handles handles_;
  std::uint64_t released_ = 0;
  std::unique_ptr<LocalMemory> next_;
  /// Not in the cache lines of the keys, which every operation reads.
  alignas(64) std::atomic<std::uint32_t> uses_{0};
};

}  // namespace remora::detail
