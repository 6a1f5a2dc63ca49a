/// Lanes for writes apart from reads, where few reads may be in flight: what it gives and costs,
/// counted in round trips on lanes that keep as many reads in flight as a kind of NIC.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remora/engine/lock.h>

#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"
#include "unit/verbs/device_profiles.h"

namespace remora::detail {
namespace {

/// Sends its requests in their order. A read beyond those that may be in flight waits until the
/// next round trip, and so does all behind it.
class RoundTripLane : public transport::FakeLane {
 public:
  explicit RoundTripLane(std::uint32_t reads_in_flight) : FakeLane{256, 1U << 20U} {
    set_initiator_depth(reads_in_flight);
  }
  transport::PostOutcome post(transport::Chain chain,
                              std::uint64_t first_sequence) noexcept override {
    const auto outcome = FakeLane::post(chain, first_sequence);
    if (prompt) complete(first_sequence + outcome.taken - 1);
    return outcome;
  }
  /// What may be in flight is answered.
  void round_trip() {
    std::size_t sent = answered_;
    for (std::uint32_t reads = 0; sent < posted.size(); ++sent)
      if (!transport::is_write(posted[sent].request.opcode) && ++reads > limits().initiator_depth)
        break;
    if (sent != answered_) complete(posted[sent - 1].sequence);
    answered_ = sent;
  }
  bool prompt = false;  ///< answers at once

 private:
  std::size_t answered_ = 0;
};

class PartedLanesTest : public ::testing::Test {
 protected:
  void start(std::uint32_t lanes, std::uint32_t reads_in_flight, bool rails = false) {
    EngineOptions options;
    options.lanes = lanes;
    options.spin = std::chrono::nanoseconds{0};
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory_;
    offer.rails = rails;
    lanes_.clear();
    for (std::uint32_t i = 0; i < lanes; ++i) {
      auto lane = std::make_unique<RoundTripLane>(reads_in_flight);
      if (rails) lane->set_rail("mlx5_0");
      lanes_.push_back(lane.get());
      offer.more_lanes.push_back(std::move(lane));
    }
    engine_ = EngineCore::create(options).value();
    session_ = transport::start_fake_session(engine_, std::move(offer));
  }
  Region open(Rights rights) {
    auto grant =
        RegionGrant::open(session_, "r", rights, "fake", deadline_after(std::chrono::seconds{10}))
            .value();
    grant->set_origin({}, *engine_);
    return Region{std::move(grant)};
  }
  static Queue queue_of(const Region& region) { return region.queue({.depth = 128}).value(); }
  void read(Queue& queue, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) queue.read(ByteOffset{128 * i}, local_);
    ASSERT_TRUE(queue.submit());
  }
  void write(Queue& queue, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) queue.write(ByteOffset{128 * i}, local_);
    ASSERT_TRUE(queue.submit());
  }
  /// How many of the operations of each queue have ended after one more round trip.
  std::vector<std::size_t> round_trip(std::span<Queue* const> queues) {
    for (RoundTripLane* const lane : lanes_) lane->round_trip();
    std::vector<std::size_t> ended;
    for (Queue* const queue : queues) ended.push_back(queue->poll().size());
    return ended;
  }
  /// Requests that each lane has got.
  [[nodiscard]] std::vector<std::size_t> posted() const {
    std::vector<std::size_t> counts;
    for (const RoundTripLane* const lane : lanes_) counts.push_back(lane->posted.size());
    return counts;
  }

  alignas(64) std::array<std::byte, 128 * 128> memory_{};
  std::array<std::byte, 64> local_{};
  std::vector<RoundTripLane*> lanes_;
  std::shared_ptr<EngineCore> engine_;
  std::shared_ptr<SessionCore> session_;
};

/// Two lanes and 64 reads: 32 writes behind them are answered by the first round trip, and not by
/// the one in which the last reads are, the fourth.
TEST_F(PartedLanesTest, WritesPassReadsThatWait) {
  constexpr std::uint32_t kReads = 64;
  constexpr std::uint32_t kWrites = 32;
  for (const test::DeviceProfile& device : test::device_profiles()) {
    SCOPED_TRACE(device.name);
    const auto in_flight = static_cast<std::uint32_t>(device.max_initiator_depth);
    if (in_flight == 0) continue;
    start(2, in_flight);
    const Region for_reads = open(Rights::kRead);
    const Region for_writes = open(Rights::kWrite);
    Queue reads = queue_of(for_reads);
    Queue writes = queue_of(for_writes);
    read(reads, kReads);
    write(writes, kWrites);
    EXPECT_EQ(posted(), (std::vector<std::size_t>{kReads, kWrites}));
    const std::array queues{&reads, &writes};
    const std::size_t first = std::min(kReads, in_flight);
    EXPECT_EQ(round_trip(queues), (std::vector<std::size_t>{first, kWrites}));
    std::size_t read_by_now = first;
    while (read_by_now < kReads) {
      const auto ended = round_trip(queues);
      ASSERT_EQ(ended.front(), std::min<std::size_t>(in_flight, kReads - read_by_now));
      read_by_now += ended.front();
    }
  }
}

/// The same on one lane: what the others are for.
TEST_F(PartedLanesTest, OnOneLaneWritesWaitBehindReads) {
  for (const std::uint32_t in_flight : {1U, 4U, 16U}) {
    SCOPED_TRACE(in_flight);
    start(1, in_flight);
    const Region for_reads = open(Rights::kRead);
    const Region for_writes = open(Rights::kWrite);
    Queue reads = queue_of(for_reads);
    Queue writes = queue_of(for_writes);
    read(reads, 64);
    write(writes, 32);
    const std::array queues{&reads, &writes};
    std::size_t trips = 1;
    while (trips < 100 && round_trip(queues).back() == 0) ++trips;
    EXPECT_EQ(trips, 64 / in_flight);
  }
}

