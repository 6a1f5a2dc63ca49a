#pragma once

/// A member of a mirror as its client has it open. region_member.h is the engine's; tests have
/// another.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include <remora/engine/buffer.h>
#include <remora/engine/types.h>
#include <remora/result.h>

namespace remora::volume::detail {

/// A write to a member's region: of bytes, or of zeroes if there are no bytes.
struct MemberWrite {
  std::uint64_t offset_bytes = 0;  ///< in the region
  Source from{std::span<const std::byte>{}};
  std::uint64_t zeroes = 0;
};

/// A read of a member's region.
struct MemberRead {
  std::uint64_t offset_bytes = 0;  ///< in the region
  Target into{std::span<std::byte>{}};
};

/// What posts operations to one member: up to kOperationsMax, in flight together. One owner at a
/// time. Several lanes of several members let one thread have operations in flight on each.
class MemberLane {
 public:
  static constexpr std::size_t kOperationsMax = 16;

  virtual ~MemberLane() = default;
  MemberLane(const MemberLane&) = delete;
  MemberLane& operator=(const MemberLane&) = delete;

  /// Then wait() before the next post. The local memory is borrowed until wait() returns.
  virtual void post(std::span<const MemberWrite> writes) noexcept = 0;
  virtual void post_reads(std::span<const MemberRead> reads) noexcept = 0;
  /// Blocks until all that was posted has ended. Of several errors kIndeterminate, if one is that.
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
  /// At most MemberLane::kOperationsMax reads, in flight together. After an error any of them may
  /// have failed.
  Status read_all(std::span<const MemberRead> reads) noexcept {
    if (reads.size() == 1) return read(reads[0].offset_bytes, reads[0].into);
    auto lane = take_lane();
    if (!lane) return lane.error();
    (*lane)->post_reads(reads);
    const Status done = (*lane)->wait();
    return_lane(std::move(*lane));
    return done;
  }
  /// Region::settled(): no write that has ended as kIndeterminate can take effect any more.
  virtual Status settled(std::chrono::nanoseconds limit) noexcept = 0;
  /// Whether a request to its server has a chance to be answered at once.
  [[nodiscard]] virtual bool connected() const noexcept = 0;
  /// Of its session.
  [[nodiscard]] virtual TransportKind transport() const noexcept = 0;

 protected:
  MirrorMember() = default;
};

}  // namespace remora::volume::detail
