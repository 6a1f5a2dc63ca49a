// A lane follows a broken one: which operations end, which wait, and which go on.

#include <algorithm>
#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "queued_lane_revival_fixture.h"
#include "support/eventually.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::Opcode;

TEST_F(QueuedLaneRevivalTest, PostedWriteIsUncertainAndReadGoesAgain) {
  auto& write = block(Opcode::kWrite, 0);
  auto& read = block(Opcode::kRead, 1);
  auto& add = make(Opcode::kFetchAdd, 1024, {});
  submit(write);
  submit(read);
  submit(add);
  ASSERT_EQ(lane_->posted.size(), 3U);
  driver_->interrupt(Reason::kPeerGone);
  EXPECT_EQ(taken(), (std::vector<OperationRecord*>{&write, &add}));
  EXPECT_EQ(write.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(add.outcome.code, Code::kIndeterminate);
  EXPECT_TRUE(driver_->broken());
  ASSERT_TRUE(follow());
  EXPECT_FALSE(driver_->broken());
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.remote_address, read.request.remote_address);
  EXPECT_EQ(lane_->posted[0].request.local, read.request.local);
  lane_->complete(0);
  wait_all(1);
  EXPECT_TRUE(read.outcome.ok);
  EXPECT_EQ(registry_->sum("remora_client_reads_reposted_total").value(), 1);
  EXPECT_EQ(counted("ok"), 1);
  EXPECT_EQ(counted("indeterminate"), 2);
}

/// Memory without a key goes through a slot, which the next lane needs anew.
TEST_F(QueuedLaneRevivalTest, ReadThroughASlotGoesAgain) {
  std::vector<std::byte> plain(200);
  auto& read = make(Opcode::kRead, 64, plain);
  for (int round = 0; round < 6; ++round) {  // more than there are slots
    if (round == 0) submit(read);
    ASSERT_EQ(lane_->posted.size(), 1U);
    driver_->interrupt(Reason::kPeerGone);
    EXPECT_EQ(sink_.ready(), 0U);
    ASSERT_TRUE(follow());
  }
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.length_bytes, 200U);
  EXPECT_NE(lane_->posted[0].request.local, plain.data());
  std::fill_n(lane_->posted[0].request.local, 200, std::byte{7});
  lane_->complete(0);
  wait_all(1);
  EXPECT_TRUE(read.outcome.ok);
  EXPECT_EQ(plain, std::vector<std::byte>(200, std::byte{7}));
  EXPECT_EQ(registry_->sum("remora_client_reads_reposted_total").value(), 6);
}

/// A read whose first request has succeeded is made again whole; one with two that fail ends.
TEST_F(QueuedLaneRevivalTest, ReadOfTwoRequestsGoesAgainIfOneOfThemIsLeft) {
  std::vector<std::byte> plain(400);
  auto& read = make(Opcode::kRead, 0, plain);
  submit(read);
  ASSERT_EQ(lane_->posted.size(), 2U);
  lane_->complete(0);
  driver_->interrupt(Reason::kPeerGone);
  EXPECT_EQ(sink_.ready(), 0U);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 2U) << "both requests";
  driver_->interrupt(Reason::kPeerGone);
  EXPECT_EQ(taken(), std::vector<OperationRecord*>{&read});
  EXPECT_EQ(read.outcome.code, Code::kConnectionLost);
}

