#pragma once

/// A group of three members that its writer has adopted.

#include <cstdint>
#include <memory>
#include <vector>

#include "mirror_group.h"
#include "mirror_rig.h"

namespace remora::volume::test {

class MirrorGroupTest : public MirrorRig {
 protected:
  void SetUp() override {
    MirrorRig::SetUp();
    group_ = adopt();
    ASSERT_NE(group_, nullptr);
  }
  Status write(std::uint64_t offset, int value, std::size_t length = 4096) {
    const auto bytes = filled(length, value);
    return group_->write(offset, bytes, soon());
  }
  void expect_read(std::uint64_t offset, int value) {
    std::vector<std::byte> bytes(4096);
    ASSERT_OK(group_->read(offset, bytes, soon()));
    EXPECT_EQ(bytes, filled(4096, value));
  }
  /// Does what the writer's thread does, until a promotion is over.
  void wait_for_readers() {
    clock_->advance(options_.times.readers_gone_after());
    group_->maintain(false);
    EXPECT_FALSE(stored().promoting);
  }
  std::unique_ptr<detail::MirrorGroup> group_;
};

}  // namespace remora::volume::test
