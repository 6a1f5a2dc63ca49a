#pragma once

/// The header of a mirror's member: under which configuration its bytes were last written.
///
/// | bytes | field, little-endian |
/// |---|---|
/// | 0 to 8 | magic, "RMRAMIR1" |
/// | 8 to 16 | version, 1 |
/// | 16 to 24 | generation of the cluster |
/// | 24 to 32 | id of the volume |
/// | 32 to 40 | index of the group |
/// | 40 to 48 | writer epoch `w` |
/// | 48 to 56 | configuration `e` |
/// | 56 to 64 | the member's role: 1 syncing, 2 in sync, 3 primary; 256 more while promoting |
/// | 64 to 72 | checksum of the bytes before |
///
/// A region that no writer has used has zeroes here.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/result.h>
#include <remora/volume/records.h>

namespace remora::volume::detail {

/// What a configuration says of a member.
enum class MemberRole : std::uint8_t { kNone, kSyncing, kInSync, kPrimary };

/// A value.
struct MemberHeader {
  static constexpr std::size_t kBytes = 72;
  using Bytes = std::array<std::byte, kBytes>;

  std::uint64_t generation = 0;
  std::uint64_t volume_id = 0;
  std::uint64_t group = 0;
  std::uint64_t writer_epoch = 0;
  std::uint64_t epoch = 0;
  MemberRole role = MemberRole::kNone;
  bool promoting = false;

  [[nodiscard]] Bytes encode() const noexcept;
  /// All zeroes: a header of zeroes. Errors: kProtocol (no such header, or a damaged one),
  /// kUnsupported (its version).
  static Result<MemberHeader> decode(std::span<const std::byte, kBytes> bytes);
  /// Whether a writer that knew a newer configuration than `record`, which a store that was
  /// restored has, has written this header. True, too, if it is of a generation that the record
  /// cannot be compared with.
  [[nodiscard]] bool is_ahead_of(const GroupRecord& record) const noexcept;

  friend bool operator==(const MemberHeader&, const MemberHeader&) = default;
};

}  // namespace remora::volume::detail
