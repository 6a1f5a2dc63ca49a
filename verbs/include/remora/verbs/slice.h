#pragma once

/// Slices: the local and remote bytes that a work request names.
///
/// Local and remote slices are different types, so one cannot be passed for the other. A slice that
/// is not inside its parent is *invalid*: it can be passed on, and a batch that contains it refuses
/// the whole chain with kOutOfRange before anything is posted.
///
/// Thread safety: values.

#include <array>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <ostream>
#include <span>

#include <remora/result.h>

namespace remora::verbs {

/// Registered bytes of this process, with their lkey. Borrows them.
///
/// At most 4 GiB - 1, the width of a gather element; one message is at most 2 GiB.
class LocalSlice {
 public:
  /// Empty: no bytes, no key. Fits a zero-length send or receive.
  constexpr LocalSlice() noexcept : element_{0, 0, 0} {}

  /// Unchecked, for memory that was registered elsewhere.
  [[nodiscard]] static constexpr LocalSlice unchecked(std::uint64_t address,
                                                      std::uint32_t length_bytes,
                                                      std::uint32_t lkey) noexcept {
    LocalSlice slice;
    slice.element_ = ibv_sge{address, length_bytes, lkey};
    return slice;
  }
  /// No bytes, at the only address that cannot be valid.
  [[nodiscard]] static constexpr LocalSlice invalid() noexcept {
    return unchecked(UINT64_MAX, 0, 0);
  }

  /// False: invalid(), the result of a slice that was out of bounds.
  [[nodiscard]] constexpr bool valid() const noexcept { return element_.addr != UINT64_MAX; }
  /// The first byte, in this process.
  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return element_.addr; }
  /// Number of bytes.
  [[nodiscard]] constexpr std::uint32_t length_bytes() const noexcept { return element_.length; }
  /// The key of the registration, for this side's device.
  [[nodiscard]] constexpr std::uint32_t lkey() const noexcept { return element_.lkey; }

  /// `length_bytes` bytes from `offset_bytes`; invalid() when they are not all inside.
  [[nodiscard]] constexpr LocalSlice slice(std::uint64_t offset_bytes,
                                           std::uint64_t length_bytes) const noexcept {
    // An invalid slice has no bytes, and an empty part of it has its address still.
    if (offset_bytes > element_.length || length_bytes > element_.length - offset_bytes)
      return invalid();
    return unchecked(element_.addr + offset_bytes, static_cast<std::uint32_t>(length_bytes),
                     element_.lkey);
  }

  /// The gather element, as verbs needs it.
  [[nodiscard]] constexpr const ibv_sge& raw() const noexcept { return element_; }

 private:
  ibv_sge element_;
};
static_assert(sizeof(LocalSlice) == sizeof(ibv_sge));
/// "4096 bytes at 0x7f... lkey 5"; "invalid slice".
std::ostream& operator<<(std::ostream& out, const LocalSlice& slice);

/// Bytes of another process, with their rkey.
///
/// Wire form, big-endian, for sending one to a peer:
///
/// | bytes  | what         |
/// |--------|--------------|
/// | 0..7   | address      |
/// | 8..15  | length_bytes |
/// | 16..19 | rkey         |
class RemoteSlice {
 public:
  /// The length of the wire form.
  static constexpr std::size_t kWireBytes = 20;

  /// Empty: no bytes, no key. Fits a zero-length write.
  constexpr RemoteSlice() noexcept = default;
  /// Unchecked. `address` and `rkey` are those that the peer has told.
  constexpr RemoteSlice(std::uint64_t address, std::uint64_t length_bytes,
                        std::uint32_t rkey) noexcept
      : address_{address}, length_bytes_{length_bytes}, rkey_{rkey} {}
  /// No bytes, at the only address that cannot be valid.
  [[nodiscard]] static constexpr RemoteSlice invalid() noexcept { return {UINT64_MAX, 0, 0}; }

  /// False: invalid(), the result of a slice that was out of bounds.
  [[nodiscard]] constexpr bool valid() const noexcept { return address_ != UINT64_MAX; }
  /// The first byte, in the peer's address space.
  [[nodiscard]] constexpr std::uint64_t address() const noexcept { return address_; }
  /// Number of bytes.
  [[nodiscard]] constexpr std::uint64_t length_bytes() const noexcept { return length_bytes_; }
  /// The key of the registration, for the peer's device.
  [[nodiscard]] constexpr std::uint32_t rkey() const noexcept { return rkey_; }

  /// `length_bytes` bytes from `offset_bytes`; invalid() when they are not all inside.
  [[nodiscard]] constexpr RemoteSlice slice(std::uint64_t offset_bytes,
                                            std::uint64_t length_bytes) const noexcept {
    // An invalid slice has no bytes, and an empty part of it has its address still.
    if (offset_bytes > length_bytes_ || length_bytes > length_bytes_ - offset_bytes)
      return invalid();
    return {address_ + offset_bytes, length_bytes, rkey_};
  }

  /// The wire form above.
  [[nodiscard]] std::array<std::byte, kWireBytes> to_wire() const noexcept;
  /// Checked: the bytes come from a peer.
  /// Errors: kProtocol (not kWireBytes long, or address + length wraps around).
  [[nodiscard]] static Result<RemoteSlice> from_wire(std::span<const std::byte> bytes);

  friend constexpr bool operator==(const RemoteSlice&, const RemoteSlice&) = default;

 private:
  std::uint64_t address_ = 0;
  std::uint64_t length_bytes_ = 0;
  std::uint32_t rkey_ = 0;
};
/// "4096 bytes at 0x7f... rkey 5"; "invalid slice".
std::ostream& operator<<(std::ostream& out, const RemoteSlice& slice);

}  // namespace remora::verbs
