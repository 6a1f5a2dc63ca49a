#pragma once

/// The records of a cluster: what its metadata store keeps about servers, volumes and groups.
///
/// A record is a JSON object with a member `version`. A version that this library does not know is
/// an error; so is a missing or ill-typed member, a number out of range, a name that is none.
/// Members that are not known are ignored only if the version is known. Ids are texts of 16
/// hexadecimal digits, so that programs without 64-bit integers keep them whole.
///
/// Thread safety: values.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::volume {

/// The version of records that this library writes, and the only one that it reads.
inline constexpr std::uint64_t kRecordVersion = 1;

inline constexpr std::uint64_t kGroupBytesMin = std::uint64_t{1} << 20U;
inline constexpr std::uint64_t kGroupBytesMax = std::uint64_t{1} << 30U;
inline constexpr std::uint64_t kGroupBytesDefault = std::uint64_t{256} << 20U;
inline constexpr std::uint64_t kStripeBytesMin = std::uint64_t{4} << 10U;
inline constexpr std::uint64_t kStripeBytesDefault = std::uint64_t{1} << 20U;
inline constexpr std::uint32_t kWidthDefault = 4;
inline constexpr std::uint32_t kWidthMax = 64;
inline constexpr std::uint32_t kCopiesMax = 8;
inline constexpr std::uint32_t kGroupsMax = 16384;

/// A server, as it registers itself, with a lease.
struct ServerRecord {
  std::string name{};
  /// "host:port" to which clients connect, in the order of preference; at least one.
  std::vector<std::string> addresses{};
  std::uint64_t boot_id = 0;    ///< of its process
  std::uint64_t memory_id = 0;  ///< of the contents of its memory
  std::uint64_t pool_bytes = 0;
  std::uint64_t pool_free_bytes = 0;
  std::string failure_domain{};  ///< empty: the server is a failure domain of its own
  std::string software{};        ///< its version of Remora

  /// failure_domain, or the server's name.
  [[nodiscard]] const std::string& domain() const noexcept {
    return failure_domain.empty() ? name : failure_domain;
  }
  friend bool operator==(const ServerRecord&, const ServerRecord&) = default;
};

/// How the groups of a volume keep its bytes.
enum class Kind : std::uint8_t {
  kStriped,  ///< one copy; many writers, atomics
  kMirror    ///< `copies` copies; one claimed writer
};
/// "striped" or "mirror".
[[nodiscard]] std::string_view to_string(Kind kind) noexcept;

/// How far the creation or the removal of a volume has come.
enum class VolumeState : std::uint8_t {
  kCreating,  ///< or its creation was interrupted
  kReady,
  kRemoving,  ///< or its removal was interrupted
  kImporting  ///< or its import was interrupted: its regions hold bytes
};
/// "creating", "ready", "removing" or "importing".
[[nodiscard]] std::string_view to_string(VolumeState state) noexcept;

/// A volume.
struct VolumeRecord {
  std::string name{};
  std::uint64_t id = 0;
  VolumeState state = VolumeState::kReady;
  std::uint64_t size_bytes = 0;   ///< of the address space; a multiple of block_bytes
  std::uint64_t block_bytes = 0;  ///< a power of two
  Kind kind = Kind::kStriped;
  std::uint32_t copies = 1;  ///< in-sync members of a healthy group; striped: 1
  std::uint64_t group_bytes = kGroupBytesDefault;    ///< a multiple of stripe_bytes
  std::uint64_t stripe_bytes = kStripeBytesDefault;  ///< a power of two, block_bytes or more
  std::uint32_t width = 1;                           ///< groups of one row
  std::uint64_t writer_epoch = 0;                    ///< `w`: raised by each claim
  std::string writer{};                              ///< identity of the claimant; empty: none
  bool exclusive = false;
  bool allow_same_domain = false;  ///< copies of a group may be in one failure domain
  std::uint64_t nonce = 0;         ///< another one with each change

  /// The bytes of one row: width × group_bytes.
  [[nodiscard]] std::uint64_t row_bytes() const noexcept { return width * group_bytes; }
  /// Whole rows: the last one may have room behind the end of the volume.
  [[nodiscard]] std::uint64_t group_count() const noexcept {
    return row_bytes() == 0 ? 0 : (size_bytes + row_bytes() - 1) / row_bytes() * width;
  }
  friend bool operator==(const VolumeRecord&, const VolumeRecord&) = default;
};

/// Whether a member has all bytes of its group.
enum class MemberState : std::uint8_t { kInSync, kSyncing };
/// "in_sync" or "syncing".
[[nodiscard]] std::string_view to_string(MemberState state) noexcept;

/// A server's region in a group.
struct Member {
  std::string server{};
  /// Where the server was when the member was made. Its present record, if there is one, wins.
  std::vector<std::string> addresses{};
  std::uint64_t memory_id = 0;
  std::string region{};           ///< the region's name on the server
  std::uint64_t incarnation = 0;  ///< RegionInfo::incarnation
  MemberState state = MemberState::kInSync;

  friend bool operator==(const Member&, const Member&) = default;
};

/// A group's configuration.
struct GroupRecord {
  std::uint64_t index = 0;
  std::uint64_t epoch = 1;        ///< `e`: raised by each change
  std::uint64_t adopted = 0;      ///< the writer epoch that adopted the group
  std::uint64_t generation = 0;   ///< of the cluster, when the group was adopted
  std::vector<Member> members{};  ///< the first is the primary; at least one unless `lost`
  bool promoting = false;
  bool lost = false;
  /// It was put into a store that had lost it: the next claimant compares the members' headers.
  bool restored = false;
  std::uint64_t nonce = 0;  ///< another one with each change

  friend bool operator==(const GroupRecord&, const GroupRecord&) = default;
};

/// The region of a member: "vol-ID-GROUP-UNIQUE", where `unique` is a random_number(), so that no
/// two members ever have regions of one name. It begins with region_prefix().
[[nodiscard]] std::string region_name(std::uint64_t volume_id, std::uint64_t group,
                                      std::uint64_t unique);
/// "vol-ID-": with it the names of all regions of a volume begin, and no others.
[[nodiscard]] std::string region_prefix(std::uint64_t volume_id);

/// A random number that is not 0: ids, incarnations, nonces.
[[nodiscard]] std::uint64_t random_number();

/// The record as parse_server() reads it, in one line.
[[nodiscard]] std::string to_json(const ServerRecord& record);
/// The record as parse_volume() reads it, in one line.
[[nodiscard]] std::string to_json(const VolumeRecord& record);
/// The record as parse_group() reads it, in one line.
[[nodiscard]] std::string to_json(const GroupRecord& record);

/// `key` is the subject of errors. Errors: kUnsupported (another version), kProtocol (no such
/// record; the subject has the member that is wrong).
Result<ServerRecord> parse_server(std::string_view key, std::string_view json);
/// As parse_server().
Result<VolumeRecord> parse_volume(std::string_view key, std::string_view json);
/// As parse_server().
Result<GroupRecord> parse_group(std::string_view key, std::string_view json);

}  // namespace remora::volume