/// The price: 16 reads in flight instead of 32, so that only a session with both kinds pays it.
TEST_F(PartedLanesTest, ReadsUseAllLanesUntilThereAreWritesOfTheirOwn) {
  start(2, 16);
  const Region for_reads = open(Rights::kRead);
  for (const std::size_t in_flight : {32U, 16U}) {
    Queue first = queue_of(for_reads);
    Queue second = queue_of(for_reads);
    read(first, 64);
    read(second, 64);
    const std::array queues{&first, &second};
    const auto ended = round_trip(queues);
    EXPECT_EQ(ended[0] + ended[1], in_flight);
    for (int trips = 0; trips < 8; ++trips) (void)round_trip(queues);
    if (in_flight == 32) (void)open(Rights::kWrite);
  }
}

TEST_F(PartedLanesTest, OperationsOfBothKindsOfRegionsUseTheLanesOfReads) {
  start(4, 16);
  const Region for_writes = open(Rights::kWrite);
  const Region for_both = open(Rights::kAll);
  std::vector<Queue> queues;
  for (int i = 0; i < 4; ++i) {
    queues.push_back(queue_of(for_both));
    write(queues.back(), 1);
  }
  EXPECT_EQ(posted(), (std::vector<std::size_t>{2, 2, 0, 0}));
  for (int i = 0; i < 4; ++i) {
    queues.push_back(queue_of(for_writes));
    write(queues.back(), 1);
  }
  EXPECT_EQ(posted(), (std::vector<std::size_t>{2, 2, 2, 2}));
  for (RoundTripLane* const lane : lanes_) lane->round_trip();
  for (Queue& queue : queues) EXPECT_EQ(queue.wait(1).size(), 1U);
}

TEST_F(PartedLanesTest, SynchronousOperationsGoByTheirKind) {
  start(2, 16);
  for (RoundTripLane* const lane : lanes_) lane->prompt = true;
  const Region for_writes = open(Rights::kWrite);
  const Region for_both = open(Rights::kAll);
  EXPECT_TRUE(for_both.read(ByteOffset{0}, local_));
  EXPECT_TRUE(for_both.fetch_add(ByteOffset{0}, 1));
  EXPECT_EQ(posted(), (std::vector<std::size_t>{2, 0}));
  EXPECT_TRUE(for_both.write(ByteOffset{0}, local_));
  EXPECT_TRUE(for_writes.write(ByteOffset{0}, local_));
  EXPECT_EQ(posted(), (std::vector<std::size_t>{2, 2}));
  EXPECT_TRUE(for_both.flush_visible());
  EXPECT_EQ(posted(), (std::vector<std::size_t>{3, 3})) << "a flush covers all lanes";
}

/// The next holder sees what was written, over whichever lane.
TEST_F(PartedLanesTest, LockIsReleasedBehindTheWritesOfAllLanes) {
  using transport::Opcode;
  const auto opcodes = [](const RoundTripLane& lane) {
    std::vector<Opcode> found;
    for (const auto& seen : lane.posted) found.push_back(seen.request.opcode);
    return found;
  };
  for (const std::uint32_t lanes : {1U, 2U}) {
    SCOPED_TRACE(lanes);
    start(lanes, 16);
    for (RoundTripLane* const lane : lanes_) lane->prompt = true;
    const Region for_writes = open(Rights::kWrite);
    const auto lock = remora::Lock::open(open(Rights::kAll), ByteOffset{0});
    ASSERT_TRUE(lock);
    auto held = lock->try_acquire();
    ASSERT_TRUE(held);
    ASSERT_TRUE(held->region().write(ByteOffset{64}, local_));
    RoundTripLane& first = *lanes_.front();
    ASSERT_EQ(first.posted.at(1).request.opcode, Opcode::kCompareSwap);
    std::fill(first.results.begin(), first.results.end(),
              first.posted.at(1).request.operands.atomic.swap);
    EXPECT_TRUE(held->release());
    const Opcode third = lanes == 1 ? Opcode::kWrite : Opcode::kFlush;
    EXPECT_EQ(opcodes(first),
              (std::vector{Opcode::kFetchAdd, Opcode::kCompareSwap, third, Opcode::kCompareSwap}));
    if (lanes == 2) {
      EXPECT_EQ(opcodes(*lanes_.back()), (std::vector{Opcode::kWrite, Opcode::kFlush}));
    }
  }
}

/// The first queue takes the first lane, the second one the second.
TEST_F(PartedLanesTest, NothingChangesForManyReadsInFlightAndForRails) {
  for (const bool rails : {false, true}) {
    SCOPED_TRACE(rails);
    start(2, rails ? SessionLanes::kFewReads : SessionLanes::kFewReads + 1, rails);
    const Region for_writes = open(Rights::kWrite);
    const Region for_reads = open(Rights::kRead);
    Queue writes = queue_of(for_writes);
    Queue reads = queue_of(for_reads);
    write(writes, 2);
    read(reads, 3);
    EXPECT_EQ(posted(), (std::vector<std::size_t>{2, 3}));
    const std::array queues{&writes, &reads};
    EXPECT_EQ(round_trip(queues), (std::vector<std::size_t>{2, 3}));
  }
}

}  // namespace
}  // namespace remora::detail
