#pragma once

/// Access: the rights of a registration, a queue pair or a window.
///
/// Thread safety: a value.

#include <cstdint>
#include <infiniband/verbs.h>
#include <ostream>
#include <string>

namespace remora::verbs {

/// A set of rights, combined with `|`. Values equal the verbs flags. Source: ibv_reg_mr(3).
enum class Access : std::uint32_t {
  kNone = 0,                               ///< the NIC may only read it, for sends and writes
  kLocalWrite = IBV_ACCESS_LOCAL_WRITE,    ///< the NIC may write it for receives and reads
  kRemoteWrite = IBV_ACCESS_REMOTE_WRITE,  ///< needs kLocalWrite
  kRemoteRead = IBV_ACCESS_REMOTE_READ,
  kRemoteAtomic = IBV_ACCESS_REMOTE_ATOMIC,  ///< needs kLocalWrite
  kWindowBind = IBV_ACCESS_MW_BIND,
  kZeroBased = IBV_ACCESS_ZERO_BASED,
  kOnDemand = IBV_ACCESS_ON_DEMAND,
  kHugePages = IBV_ACCESS_HUGETLB,
  kRelaxedOrdering = IBV_ACCESS_RELAXED_ORDERING,
};

/// The flags of verbs: IBV_ACCESS_...
[[nodiscard]] constexpr std::uint32_t bits(Access access) noexcept {
  return static_cast<std::uint32_t>(access);
}
/// All rights of both.
[[nodiscard]] constexpr Access operator|(Access a, Access b) noexcept {
  return static_cast<Access>(bits(a) | bits(b));
}
/// The rights that both have.
[[nodiscard]] constexpr Access operator&(Access a, Access b) noexcept {
  return static_cast<Access>(bits(a) & bits(b));
}
/// Adds the rights of `b`.
constexpr Access& operator|=(Access& a, Access b) noexcept { return a = a | b; }

/// True when every right of `wanted` is in `access`.
[[nodiscard]] constexpr bool contains(Access access, Access wanted) noexcept {
  return (access & wanted) == wanted;
}

/// "local-write|remote-read"; "none" for the empty set. Allocates.
[[nodiscard]] std::string to_string(Access access);
/// As to_string().
std::ostream& operator<<(std::ostream& out, Access access);

}  // namespace remora::verbs