TEST_F(QueuedLaneRevivalTest, UnpostedAndNewOperationsWait) {
  for (std::size_t i = 0; i < 4; ++i) submit(block(Opcode::kWrite, i));
  auto& behind = block(Opcode::kWrite, 4);
  submit(behind);  // the lane is full
  driver_->interrupt(Reason::kLaneBroken);
  EXPECT_EQ(taken().size(), 4U);
  auto& meanwhile = block(Opcode::kRead, 5);
  submit(meanwhile);
  EXPECT_EQ(sink_.ready(), 0U);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 2U);
  lane_->complete(1);
  wait_all(2);
  EXPECT_TRUE(behind.outcome.ok && meanwhile.outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, RunOfReadsGoesAgainOneByOne) {
  auto& first = block(Opcode::kRead, 0);
  auto& second = block(Opcode::kRead, 1);
  auto& third = block(Opcode::kRead, 2);
  first.next = &second;
  second.next = &third;
  submit(first);
  ASSERT_EQ(lane_->posted.size(), 3U);
  lane_->complete(0);
  lane_->complete(1, CompletionStatus::kRetryExceeded);
  wait_all(1);
  EXPECT_TRUE(first.outcome.ok);
  EXPECT_EQ(taken(), std::vector<OperationRecord*>{&first});
  EXPECT_TRUE(driver_->broken()) << "by itself";
  EXPECT_TRUE(driver_->breaking());
  EXPECT_EQ(told_broken_, 1);
  ASSERT_TRUE(follow());
  EXPECT_FALSE(driver_->breaking());
  ASSERT_EQ(lane_->posted.size(), 2U);
  lane_->complete(1);
  wait_all(2);
  EXPECT_TRUE(second.outcome.ok && third.outcome.ok);
}

/// rxe reports this status while the link is down, also for a request that was sent before.
TEST_F(QueuedLaneRevivalTest, QueuePairErrorOfOurOwnSaysNothingOfWhatThePeerHasDone) {
  for (const Opcode opcode : {Opcode::kWrite, Opcode::kFetchAdd}) {
    OperationRecord& operation =
        opcode == Opcode::kFetchAdd ? make(opcode, 1024, {}) : block(opcode, 0);
    submit(operation);
    lane_->complete(0, CompletionStatus::kLocalQpOperationError);
    wait_all(1);
    ASSERT_FALSE(operation.outcome.ok);
    EXPECT_EQ(operation.outcome.code, Code::kIndeterminate);
    EXPECT_EQ(operation.outcome.status, CompletionStatus::kLocalQpOperationError);
    EXPECT_EQ(driver_->fault(), LaneFault::kNone);
    ASSERT_TRUE(follow());
  }
}

/// The client's address may have gone, or the request may be at fault. An address that has come
/// back is not always usable at once, but a request at fault must not end lanes until its deadline.
TEST_F(QueuedLaneRevivalTest, ReadWithAQueuePairErrorGoesAgainThreeTimes) {
  auto& read = block(Opcode::kRead, 0);
  submit(read);
  for (int lane = 1; lane <= 3; ++lane) {
    lane_->complete(0, CompletionStatus::kLocalQpOperationError);
    driver_->interrupt(Reason::kLaneBroken);
    EXPECT_TRUE(taken().empty()) << lane;
    ASSERT_TRUE(follow());
    ASSERT_EQ(lane_->posted.size(), 1U) << lane;
  }
  lane_->complete(0, CompletionStatus::kLocalQpOperationError);
  wait_all(1);
  ASSERT_FALSE(read.outcome.ok);
  EXPECT_EQ(read.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(read.outcome.status, CompletionStatus::kLocalQpOperationError);
}

TEST_F(QueuedLaneRevivalTest, ReadsThatMeetAQueuePairErrorInTurnAllGoAgain) {
  std::vector<OperationRecord*> reads;
  for (std::size_t i = 0; i < 6; ++i) submit(*reads.emplace_back(&block(Opcode::kRead, i)));
  for (std::size_t i = 0; i + 1 < reads.size(); ++i) {
    // The one that has failed before completes, and the next one fails.
    if (i != 0) lane_->complete(0);
    lane_->complete(i == 0 ? 0 : 1, CompletionStatus::kLocalQpOperationError);
    driver_->interrupt(Reason::kLaneBroken);
    ASSERT_TRUE(follow());
  }
  lane_->complete(1);
  wait_all(reads.size());
  for (const OperationRecord* read : reads) EXPECT_TRUE(read->outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, WaitingOperationsTakeTheKeysOfADeviceThatHasReturned) {
  auto& read = block(Opcode::kRead, 0);
  submit(read);
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.local_key, FakeDomain::kKey);
  driver_->interrupt(Reason::kLaneBroken);
  auto& write = block(Opcode::kWrite, 1);
  submit(write);
  domain_.key = 78;
  bounce_->memory()->renew_key(0);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 2U);
  for (const auto& posted : lane_->posted) EXPECT_EQ(posted.request.local_key, 78U);
  lane_->complete(1);
  wait_all(2);
  EXPECT_TRUE(read.outcome.ok && write.outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, MemoryThatTheDeviceDoesNotTakeAgainEndsItsOperations) {
  auto& read = block(Opcode::kRead, 0);
  submit(read);
  driver_->interrupt(Reason::kLaneBroken);
  EXPECT_TRUE(taken().empty());
  domain_.lost = true;
  bounce_->memory()->renew_key(0);
  EXPECT_FALSE(bounce_->memory()->registered(0));
  ASSERT_TRUE(follow());
  EXPECT_TRUE(lane_->posted.empty());
  wait_all(1);
  EXPECT_EQ(read.outcome.code, Code::kOutOfMemory);
  domain_.lost = false;
  ASSERT_TRUE(bounce_->memory()->register_with(domain_, 0)) << "tried again when it is used";
}

TEST_F(QueuedLaneRevivalTest, RefusedReadDoesNotGoAgain) {
  auto& refused = block(Opcode::kRead, 0);
  auto& behind = block(Opcode::kRead, 1);
  submit(refused);
  submit(behind);
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(1);
  EXPECT_EQ(refused.outcome.code, Code::kAccessRefused);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 1U) << "its neighbour does";
  lane_->complete(0);
  wait_all(2);
  EXPECT_TRUE(behind.outcome.ok);
}

