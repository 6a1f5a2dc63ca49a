/// Regions that are cut into many extents behave as one: at every edge, and as a whole.

#include <cstring>
#include <span>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kPiece = 64_KiB;

class ExtentTest : public ConformanceTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 4U << 20U, .piece_bytes = kPiece};
  }
};

TEST_P(ExtentTest, OrdinaryRegionHasAnExtentForEachPiece) {
  if (external()) GTEST_SKIP() << "needs a server in this process";
  const RegionInfo made = create({.size_bytes = 1_MiB});
  if (over_shm())
    EXPECT_GE(made.extent_count, 1U);  // a memfd of its own
  else
    EXPECT_GE(made.extent_count, 1_MiB / kPiece);
  std::uint64_t total = 0;
  const RegionView view = server().view(made.name).value();
  for (const auto extent : view.extents()) total += extent.size();
  EXPECT_EQ(view.extents().size(), made.extent_count);
  EXPECT_EQ(total, made.size_bytes);
}

TEST_P(ExtentTest, WritesAcrossEachEdgeChangeTheirBytesOnly) {
  const Region region = make_region({.size_bytes = 1_MiB});
  std::vector<std::byte> model = noise(1_MiB, 10);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  for (std::uint64_t edge = kPiece; edge < 1_MiB; edge += kPiece)
    for (const std::uint64_t half : {1U, 17U, 2048U}) {
      const auto part = std::span{model}.subspan(edge - half, 2 * half - half % 2);
      fill(part, edge + half);
      ASSERT_TRUE(ok(region.write(ByteOffset{edge - half}, part)));
    }
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

TEST_P(ExtentTest, ReadsAcrossEachEdgeAreWhole) {
  const Region region = make_region({.size_bytes = 1_MiB});
  const std::vector<std::byte> model = noise(1_MiB, 11);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  std::vector<std::byte> into(4096);
  for (std::uint64_t edge = kPiece; edge < 1_MiB; edge += kPiece)
    for (const std::uint64_t half : {1U, 17U, 2048U}) {
      const auto target = std::span{into}.first(2 * half);
      ASSERT_TRUE(ok(region.read(ByteOffset{edge - half}, target)));
      EXPECT_TRUE(same_bytes(target, std::span{model}.subspan(edge - half, 2 * half))) << edge;
    }
}

TEST_P(ExtentTest, WholeRegionInOneOperationOfEachFace) {
  const Region region = make_region({.size_bytes = 1_MiB});
  std::vector<std::byte> bytes = noise(1_MiB, 12);
  const std::vector<std::byte> model = bytes;
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, Source{memory, 0, bytes.size()})));
  EXPECT_TRUE(same_bytes(read_all(region), model));

  Queue queue = region.queue({.depth = 1}).value();
  fill(bytes, 13);
  const std::vector<std::byte> later = bytes;
  ASSERT_TRUE(queue.write(ByteOffset{0}, Source{memory, 0, bytes.size()}));
  ASSERT_TRUE(ok(queue.submit()));
  for (Completion& completion : queue.wait(1)) ASSERT_TRUE(completion.ok()) << completion.error();
  fill(bytes, 14);
  ASSERT_TRUE(queue.read(ByteOffset{0}, Target{memory, 0, bytes.size()}));
  ASSERT_TRUE(ok(queue.submit()));
  for (Completion& completion : queue.wait(1)) ASSERT_TRUE(completion.ok()) << completion.error();
  EXPECT_TRUE(same_bytes(bytes, later));
}

TEST_P(ExtentTest, AtomicsWorkOnBothSidesOfEachEdge) {
  const Region region = make_region({.size_bytes = 256_KiB});
  for (std::uint64_t edge = kPiece; edge < 256_KiB; edge += kPiece)
    for (const std::uint64_t at : {edge - 8, edge}) {
      EXPECT_EQ(region.fetch_add(ByteOffset{at}, at).value(), 0U);
      EXPECT_EQ(region.compare_swap(ByteOffset{at}, at, 5).value(), at);
      EXPECT_EQ(region.fetch_add(ByteOffset{at}, 0).value(), 5U);
    }
}

TEST_P(ExtentTest, RegionsBesideEachOtherDoNotTouch) {
  const Region first = make_region({.size_bytes = 100_KiB, .block_bytes = 1024});
  const Region second = make_region({.size_bytes = 100_KiB, .block_bytes = 1024});
  const std::vector<std::byte> one = noise(first.size_bytes(), 15);
  const std::vector<std::byte> two = noise(second.size_bytes(), 16);
  ASSERT_TRUE(ok(first.write(ByteOffset{0}, one)));
  ASSERT_TRUE(ok(second.write(ByteOffset{0}, two)));
  EXPECT_TRUE(same_bytes(read_all(first), one));
  EXPECT_TRUE(same_bytes(read_all(second), two));
}

TEST_P(ExtentTest, BlocksOfEachSizeAreAddressedByIndex) {
  for (const std::uint64_t block : {64U, 512U, 4096U, 32768U}) {
    SCOPED_TRACE(block);
    const Region region = make_region({.size_bytes = 128_KiB, .block_bytes = block});
    ASSERT_EQ(region.block_bytes(), block);
    const std::uint64_t last = region.block_count() - 1;
    std::vector<std::byte> model(region.size_bytes());
    for (const std::uint64_t index : {std::uint64_t{0}, std::uint64_t{1}, last / 2, last}) {
      const auto part = std::span{model}.subspan(index * block, block);
      fill(part, index + block);
      ASSERT_TRUE(ok(region.write(Block{index}, part)));
      std::vector<std::byte> seen(block);
      ASSERT_TRUE(ok(region.read(Block{index}, seen)));
      EXPECT_TRUE(same_bytes(seen, part));
    }
    EXPECT_TRUE(same_bytes(read_all(region), model));
  }
}

TEST_P(ExtentTest, RegionOfOneSmallestBlockWorks) {
  const Region region = make_region({.size_bytes = 64, .block_bytes = 64});
  const std::vector<std::byte> bytes = noise(64, 17);
  ASSERT_TRUE(ok(region.write(Block{0}, bytes)));
  EXPECT_TRUE(same_bytes(read_all(region), bytes));
  EXPECT_TRUE(fails_with(region.write(ByteOffset{1}, bytes), Code::kOutOfRange));
}

REMORA_CONFORMANCE(ExtentTest);

}  // namespace
}  // namespace remora::test
