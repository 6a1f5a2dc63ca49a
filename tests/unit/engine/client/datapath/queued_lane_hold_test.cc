/// A lane that is held, so that nothing ends when its session is interrupted on purpose; lanes that
/// lead to another device than the one before.

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "queued_lane_revival_fixture.h"

namespace remora::detail {
namespace {

TEST_F(QueuedLaneRevivalTest, DeeperLaneIsUsedAsDeepAsTheFirstOne) {
  driver_->interrupt(Reason::kLaneBroken);
  ASSERT_TRUE(follow(std::make_unique<FollowingLane>(16)));
  EXPECT_EQ(driver_->depth(), 4U);
  for (std::size_t i = 0; i < 6; ++i) submit(block(Opcode::kWrite, i));
  EXPECT_EQ(lane_->posted.size(), 4U);
  lane_->complete(3);
  wait_all(4);
  lane_->complete(5);
  wait_all(6);
}

TEST_F(QueuedLaneRevivalTest, HeldLaneCompletesWhatIsPostedAndPostsNothing) {
  auto& posted = block(Opcode::kWrite, 0);
  submit(posted);
  lane_->complete(0);
  ASSERT_TRUE(driver_->hold(Clock::now() + std::chrono::seconds{60}));
  EXPECT_EQ(taken(), (std::vector<OperationRecord*>{&posted}));
  EXPECT_TRUE(posted.outcome.ok);
  auto& waits = block(Opcode::kWrite, 1);
  submit(waits);
  EXPECT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(told_broken_, 0) << "nothing has failed";
  driver_->interrupt(Reason::kNone);
  EXPECT_EQ(sink_.ready(), 0U) << "nothing ends by an interruption of a held lane";
  EXPECT_EQ(registry_->sum("remora_client_lanes_broken_total").value(), 0);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 1U);
  lane_->complete(0);
  wait_all(1);
  EXPECT_TRUE(waits.outcome.ok);
}

/// An event loop may not block.
TEST_F(QueuedLaneRevivalTest, WhatEventLoopsCallDoesNotWaitForAHold) {
  driver_->interrupt(Reason::kLaneBroken);
  auto lane = std::make_unique<FollowingLane>(4);
  FollowingLane& held = *lane;
  ASSERT_TRUE(follow(std::move(lane)));
  auto& posted = block(Opcode::kWrite, 0);
  submit(posted);
  bool looked = false;
  held.before_poll = [&] {  // while hold() has the lane
    if (std::exchange(looked, true)) return;
    const auto never = [] { return Deadline::max(); };
    driver_->progress_and_arm(sink_, DeadlineSource{never});
    EXPECT_FALSE(driver_->cancel(posted));
    held.complete(0);
  };
  EXPECT_TRUE(driver_->hold(Clock::now() + std::chrono::seconds{60}));
  EXPECT_TRUE(looked);
  EXPECT_FALSE(driver_->ending());
  driver_->release_hold();
  EXPECT_EQ(taken(), (std::vector<OperationRecord*>{&posted}));
  EXPECT_TRUE(posted.outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, LaneThatIsNotHeldInTimeGoesOn) {
  submit(block(Opcode::kWrite, 0));
  EXPECT_FALSE(driver_->hold(Clock::now()));
  EXPECT_FALSE(driver_->broken());
  auto& next = block(Opcode::kWrite, 1);
  submit(next);
  EXPECT_EQ(lane_->posted.size(), 2U);
  lane_->complete(1);
  wait_all(2);
  EXPECT_TRUE(next.outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, ReleasedLanePostsWhatHasWaited) {
  ASSERT_TRUE(driver_->hold(Clock::now()));
  auto& waits = block(Opcode::kRead, 0);
  submit(waits);
  EXPECT_TRUE(lane_->posted.empty());
  driver_->release_hold();
  EXPECT_FALSE(driver_->broken());
  ASSERT_EQ(lane_->posted.size(), 1U);
  lane_->complete(0);
  wait_all(1);
  EXPECT_TRUE(waits.outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, ReleasedLaneDoesNotPostWhatIsOverdue) {
  ASSERT_TRUE(driver_->hold(Clock::now()));
  auto& overdue = block(Opcode::kRead, 0, std::chrono::milliseconds{0});
  submit(overdue);
  driver_->release_hold();
  EXPECT_TRUE(lane_->posted.empty());
  EXPECT_EQ(taken(), (std::vector<OperationRecord*>{&overdue}));
  EXPECT_EQ(overdue.outcome.code, Code::kTimedOut);
  EXPECT_EQ(overdue.outcome.reason, Reason::kExpired);
}

TEST_F(QueuedLaneRevivalTest, LaneThatBreaksWhileItIsHeldIsNotHeld) {
  auto& write = block(Opcode::kWrite, 0);
  submit(write);
  lane_->complete(0, CompletionStatus::kRetryExceeded);
  EXPECT_FALSE(driver_->hold(Clock::now() + std::chrono::seconds{60}));
  EXPECT_TRUE(driver_->broken());
  EXPECT_EQ(taken().size(), 1U);
  EXPECT_EQ(write.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(told_broken_, 1);
}

TEST_F(QueuedLaneRevivalTest, SessionThatEndsWhileItsLaneIsHeldEndsWhatWaits) {
  ASSERT_TRUE(driver_->hold(Clock::now()));
  auto& waits = block(Opcode::kRead, 0);
  submit(waits);
  driver_->fail(Reason::kLapsed);
  ASSERT_EQ(taken().size(), 1U);
  EXPECT_EQ(waits.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(lane_->closed, 1);
}

/// Atomics of two devices are not atomic to each other.
TEST_F(QueuedLaneRevivalTest, AtomicThatWaitsDoesNotFollowItsLaneToAnotherDevice) {
  const auto next_on = [](const char* device) {
    auto lane = std::make_unique<FollowingLane>(4);
    lane->set_rail(device);
    return lane;
  };
  driver_->interrupt(Reason::kLaneBroken);
  ASSERT_TRUE(follow(next_on("mlx5_0")));
  EXPECT_EQ(driver_->server_device(), transport::device_number("mlx5_0"));
  driver_->interrupt(Reason::kLaneBroken);
  auto& add = make(Opcode::kFetchAdd, 1024, {});
  auto& read = block(Opcode::kRead, 0);
  submit(add);
  submit(read);
  ASSERT_TRUE(follow(next_on("mlx5_0")));
  ASSERT_EQ(lane_->posted.size(), 2U) << "the same device";
  lane_->complete(1);
  wait_all(2);
  EXPECT_TRUE(add.outcome.ok);
  driver_->interrupt(Reason::kLaneBroken);
  auto& late = make(Opcode::kFetchAdd, 1024, {});
  auto& goes_on = block(Opcode::kWrite, 1);
  submit(late);
  submit(goes_on);
  (void)taken();
  ASSERT_TRUE(follow(next_on("mlx5_1")));
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.opcode, Opcode::kWrite);
  ASSERT_EQ(sink_.ready(), 1U);
  EXPECT_EQ(late.outcome.code, Code::kWrongAtomicDomain);
  EXPECT_EQ(driver_->rail()->server_device, "mlx5_1");
  lane_->complete(0);
  wait_all(2);
  EXPECT_TRUE(goes_on.outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, AtomicThatWaitsIsNotPostedWhereTheLaneMovesAndIsFollowedAtOnce) {
  const auto next_on = [](const char* device) {
    auto lane = std::make_unique<FollowingLane>(4);
    lane->set_rail(device);
    return lane;
  };
  driver_->interrupt(Reason::kLaneBroken);
  ASSERT_TRUE(follow(next_on("mlx5_0")));
  driver_->interrupt(Reason::kLaneBroken);
  auto& add = make(Opcode::kFetchAdd, 1024, {});
  submit(add);
  ASSERT_TRUE(driver_->replace(next_on("mlx5_1"))) << "the session breaks before it goes on";
  ASSERT_TRUE(follow(next_on("mlx5_1")));
  EXPECT_TRUE(lane_->posted.empty());
  ASSERT_EQ(sink_.ready(), 1U);
  EXPECT_EQ(add.outcome.code, Code::kWrongAtomicDomain);
}

}  // namespace
}  // namespace remora::detail
