#pragma once

/// A member of a mirror as its client has it open. region_member.h is the engine's; tests have
/// another.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/result.h>

namespace remora::volume::detail {

/// A write to a member's region: of bytes, or of zeroes if there are no bytes.
struct MemberWrite {
  std::uint64_t offset_bytes = 0;  ///< in the region
  Source from{std::span<const std::byte>{}};
  std::uint64_t zeroes = 0;
};

/// What posts writes to one member: one at a time. One owner at a time. Several lanes of several
/// members let one thread have a write in flight on each.
class MemberLane {
 public:
  virtual ~MemberLane() = default;
  MemberLane(const MemberLane&) = delete;
  MemberLane& operator=(const MemberLane&) = delete;

  /// The memory of `write` is borrowed until wait() returns.
  virtual void post(const MemberWrite& write) noexcept = 0;
  /// Blocks until the write that was posted has ended.
  virtual Status wait() noexcept = 0;

 protected:
  MemberLane() = default;
};

/// Thread-safe. Each operation ends within the limit of the member, plus two seconds.
class MirrorMember {
 public:
  virtual ~MirrorMember() = default;
  MirrorMember(const MirrorMember&) = delete;
  MirrorMember& operator=(const MirrorMember&) = delete;

  /// A lane that was returned, or another one. Errors: those of Region::queue().
  virtual Result<std::unique_ptr<MemberLane>> take_lane() noexcept = 0;
  virtual void return_lane(std::unique_ptr<MemberLane> lane) noexcept = 0;
  virtual Status read(std::uint64_t offset_bytes, const Target& into) noexcept = 0;
  /// Region::settled(): no write that has ended as kIndeterminate can take effect any more.
  virtual Status settled(std::chrono::nanoseconds limit) noexcept = 0;
  /// Whether a request to its server has a chance to be answered at once.
  [[nodiscard]] virtual bool connected() const noexcept = 0;

 protected:
  MirrorMember() = default;
};

}  // namespace remora::volume::detail
