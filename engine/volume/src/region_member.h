#pragma once

/// A member of a mirror: a region that the engine has open.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include <remora/engine/region.h>

#include "mirror_member.h"

namespace remora::volume::detail {

/// A lane is a queue of the engine. Up to kKept of them are kept for later writes.
class RegionMember final : public MirrorMember {
 public:
  /// `limit`: of each operation.
  RegionMember(Region region, std::chrono::nanoseconds limit) noexcept
      : region_{std::move(region)}, limit_{limit} {}
  ~RegionMember() override;

  Result<std::unique_ptr<MemberLane>> take_lane() noexcept override;
  void return_lane(std::unique_ptr<MemberLane> lane) noexcept override;
  Status read(std::uint64_t offset_bytes, const Target& into) noexcept override {
    return region_.read(ByteOffset{offset_bytes}, into, limit_);
  }
  Status settled(std::chrono::nanoseconds limit) noexcept override {
    return region_.settled(limit);
  }
  [[nodiscard]] bool connected() const noexcept override { return region_.connected(); }
  [[nodiscard]] TransportKind transport() const noexcept override { return region_.transport(); }

 private:
  static constexpr std::size_t kKept = 16;

  Region region_;
  std::chrono::nanoseconds limit_;
  std::array<std::atomic<MemberLane*>, kKept> kept_{};
};

}  // namespace remora::volume::detail
