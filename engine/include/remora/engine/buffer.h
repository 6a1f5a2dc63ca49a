#pragma once

/// Local memory that operations read from and write to.
///
/// Three kinds, from fast to convenient: *slots* of the engine (registered once, handed out and
/// returned without a lock), *registered memory* of the application, and any other bytes. Where the
/// transport needs registered memory, short ones of these are copied through slots of the engine,
/// and long ones registered at their first use and kept so (EngineOptions::mr_cache_from_bytes).
///
/// A buffer belongs to its operation from the moment the operation is taken until it has completed,
/// not one moment less and not one more: completion of an operation, with whatever status, is the
/// promise that neither the NIC nor the engine touches its buffer again.
///
/// **Any address, any length** from one byte to the whole region will do: nothing is asked of a
/// buffer's alignment. No bytes, a null pointer and an empty slot are kInvalidArgument; a part
/// outside of registered memory, and bytes outside of the region, are kOutOfRange, also where
/// offset + length wraps at 2^64. All of this is noticed before anything is sent.
///
/// **Buffers of operations in flight may overlap.** Sources may share bytes at no cost. Where a
/// target shares bytes with another target, each shared byte ends as what one of the reads brought;
/// where it shares them with a source, each shared byte is written as it was before the read or
/// after it. No other byte is touched.
///
/// **Memory that this process may not touch** (unmapped, or mapped read-only under a read) is a bug
/// of the caller, as with memcpy(3), and shows where the bytes are touched:
///
/// - by a copy of the engine's own: SIGSEGV in the thread that submits or waits. That is all of
///   shm, over rdma what is not registered and has no registration either that could be kept, over
///   tcp all below 1 KiB and everything with CRC;
/// - by the device that is to register it (rdma): kProvider, for this operation alone. Nothing is
///   sent and the session goes on;
/// - by the kernel, for any other read over tcp: kProvider, with kLocalProtectionError as its
///   completion status. The session ends, and with it what stood behind the read;
/// - by the kernel, for any other write over tcp: kIndeterminate, since a part may have been sent.
///   The session ends.
///
/// Operations of a batch that follow each other, remotely and locally, may go as one request: they
/// count as one here, and share its end.
///
/// Memory that is registered with a device is pinned: the device goes on reading and writing these
/// pages, whatever is unmapped or protected later. So bytes stay mapped for as long as their
/// RegisteredMemory lives, and an operation that uses them. Of what the engine keeps registered by
/// itself it notices changes.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

#include <remora/owned.h>
#include <remora/result.h>

namespace remora {

namespace detail {
class LocalMemory;  // a range and its keys, one for each device it is used on
class SlotReturn;
class SlotStore;

/// A container of bytes in one piece; views are spans already.
template <typename Holder, typename Byte>
concept ByteHolder = std::is_class_v<std::remove_const_t<Holder>> &&
                     !std::ranges::view<std::remove_const_t<Holder>> &&
                     requires(Holder & holder) {
  { holder.data() } -> std::convertible_to<Byte*>;
  { holder.size() } -> std::convertible_to<std::size_t>;
};
}  // namespace detail

class Slot;

/// Application memory known to the engine, so that operations on it are not copied. Registered with
/// the devices in use at once, with others when it is first used there. Copyable handle; the bytes
/// must outlive the last copy and every operation on them.
///
/// The last copy may go while operations that were taken use the memory: it stays registered until
/// the last of them has ended and been handed out, and is deregistered by a thread of the engine's
/// a few milliseconds later. Where no operation uses it, it is deregistered before the destructor
/// of the last copy returns. The release has to come behind the taking (happens-before), as any two
/// uses of one object by two threads. A queue's operation in pieces, as long as it is in flight,
/// also keeps memory registered that it does not use.
///
/// One that was made empty or moved from has no bytes: an operation on a part of it fails with
/// kInvalidArgument, as on a parent's in a child of fork(2).
class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  ~RegisteredMemory() = default;
  RegisteredMemory(const RegisteredMemory&) = default;
  RegisteredMemory& operator=(const RegisteredMemory&) = default;
  RegisteredMemory(RegisteredMemory&& other) noexcept
      : memory_{std::move(other.memory_)}, bytes_{std::exchange(other.bytes_, {})} {}
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept {
    if (this == &other) return *this;
    memory_ = std::move(other.memory_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }
  explicit RegisteredMemory(std::shared_ptr<detail::LocalMemory> memory);

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  friend class Target;
  friend class Source;
  /// Without a place where it is not within the memory.
  [[nodiscard]] std::span<std::byte> part(std::size_t offset,
                                          std::size_t length_bytes) const noexcept {
    if (offset > bytes_.size() || length_bytes > bytes_.size() - offset) return {};
    return {bytes_.data() + offset, length_bytes};
  }

  detail::OwnedShared<detail::LocalMemory> memory_;
  std::span<std::byte> bytes_;
};

/// Where a read puts its bytes. Non-owning; made implicitly from any span of bytes, and from what
/// holds bytes in one piece (std::vector<std::byte>, std::array<std::byte, N>).
class Target {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(std::span<std::byte> bytes) noexcept : bytes_{bytes} {}
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(std::span<std::byte, N> bytes) noexcept : bytes_{bytes} {}
  template <detail::ByteHolder<std::byte> Bytes>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(Bytes& bytes) noexcept : bytes_{bytes} {}
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(std::byte (&bytes)[N]) noexcept : bytes_{bytes, N} {}
  /// A part of registered memory. A part outside of it makes the operation fail with kOutOfRange.
  Target(const RegisteredMemory& memory, std::size_t offset, std::size_t length_bytes) noexcept
      : memory_{memory.memory_.get()} {
    if (memory_ != nullptr) bytes_ = memory.part(offset, length_bytes);
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(Slot& slot) noexcept;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] detail::LocalMemory* memory() const noexcept { return memory_; }

