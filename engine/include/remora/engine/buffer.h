#pragma once

/// Local memory that operations read from and write to.
///
/// Three kinds, from fast to convenient: *slots* of the engine (registered once, handed out and
/// returned without a lock), *registered memory* of the application, and any other bytes. If the
/// transport needs registered memory, short buffers of other bytes are copied through slots of the
/// engine, and long ones are registered at their first use and stay registered
/// (EngineOptions::mr_cache_from_bytes).
///
/// A buffer belongs to its operation from the moment the operation is taken until it has completed:
/// the completion of an operation, with any status, is the promise that neither the NIC nor the
/// engine touches its buffer again.
///
/// **Any address, any length** from one byte to the whole region is allowed: a buffer needs no
/// alignment. No bytes, a null pointer and an empty slot are kInvalidArgument; a part outside of
/// registered memory, and bytes outside of the region, are kOutOfRange, also if offset + length
/// wraps at 2^64. All of this is noticed before the engine sends anything.
///
/// **Buffers of operations in flight may overlap.** Sources may share bytes at no cost. If a target
/// shares bytes with another target, each shared byte gets the value of one of the reads; if it
/// shares them with a source, each shared byte is written with its value before the read or after
/// it. No other byte is touched.
///
/// **Memory that this process may not touch** (unmapped, or mapped read-only under a read) is a bug
/// of the caller, as with memcpy(3). The code that touches the bytes notices it:
///
/// - by a copy of the engine's own: SIGSEGV in the thread that submits or waits. That is every
///   operation over shm; over rdma, one with memory that is neither registered nor can be kept
///   registered; over tcp, one below 1 KiB or with CRC;
/// - by the device that should register it (rdma): kProvider, for this operation alone. Nothing is
///   sent, and the session continues;
/// - by the kernel, for any other read over tcp: kProvider, with kLocalProtectionError as its
///   completion status. The session ends, and with it the operations behind the read;
/// - by the kernel, for any other write over tcp: kIndeterminate, since a part may have been sent.
///   The session ends.
///
/// Operations of a batch whose remote and local bytes follow each other may be sent as one request:
/// they count as one here, and end together.
///
/// Memory that is registered with a device is pinned: the device continues to read and write these
/// pages even after they are unmapped or protected. So keep the bytes mapped as long as their
/// RegisteredMemory, and any operation that uses them, exists. The engine notices changes of memory
/// that it keeps registered by itself.

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

/// A container of contiguous bytes; views are spans already.
template <typename Holder, typename Byte>
concept ByteHolder = std::is_class_v<std::remove_const_t<Holder>> &&
                     !std::ranges::view<std::remove_const_t<Holder>> &&
                     requires(Holder & holder) {
  { holder.data() } -> std::convertible_to<Byte*>;
  { holder.size() } -> std::convertible_to<std::size_t>;
};
}  // namespace detail

class Slot;

/// Application memory known to the engine, so that operations on it are not copied. It is
/// registered at once with the devices in use, with other devices when it is first used there.
/// Copyable handle; the bytes must outlive the last copy and every operation on them.
///
/// The last copy may be destroyed while operations that were taken use the memory: it stays
/// registered until the last of them has ended and its completion was handed out, and a thread of
/// the engine deregisters it a few milliseconds later. If no operation uses it, it is deregistered
/// before the destructor of the last copy returns. The destruction must happen after the operation
/// is taken (happens-before), as for any two uses of one object by two threads. A queue's operation
/// in pieces, as long as it is in flight, also keeps memory registered that it does not use.
///
/// A RegisteredMemory that was made empty or moved from has no bytes: an operation on a part of it
/// fails with kInvalidArgument, as does one on a parent's object in a child of fork(2).
class RegisteredMemory {
 public:
  /// A handle without bytes.
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
  /// For Engine::register_memory().
  explicit RegisteredMemory(std::shared_ptr<detail::LocalMemory> memory);

  /// The registered bytes, which the application owns.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  friend class Target;
  friend class Source;
  /// The bytes of that part; a null span if it is not within the memory.
  [[nodiscard]] std::span<std::byte> part(std::size_t offset,
                                          std::size_t length_bytes) const noexcept {
    if (offset > bytes_.size() || length_bytes > bytes_.size() - offset) return {};
    return {bytes_.data() + offset, length_bytes};
  }

  detail::OwnedShared<detail::LocalMemory> memory_;
  std::span<std::byte> bytes_;
};

/// The memory that a read writes. Non-owning; made implicitly from any span of bytes, and from a
/// container of contiguous bytes (std::vector<std::byte>, std::array<std::byte, N>).
class Target {
 public:
  /// These bytes, not registered.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(std::span<std::byte> bytes) noexcept : bytes_{bytes} {}
  /// All bytes of a span of fixed size.
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(std::span<std::byte, N> bytes) noexcept : bytes_{bytes} {}
  /// All bytes of a container, which must not move them until the operation has ended.
  template <detail::ByteHolder<std::byte> Bytes>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(Bytes& bytes) noexcept : bytes_{bytes} {}
  /// All bytes of an array.
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(std::byte (&bytes)[N]) noexcept : bytes_{bytes, N} {}
  /// A part of registered memory. A part outside of it makes the operation fail with kOutOfRange.
  Target(const RegisteredMemory& memory, std::size_t offset, std::size_t length_bytes) noexcept
      : memory_{memory.memory_.get()} {
    if (memory_ != nullptr) bytes_ = memory.part(offset, length_bytes);
  }
  /// The whole slot, which must outlive the operation. An operation that is given the slot itself
  /// (`Slot&&`) keeps it.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Target(Slot& slot) noexcept;

