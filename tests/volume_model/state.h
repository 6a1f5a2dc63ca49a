#pragma once

/// One state of the mirror protocol: the metadata store, three members, two writers, one reader.
///
/// Everything that can differ between two moments is a field here. An operation that was posted and
/// has not taken effect is a field of its member's Side. A client that has crashed is a client that
/// takes no further step, so a crash of a client needs no field.

#include <array>
#include <cstddef>
#include <cstdint>

namespace remora::volume_model {

inline constexpr int kMembers = 3;
inline constexpr int kWriters = 2;
inline constexpr int kZones = 2;

/// An array that is indexed by the number of a member, a writer or a zone.
template <class T, std::size_t N>
struct Row : std::array<T, N> {
  [[nodiscard]] constexpr T& operator[](int index) noexcept {
    return std::array<T, N>::operator[](static_cast<std::size_t>(index));
  }
  [[nodiscard]] constexpr const T& operator[](int index) const noexcept {
    return std::array<T, N>::operator[](static_cast<std::size_t>(index));
  }
};

/// What a configuration says of a member. Ordered: from kInSync on, its data count.
enum class Role : std::uint8_t { kOut, kSyncing, kInSync, kPrimary };
/// What a writer has at a member. kObtained: by a fence, not confirmed yet, so not used. kAsked:
/// nothing, as kNone; the store has told the writer that the claim is its own, and it fences next.
enum class Grant : std::uint8_t { kNone, kObtained, kConfirmed, kAsked };
enum class Phase : std::uint8_t { kOut, kClaiming, kReadingBits, kRepairing, kServing };
/// The one thing that a writer does to the members at a time. Each is a row of stages.
enum class Work : std::uint8_t { kNone, kWrite, kCopy, kRebuildCopy, kClear, kCopyBits };
enum class Stage : std::uint8_t { kMark, kBackups, kPrimary, kComplete };
/// Of the store's snapshot. kTaken: the store is as it was then; kOutdated: it has changed since.
enum class Snapshot : std::uint8_t { kNone, kTaken, kOutdated, kRestored };

/// A value is the number of the write that wrote it; 0 is what a region begins with.
using Value = std::uint8_t;
/// One bit a zone.
using ZoneSet = std::uint8_t;

/// A writer's side of one member.
struct Side {
  Role role = Role::kOut;            ///< in the configuration that the writer knows
  Grant grant = Grant::kNone;        ///< kNone: the member refuses this writer's operations
  Row<std::uint8_t, kZones> data{};  ///< posted, not in effect: 1 + the value; 0: nothing
  std::uint8_t word = 0;             ///< the same for the bitmap's word: 1 + its bits
  bool done = false;                 ///< has completed its part of the writer's present stage
  bool old_primary = false;   ///< was primary until this writer's last transaction removed it
  bool before_entry = false;  ///< the grant is older than the member's present entry (see V7)
};

struct Member {
  Role role = Role::kOut;  ///< in the store
  bool exists = false;     ///< the region that the store, or a client's configuration, names
  Row<Value, kZones> data{};
  ZoneSet bits = 0;                 ///< the intent bitmap
  bool ahead = false;               ///< its header is newer than the snapshot of the store
  bool removed_long = false;        ///< T has passed since it ceased to be the primary
  Role late_role = Role::kOut;      ///< in the transaction of unknown outcome
  Role snapshot_role = Role::kOut;  ///< in the store's snapshot
  bool reader_primary = false;      ///< in the configuration that the reader knows
  bool reader_grant = false;        ///< confirmed
  Row<Side, kWriters> side;
};

struct Writer {
  std::uint8_t w = 0;  ///< its writer epoch
  Phase phase = Phase::kOut;
  Work work = Work::kNone;
  Stage stage = Stage::kMark;
  std::uint8_t zone = 0;
  Value value = 0;
  bool current = false;  ///< the group's key has not changed since the writer knows it
  bool promoting = false;
  bool waited = false;     ///< T has passed since the writer knows of `promoting`
  bool frozen = false;     ///< a transaction of its own has an unknown outcome
  bool fresh = false;      ///< exclusive: confirmed less than T ago
  bool headers = false;    ///< written under the present configuration
  bool newer = false;      ///< knows a configuration that the store's snapshot does not have
  ZoneSet marked = 0;      ///< set on every member
  ZoneSet dirty = 0;       ///< a claimant has to copy these
  ZoneSet unresolved = 0;  ///< a write ended as Indeterminate, and the zone was not copied since
  ZoneSet copied = 0;      ///< of a rebuild
  bool bits_copied = false;
  bool spoiled = false;  ///< a write to the syncing member failed
};

struct Store {
  std::uint8_t w = 0;
  bool promoting = false;
  bool foreign = false;  ///< restored, and adopted by no claimant since
  Snapshot snapshot = Snapshot::kNone;
  std::uint8_t snapshot_w = 0;
  bool snapshot_promoting = false;
};

/// A transaction whose outcome its writer does not know, and that may still take effect.
struct LateTransaction {
  bool valid = false;
  bool promoting = false;
  bool current = false;  ///< the group's key is still the one it compares with
  std::uint8_t author = 0;
};

struct State {
  Row<Member, kMembers> member;
  Row<Writer, kWriters> writer;
  Store store;
  bool reader_fresh = false;  ///< the reader's last confirmation was sent less than T ago
  LateTransaction late;
  Row<Value, kZones> acked{};  ///< the newest acknowledged value
  Row<Value, kZones> seen{};   ///< the newest value that a read has returned
  std::uint8_t acting = 0;     ///< the highest writer epoch that has passed its fences
  Value written = 0;           ///< writes that have begun
  std::uint8_t crashes_left = 0;
  std::uint8_t unknown_left = 0;
  std::uint8_t rebuilds_left = 0;
};

[[nodiscard]] constexpr ZoneSet zone_bit(int zone) noexcept {
  return static_cast<ZoneSet>(1U << static_cast<unsigned>(zone));
}
/// Whether the writer's `zone` means anything. A claimant clears all zones at once.
[[nodiscard]] constexpr bool has_zone(Work work) noexcept {
  return work == Work::kWrite || work == Work::kCopy || work == Work::kRebuildCopy;
}
[[nodiscard]] constexpr bool holds_data(Role role) noexcept { return role >= Role::kInSync; }
[[nodiscard]] constexpr bool pending(const Side& side) noexcept {
  return side.word != 0 || side.data[0] != 0 || side.data[1] != 0;
}
inline void drop_pending(Side& side) noexcept {
  side.word = 0;
  side.data = {};
}
/// What a fence does to a grant, and to what was posted under it.
inline void take_away(Side& side) noexcept {
  if (side.grant != Grant::kAsked) side.grant = Grant::kNone;
  drop_pending(side);
}

}  // namespace remora::volume_model
