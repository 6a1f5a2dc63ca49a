// Operations that follow each other move as one run, and each ends by itself.

#include <algorithm>
#include <array>
#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "queued_lane_driver_fixture.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::Opcode;

class QueuedLaneRunTest : public QueuedLaneDriverTest {
 protected:
  static constexpr std::size_t kBytes = 64;

  /// A run of `count` operations on every other block, so that no two of them are neighbours.
  std::vector<OperationRecord*> run(Opcode opcode, std::size_t count, std::size_t first_block = 0) {
    std::vector<OperationRecord*> all;
    for (std::size_t i = 0; i < count; ++i)
      all.push_back(&registered(make(opcode, 2 * (first_block + i) * kBytes,
                                     std::span{buffer_}.subspan(i * kBytes, kBytes))));
    chain(all);
    return all;
  }
  static void chain(const std::vector<OperationRecord*>& all) {
    for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i]->next = all[i + 1];
  }
};

TEST_F(QueuedLaneRunTest, OneCompletionEndsAllInTheirOrder) {
  const auto all = run(Opcode::kRead, 8);
  submit(*all.front());
  ASSERT_EQ(lane_->posted.size(), 8U);
  EXPECT_EQ(lane_->doorbells, 1);
  lane_->complete(7);
  wait_all(8);
  EXPECT_EQ(sink_.take_run().count, 8U) << "as one";
  for (const OperationRecord* each : all) EXPECT_TRUE(each->outcome.ok);
  EXPECT_EQ(counted("ok"), 8);
  EXPECT_EQ(registry_->value("remora_client_read_bytes_total", {{"transport", "rdma"}}).value(),
            8 * kBytes);
}

TEST_F(QueuedLaneRunTest, CompletionInTheMiddleEndsThoseBeforeIt) {
  const auto all = run(Opcode::kWrite, 8);
  submit(*all.front());
  lane_->complete(2);
  wait_all(3);
  EXPECT_EQ(taken(), std::vector(all.begin(), all.begin() + 3));
  lane_->complete(3);
  lane_->complete(7);
  wait_all(5);
  EXPECT_EQ(taken(), std::vector(all.begin() + 3, all.end()));
  EXPECT_EQ(counted("ok"), 8);
  EXPECT_EQ(registry_->value("remora_client_written_bytes_total", {{"transport", "rdma"}}).value(),
            8 * kBytes);
}

TEST_F(QueuedLaneRunTest, RefusedOneInTheMiddleLeavesThoseBeforeItWhole) {
  const auto all = run(Opcode::kWrite, 6);
  submit(*all.front());
  lane_->complete(2, CompletionStatus::kRemoteAccessError);
  wait_all(6);
  EXPECT_EQ(taken(), all);
  EXPECT_TRUE(all[0]->outcome.ok && all[1]->outcome.ok);
  EXPECT_EQ(all[2]->outcome.code, Code::kAccessRefused);
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(all[i]->outcome.code, Code::kIndeterminate) << i;
  EXPECT_EQ(counted("ok"), 2);
  EXPECT_EQ(counted("indeterminate"), 3);
}

TEST_F(QueuedLaneRunTest, PartOfARunThatTheLaneDidNotTakeNeverLeft) {
  lane_->take_at_most = 3;
  const auto all = run(Opcode::kWrite, 6);
  submit(*all.front());
  wait_all(6);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(all[i]->outcome.code, Code::kIndeterminate) << i;
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(all[i]->outcome.code, Code::kConnectionLost) << i;
  auto ended = taken();
  std::sort(ended.begin(), ended.end());
  auto wanted = all;
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(ended, wanted) << "each of them once";
}

TEST_F(QueuedLaneRunTest, LongOneIsPostedAsRoomComes) {
  const auto all = run(Opcode::kRead, 20);  // the lane has room for 8
  submit(*all.front());
  EXPECT_EQ(lane_->posted.size(), 8U);
  lane_->complete(4);
  wait_all(5);
  EXPECT_EQ(lane_->posted.size(), 13U);
  lane_->complete(12);
  wait_all(13);
  EXPECT_EQ(lane_->posted.size(), 20U);
  lane_->complete(19);
  wait_all(20);
  EXPECT_EQ(taken(), all);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(lane_->posted[i].request.remote_address, all[i]->request.remote_address) << i;
}

TEST_F(QueuedLaneRunTest, NeighbourOfItsLastIsJoinedToThatOne) {
  auto all = run(Opcode::kRead, 3);
  // The fourth is a neighbour of the third on both sides; the fifth is no neighbour.
  all.push_back(
      &registered(make(Opcode::kRead, 5 * kBytes, std::span{buffer_}.subspan(3 * kBytes, kBytes))));
  all.push_back(&registered(
      make(Opcode::kRead, 20 * kBytes, std::span{buffer_}.subspan(8 * kBytes, kBytes))));
  chain(all);
  submit(*all.front());
  ASSERT_EQ(lane_->posted.size(), 4U);
  EXPECT_EQ(lane_->posted[1].request.length_bytes, kBytes);
  EXPECT_EQ(lane_->posted[2].request.length_bytes, 2 * kBytes);
  lane_->complete(1);
  wait_all(2);
  lane_->complete(2);
  wait_all(4);
  lane_->complete(3);
  wait_all(5);
  EXPECT_EQ(taken(), all);
  EXPECT_EQ(counted("ok"), 5);
}

