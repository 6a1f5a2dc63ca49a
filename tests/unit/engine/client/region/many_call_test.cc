/// What a call with many pairs posts, and how it counts; the test decides how requests complete.

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <vector>

#include "client/engine/engine_core.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::detail {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::FakeLane;

/// Completes each chain at once, or reports its requests in parts.
class ManyPairsLane final : public FakeLane {
 public:
  explicit ManyPairsLane(std::uint32_t depth) : FakeLane{depth, 1U << 20U} {}
  transport::PostOutcome post(transport::Chain chain,
                              std::uint64_t first_sequence) noexcept override {
    const auto outcome = FakeLane::post(chain, first_sequence);
    chains.push_back(outcome.taken);
    const std::uint64_t end = first_sequence + outcome.taken;
    for (std::uint64_t at = first_sequence + part; at < std::min(end, fails_from); at += part)
      complete(at - 1);
    if (fails_from < end)
      complete(fails_from, CompletionStatus::kRemoteAccessError);
    else
      complete(end - 1);
    return outcome;
  }
  std::vector<std::size_t> chains;
  std::uint64_t part = 1000;                     ///< number of requests of one report
  std::uint64_t fails_from = ~std::uint64_t{0};  ///< the sequence of the request that fails
};

class ManyCallTest : public ::testing::Test {
 protected:
  void open(std::uint32_t depth) {
    engine_ = EngineCore::create({}).value();
    auto lane = std::make_unique<ManyPairsLane>(depth);
    lane_ = lane.get();
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory_;
    offer.lane = std::move(lane);
    region_.emplace(transport::open_fake_region(engine_, std::move(offer)));
  }
  /// Pairs of 64 B, at multiples of `stride_bytes` in the region.
  std::vector<ReadPair> reads(std::size_t count, std::uint64_t stride_bytes) {
    std::vector<ReadPair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back({ByteOffset{i * stride_bytes}, std::span{local_}.subspan(i * 64, 64)});
    return pairs;
  }
  double counted(const char* status) {
    return engine_->registry().sum("remora_client_operations_total", {{"status", status}}).value();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(1_MiB);
  std::vector<std::byte> local_ = std::vector<std::byte>(1_MiB);
  std::shared_ptr<EngineCore> engine_;
  ManyPairsLane* lane_ = nullptr;
  std::optional<Region> region_;
};

TEST_F(ManyCallTest, PairsThatFitGoAsOneChain) {
  open(512);
  const int polls_before = lane_->polls;
  ASSERT_TRUE(region_->read_many(reads(200, 128)));
  EXPECT_EQ(lane_->polls - polls_before, 1) << "with the lane still taken";
  EXPECT_EQ(lane_->chains, (std::vector<std::size_t>{200}));
  for (std::size_t i = 0; i < 200; ++i) {
    const transport::WorkRequest& request = lane_->posted[i].request;
    EXPECT_EQ(request.local, local_.data() + i * 64);
    EXPECT_EQ(request.remote_address, reinterpret_cast<std::uintptr_t>(memory_.data()) + i * 128);
    EXPECT_EQ(request.length_bytes, 64U);
  }
  EXPECT_EQ(counted("ok"), 200);
}

TEST_F(ManyCallTest, ChainsAreCutByTheRoomOfTheSendQueue) {
  open(64);
  ASSERT_TRUE(region_->read_many(reads(1000, 128)));
  EXPECT_EQ(lane_->posted.size(), 1000U);
  for (const std::size_t length : lane_->chains) EXPECT_LE(length, 64U);
  for (std::size_t i = 0; i < 1000; ++i)
    EXPECT_EQ(lane_->posted[i].request.local, local_.data() + i * 64) << "in order";
  EXPECT_EQ(counted("ok"), 1000);
}

TEST_F(ManyCallTest, NeighboursGoAsOneRequest) {
  open(512);
  ASSERT_TRUE(region_->read_many(reads(256, 64)));
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.length_bytes, 256U * 64);
  EXPECT_EQ(counted("ok"), 256);
}

TEST_F(ManyCallTest, BadPairsAreNotPostedAndCountOnce) {
  open(512);
  auto pairs = reads(100, 128);
  pairs[0].from = ByteOffset{1_MiB};
  pairs[50].from = ByteOffset{1_MiB};
  pairs[99].from = ByteOffset{1_MiB};
  std::vector<ManyOutcome> each(100);
  const Status status = region_->read_many(pairs, {.each = each});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().subject(), "r, pair 0");
  EXPECT_EQ(lane_->chains, (std::vector<std::size_t>{97}));
  EXPECT_EQ(counted("ok"), 97);
  EXPECT_EQ(counted("misuse"), 3);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(each[i].ok, i != 0 && i != 50 && i != 99);
}