/// The handler takes locks under which lanes are taken.
TEST_F(QueuedLaneRevivalTest, RefusalHandlerIsCalledWithoutTheLane) {
  std::atomic<bool> free = false;
  std::thread another;
  why_ = [&](const OperationRecord& /*operation*/) {
    another = std::thread{[&] {
      driver_->settle_events();
      free = true;
    }};
    EXPECT_TRUE(test::eventually([&] { return free.load(); })) << "the lane is held";
    EXPECT_EQ(told_broken_, 0) << "the server can still be asked";
    EXPECT_EQ(sink_.ready(), 0U);
    return Reason::kFenced;
  };
  submit(block(Opcode::kRead, 0));
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(1);
  another.join();
  EXPECT_EQ(operations_[0]->outcome.code, Code::kAccessRefused);
  EXPECT_EQ(operations_[0]->outcome.reason, Reason::kFenced);
  EXPECT_EQ(told_broken_, 1);
  EXPECT_EQ(counted("access_refused"), 1);
}

/// The time to flush of the previous lane does not count for the next one.
TEST_F(QueuedLaneRevivalTest, LaneThatFollowsHasTimeToFlushOfItsOwn) {
  lane_->flush_when_broken = false;
  submit(block(Opcode::kWrite, 0));
  driver_->move_to_error();
  std::this_thread::sleep_for(std::chrono::milliseconds{300});
  driver_->interrupt(Reason::kLaneBroken);
  ASSERT_TRUE(follow());
  lane_->flush_when_broken = false;
  submit(block(Opcode::kWrite, 1));
  // The driver polls the lane until it has flushed, or its 200 ms are over.
  const auto began = Clock::now();
  driver_->interrupt(Reason::kLaneBroken);
  EXPECT_GE(Clock::now() - began, std::chrono::milliseconds{200});
  wait_all(2);
}

/// One of its requests is refused, the others flush, and the rest is not posted.
TEST_F(QueuedLaneRevivalTest, RefusedOperationOfManyRequestsEndsOnce) {
  why_ = [](const OperationRecord& /*operation*/) { return Reason::kRevoked; };
  std::vector<std::byte> large(8000);
  auto& write = make(Opcode::kWrite, 0, large);  // bounced, longer than the lane is deep
  submit(write);
  ASSERT_EQ(lane_->posted.size(), 4U);
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(1);
  EXPECT_EQ(taken(), std::vector<OperationRecord*>{&write});
  EXPECT_EQ(write.outcome.code, Code::kAccessRefused);
  EXPECT_EQ(write.outcome.reason, Reason::kRevoked);
  ASSERT_TRUE(follow());
  EXPECT_EQ(lane_->posted.size(), 0U);
  auto& next = make(Opcode::kWrite, 0, std::span{large}.first(1000));
  submit(next);
  EXPECT_EQ(lane_->posted.size(), 4U) << "its bounce slots have come back";
}

