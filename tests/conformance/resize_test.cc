/// Regions that change their size while they are used.

#include <chrono>
#include <span>

#include "conformance_test.h"
#include "outcome.h"

namespace remora::test {
namespace {

class ResizeTest : public ConformanceTest {
 protected:
  static constexpr std::uint64_t kPiece = 64_KiB;
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 4U << 20U, .piece_bytes = kPiece};
  }
};

TEST_P(ResizeTest, OverSharedMemoryItIsUnsupported) {
  if (!over_shm()) GTEST_SKIP() << "about shm only";
  const Region region = make_region();
  EXPECT_TRUE(fails_with(session().resize_region(region.info().name, 512_KiB), Code::kUnsupported));
  EXPECT_EQ(session().stat(region.info().name).value().size_bytes, 256_KiB);
}

TEST_P(ResizeTest, GrownRegionKeepsItsBytesAndItsGrants) {
  if (over_shm()) GTEST_SKIP() << "memory for shm is sealed";
  const Region before = make_region({.size_bytes = 260_KiB});
  const std::vector<std::byte> bytes = noise(260_KiB, 1);
  ASSERT_TRUE(ok(before.write(ByteOffset{0}, bytes)));
  for (const std::uint64_t size : {264_KiB, 1_MiB}) {
    EXPECT_EQ(session().resize_region(before.info().name, size).value().size_bytes, size);
    EXPECT_EQ(session().stat(before.info().name).value().size_bytes, size);
    // An older grant keeps its size.
    std::vector<std::byte> into(4096);
    EXPECT_TRUE(ok(before.read(ByteOffset{256_KiB}, into)));
    EXPECT_TRUE(fails_with(before.read(ByteOffset{260_KiB}, into), Code::kOutOfRange));
    const Region after = open(before.info().name);
    EXPECT_EQ(after.info().size_bytes, size);
    std::vector<std::byte> whole = bytes;
    whole.resize(size);  // zeros follow
    EXPECT_TRUE(same_bytes(read_all(after), whole));
    // Both grants reach the same bytes, also in an operation across the old end.
    const std::vector<std::byte> across = noise(4096, size);
    ASSERT_TRUE(ok(after.write(ByteOffset{258_KiB}, across)));
    ASSERT_TRUE(ok(before.read(ByteOffset{258_KiB}, std::span{into}.first(2_KiB))));
    EXPECT_TRUE(same_bytes(std::span{into}.first(2_KiB), std::span{across}.first(2_KiB)));
    ASSERT_TRUE(ok(after.write(ByteOffset{258_KiB}, std::span{whole}.subspan(258_KiB, 4096))));
  }
}

TEST_P(ResizeTest, ShrunkRegionIsTakenFromAllAndItsRestComesBackAsZeros) {
  if (over_shm()) GTEST_SKIP() << "memory for shm is sealed";
  const Region before = make_region({.size_bytes = 1_MiB, .block_bytes = 64});
  const std::vector<std::byte> bytes = noise(1_MiB, 2);
  ASSERT_TRUE(ok(before.write(ByteOffset{0}, bytes)));
  const std::uint64_t used = external() ? 0 : server().status().pool_used_bytes;
  constexpr std::uint64_t kKept = 130_KiB + 64;  // in the middle of a page
  EXPECT_EQ(session().resize_region(before.info().name, kKept).value().size_bytes, kKept);
  if (!external()) {
    EXPECT_EQ(used - server().status().pool_used_bytes, 1_MiB - 132_KiB);
  }
  std::vector<std::byte> into(64);
  const Status refused = before.read(ByteOffset{0}, into);
  ASSERT_TRUE(fails_with(refused, Code::kAccessRefused));
  EXPECT_EQ(refused.error().reason(), Reason::kRevoked);
  const Region small = open(before.info().name);
  EXPECT_GT(small.info().epoch, before.info().epoch);
  EXPECT_EQ(small.info().incarnation, before.info().incarnation);
  EXPECT_TRUE(same_bytes(read_all(small), std::span{bytes}.first(kKept)));
  // The bytes that were cut off are zero when the region grows again.
  ASSERT_TRUE(ok(session().resize_region(before.info().name, 1_MiB)));
  std::vector<std::byte> whole{bytes.begin(), bytes.begin() + kKept};
  whole.resize(1_MiB);
  EXPECT_TRUE(same_bytes(read_all(open(before.info().name)), whole));
}

