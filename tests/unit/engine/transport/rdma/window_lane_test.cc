/// The windows of one lane.

#include "transport/rdma/window_lane.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "unit/engine/transport/rdma/windows_fixture.h"

namespace remora::transport::rdma {
namespace {

using verbs::Access;

/// One lane, to which stretches are bound.
class WindowLaneTest : public RdmaWindowsTest {
 protected:
  void SetUp() override {
    RdmaWindowsTest::SetUp();
    leased_ = acquire_lease();
    link_.reset(new Connected{connect(*leased_)});  // NOLINT: it does not move
  }
  void TearDown() override {
    link_.reset();
    leased_.reset();
    RdmaWindowsTest::TearDown();
  }
  [[nodiscard]] WindowLane& lane() { return *link_->lane; }
  [[nodiscard]] std::vector<LeasedRange> stretches(std::size_t count) {
    std::vector<LeasedRange> some;
    for (std::size_t i = 0; i < count; ++i)
      some.push_back(*leased_->find(stretch(i % 2, 64 * i, 64)));
    return some;
  }
  Result<std::vector<std::uint32_t>> bind(std::size_t count = 1, Deadline deadline = later()) {
    return bind_for(&owner_, count, deadline);
  }
  Result<std::vector<std::uint32_t>> bind_for(WindowLane::Owner owner, std::size_t count = 1,
                                              Deadline deadline = later()) {
    return lane().bind(owner, stretches(count), Access::kRemoteRead, deadline);
  }
  void expect_nothing_left() {
    EXPECT_FALSE(lane().has(&owner_));
    EXPECT_EQ(fake_.uses("dealloc_mw"), fake_.uses("alloc_mw"));
  }

