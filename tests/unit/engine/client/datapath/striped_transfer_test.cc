/// How operations over several lanes end; the test decides how each lane completes.

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <numeric>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "client/engine/engine_core.h"
#include "support/eventually.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::detail {
/// The memory node that threads run on, as they are told; -1: the real one.
std::atomic<int> g_memory_node{-1};
}  // namespace remora::detail

/// Instead of the C library's.
extern "C" int getcpu(unsigned int* processor, unsigned int* node) noexcept {
  const auto result = ::syscall(SYS_getcpu, processor, node, nullptr);
  if (const int told = remora::detail::g_memory_node.load(); told >= 0)
    *node = static_cast<unsigned int>(told);
  return static_cast<int>(result);
}

namespace remora::detail {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::FakeLane;
using transport::Opcode;

/// Completes each request at once, with the status that the test has set; with kFlushed never.
class PromptLane : public FakeLane {
 public:
  PromptLane() : FakeLane{64, 1U << 20U} {}
  transport::PostOutcome post(transport::Chain chain,
                              std::uint64_t first_sequence) noexcept override {
    auto outcome = FakeLane::post(chain, first_sequence);
    if (ends_as != CompletionStatus::kFlushed)
      complete(first_sequence + outcome.taken - 1, ends_as);
    return outcome;
  }
  CompletionStatus ends_as = CompletionStatus::kSuccess;
};

class StripedTransferTest : public ::testing::Test {
 protected:
  /// `rates`: of the devices of the lanes, each of which is another rail; none: no rails.
  /// Each device is of the memory node of its number.
  void open(std::uint32_t count, const std::vector<std::uint32_t>& rates = {}) {
    EngineOptions options;
    options.lanes = count;
    options.spin = std::chrono::nanoseconds{0};
    options.operation_deadline = std::chrono::seconds{30};
    engine_ = EngineCore::create(options).value();
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory_;
    offer.rails = !rates.empty();
    if (on_told_device_)
      offer.device_told = [this](const std::string& device) {
        for (PromptLane* const lane : lanes_) lane->set_rail(device);
      };
    for (std::uint32_t i = 0; i < count; ++i) {
      auto lane = std::make_unique<PromptLane>();
      lanes_.push_back(lane.get());
      if (offer.rails)
        lane->set_rail(device_of(i), rates[i], static_cast<int>(i), i == 0 ? first_home_ : "");
      offer.more_lanes.push_back(std::move(lane));
    }
    region_.emplace(transport::open_fake_region(engine_, std::move(offer)));
  }
  /// Of the server, behind the lane.
  std::string device_of(std::uint32_t lane) const {
    if (lane == 0) return first_device_;
    return lane == 1 ? second_device_ : "mlx5_" + std::to_string(lane);
  }
  double counted(const char* status) {
    return engine_->registry().sum("remora_client_operations_total", {{"status", status}}).value();
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(4_MiB);
  std::vector<std::byte> local_ = std::vector<std::byte>(4_MiB);
  std::shared_ptr<EngineCore> engine_;
  std::vector<PromptLane*> lanes_;
  std::string first_device_ = "mlx5_0";
  std::string second_device_ = "mlx5_1";
  std::string first_home_{};     ///< where the first lane leads when all rails answer; empty: there
  bool on_told_device_ = false;  ///< all lanes lead to the device that the server tells of itself
  std::optional<Region> region_;
};

TEST_F(StripedTransferTest, PartsAreAsManyAsLanesAndMakeTheWhole) {
  open(3);
  ASSERT_TRUE(region_->read(ByteOffset{4096}, std::span{local_}.first(3_MiB + 1)));
  std::uint64_t next = reinterpret_cast<std::uintptr_t>(memory_.data()) + 4096;
  const std::byte* local = local_.data();
  for (const PromptLane* lane : lanes_) {
    ASSERT_FALSE(lane->posted.empty());
    for (const auto& seen : lane->posted) {
      EXPECT_EQ(seen.request.remote_address, next);
      EXPECT_EQ(seen.request.local, local);
      next += seen.request.length_bytes;
      local += seen.request.length_bytes;
    }
  }
  EXPECT_EQ(local, local_.data() + 3_MiB + 1);
  EXPECT_EQ(counted("ok"), 1);
}

TEST_F(StripedTransferTest, PartsAreAsLargeAsTheRatesOfTheirRails) {
  open(2, {100'000, 300'000});
  ASSERT_TRUE(region_->read(ByteOffset{0}, local_));
  std::vector<std::uint64_t> bytes;
  for (const PromptLane* lane : lanes_) {
    bytes.push_back(0);
    for (const auto& seen : lane->posted) bytes.back() += seen.request.length_bytes;
  }
  EXPECT_EQ(bytes, (std::vector<std::uint64_t>{1_MiB, 3_MiB}));
}

/// An acknowledged write is surely seen over its own lane only.
TEST_F(StripedTransferTest, ThreadThatMovesToAnotherNodeKeepsItsLane) {
  open(2, {1, 1});
  const auto read_from = [&](int node) {
    g_memory_node = node;
    EXPECT_TRUE(region_->read(ByteOffset{0}, std::span{local_}.first(64)));
  };
  const auto posted = [&] {
    return std::vector<std::size_t>{lanes_[0]->posted.size(), lanes_[1]->posted.size()};
  };
  std::thread{[&] {
    read_from(1);
    EXPECT_EQ(posted(), (std::vector<std::size_t>{0, 1})) << "the lane that is near";
    read_from(0);
    EXPECT_EQ(posted(), (std::vector<std::size_t>{0, 2}));
  }}.join();
  std::thread{[&] { read_from(0); }}.join();
  EXPECT_EQ(posted(), (std::vector<std::size_t>{1, 2}));
  g_memory_node = -1;
}

/// The region's atomic domain is fake0.
TEST_F(StripedTransferTest, AtomicsGoByTheLaneToTheirDevice) {
  first_device_ = "fake0";
  open(3, {1, 1, 1});
  ASSERT_TRUE(region_->fetch_add(ByteOffset{0}, 1));
  ASSERT_EQ(lanes_[0]->posted.size(), 1U);
  Queue queue = region_->queue({.depth = 1}).value();
  queue.fetch_add(ByteOffset{0}, 1);
  ASSERT_TRUE(queue.submit());
  ASSERT_EQ(queue.wait(1).size(), 1U);
  EXPECT_EQ(lanes_[0]->posted.size(), 2U) << "a queue that takes atomics is on that lane";
}

/// The first lane is there in place of a rail that does not answer, to which it returns.
TEST_F(StripedTransferTest, AtomicsGoByTheLaneThatStaysOnTheirDevice) {
  first_device_ = "fake0";
  first_home_ = "mlx5_0";
  second_device_ = "fake0";
  open(2, {1, 1});
  for (int i = 0; i < 2; ++i) {
    Queue queue = region_->queue({.depth = 1}).value();
    queue.fetch_add(ByteOffset{0}, 1);
    ASSERT_TRUE(queue.submit());
    ASSERT_EQ(queue.wait(1).size(), 1U);
  }
  ASSERT_TRUE(region_->fetch_add(ByteOffset{0}, 1));
  EXPECT_TRUE(lanes_[0]->posted.empty());
  EXPECT_EQ(lanes_[1]->posted.size(), 3U);
}

/// As an older server, or one that listens on one address.
TEST_F(StripedTransferTest, AtomicsAreTakenWhereTheServerTellsNoRails) {
  on_told_device_ = true;
  open(2, {1, 1});
  EXPECT_TRUE(region_->fetch_add(ByteOffset{0}, 1));
}

TEST_F(StripedTransferTest, AtomicsWithoutALaneToTheirDeviceAreRefused) {
  open(3, {1, 1, 1});
  const auto refused = region_->fetch_add(ByteOffset{0}, 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kWrongAtomicDomain);
  for (const PromptLane* lane : lanes_) EXPECT_TRUE(lane->posted.empty());
}

TEST_F(StripedTransferTest, SmallTransfersAndAtomicsStayOnOneLane) {
  open(2);
  ASSERT_TRUE(region_->read(ByteOffset{0}, std::span{local_}.first(64_KiB)));
  ASSERT_TRUE(region_->read(ByteOffset{0}, std::span{local_}.first(2_MiB - 1)));
  ASSERT_TRUE(region_->fetch_add(ByteOffset{0}, 1));
  EXPECT_TRUE(lanes_[0]->posted.empty() || lanes_[1]->posted.empty()) << "one thread, one lane";
}

TEST_F(StripedTransferTest, FlushUsesEveryLane) {
  open(3);
  ASSERT_TRUE(region_->flush_visible());
  for (const PromptLane* lane : lanes_) {
    ASSERT_EQ(lane->posted.size(), 1U);
    EXPECT_EQ(lane->posted[0].request.opcode, Opcode::kFlush);
  }
}

TEST_F(StripedTransferTest, QueuesTakeTurns) {
  open(2);
  for (int i = 0; i < 4; ++i) {
    Queue queue = region_->queue({.depth = 1}).value();
    queue.read(Block{0}, std::span{local_}.first(64));
    ASSERT_TRUE(queue.submit());
    ASSERT_EQ(queue.wait(1).size(), 1U);
  }
  EXPECT_EQ(lanes_[0]->posted.size(), 2U);
  EXPECT_EQ(lanes_[1]->posted.size(), 2U);
}

TEST_F(StripedTransferTest, QueuedTransferStaysOnItsQueuesLaneAndSoDoesTheFlushBehindIt) {
  open(3);
  Queue queue = region_->queue({.depth = 3}).value();
  queue.write(ByteOffset{0}, std::span{local_});
  queue.read(ByteOffset{0}, std::span{local_});
  queue.barrier();
  queue.flush_visible();
  ASSERT_TRUE(queue.submit());
  ASSERT_EQ(queue.wait(3).size(), 3U);
  const auto carries = [](const PromptLane* lane) { return !lane->posted.empty(); };
  ASSERT_EQ(std::count_if(lanes_.begin(), lanes_.end(), carries), 1);
  const PromptLane* const lane = *std::find_if(lanes_.begin(), lanes_.end(), carries);
  EXPECT_EQ(lane->posted.back().request.opcode, Opcode::kFlush);
}

TEST_F(StripedTransferTest, RefusedPartIsTheWholesRefusal) {
  open(2);
  lanes_[1]->ends_as = CompletionStatus::kRemoteAccessError;
  const Status written = region_->write(ByteOffset{0}, std::span{local_}.first(2_MiB));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Code::kAccessRefused);
  EXPECT_EQ(counted("access_refused"), 1);
  EXPECT_EQ(counted("ok"), 0);
  // A thread of the session ends the lane.
  EXPECT_TRUE(test::eventually([this] { return !region_->connected(); }))
      << "the session ends with its lane";
}

TEST_F(StripedTransferTest, WriteThatTimesOutInPartIsIndeterminate) {
  open(2);
  lanes_[1]->ends_as = CompletionStatus::kFlushed;
  const Status written =
      region_->write(ByteOffset{0}, std::span{local_}.first(2_MiB), std::chrono::seconds{1});
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().code(), Code::kIndeterminate);
  EXPECT_EQ(counted("indeterminate"), 1);
}

TEST_F(StripedTransferTest, ReadThatTimesOutInPartHasTimedOut) {
  open(2);
  lanes_[0]->ends_as = CompletionStatus::kFlushed;
  const Status read =
      region_->read(ByteOffset{0}, std::span{local_}.first(2_MiB), std::chrono::seconds{1});
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kTimedOut);
  EXPECT_EQ(counted("timed_out"), 1);
}

}  // namespace
}  // namespace remora::detail