TEST_F(QueuedLaneRunTest, ReadsAndWritesAreRunsOfTheirOwnWithAnAtomicBetween) {
  lane_->results[3] = 41;
  auto all = run(Opcode::kRead, 3);
  all.push_back(&make(Opcode::kFetchAdd, 2048, {}));
  for (OperationRecord* each : run(Opcode::kWrite, 2, 20)) all.push_back(each);
  chain(all);
  submit(*all.front());
  ASSERT_EQ(lane_->posted.size(), 6U);
  lane_->complete(5);
  wait_all(6);
  EXPECT_EQ(taken(), all);
  EXPECT_EQ(all[3]->old_value, 41U);
}

TEST_F(QueuedLaneRunTest, RunThatExpiresBreaksTheLane) {
  const auto all = run(Opcode::kWrite, 4);
  for (OperationRecord* each : all) each->deadline = Clock::now() + std::chrono::milliseconds{5};
  submit(*all.front());
  lane_->complete(0);
  wait_all(4, all.front()->deadline);
  EXPECT_TRUE(driver_->broken());
  EXPECT_EQ(taken(), all);
  EXPECT_TRUE(all[0]->outcome.ok);
  for (std::size_t i = 1; i < 4; ++i) EXPECT_EQ(all[i]->outcome.code, Code::kIndeterminate) << i;
}

TEST_F(QueuedLaneRunTest, OperationCancelledBeforeItIsPostedLeavesTheOthersInOrder) {
  start(std::make_unique<FakeLane>(1, 4096));
  const auto all = run(Opcode::kRead, 4);
  submit(*all.front());
  EXPECT_TRUE(driver_->cancel(*all[1]));
  EXPECT_EQ(all[1]->outcome.code, Code::kCancelled);
  for (const std::uint64_t sequence : {0U, 1U, 2U}) {
    lane_->complete(sequence);
    wait_all(sequence + 2);
  }
  EXPECT_EQ(taken(), (std::vector{all[1], all[0], all[2], all[3]}));
  EXPECT_EQ(lane_->posted.size(), 3U);
}

TEST_F(QueuedLaneRunTest, FollowersOfACancelledOperationDoNotFollowAnotherQueues) {
  std::array<CompletionSink::Run, 64> ring{};
  CompletionSink other{ring};
  const auto full = run(Opcode::kRead, 8);  // the lane has no more room
  submit(*full.front());
  const auto before = run(Opcode::kRead, 2, 8);
  submit(*before.front());
  const auto writes = run(Opcode::kWrite, 3, 12);
  for (OperationRecord* each : writes) each->sink = &other;
  submit(*writes.front());
  // Its followers now stand behind operations of another queue.
  EXPECT_TRUE(driver_->cancel(*writes[0]));
  lane_->complete(7);
  wait_all(8);
  lane_->complete(11);
  wait_all(10);
  EXPECT_EQ(taken().size(), 10U);
  ASSERT_EQ(other.ready(), 3U);
  EXPECT_EQ(other.take_run().first, writes[0]);
  const CompletionSink::Run rest = other.take_run();
  EXPECT_EQ(rest.first, writes[1]);
  EXPECT_EQ(rest.count, 2U);
  EXPECT_EQ(registry_->value("remora_client_read_bytes_total", {{"transport", "rdma"}}).value(),
            10 * kBytes);
  EXPECT_EQ(registry_->value("remora_client_written_bytes_total", {{"transport", "rdma"}}).value(),
            2 * kBytes);
}

TEST_F(QueuedLaneRunTest, FollowersOfAnExpiredOperationDoNotFollowAnotherQueues) {
  std::array<CompletionSink::Run, 64> ring{};
  CompletionSink other{ring};
  const auto full = run(Opcode::kRead, 8);
  submit(*full.front());
  const auto before = run(Opcode::kRead, 2, 8);
  submit(*before.front());
  const auto writes = run(Opcode::kWrite, 3, 12);
  for (OperationRecord* each : writes) each->sink = &other;
  writes[0]->deadline = Clock::now();
  submit(*writes.front());
  lane_->complete(7);
  wait_all(8);
  lane_->complete(11);
  wait_all(10);
  EXPECT_EQ(writes[0]->outcome.code, Code::kTimedOut);
  EXPECT_EQ(taken().size(), 10U);
  EXPECT_EQ(other.ready(), 3U);
}

}  // namespace
}  // namespace remora::detail