 private:
  std::span<std::byte> bytes_;  ///< at null, with memory: not within it
  detail::LocalMemory* memory_ = nullptr;
};

/// Where a write takes its bytes from. Non-owning; made implicitly from any span of bytes, and from
/// what holds bytes in one piece. Never from a temporary vector: the bytes must outlive the
/// operation.
class Source {
 public:
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(std::span<const std::byte> bytes) noexcept : bytes_{bytes} {}
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(std::span<std::byte> bytes) noexcept : bytes_{bytes} {}
  template <typename Byte, std::size_t N>
  requires std::same_as<std::remove_const_t<Byte>, std::byte>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(std::span<Byte, N> bytes)
  noexcept : bytes_{bytes} {}
  template <detail::ByteHolder<const std::byte> Bytes>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(const Bytes& bytes) noexcept : bytes_{bytes} {}
  template <detail::ByteHolder<const std::byte> Bytes>
  Source(const Bytes&& bytes) = delete;
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(const std::byte (&bytes)[N]) noexcept : bytes_{bytes, N} {}
  Source(const RegisteredMemory& memory, std::size_t offset, std::size_t length_bytes) noexcept
      : memory_{memory.memory_.get()} {
    if (memory_ != nullptr) bytes_ = memory.part(offset, length_bytes);
  }
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(const Slot& slot) noexcept;

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] detail::LocalMemory* memory() const noexcept { return memory_; }

 private:
  std::span<const std::byte> bytes_;  ///< as Target's
  detail::LocalMemory* memory_ = nullptr;
};

/// Pieces of local memory that one operation may have.
inline constexpr std::size_t kMaxPieces = 1024;

/// One fixed-size piece of a SlotPool, owned until it is destroyed, then back in the pool.
/// Move-only. An empty slot (pool exhausted, moved from), and a parent's in a child of fork(2),
/// make an operation fail kInvalidArgument.
class Slot {
 public:
  Slot() = default;
  ~Slot() { release(); }
  Slot(Slot&& other) noexcept
      : store_{std::exchange(other.store_, nullptr)}, bytes_{other.bytes_}, index_{other.index_} {
    other.bytes_ = {};
  }
  Slot& operator=(Slot&& other) noexcept {
    if (this == &other) return *this;
    release();
    store_ = std::exchange(other.store_, nullptr);
    bytes_ = std::exchange(other.bytes_, {});
    index_ = other.index_;
    return *this;
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  [[nodiscard]] explicit operator bool() const noexcept { return store_ != nullptr; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  friend class detail::SlotReturn;
  friend class SlotPool;
  friend class Target;
  friend class Source;
  Slot(detail::SlotStore* store, std::span<std::byte> bytes, std::uint32_t index) noexcept
      : store_{store}, bytes_{bytes}, index_{index} {}
  void release() noexcept {
    if (store_ != nullptr) give_back();
  }
  void give_back() noexcept;
  detail::SlotStore* store_ = nullptr;  ///< counts the slots that are out, and lives as long
  std::span<std::byte> bytes_;
  std::uint32_t index_ = 0;
};

/// The pages of slots, from 2 MiB of them on.
enum class HugePages : std::uint8_t {
  /// Huge pages of 2 MiB where enough of them are free (vm.nr_hugepages), all taken and touched
  /// when the slots are made; else what the kernel gives of its own accord (transparent huge
  /// pages); else ordinary ones. Never an error. A forked child has none of the explicit ones.
  kAuto,
  /// Ordinary pages, touched when first used.
  kNever,
};

/// Equal slots cut from one page-aligned slab. Copyable handle. Thread-safe, lock-free.
/// The slab lives until the last handle and the last slot are gone. A handle that was moved from
/// has no slots: take() gives empty ones.
class SlotPool {
 public:
  explicit SlotPool(std::shared_ptr<detail::SlotStore> store) : store_{std::move(store)} {}

  /// A free slot, or an empty one when all are out. Never blocks, never allocates.
  [[nodiscard]] Slot take() noexcept;
  [[nodiscard]] std::size_t slot_bytes() const noexcept;
  [[nodiscard]] std::size_t slot_count() const noexcept;

 private:
  detail::OwnedShared<detail::SlotStore> store_;
};

}  // namespace remora
