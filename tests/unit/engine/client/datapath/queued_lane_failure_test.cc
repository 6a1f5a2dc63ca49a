/// Operations that fail, expire or are cancelled, and lanes that break.

#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "queued_lane_driver_fixture.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::Opcode;

TEST_F(QueuedLaneDriverTest, FailureBreaksTheLaneAndEndsEachOperationByItsKind) {
  auto& early = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  auto& refused = registered(make(Opcode::kRead, 64, std::span{buffer_}.first(64)));
  auto& read = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  auto& write = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  auto& atomic = make(Opcode::kCompareSwap, 0, {});
  early.next = &refused;
  refused.next = &read;
  read.next = &write;
  write.next = &atomic;
  submit(early);
  lane_->complete(1, CompletionStatus::kRemoteAccessError);
  wait_all(5);
  EXPECT_TRUE(early.outcome.ok) << "unsignaled, before the one that failed";
  EXPECT_EQ(refused.outcome.code, Code::kAccessRefused);
  EXPECT_EQ(read.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(write.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(atomic.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(lane_->broken, 1);
  EXPECT_EQ(lane_->let_gone, 1) << "all has flushed: no thread waits for the device";
  EXPECT_EQ(lane_->closed, 1);
  EXPECT_EQ(told_broken_, 1);
  EXPECT_EQ(counted("indeterminate"), 2);
  EXPECT_EQ(victims("refused"), 3) << "not the one that was refused";
  EXPECT_EQ(victims("deadline"), 0);
}

TEST_F(QueuedLaneDriverTest, CompletionOfWhatIsNotPostedBreaksTheLane) {
  auto& read = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  auto& write = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  read.next = &write;
  submit(read);
  lane_->ready.push_back(
      {.sequence = 1000, .status = CompletionStatus::kSuccess, .vendor_error = 0});
  wait_all(2);
  EXPECT_EQ(read.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(write.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(lane_->broken, 1);
  EXPECT_EQ(told_broken_, 1);
}

TEST_F(QueuedLaneDriverTest, ExpiredPostedReadTimesOutAndBreaksTheLane) {
  auto& operation = registered(
      make(Opcode::kRead, 0, std::span{buffer_}.first(64), std::chrono::milliseconds{5}));
  auto& neighbour = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  operation.next = &neighbour;
  submit(operation);
  wait_all(2, operation.deadline);
  EXPECT_EQ(operation.outcome.code, Code::kTimedOut);
  EXPECT_EQ(operation.outcome.reason, Reason::kExpired);
  EXPECT_EQ(neighbour.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(neighbour.outcome.reason, Reason::kLaneVictim);
  EXPECT_TRUE(driver_->broken());
  EXPECT_EQ(victims("deadline"), 1) << "not the one that ran out of time";
  EXPECT_EQ(victims("refused"), 0);
  EXPECT_EQ(driver_->fault(), LaneFault::kDeadline);
}

TEST_F(QueuedLaneDriverTest, ExpiredPostedWriteThatIsAloneIsNoVictim) {
  auto& operation = registered(
      make(Opcode::kWrite, 0, std::span{buffer_}.first(64), std::chrono::milliseconds{5}));
  submit(operation);
  wait_all(1, operation.deadline);
  EXPECT_EQ(operation.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(operation.outcome.reason, Reason::kExpired);
}

// Else the victims of an application that tries again and again with its old handle would grow.
TEST_F(QueuedLaneDriverTest, OperationOnALaneThatBrokeBeforeIsNoVictim) {
  auto& expires = registered(
      make(Opcode::kRead, 0, std::span{buffer_}.first(64), std::chrono::milliseconds{5}));
  submit(expires);
  wait_all(1, expires.deadline);
  ASSERT_TRUE(driver_->broken());
  auto& again = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  submit(again);
  wait_all(2);
  EXPECT_EQ(again.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(victims("deadline"), 0);
}

TEST_F(QueuedLaneDriverTest, OperationThatWaitsForALaneThatADeadlineBreaksIsAVictim) {
  start(std::make_unique<FakeLane>(1));
  auto& expires = registered(
      make(Opcode::kRead, 0, std::span{buffer_}.first(64), std::chrono::milliseconds{5}));
  auto& waits = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  // Several requests, but one victim.
  auto& long_one = make(Opcode::kRead, 0, std::span{buffer_}.first(2048));
  expires.next = &waits;
  waits.next = &long_one;
  submit(expires);
  wait_all(3, expires.deadline);
  EXPECT_EQ(expires.outcome.code, Code::kTimedOut);
  EXPECT_EQ(waits.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(victims("deadline"), 2);
}

TEST_F(QueuedLaneDriverTest, LostConnectionHasNoVictims) {
  auto& operation = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  auto& other = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  operation.next = &other;
  submit(operation);
  lane_->complete(0, CompletionStatus::kRetryExceeded);
  wait_all(2);
  EXPECT_EQ(counted("ok"), 0);
  EXPECT_EQ(victims("deadline") + victims("refused"), 0);
  EXPECT_EQ(operation.outcome.reason, Reason::kLaneBroken);
  EXPECT_EQ(other.outcome.reason, Reason::kLaneBroken);
}

TEST_F(QueuedLaneDriverTest, OperationsAreVictimsOfTheFaultThatTheirLaneIsBlamedFor) {
  auto& operation = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  submit(operation);
  driver_->blame(LaneFault::kDeadline);
  driver_->blame(LaneFault::kRefused);  // the first fault is kept
  driver_->fail(Reason::kLaneBroken);
  wait_all(1);
  EXPECT_EQ(operation.outcome.reason, Reason::kLaneVictim);
  EXPECT_EQ(victims("deadline"), 1);
}

TEST_F(QueuedLaneDriverTest, ExpiredQueuedWriteTimesOutWithoutTouchingTheLane) {
  start(std::make_unique<FakeLane>(1));
  auto& holds = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  auto& queued = registered(
      make(Opcode::kWrite, 0, std::span{buffer_}.first(64), std::chrono::milliseconds{5}));
  holds.next = &queued;
  submit(holds);
  wait_all(1, queued.deadline);
  EXPECT_EQ(queued.outcome.code, Code::kTimedOut);
  EXPECT_FALSE(driver_->broken());
  EXPECT_EQ(lane_->posted.size(), 1U);
  lane_->complete(0);
  wait_all(2);
  EXPECT_TRUE(holds.outcome.ok);
}

TEST_F(QueuedLaneDriverTest, PartlyRefusedChainEndsEveryOperation) {
  lane_->take_at_most = 1;
  auto& first = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  auto& second = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  first.next = &second;
  submit(first);
  wait_all(2);
  EXPECT_EQ(first.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(second.outcome.code, Code::kConnectionLost);
}

TEST_F(QueuedLaneDriverTest, LaneThatDoesNotFlushIsClosedBeforeItsOperationsEnd) {
  lane_->flush_when_broken = false;
  auto& operation = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  submit(operation);
  driver_->fail(Reason::kPeerGone);
  wait_all(1);
  EXPECT_EQ(lane_->closed, 1);
  EXPECT_EQ(lane_->let_gone, 0) << "the device may still touch its buffer";
  EXPECT_EQ(operation.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(operation.outcome.reason, Reason::kPeerGone);
}

/// Else many lanes that are moved to the error state together would wait one after the other.
TEST_F(QueuedLaneDriverTest, LaneInTheErrorStateHasHadItsTimeToFlush) {
  lane_->flush_when_broken = false;
  auto& operation = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  submit(operation);
  driver_->move_to_error();
  std::this_thread::sleep_for(std::chrono::milliseconds{300});
  const int before = lane_->polls;
  driver_->fail(Reason::kPeerGone);
  EXPECT_LE(lane_->polls, before + 2);
  wait_all(1);
  EXPECT_EQ(lane_->closed, 1);
  EXPECT_EQ(operation.outcome.code, Code::kIndeterminate);
}

TEST_F(QueuedLaneDriverTest, CompletionsAreTakenEvenAfterTheTimeToFlush) {
  auto& first = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  auto& second = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  submit(first);
  submit(second);
  lane_->complete(0);
  driver_->move_to_error();
  std::this_thread::sleep_for(std::chrono::milliseconds{300});
  driver_->fail(Reason::kPeerGone);
  wait_all(2);
  EXPECT_TRUE(first.outcome.ok) << "it had ended";
  EXPECT_EQ(second.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(lane_->let_gone, 1) << "all has flushed";
}

TEST_F(QueuedLaneDriverTest, SubmissionToABrokenLaneEndsAtOnceWithoutEffect) {
  driver_->fail(Reason::kPeerGone);
  auto& operation = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  submit(operation);
  wait_all(1);
  EXPECT_EQ(operation.outcome.code, Code::kConnectionLost);
  EXPECT_TRUE(lane_->posted.empty());
}

TEST_F(QueuedLaneDriverTest, WaiterInAnotherThreadIsWokenByTheLanesEnd) {
  auto& operation = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  submit(operation);
  std::thread ender{[this] { driver_->fail(Reason::kPeerGone); }};
  wait_all(1);
  ender.join();
  EXPECT_EQ(operation.outcome.code, Code::kConnectionLost);
}

TEST_F(QueuedLaneDriverTest, OperationInTheBacklogIsCancelledAndAPostedOneIsNot) {
  start(std::make_unique<FakeLane>(1, 4096));
  auto& posted = registered(make(Opcode::kFetchAdd, 0, {}));
  auto& waiting = registered(make(Opcode::kFetchAdd, 8, {}));
  auto& last = registered(make(Opcode::kFetchAdd, 16, {}));
  posted.next = &waiting;
  waiting.next = &last;
  submit(posted);
  EXPECT_FALSE(driver_->cancel(posted));
  EXPECT_TRUE(driver_->cancel(waiting));
  EXPECT_FALSE(driver_->cancel(waiting)) << "it has ended";
  EXPECT_EQ(taken(), std::vector{&waiting});
  EXPECT_EQ(waiting.outcome.code, Code::kCancelled);
  EXPECT_TRUE(driver_->cancel(last));
  auto& more = registered(make(Opcode::kFetchAdd, 24, {}));
  submit(more);
  lane_->complete(0);
  wait_all(2);
  lane_->complete(1);
  wait_all(3);
  EXPECT_EQ(lane_->posted.back().request.remote_address, 0x10018U);
  EXPECT_EQ(counted("cancelled"), 2);
}

TEST_F(QueuedLaneDriverTest, OperationThatExpiredInTheBacklogIsNotPosted) {
  start(std::make_unique<FakeLane>(1, 4096));
  auto& posted = registered(make(Opcode::kFetchAdd, 0, {}));
  auto& late = registered(make(Opcode::kFetchAdd, 8, {}, std::chrono::milliseconds{1}));
  posted.next = &late;
  submit(posted);
  std::this_thread::sleep_for(std::chrono::milliseconds{5});
  lane_->complete(0);
  wait_all(2);
  EXPECT_TRUE(posted.outcome.ok);
  EXPECT_EQ(late.outcome.code, Code::kTimedOut);
  EXPECT_EQ(lane_->posted.size(), 1U);
  EXPECT_FALSE(driver_->broken());
}

TEST_F(QueuedLaneDriverTest, OperationBehindABacklogExpiresByItsOwnDeadline) {
  start(std::make_unique<FakeLane>(1, 4096));
  auto& posted = registered(make(Opcode::kFetchAdd, 0, {}));
  auto& patient = registered(make(Opcode::kFetchAdd, 8, {}));
  posted.next = &patient;
  submit(posted);
  wait_all(0);
  submit(registered(make(Opcode::kFetchAdd, 24, {})));
  auto& late = registered(make(Opcode::kFetchAdd, 16, {}, std::chrono::milliseconds{1000}));
  submit(late);
  wait_all(0);
  // If the host stood still, the deadline may be over already.
  const bool waits = sink_.ready() == 0;
  EXPECT_TRUE(waits || Clock::now() >= late.deadline) << "nothing has expired yet";
  std::this_thread::sleep_until(late.deadline + std::chrono::milliseconds{5});
  lane_->complete(0);
  wait_all(2);
  EXPECT_EQ(late.outcome.code, Code::kTimedOut);
  lane_->complete(1);
  wait_all(3);
  lane_->complete(2);
  wait_all(4);
  EXPECT_TRUE(patient.outcome.ok);
  EXPECT_EQ(lane_->posted.size(), 3U);
}

}  // namespace
}  // namespace remora::detail