TEST_P(ResizeTest, WithOperationsInFlightEachEndsOnce) {
  if (over_shm()) GTEST_SKIP() << "memory for shm is sealed";
  RegionInfo info = create({.size_bytes = 512_KiB});
  const int rounds = over_rdma() ? 4 : 20;
  std::uint64_t refused = 0;
  for (int round = 0; round < rounds; ++round) {
    const Engine other = open_engine();
    const Region region = other.open_region(uri(info.name), Rights::kAll).value();
    Queue queue = region.queue({.depth = 64}).value();
    std::vector<std::byte> page = noise(4096, static_cast<std::uint64_t>(round));
    for (std::uint64_t i = 0; i < 64; ++i) ASSERT_TRUE(queue.write(ByteOffset{i * 4096}, page, i));
    ASSERT_TRUE(ok(queue.submit()));
    ASSERT_TRUE(ok(session().resize_region(info.name, round % 2 == 0 ? 256_KiB : 512_KiB)));
    std::uint64_t seen = 0;
    while (queue.size() != 0)
      for (const Completion& completion : queue.wait(1)) {
        EXPECT_EQ(seen & (std::uint64_t{1} << completion.tag()), 0U) << "ended twice";
        seen |= std::uint64_t{1} << completion.tag();
        if (completion.ok()) continue;
        ++refused;
        EXPECT_EQ(completion.error().code(), Code::kAccessRefused) << completion.error().message();
      }
    EXPECT_EQ(seen, ~std::uint64_t{0});
    EXPECT_TRUE(region.connected()) << "asked first, it was not broken";
  }
  RecordProperty("refused", static_cast<int>(refused));
}

TEST_P(ResizeTest, WhatCannotBeIsRefused) {
  if (over_shm()) GTEST_SKIP() << "memory for shm is sealed";
  const Region region = make_region({.size_bytes = 64_KiB});
  const std::string& name = region.info().name;
  EXPECT_TRUE(fails_with(session().resize_region(name, 0), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(session().resize_region(name, 65_KiB), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(session().resize_region("no-such", 64_KiB), Code::kUnknownRegion));
  EXPECT_TRUE(
      fails_with(session().resize_region(name, std::uint64_t{1} << 62U), Code::kOutOfMemory));
  EXPECT_TRUE(ok(session().resize_region(name, 64_KiB))) << "it has that size";
  std::vector<std::byte> into(4096);
  EXPECT_TRUE(ok(region.read(ByteOffset{0}, into))) << "no grant was revoked";
}

TEST_P(ResizeTest, ViewOfTheApplicationKeepsItsMemory) {
  if (over_shm()) GTEST_SKIP() << "memory for shm is sealed";
  if (external()) GTEST_SKIP() << "needs a server in this process";
  const RegionInfo info = create({.size_bytes = 128_KiB});
  {
    const RegionView view = server().view(info.name).value();
    const Region open_one = open(info.name);
    EXPECT_TRUE(fails_with(server().resize_region(info.name, 64_KiB), Code::kBusy));
    std::vector<std::byte> into(4096);
    EXPECT_TRUE(ok(open_one.read(ByteOffset{0}, into))) << "no grant was revoked";
    EXPECT_TRUE(ok(server().resize_region(info.name, 192_KiB)));
    EXPECT_EQ(view.size_bytes(), 128_KiB);
    EXPECT_EQ(server().view(info.name).value().size_bytes(), 192_KiB);
    EXPECT_TRUE(fails_with(server().resize_region(info.name, 64_KiB), Code::kBusy));
  }
  EXPECT_TRUE(ok(server().resize_region(info.name, 64_KiB)));
  EXPECT_EQ(server().view(info.name).value().size_bytes(), 64_KiB);
}

REMORA_CONFORMANCE(ResizeTest);

}  // namespace
}  // namespace remora::test
