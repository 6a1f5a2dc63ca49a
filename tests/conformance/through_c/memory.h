#pragma once

/// Local memory through the C API, with the names and functions of <remora/engine/buffer.h>.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <remora/engine/buffer.h>
#include <remora/engine/types.h>
#include <remora/remora_c.h>

namespace remora::through_c {

class Slot;

class RegisteredMemory {
 public:
  RegisteredMemory() = default;
  RegisteredMemory(std::shared_ptr<remora_memory> memory, std::span<std::byte> bytes) noexcept
      : memory_{std::move(memory)}, bytes_{bytes} {}
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] const remora_memory* memory() const noexcept { return memory_.get(); }

 private:
  std::shared_ptr<remora_memory> memory_;
  std::span<std::byte> bytes_;
};

/// The arguments `data`, `length` and `memory` of an operation.
struct LocalBytes {
  std::byte* data = nullptr;
  std::size_t length = 0;
  const remora_memory* memory = nullptr;

  /// A part that does not lie within `of`, too: the C API is to notice that.
  static LocalBytes part(const RegisteredMemory& of, std::size_t offset,
                         std::size_t length) noexcept {
    if (of.memory() == nullptr) return {};
    const auto base = reinterpret_cast<std::uintptr_t>(of.bytes().data());
    return {reinterpret_cast<std::byte*>(base + offset), length, of.memory()};
  }
};

class Target {
 public:
  // NOLINTBEGIN(google-explicit-constructor): as those of remora::Target
  Target(std::span<std::byte> bytes) noexcept : local_{bytes.data(), bytes.size(), nullptr} {}
  template <std::size_t N>
  Target(std::span<std::byte, N> bytes) noexcept : local_{bytes.data(), bytes.size(), nullptr} {}
  template <remora::detail::ByteHolder<std::byte> Bytes>
  Target(Bytes& bytes) noexcept : local_{bytes.data(), bytes.size(), nullptr} {}
  template <std::size_t N>
  Target(std::byte (&bytes)[N]) noexcept : local_{bytes, N, nullptr} {}
  Target(const RegisteredMemory& memory, std::size_t offset, std::size_t length) noexcept
      : local_{LocalBytes::part(memory, offset, length)} {}
  Target(Slot& slot) noexcept;
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return {local_.data, local_.length}; }
  [[nodiscard]] const LocalBytes& local() const noexcept { return local_; }

 private:
  LocalBytes local_;
};

class Source {
 public:
  // NOLINTBEGIN(google-explicit-constructor): as those of remora::Source
  Source(std::span<const std::byte> bytes) noexcept : local_{of(bytes)} {}
  Source(std::span<std::byte> bytes) noexcept : local_{of(bytes)} {}
  template <typename Byte, std::size_t N>
  requires std::same_as<std::remove_const_t<Byte>, std::byte> Source(std::span<Byte, N> bytes)
  noexcept : local_{of(bytes)} {}
  template <remora::detail::ByteHolder<const std::byte> Bytes>
  Source(const Bytes& bytes) noexcept : local_{of({bytes.data(), bytes.size()})} {}
  template <remora::detail::ByteHolder<const std::byte> Bytes>
  Source(const Bytes&& bytes) = delete;
  template <std::size_t N>
  Source(const std::byte (&bytes)[N]) noexcept : local_{of({bytes, N})} {}
  Source(const RegisteredMemory& memory, std::size_t offset, std::size_t length) noexcept
      : local_{LocalBytes::part(memory, offset, length)} {}
  Source(const Slot& slot) noexcept;
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {local_.data, local_.length};
  }
  [[nodiscard]] const LocalBytes& local() const noexcept { return local_; }

 private:
  /// A write only reads the bytes.
  static LocalBytes of(std::span<const std::byte> bytes) noexcept {
    return {const_cast<std::byte*>(bytes.data()), bytes.size(), nullptr};
  }
  LocalBytes local_;
};

class Slot {
 public:
  Slot() = default;
  Slot(std::shared_ptr<remora_slots> slots, std::span<std::byte> bytes) noexcept
      : slots_{std::move(slots)}, bytes_{bytes} {}
  ~Slot() { release(); }
  Slot(Slot&& other) noexcept
      : slots_{std::move(other.slots_)}, bytes_{std::exchange(other.bytes_, {})} {}
  Slot& operator=(Slot&& other) noexcept {
    if (this == &other) return *this;
    release();
    slots_ = std::move(other.slots_);
    bytes_ = std::exchange(other.bytes_, {});
    return *this;
  }
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;

  [[nodiscard]] explicit operator bool() const noexcept { return slots_ != nullptr; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] LocalBytes local() const noexcept {
    return {bytes_.data(), bytes_.size(),
            slots_ == nullptr ? nullptr : remora_slots_memory(slots_.get())};
  }

 private:
  void release() noexcept;
  std::shared_ptr<remora_slots> slots_;
  std::span<std::byte> bytes_;
};

inline Target::Target(Slot& slot) noexcept : local_{slot.local()} {}
inline Source::Source(const Slot& slot) noexcept : local_{slot.local()} {}

/// Pairs of a call with many, as in <remora/engine/many.h>.
struct ReadPair {
  ByteOffset from;
  Target into;
};
struct WritePair {
  ByteOffset to;
  Source from;
};

class SlotPool {
 public:
  SlotPool(std::shared_ptr<remora_slots> slots, std::size_t count, std::size_t slot_bytes) noexcept
      : slots_{std::move(slots)}, count_{count}, slot_bytes_{slot_bytes} {}
  [[nodiscard]] Slot take() noexcept;
  [[nodiscard]] std::size_t slot_bytes() const noexcept { return slot_bytes_; }
  [[nodiscard]] std::size_t slot_count() const noexcept { return count_; }

 private:
  std::shared_ptr<remora_slots> slots_;
  std::size_t count_;
  std::size_t slot_bytes_;
};

}  // namespace remora::through_c
