#pragma once

/// How a volume is opened, and what happens to it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora::volume {

/// What has happened to a group.
enum class VolumeEventKind : std::uint8_t {
  kGroupLost,         ///< its server has other memory: all bytes of the group are gone
  kGroupUnreachable,  ///< the session with its server is lost, for now or for good
  kGroupRevoked,      ///< the grant on its region was revoked, or fenced
  kMemberRemoved,     ///< of a mirror: the writer goes on without it; the group has a copy less
  kWriterLost,        ///< of a mirror: another client has claimed the volume
  kCopyBegun,         ///< of a mirror: a repair builds a copy of the group on that server
  kCopyDone,          ///< that copy is in sync: the group has a copy more
  kCopyFailed         ///< that copy was given up; also when the repair was told to stop
};
/// The name in words: "group lost".
[[nodiscard]] std::string_view to_string(VolumeEventKind kind) noexcept;

/// An event of one group.
struct VolumeEvent {
  VolumeEventKind kind = VolumeEventKind::kGroupLost;
  std::uint32_t group = 0;
  std::string server{};  ///< the name of the member's server in the cluster
  /// Of the operation that noticed it; without a meaning with kCopyBegun and kCopyDone. If a copy
  /// has failed with kIndeterminate, the group may have it.
  Error error{Code::kInternal};
};

/// How a mirror is claimed.
struct ClaimOptions {
  /// Also while another client renews its claim. That client's operations fail from then on.
  bool steal = false;
  /// No other client reads the volume as long as it is claimed. A write then goes to all members at
  /// once, which takes less time.
  bool exclusive = false;
  /// For other clients' messages: at most 200 printable ASCII characters; empty:
  /// "HOST-PID-RANDOM".
  std::string identity{};
};

/// The options of Volume::open(), each with a default.
struct VolumeOptions {
  /// What the grants on the regions carry.
  Rights rights = Rights::kAll;
  /// kAuto, kRdma or kTcp. Members are never opened over shm: a server cannot take a mapping away.
  TransportKind transport = TransportKind::kAuto;
  /// The deadline of operations and queues that are given none.
  std::chrono::nanoseconds operation_deadline = std::chrono::seconds{10};
  /// Opens the volume also if groups cannot be opened. Operations on such a group fail with the
  /// error with which it could not be opened.
  bool partial = false;
  /// Called once for each kind and group of a volume (kMemberRemoved and those of copies: each
  /// time), when an operation fails for that reason, by the thread that gets the failure, before it
  /// gets it; while the volume is opened, for groups that cannot be opened (`partial`); by claim(),
  /// for members that it removes, since they could not be fenced; by the threads of
  /// repair_claimed(), for copies. Any number of threads may call it at once. It must neither
  /// throw, nor use a queue of the volume, nor claim or release it: its thread may be that of the
  /// claim or of the repair, or inside an operation, which claim() and release() wait for. An idle
  /// volume notices nothing: SessionHandlers of the engine tell of sessions at once.
  std::function<void(const VolumeEvent&)> on_event{};
};

}  // namespace remora::volume