TEST_F(ManyCallTest, PairsThatEndInPartsCountOnceEach) {
  open(512);
  lane_->part = 7;
  std::vector<ManyOutcome> each(1000);
  ASSERT_TRUE(region_->read_many(reads(1000, 128), {.each = each}));
  EXPECT_TRUE(std::ranges::all_of(each, &ManyOutcome::ok));
  EXPECT_EQ(counted("ok"), 1000);
  EXPECT_EQ(engine_->registry().sum("remora_client_read_bytes_total").value(), 1000 * 64);
}

TEST_F(ManyCallTest, RefusedPairOfARunIsNamed) {
  for (const std::size_t count : {200U, 1000U}) {
    region_.reset();
    open(512);
    lane_->part = 9;
    lane_->fails_from = 150;
    std::vector<ManyOutcome> each(count);
    std::vector<WritePair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back(
          {ByteOffset{i * 128}, std::span<const std::byte>{local_}.subspan(i * 64, 64)});
    const Status status =
        region_->write_many(pairs, {.deadline = std::chrono::seconds{1}, .each = each});
    ASSERT_FALSE(status);
    for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(each[i].ok, i < 150) << i;
    EXPECT_EQ(status.error().subject(), "r, pair 150");
    EXPECT_EQ(counted("ok"), 150);
  }
}

TEST_F(ManyCallTest, NeighboursInDisorderAreStillJoined) {
  open(512);
  std::vector<ReadPair> pairs;
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t block = i * 37 % 64;
    pairs.push_back({ByteOffset{block * 64}, std::span{local_}.subspan(block * 64, 64)});
  }
  ASSERT_TRUE(region_->read_many(pairs));
  EXPECT_EQ(lane_->posted.size(), 1U);
}

TEST_F(ManyCallTest, NeighboursBehindOthersAreStillJoined) {
  open(512);
  auto pairs = reads(100, 128);
  for (std::size_t i = 0; i < 50; ++i)
    pairs.push_back(
        {ByteOffset{64 * i + 512 * 1024}, std::span{local_}.subspan(64 * (100 + i), 64)});
  ASSERT_TRUE(region_->read_many(pairs));
  EXPECT_EQ(lane_->posted.size(), 101U);
}

TEST_F(ManyCallTest, PairsOfSeveralMemoriesGoTogether) {
  open(512);
  auto pairs = reads(300, 128);
  std::vector<std::byte> own(64 * 300);
  const RegisteredMemory memory{engine_->memory().register_memory(own).value()};
  for (std::size_t i = 0; i < 300; i += 2) pairs[i].into = Target{memory, 64 * i, 64};
  ASSERT_TRUE(region_->read_many(pairs));
  EXPECT_EQ(lane_->posted.size(), 300U);
  EXPECT_LE(lane_->chains.size(), 2U) << "not a chain for each pair";
  EXPECT_EQ(lane_->posted[0].request.local, own.data());
  EXPECT_EQ(lane_->posted[1].request.local, local_.data() + 64);
}

/// Records serve both kinds of pairs, also after a call of the other kind has changed their order.
TEST_F(ManyCallTest, CallsOfBothKindsUseTheSameRecords) {
  open(64);
  lane_->part = 5;
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(region_->read_many(reads(300, 128)));
    auto mixed = reads(300, 128);
    mixed[200].from = ByteOffset{1_MiB};
    ASSERT_FALSE(region_->read_many(mixed));
    const std::array<RegionReads, 2> both{{{&*region_, mixed}, {&*region_, mixed}}};
    ASSERT_FALSE(read_many(both));
  }
  EXPECT_EQ(counted("ok"), 20 * (300 + 299 + 2 * 299));
  EXPECT_EQ(counted("misuse"), 20 * 3);
}

TEST_F(ManyCallTest, RecordsAreUsedAgain) {
  open(512);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(region_->read_many(reads(300, 128)));
  EXPECT_EQ(lane_->posted.size(), 30'000U);
  EXPECT_EQ(counted("ok"), 30'000);
}

TEST_F(ManyCallTest, ChainThatTheLaneDoesNotTakeBreaksIt) {
  open(512);
  lane_->take_at_most = 10;
  std::vector<ManyOutcome> each(40);
  std::vector<WritePair> pairs;
  for (std::size_t i = 0; i < 40; ++i)
    pairs.push_back({ByteOffset{i * 128}, std::span<const std::byte>{local_}.subspan(i * 64, 64)});
  EXPECT_FALSE(region_->write_many(pairs, {.deadline = std::chrono::seconds{1}, .each = each}));
  std::size_t failed = 0;
  for (const ManyOutcome& outcome : each) failed += outcome.ok ? 0 : 1;
  EXPECT_GE(failed, 30U) << "those that were not taken";
  EXPECT_FALSE(each[39].ok);
  EXPECT_NE(each[39].code, Code::kIndeterminate) << "it never left";
}

}  // namespace
}  // namespace remora::detail
