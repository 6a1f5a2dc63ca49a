#pragma once

/// GIDs and the choice of the one that a queue pair should use, with the reasons.
///
/// A RoCE port has a dozen GIDs, most of which do not route. `choose_gid` rates every GID and keeps
/// the reason for each, so that a choice can be printed instead of guessed. A link-local RoCE GID
/// is never taken unless the caller allows it: it reaches one segment only and depends on the
/// interface, which is a common cause of a connection that is never established.
///
/// Thread safety: values.

#include <array>
#include <cstdint>
#include <infiniband/verbs.h>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/format.h>

namespace remora::verbs {

/// 128 bits, in network order.
struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  /// From and to the structure of verbs, byte by byte.
  [[nodiscard]] static Gid from(const ibv_gid& raw) noexcept;
  /// The 16 bytes as verbs has them.
  [[nodiscard]] ibv_gid raw() const noexcept;

  /// True: a row without an address.
  [[nodiscard]] bool is_zero() const noexcept;
  /// ::ffff:a.b.c.d
  [[nodiscard]] bool is_ipv4_mapped() const noexcept;
  /// fe80::/10, or an IPv4-mapped 169.254/16.
  [[nodiscard]] bool is_link_local() const noexcept;
  /// ::1, or an IPv4-mapped 127/8.
  [[nodiscard]] bool is_loopback() const noexcept;
  /// "::ffff:192.0.2.1", "2001:db8::1". Allocates.
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Gid&, const Gid&) = default;
};

/// As to_string().
std::ostream& operator<<(std::ostream& out, const Gid& gid);

/// Why packets from `from` cannot reach `to`, as far as the two addresses show it: kGidUnset,
/// kGidFamily, kGidScope; kNone if they fit. A pure function.
[[nodiscard]] Reason diagnose_route(const Gid& from, const Gid& to) noexcept;

/// The kind of network to which a GID belongs. RoCE v2 packets are UDP over IP and may be routed.
enum class GidType : std::uint8_t { kInfiniBand, kRoceV1, kRoceV2, kUnknown };
/// "RoCE v2" and so on; "unknown type".
[[nodiscard]] std::string_view to_string(GidType type) noexcept;

/// One row of a device's GID table.
struct GidEntry {
  Gid gid;
  GidType type = GidType::kUnknown;
  std::uint8_t port = 0;              ///< from 1
  std::uint32_t index = 0;            ///< the index that a queue pair names
  std::uint32_t interface_index = 0;  ///< if_nametoindex of its netdev, 0: no netdev

  /// The present name of the netdev; empty: none. Asks the kernel; allocates.
  [[nodiscard]] std::string interface_name() const;
};
/// "port 1 gid 1 RoCE v2 ::ffff:192.0.2.1".
std::ostream& operator<<(std::ostream& out, const GidEntry& entry);

/// Why a candidate was taken or not.
enum class GidVerdict : std::uint8_t {
  kTaken,
  kLeftForBetter,   ///< usable, but another one was rated higher
  kLeftForEarlier,  ///< as good as the one taken, which has a lower index
  kZero,            ///< an empty row
  kLinkLocal,       ///< reaches one segment only; see GidPolicy::allow_link_local
  kLoopback,        ///< reaches this host only
  kOtherPort,       ///< not of GidPolicy::port
  kUnknownType,     ///< a type that verbs does not name
};
/// "taken", or "left: " and the reason.
[[nodiscard]] std::string_view to_string(GidVerdict verdict) noexcept;

/// The conditions of a choice.
struct GidPolicy {
  std::uint8_t port = 1;          ///< from 1
  bool allow_link_local = false;  ///< for peers on the same segment
};

/// A row of the table and the verdict on it.
struct GidCandidate {
  GidEntry entry;
  GidVerdict verdict = GidVerdict::kZero;
  /// Higher is better; 0 is unusable. RoCE v2 before InfiniBand before RoCE v1; within a type
  /// IPv4-mapped before other routable addresses before link-local.
  int rating = 0;
};
/// "port 1 gid 1 RoCE v2 ::ffff:192.0.2.1: taken (rating 32)".
std::ostream& operator<<(std::ostream& out, const GidCandidate& candidate);

/// The outcome: every candidate, and the one that was taken.
class GidChoice {
 public:
  /// For choose_gid(). `taken`: an index of `candidates`; empty: none.
  GidChoice(std::vector<GidCandidate> candidates, std::optional<std::size_t> taken)
      : candidates_{std::move(candidates)}, taken_{taken} {}

  /// The entry that was taken. Errors: kNotFound: no candidate is usable.
  [[nodiscard]] Result<GidEntry> taken() const;
  /// Every row, in the order of the table; valid as long as this object.
  [[nodiscard]] std::span<const GidCandidate> candidates() const noexcept { return candidates_; }

  /// A line for each candidate: index, type, address, verdict. Allocates.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<GidCandidate> candidates_;
  std::optional<std::size_t> taken_;
};

/// As to_string().
std::ostream& operator<<(std::ostream& out, const GidChoice& choice);

/// Rates `table` and takes the best entry. A pure function.
[[nodiscard]] GidChoice choose_gid(std::span<const GidEntry> table, const GidPolicy& policy = {});

}  // namespace remora::verbs