  /// Null if a part was named that is not within its memory.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// For the engine; null: the bytes are not registered.
  [[nodiscard]] detail::LocalMemory* memory() const noexcept { return memory_; }
  /// A part of these bytes, in the same memory. It must be within them.
  [[nodiscard]] Target part(std::size_t offset, std::size_t length_bytes) const noexcept {
    Target part{bytes_.subspan(offset, length_bytes)};
    part.memory_ = memory_;
    return part;
  }

 private:
  std::span<std::byte> bytes_;  ///< null with memory: not within the memory
  detail::LocalMemory* memory_ = nullptr;
};

/// The memory that a write reads. Non-owning; made implicitly from any span of bytes, and from a
/// container of contiguous bytes. Never from a temporary vector: the bytes must outlive the
/// operation.
class Source {
 public:
  /// These bytes, not registered.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(std::span<const std::byte> bytes) noexcept : bytes_{bytes} {}
  /// These bytes, which are only read.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(std::span<std::byte> bytes) noexcept : bytes_{bytes} {}
  /// All bytes of a span of fixed size.
  template <typename Byte, std::size_t N>
  requires std::same_as<std::remove_const_t<Byte>, std::byte>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(std::span<Byte, N> bytes)
  noexcept : bytes_{bytes} {}
  /// All bytes of a container, which must not move them until the operation has ended.
  template <detail::ByteHolder<const std::byte> Bytes>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(const Bytes& bytes) noexcept : bytes_{bytes} {}
  template <detail::ByteHolder<const std::byte> Bytes>
  Source(const Bytes&& bytes) = delete;
  /// All bytes of an array.
  template <std::size_t N>
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(const std::byte (&bytes)[N]) noexcept : bytes_{bytes, N} {}
  /// A part of registered memory. A part outside of it makes the operation fail with kOutOfRange.
  Source(const RegisteredMemory& memory, std::size_t offset, std::size_t length_bytes) noexcept
      : memory_{memory.memory_.get()} {
    if (memory_ != nullptr) bytes_ = memory.part(offset, length_bytes);
  }
  /// The whole slot, which must outlive the operation.
  // NOLINTNEXTLINE(google-explicit-constructor)
  Source(const Slot& slot) noexcept;

  /// Null if a part was named that is not within its memory.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  /// For the engine; null: the bytes are not registered.
  [[nodiscard]] detail::LocalMemory* memory() const noexcept { return memory_; }
  /// As Target::part().
  [[nodiscard]] Source part(std::size_t offset, std::size_t length_bytes) const noexcept {
    Source part{bytes_.subspan(offset, length_bytes)};
    part.memory_ = memory_;
    return part;
  }

 private:
  std::span<const std::byte> bytes_;  ///< as in Target
  detail::LocalMemory* memory_ = nullptr;
};

/// The most pieces of local memory that one operation may have.
inline constexpr std::size_t kMaxPieces = 1024;

/// One fixed-size piece of a SlotPool; it returns to the pool when it is destroyed. Move-only. An
/// operation with an empty slot (the pool is exhausted, or the slot was moved from), or with a
/// parent's slot in a child of fork(2), fails with kInvalidArgument.
class Slot {
 public:
  /// An empty slot.
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

  /// False: the slot is empty.
  [[nodiscard]] explicit operator bool() const noexcept { return store_ != nullptr; }
  /// SlotPool::slot_bytes() bytes, aligned to 64; none if the slot is empty. Their contents are
  /// those of the last use.
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
  detail::SlotStore* store_ = nullptr;  ///< counts the slots in use, and lives as long as they do
  std::span<std::byte> bytes_;
  std::uint32_t index_ = 0;
};

/// The pages of slots of 2 MiB and more together.
enum class HugePages : std::uint8_t {
  /// Huge pages of 2 MiB if enough of them are free (vm.nr_hugepages), all taken and touched when
  /// the slots are made; otherwise transparent huge pages, if the kernel gives them; otherwise
  /// ordinary pages. Never an error. A forked child has none of the explicit huge pages.
  kAuto,
  /// Ordinary pages, touched when first used.
  kNever,
};

/// Equal slots cut from one page-aligned slab. Copyable handle. Thread-safe, lock-free. The slab
/// lives until the last handle and the last slot are gone. A handle that was moved from has no
/// slots: take() returns empty ones.
class SlotPool {
 public:
  /// For Engine::allocate_slots().
  explicit SlotPool(std::shared_ptr<detail::SlotStore> store) : store_{std::move(store)} {}

  /// A free slot, or an empty one if all are in use. Never blocks, never allocates.
  [[nodiscard]] Slot take() noexcept;
  /// Takes a free slot for each element of `slots`, with one atomic exchange, and returns their
  /// number: less than asked for if the others are in use. The slots go to the first elements, and
  /// the other elements are empty then. Slots that the elements had are given back before. Never
  /// blocks, never allocates.
  std::size_t take(std::span<Slot> slots) noexcept;
  /// The length of each slot, as it was requested.
  [[nodiscard]] std::size_t slot_bytes() const noexcept;
  /// All slots of the pool, used and free.
  [[nodiscard]] std::size_t slot_count() const noexcept;

 private:
  detail::OwnedShared<detail::SlotStore> store_;
};

}  // namespace remora