TEST_F(QueuedLaneRevivalTest, WaitingOperationOfARevokedGrantIsNotPosted) {
  auto& first = block(Opcode::kRead, 0);
  auto& other = block(Opcode::kRead, 1);
  auto& second = block(Opcode::kRead, 2);
  for (OperationRecord* each : {&first, &other, &second}) submit(*each);
  driver_->interrupt(Reason::kPeerGone);
  auto& meanwhile = block(Opcode::kWrite, 3);
  submit(meanwhile);
  EXPECT_EQ(sink_.ready(), 0U);
  revoked_ = [&](const OperationRecord& each) {
    return &each == &other ? Reason::kNone : Reason::kFenced;
  };
  ASSERT_TRUE(follow());
  EXPECT_EQ(taken(), (std::vector<OperationRecord*>{&first, &second, &meanwhile}));
  for (const OperationRecord* each : {&first, &second, &meanwhile}) {
    EXPECT_EQ(each->outcome.code, Code::kAccessRefused);
    EXPECT_EQ(each->outcome.reason, Reason::kFenced);
  }
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.remote_address, other.request.remote_address);
  lane_->complete(0);
  wait_all(1);
  EXPECT_TRUE(other.outcome.ok);
}

/// After the first refusal, no other waiting operation of the grant is posted.
TEST_F(QueuedLaneRevivalTest, NeighboursOfARefusedOperationEndWithIt) {
  bool known = false;
  why_ = [&](const OperationRecord& /*operation*/) {
    known = true;
    return Reason::kFenced;
  };
  revoked_ = [&](const OperationRecord& /*each*/) {
    return known ? Reason::kFenced : Reason::kNone;
  };
  for (std::size_t i = 0; i < 3; ++i) submit(block(Opcode::kRead, i));
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(3);
  for (const auto& each : operations_) EXPECT_EQ(each->outcome.reason, Reason::kFenced);
  EXPECT_EQ(lane_->posted.size(), 3U);
}

TEST_F(QueuedLaneRevivalTest, JoinedReadsGoAgain) {
  const auto reads = joined_reads(3);
  ASSERT_EQ(lane_->posted.size(), 1U);
  driver_->interrupt(Reason::kPeerGone);
  EXPECT_EQ(sink_.ready(), 0U);
  EXPECT_EQ(registry_->sum("remora_client_reads_reposted_total").value(), 3);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 1U) << "as one request, again";
  EXPECT_EQ(lane_->posted[0].request.length_bytes, 3 * 64U);
  lane_->complete(0);
  wait_all(3);
  for (const OperationRecord* each : reads) EXPECT_TRUE(each->outcome.ok);
}

TEST_F(QueuedLaneRevivalTest, JoinedReadsThatAreRefusedEndTogether) {
  why_ = [](const OperationRecord& /*operation*/) { return Reason::kFenced; };
  const auto reads = joined_reads(3);
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(3);
  EXPECT_EQ(taken(), reads);
  for (const OperationRecord* each : reads) EXPECT_EQ(each->outcome.reason, Reason::kFenced);
}

TEST_F(QueuedLaneRevivalTest, WaitingOperationExpiresByItself) {
  driver_->interrupt(Reason::kPeerGone);
  auto& soon = block(Opcode::kWrite, 0, std::chrono::milliseconds{5});
  auto& later = block(Opcode::kWrite, 1);
  submit(soon);
  submit(later);
  wait_all(1, soon.deadline);
  EXPECT_EQ(soon.outcome.code, Code::kTimedOut) << "it never left";
  EXPECT_EQ(taken(), std::vector<OperationRecord*>{&soon});
  ASSERT_TRUE(follow());
  EXPECT_EQ(lane_->posted.size(), 1U);
}

