#include "stamp.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

namespace remora::fault {
namespace {

constexpr std::uint64_t kOffset = 8192;

class StampTest : public testing::Test {
 protected:
  static std::vector<std::byte> block_of(std::uint64_t session, std::uint64_t sequence,
                                         std::uint64_t offset, std::size_t length = 4096) {
    std::vector<std::byte> block(length);
    write_stamp(block, {session, sequence, offset});
    return block;
  }
  static std::vector<std::byte> block_of(std::uint64_t sequence) {
    return block_of(7, sequence, kOffset);
  }
  /// Writes up to the one of this number, all acknowledged.
  void acknowledge(std::uint64_t count) {
    while (model_.issued() < count) model_.acknowledged(model_.begin_write().sequence);
  }
  BlockModel model_{7, kOffset};
};

TEST_F(StampTest, WhatWasAcknowledgedIsIntact) {
  EXPECT_EQ(model_.check(std::vector<std::byte>(4096)), BlockVerdict::kIntact);
  acknowledge(3);
  EXPECT_EQ(model_.check(block_of(3)), BlockVerdict::kIntact);
  for (const std::size_t length : {kStampBytesMin, std::size_t{67}, std::size_t{65536}})
    EXPECT_EQ(model_.check(block_of(7, 3, kOffset, length)), BlockVerdict::kIntact) << length;
}

TEST_F(StampTest, OlderThanAcknowledgedIsLost) {
  acknowledge(3);
  EXPECT_EQ(model_.check(block_of(2)), BlockVerdict::kLost);
  EXPECT_EQ(model_.check(std::vector<std::byte>(4096)), BlockVerdict::kLost) << "zeroes";
}

TEST_F(StampTest, OlderThanSeenIsStale) {
  acknowledge(3);
  model_.indeterminate(model_.begin_write().sequence);
  EXPECT_EQ(model_.check(block_of(3)), BlockVerdict::kIntact);
  EXPECT_EQ(model_.check(block_of(4)), BlockVerdict::kIntact);
  EXPECT_EQ(model_.check(block_of(3)), BlockVerdict::kStale) << "it had landed";
}

TEST_F(StampTest, EachByteThatIsNotItsOwnIsTorn) {
  acknowledge(1);
  for (std::size_t at = 0; at < 4096; ++at) {
    std::vector<std::byte> block = block_of(1);
    block[at] ^= std::byte{1};
    ASSERT_EQ(model_.check(block), BlockVerdict::kTorn) << at;
  }
  std::vector<std::byte> halves = block_of(1);
  const std::vector<std::byte> other = block_of(7, 2, kOffset);
  std::copy(other.begin() + 2048, other.end(), halves.begin() + 2048);
  EXPECT_EQ(model_.check(halves), BlockVerdict::kTorn);
}

TEST_F(StampTest, WriteThatWasCutOffMayLeaveAMixtureUntilTheNextOne) {
  acknowledge(2);
  model_.indeterminate(model_.begin_write().sequence);
  std::vector<std::byte> mixture = block_of(2);
  const std::vector<std::byte> cut = block_of(3);
  std::copy(cut.begin(), cut.begin() + 1000, mixture.begin());
  EXPECT_EQ(model_.check(mixture), BlockVerdict::kIntact);
  std::vector<std::byte> older = block_of(1);
  std::copy(cut.begin(), cut.begin() + 1000, older.begin());
  EXPECT_EQ(model_.check(older), BlockVerdict::kTorn) << "of a write that was overwritten";
  acknowledge(4);
  EXPECT_EQ(model_.check(mixture), BlockVerdict::kTorn) << "it was overwritten";
}

TEST_F(StampTest, AnotherWritersOrPlacesIsForeign) {
  acknowledge(3);
  EXPECT_EQ(model_.check(block_of(8, 3, kOffset)), BlockVerdict::kForeign);
  EXPECT_EQ(model_.check(block_of(7, 3, kOffset + 4096)), BlockVerdict::kForeign);
}

TEST_F(StampTest, WriteWithoutEffectThatIsThereIsAGhost) {
  acknowledge(3);
  model_.begin_write();  // ended as one that provably had no effect
  EXPECT_EQ(model_.check(block_of(3)), BlockVerdict::kIntact);
  EXPECT_EQ(model_.check(block_of(4)), BlockVerdict::kGhost);
  EXPECT_EQ(model_.check(block_of(9)), BlockVerdict::kGhost) << "never made";
  EXPECT_NE(model_.describe(block_of(9)).find("acknowledged 3"), std::string::npos);
}

TEST_F(StampTest, OfADeadWriterEverythingTriedMayBeThereAndNothingElse) {
  BlockModel dead{7, kOffset, 5, 6};
  EXPECT_EQ(dead.check(block_of(5)), BlockVerdict::kIntact);
  EXPECT_EQ(dead.check(block_of(6)), BlockVerdict::kIntact);
  EXPECT_EQ(dead.check(block_of(4)), BlockVerdict::kLost);
  EXPECT_EQ(dead.check(block_of(7)), BlockVerdict::kGhost);
}

/// The third write is one of zeroes, and not the fourth.
TEST_F(StampTest, ZeroesThatWereWrittenAreIntactAndNoOthers) {
  const std::vector<std::byte> zeroes(4096);
  BlockModel model{7, kOffset, std::uint64_t{5}};
  ASSERT_TRUE(model.is_zeroes(3));
  for (int i = 0; i < 2; ++i) model.acknowledged(model.begin_write().sequence);
  EXPECT_EQ(model.check(zeroes), BlockVerdict::kLost) << "of before";
  model.indeterminate(model.begin_write().sequence);
  EXPECT_EQ(model.check(block_of(2)), BlockVerdict::kIntact);
  EXPECT_EQ(model.check(block_of(3)), BlockVerdict::kGhost) << "it wrote no stamp";
  std::vector<std::byte> half = block_of(2);
  std::fill(half.begin(), half.begin() + 2048, std::byte{0});
  EXPECT_EQ(model.check(half), BlockVerdict::kIntact) << "cut off";
  EXPECT_EQ(model.check(zeroes), BlockVerdict::kIntact);
  EXPECT_EQ(model.check(block_of(2)), BlockVerdict::kStale) << "they had landed";
  model.acknowledged(3);
  EXPECT_EQ(model.check(zeroes), BlockVerdict::kIntact);
  EXPECT_EQ(model.check(half), BlockVerdict::kTorn);
  model.acknowledged(model.begin_write().sequence);
  EXPECT_EQ(model.check(zeroes), BlockVerdict::kLost) << "written over";
  EXPECT_EQ(model.check(block_of(4)), BlockVerdict::kIntact);
}

}  // namespace
}  // namespace remora::fault
