// A uniform run, of whose records only the first is filled in: its operations end as others do.

#include <gtest/gtest.h>
#include <memory>
#include <vector>

#include "client/datapath/uniform_run.h"
#include "queued_lane_revival_fixture.h"

namespace remora::detail {
namespace {

class QueuedLaneUniformRunTest : public QueuedLaneRevivalTest {
 protected:
  /// Blocks that are no neighbours. All members that a run does not fill in have wrong values.
  UniformRun run_of(Opcode opcode, std::size_t count,
                    std::chrono::milliseconds deadline = std::chrono::seconds{60}) {
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
      OperationRecord& each = block(opcode, records_.size(), deadline);
      bytes += each.request.length_bytes;
      if (i == 0) {
        each.outcome = {};
        each.follows = false;
      } else {
        records_.back()->next = &each;
        each.length_bytes = 1;
        each.offset_bytes = 4095;
        each.memory = nullptr;
        each.submitted = {};
        each.deadline = Deadline::min();
        each.whole = false;
        each.follows = true;
        each.outcome = Outcome::failure(Code::kInternal);
      }
      records_.push_back(&each);
      requests_.push_back(&each.request);
    }
    const transport::Chain all{requests_};
    return {
        .first = records_[records_.size() - count], .requests = all.last(count), .bytes = bytes};
  }
  double read_bytes() {
    return registry_->value("remora_client_read_bytes_total", {{"transport", "rdma"}}).value();
  }

  std::vector<OperationRecord*> records_;
  std::vector<const transport::WorkRequest*> requests_;
};

TEST_F(QueuedLaneUniformRunTest, GoesWithOneDoorbellAndEndsAsOne) {
  const UniformRun run = run_of(Opcode::kRead, 4);
  ASSERT_EQ(driver_->post_run(run), 4U);
  EXPECT_EQ(lane_->doorbells, 1);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(lane_->posted[i].request.local, buffer_.data() + i * 256);
  lane_->complete(3);
  wait_all(4);
  const CompletionSink::Run ended = sink_.take_run();
  EXPECT_EQ(ended.first, run.first);
  EXPECT_EQ(ended.count, 4U);
  EXPECT_EQ(counted("ok"), 4);
  EXPECT_EQ(read_bytes(), 4 * 64);
}

TEST_F(QueuedLaneUniformRunTest, LaneTakesAsManyAsItHasRoomFor) {
  UniformRun run = run_of(Opcode::kRead, 6);
  ASSERT_EQ(driver_->post_run(run), 4U);
  fill_like(*records_[4], *run.first);
  run = {.first = records_[4], .requests = run.requests.subspan(4), .bytes = std::uint64_t{2} * 64};
  EXPECT_EQ(driver_->post_run(run), 0U);
  lane_->complete(0);  // reported apart: the run is cut
  wait_all(1);
  EXPECT_EQ(driver_->post_run(run), 1U);
  lane_->complete(4);
  wait_all(5);
  EXPECT_EQ(taken(), (std::vector(records_.begin(), records_.begin() + 5)));
  EXPECT_EQ(read_bytes(), 5 * 64);
}

TEST_F(QueuedLaneUniformRunTest, PartsThatEndApartAreCountedEach) {
  const UniformRun run = run_of(Opcode::kRead, 4);
  ASSERT_EQ(driver_->post_run(run), 4U);
  lane_->complete(1);
  wait_all(2);
  EXPECT_EQ(sink_.take_run().count, 2U);
  lane_->complete(2);
  lane_->complete(3);
  wait_all(2);
  EXPECT_EQ(sink_.take_run().first, records_[2]);
  EXPECT_EQ(sink_.take_run().first, records_[3]);
  for (const std::size_t i : {2U, 3U}) {
    EXPECT_TRUE(records_[i]->outcome.ok);
    EXPECT_EQ(records_[i]->offset_bytes, i * 128);
    EXPECT_EQ(records_[i]->deadline, run.first->deadline);
  }
  EXPECT_EQ(counted("ok"), 4);
  EXPECT_EQ(read_bytes(), 4 * 64);
}

TEST_F(QueuedLaneUniformRunTest, FailedRequestEndsItsOperationAndTheLane) {
  ASSERT_EQ(driver_->post_run(run_of(Opcode::kWrite, 4)), 4U);
  lane_->complete(1, CompletionStatus::kRemoteAccessError);
  wait_all(4);
  EXPECT_TRUE(records_[0]->outcome.ok);
  EXPECT_EQ(records_[1]->outcome.code, Code::kAccessRefused);
  EXPECT_EQ(records_[2]->outcome.code, Code::kIndeterminate);
  EXPECT_EQ(records_[3]->outcome.code, Code::kIndeterminate);
  EXPECT_EQ(counted("ok"), 1);
  EXPECT_EQ(counted("indeterminate"), 2);
}

TEST_F(QueuedLaneUniformRunTest, ReadsGoAgainOnTheNextLane) {
  ASSERT_EQ(driver_->post_run(run_of(Opcode::kRead, 4)), 4U);
  lane_->complete(0);
  wait_all(1);
  driver_->interrupt(Reason::kPeerGone);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(lane_->posted[i].request.local, buffer_.data() + (i + 1) * 256);
    EXPECT_EQ(lane_->posted[i].request.local_key, FakeDomain::kKey);
  }
  lane_->complete(2);
  wait_all(4);
  for (const OperationRecord* each : records_) EXPECT_TRUE(each->outcome.ok);
  EXPECT_EQ(counted("ok"), 4);
}

TEST_F(QueuedLaneUniformRunTest, RequestsThatTheLaneDoesNotTakeWaitForTheNextOne) {
  lane_->take_at_most = 2;
  ASSERT_EQ(driver_->post_run(run_of(Opcode::kWrite, 4)), 4U) << "the driver has all of them";
  wait_all(2);
  EXPECT_EQ(records_[0]->outcome.code, Code::kIndeterminate);
  EXPECT_EQ(records_[1]->outcome.code, Code::kIndeterminate);
  ASSERT_TRUE(follow());
  ASSERT_EQ(lane_->posted.size(), 2U);
  EXPECT_EQ(lane_->posted[0].request.local, buffer_.data() + std::size_t{2} * 256);
  lane_->complete(1);
  wait_all(4);
  EXPECT_TRUE(records_[2]->outcome.ok);
  EXPECT_TRUE(records_[3]->outcome.ok);
}

TEST_F(QueuedLaneUniformRunTest, DeadlineOfTheFirstIsThatOfAll) {
  const UniformRun run = run_of(Opcode::kRead, 3, std::chrono::milliseconds{5});
  ASSERT_EQ(driver_->post_run(run), 3U);
  wait_all(3, run.first->deadline);
  for (const OperationRecord* each : records_) EXPECT_EQ(each->outcome.code, Code::kTimedOut);
}

TEST_F(QueuedLaneUniformRunTest, NothingIsTakenPastOperationsThatWait) {
  for (std::size_t i = 0; i < 5; ++i) submit(block(Opcode::kRead, 8 + i));
  const UniformRun run = run_of(Opcode::kRead, 2);
  lane_->complete(0);  // not polled yet, so one operation waits for room
  EXPECT_EQ(driver_->post_run(run), 0U);
  wait_all(1);
  EXPECT_EQ(driver_->post_run(run), 0U) << "the one that waited has the room";
  driver_->interrupt(Reason::kPeerGone);
  EXPECT_EQ(driver_->post_run(run), 0U) << "a broken lane";
}

}  // namespace
}  // namespace remora::detail
