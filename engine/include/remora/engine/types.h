#pragma once

/// The small vocabulary of the engine: blocks, offsets, rights, transports, deadlines, literals.

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include <remora/result.h>  // checks the language version

namespace remora {

/// Index of a block of a region; byte offset = index × block size of the region.
struct Block {
  std::uint64_t index = 0;
  friend constexpr auto operator<=>(Block, Block) = default;
};

/// Position in a region, in bytes from its start.
struct ByteOffset {
  std::uint64_t bytes = 0;
  friend constexpr auto operator<=>(ByteOffset, ByteOffset) = default;
};

/// The rights of a grant. A set: combine with `|`.
enum class Rights : std::uint8_t {
  kNone = 0,
  kRead = 1,
  kWrite = 2,
  kAtomic = 4,  ///< compare-and-swap and fetch-and-add
  kReadWrite = kRead | kWrite,
  kAll = kRead | kWrite | kAtomic,
};
/// All rights of both.
[[nodiscard]] constexpr Rights operator|(Rights a, Rights b) noexcept {
  return static_cast<Rights>(static_cast<std::uint8_t>(a) | static_cast<std::uint8_t>(b));
}
/// The rights that both have.
[[nodiscard]] constexpr Rights operator&(Rights a, Rights b) noexcept {
  return static_cast<Rights>(static_cast<std::uint8_t>(a) & static_cast<std::uint8_t>(b));
}
/// Whether `set` carries every right of `wanted`.
[[nodiscard]] constexpr bool includes(Rights set, Rights wanted) noexcept {
  return (set & wanted) == wanted;
}
/// "read,write,atomic", or "none".
[[nodiscard]] std::string to_string(Rights rights);

/// How bytes are sent. `kAuto` is only a request; a session always has one of the others.
enum class TransportKind : std::uint8_t { kAuto, kRdma, kShm, kTcp };
/// As in a URI: "auto", "rdma", "shm" or "tcp".
[[nodiscard]] constexpr std::string_view to_string(TransportKind kind) noexcept {
  switch (kind) {
    case TransportKind::kAuto: return "auto";
    case TransportKind::kRdma: return "rdma";
    case TransportKind::kShm: return "shm";
    case TransportKind::kTcp: return "tcp";
  }
  return "unknown";
}

/// When the pages of a region that is opened over shm enter the page table of this process. A page
/// that is not in it faults at its first use. Only kNow makes pages that the server does not have
/// yet (pool.populate: false).
enum class Populate : std::uint8_t {
  kNone,  ///< at their first use
  kLazy,  ///< up to 64 MiB when the region is opened, the rest by a thread, which ends then
  kNow    ///< all of them when the region is opened: opening takes as long as that
};
/// "none", "lazy" or "now".
[[nodiscard]] constexpr std::string_view to_string(Populate populate) noexcept {
  switch (populate) {
    case Populate::kNone: return "none";
    case Populate::kLazy: return "lazy";
    case Populate::kNow: return "now";
  }
  return "unknown";
}

/// Every operation has a deadline; shorter ones are raised to this floor, so that a pause of the
/// scheduler does not end a healthy operation.
inline constexpr std::chrono::nanoseconds kDeadlineFloor = std::chrono::milliseconds{1};
/// The longest deadline; longer ones are lowered to it.
inline constexpr std::chrono::nanoseconds kDeadlineCeiling = std::chrono::hours{1};

/// The port of a server whose URI or configuration names none.
inline constexpr std::uint16_t kDefaultPort = 7471;

/// 64_KiB, 1_GiB; and the chrono literals (100ms, 5s), so that one using-directive is enough.
inline namespace literals {
using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only
/// Bytes.
[[nodiscard]] consteval std::uint64_t operator""_B(unsigned long long n) { return n; }  // NOLINT
/// Units of 1,024 bytes.
[[nodiscard]] consteval std::uint64_t operator""_KiB(unsigned long long n) {  // NOLINT
  return n << 10;
}
/// Units of 1,048,576 bytes.
[[nodiscard]] consteval std::uint64_t operator""_MiB(unsigned long long n) {  // NOLINT
  return n << 20;
}
/// Units of 1,073,741,824 bytes.
[[nodiscard]] consteval std::uint64_t operator""_GiB(unsigned long long n) {  // NOLINT
  return n << 30;
}
}  // namespace literals

}  // namespace remora