/// Its owner may be gone for a long time, and its buffer free.
TEST_F(QueuedLaneRevivalTest, OverdueOperationIsNotPosted) {
  driver_->interrupt(Reason::kPeerGone);
  auto& overdue = block(Opcode::kRead, 0, std::chrono::milliseconds{0});
  submit(overdue);
  ASSERT_TRUE(follow());
  EXPECT_TRUE(lane_->posted.empty());
  EXPECT_EQ(taken(), std::vector<OperationRecord*>{&overdue});
  EXPECT_EQ(overdue.outcome.code, Code::kTimedOut);
  EXPECT_EQ(overdue.outcome.reason, Reason::kPeerGone);
}

TEST_F(QueuedLaneRevivalTest, NothingWaitsOnceItHasEndedForGood) {
  driver_->interrupt(Reason::kPeerGone);
  auto& waits = block(Opcode::kWrite, 0);
  submit(waits);
  driver_->fail(Reason::kNewMemory);
  auto& late = block(Opcode::kRead, 1);
  submit(late);
  wait_all(2);
  for (const OperationRecord* each : {&waits, &late}) {
    EXPECT_EQ(each->outcome.code, Code::kStaleRegion);
    EXPECT_EQ(each->outcome.reason, Reason::kNewMemory);
  }
  EXPECT_FALSE(follow());
}

TEST_F(QueuedLaneRevivalTest, LaneThatCanDoLessIsNotTaken) {
  EXPECT_FALSE(driver_->replace(std::make_unique<FollowingLane>(4))) << "the old one works";
  driver_->interrupt(Reason::kPeerGone);
  EXPECT_FALSE(follow(std::make_unique<FollowingLane>(4, 512))) << "shorter transfers";
  auto reads_none = std::make_unique<FollowingLane>(4);
  reads_none->set_initiator_depth(0);
  EXPECT_FALSE(follow(std::move(reads_none)));
  EXPECT_TRUE(follow(std::make_unique<FollowingLane>(2, 2048)));
}

/// A device without lanes is one whose rail has failed.
TEST_F(QueuedLaneRevivalTest, SeriesCountsEachLaneOnTheDeviceThatItIsOn) {
  const auto lanes_on = [this](const std::string& server_device) {
    return registry_->sum("remora_client_rail_lanes", {{"device", "near-" + server_device}})
        .value();
  };
  const auto next_on = [this](const std::string& server_device) {
    auto lane = std::make_unique<FollowingLane>(4);
    lane->set_rail(server_device);
    driver_->interrupt(Reason::kLaneBroken);
    return follow(std::move(lane));
  };
  ASSERT_TRUE(next_on("mlx5_0"));
  EXPECT_EQ(lanes_on("mlx5_0"), 1);
  ASSERT_TRUE(next_on("mlx5_1"));
  EXPECT_EQ(lanes_on("mlx5_0"), 0);
  EXPECT_EQ(lanes_on("mlx5_1"), 1);
  ASSERT_TRUE(next_on("mlx5_0"));
  EXPECT_EQ(lanes_on("mlx5_1"), 0);
  driver_.reset();
  EXPECT_EQ(lanes_on("mlx5_0"), 0) << "the session has ended";
}

TEST_F(QueuedLaneRevivalTest, WaiterSleepsUntilAnotherLaneFollows) {
  auto& read = block(Opcode::kRead, 0);
  submit(read);
  driver_->interrupt(Reason::kPeerGone);
  std::thread waiter{[this] { wait_all(1); }};
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_EQ(sink_.ready(), 0U);
  auto next = std::make_unique<FollowingLane>(4);
  next->complete(0);  // as soon as it is posted
  EXPECT_TRUE(follow(std::move(next)));
  waiter.join();
  EXPECT_TRUE(read.outcome.ok);
}

}  // namespace
}  // namespace remora::detail