  const int owner_ = 0;
  const int other_ = 0;
  std::shared_ptr<const LeasedMemory> leased_;
  std::unique_ptr<Connected> link_;
};

TEST_F(WindowLaneTest, ManyStretchesAreBoundInChainsThatFitTheSendQueue) {
  constexpr std::size_t kStretches = 2 * WindowLane::kBinds + 8;
  const auto keys = bind(kStretches).value();
  EXPECT_EQ(std::set<std::uint32_t>(keys.begin(), keys.end()).size(), kStretches);
  ASSERT_EQ(fake_.sent.size(), 3U);
  EXPECT_EQ(fake_.sent[0].size(), WindowLane::kBinds);
  EXPECT_EQ(fake_.sent[2].size(), 8U);
  const ibv_send_wr& last = fake_.sent[2].back();
  EXPECT_EQ(last.opcode, IBV_WR_BIND_MW);
  EXPECT_EQ(last.bind_mw.rkey, keys.back());
  EXPECT_EQ(last.bind_mw.bind_info.addr, stretches(kStretches).back().address());
  EXPECT_EQ(last.bind_mw.bind_info.length, 64U);
  EXPECT_EQ(last.bind_mw.bind_info.mw_access_flags, static_cast<unsigned>(IBV_ACCESS_REMOTE_READ));
  // What is bound stays bound, by the same keys.
  EXPECT_EQ(bind(kStretches).value(), keys);
  EXPECT_EQ(fake_.sent.size(), 3U);
  EXPECT_TRUE(lane().has(&owner_));
  EXPECT_TRUE(lane().drop(&owner_));
  expect_nothing_left();
}

/// A request that was posted late, by a thread that was stopped, must not pass by a newer window.
TEST_F(WindowLaneTest, KeysOfWindowsThatWentDoNotReturnOnTheLane) {
  fake_.play(*test::find_device_profile("mlx5"));
  fake_.table.alloc_mw = WindowNic::before.alloc_mw;
  std::set<std::uint32_t> before;
  for (int round = 0; round < 100; ++round) {
    const auto keys = bind(3);
    ASSERT_OK(keys);
    for (const std::uint32_t key : *keys) EXPECT_TRUE(before.insert(key).second) << round;
    EXPECT_TRUE(lane().drop(&owner_));
  }
  EXPECT_EQ(fake_.uses("alloc_mw"), 300) << "the device is not asked again";
  expect_nothing_left();
}

TEST_F(WindowLaneTest, WindowWithoutAKeyLeftIsPassedOver) {
  fake_.play(*test::find_device_profile("mlx5"));
  fake_.table.alloc_mw = WindowNic::before.alloc_mw;
  std::set<std::uint32_t> before;
  for (int round = 0; round < 600; ++round) {
    const auto keys = bind(1);
    ASSERT_OK(keys);
    EXPECT_TRUE(before.insert(keys->front()).second) << round;
    EXPECT_TRUE(lane().drop(&owner_));
  }
  expect_nothing_left();
}

TEST_F(WindowLaneTest, EndedLaneHasNoWindowsAndBindsNoMore) {
  ASSERT_OK(bind_for(&owner_, 2));
  ASSERT_OK(bind_for(&other_, 2));
  lane().end();
  EXPECT_EQ(fake_.uses("dealloc_mw"), 4);
  EXPECT_CODE(bind(2), kConnectionLost);
  EXPECT_EQ(fake_.uses("alloc_mw"), 4) << "the queue pair may be gone";
  lane().end();
}

TEST_F(WindowLaneTest, BindThatFailsBreaksTheLaneAndLeavesNothing) {
  WindowNic::ends_with = IBV_WC_MW_BIND_ERR;
  const auto failed = bind();
  EXPECT_CODE(failed, kProvider);
  EXPECT_EQ(failed.error().completion_status(), CompletionStatus::kMemoryWindowBindError);
  EXPECT_EQ(broken(), 1);
  expect_nothing_left();
}

TEST_F(WindowLaneTest, BindThatIsFlushedHasItsLaneGone) {
  WindowNic::ends_with = IBV_WC_WR_FLUSH_ERR;
  EXPECT_CODE(bind(), kConnectionLost);
  expect_nothing_left();
}

/// A window is not bound as long as its own request has not completed.
TEST_F(WindowLaneTest, CompletionOfALaterRequestBreaksTheLane) {
  ASSERT_OK(bind());
  ibv_wc early{};
  early.wr_id = fake_.sent.back().back().wr_id + 2;
  early.status = IBV_WC_SUCCESS;
  fake_.completions.push_back(early);
  EXPECT_CODE(bind_for(&other_, 2), kProvider);
  EXPECT_EQ(broken(), 1);
  EXPECT_FALSE(lane().has(&other_));
}

/// Others of the session have operations on it.
TEST_F(WindowLaneTest, ChainThatIsNotPostedLeavesTheLaneAsItWas) {
  fake_.fail("post_send", 1, ENOMEM);
  EXPECT_CODE(bind(), kWouldBlock);
  EXPECT_EQ(broken(), 0);
  expect_nothing_left();
  ASSERT_OK(bind());
}

/// Its key is still of use, and its memory about to be another's.
TEST_F(WindowLaneTest, WindowThatIsNotTakenBackBreaksTheLane) {
  ASSERT_OK(bind(2));
  fake_.fail("dealloc_mw", 1, EIO);
  const std::uint64_t failures = verbs::teardown_failure_count();
  EXPECT_TRUE(lane().drop(&owner_));
  EXPECT_EQ(broken(), 1);
  EXPECT_EQ(verbs::teardown_failure_count(), failures + 1) << "the other one is";
}

TEST_F(WindowLaneTest, WindowsThatAreNotToBeHadLeaveTheLaneAsItWas) {
  fake_.fail("alloc_mw", 2, ENOMEM);
  EXPECT_CODE(bind(2), kOutOfMemory);
  EXPECT_EQ(broken(), 0);
  EXPECT_TRUE(fake_.sent.empty());
  ASSERT_OK(bind(2));
}

TEST_F(WindowLaneTest, DeviceThatGivesNoWindowsInTimeLeavesTheLaneAsItWas) {
  WindowNic::at_alloc = [] { std::this_thread::sleep_for(std::chrono::milliseconds{2}); };
  EXPECT_CODE(bind(60, Clock::now() + std::chrono::milliseconds{20}), kTimedOut);
  EXPECT_EQ(broken(), 0);
  expect_nothing_left();
  EXPECT_TRUE(fake_.sent.empty());
}

TEST_F(WindowLaneTest, DeviceThatDoesNotAnswerIsWaitedForUntilTheDeadline) {
  WindowNic::silent = true;
  const auto began = Clock::now();
  EXPECT_CODE(bind(1, began + std::chrono::seconds{1}), kTimedOut);
  EXPECT_GE(Clock::now() - began, std::chrono::seconds{1});
  EXPECT_EQ(broken(), 1) << "what it binds later belongs to no owner";
}

/// However long all of a grant's windows may take.
TEST_F(WindowLaneTest, ChainThatIsNotAnsweredEndsTheWait) {
  WindowNic::silent = true;
  EXPECT_CODE(bind(1, Clock::now() + std::chrono::hours{1}), kTimedOut);
  EXPECT_EQ(broken(), 1);
}

/// The control thread says that a lane ends, and does not wait for threads that bind or free.
TEST_F(WindowLaneTest, StoppedLaneBindsNoMoreAndKeepsItsWindowsUntilItsEnd) {
  ASSERT_OK(bind());
  lane().stop();
  EXPECT_EQ(fake_.uses("dealloc_mw"), 0);
  EXPECT_CODE(bind_for(&other_), kConnectionLost);
  lane().end();
  EXPECT_EQ(fake_.uses("dealloc_mw"), 1);
}

TEST_F(WindowLaneTest, StopEndsTheWaitForADevice) {
  WindowNic::silent = true;
  WindowNic::at_poll = [] { WindowNic::lane->stop(); };
  WindowNic::lane = &lane();
  EXPECT_CODE(bind(), kConnectionLost);
}

TEST_F(WindowLaneTest, StopEndsTheAllocationOfMore) {
  WindowNic::at_alloc = [] { WindowNic::lane->stop(); };
  WindowNic::lane = &lane();
  EXPECT_CODE(bind(60), kConnectionLost);
  EXPECT_EQ(fake_.uses("alloc_mw"), 1);
  expect_nothing_left();
  EXPECT_TRUE(fake_.sent.empty());
}

/// The thread that ends a lane waits until the thread that binds has stopped.
TEST_F(WindowLaneTest, EndComesBehindABindThatIsUnderWay) {
  WindowNic::silent = true;
  WindowNic::polls = 0;
  std::thread ends{[&] {
    while (WindowNic::polls == 0) std::this_thread::yield();
    lane().end();
  }};
  EXPECT_FALSE(bind());
  ends.join();
  expect_nothing_left();
}

}  // namespace
}  // namespace remora::transport::rdma
