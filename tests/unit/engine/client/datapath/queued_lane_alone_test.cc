// A single operation, submitted and waited for in one call: on an idle lane, and on a busy one.

#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <thread>

#include "queued_lane_driver_fixture.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::Opcode;
using transport::PostOutcome;

/// Completes each request at once, with the status that the test has set; or refuses it.
class LoneLane final : public FakeLane {
 public:
  using FakeLane::FakeLane;
  PostOutcome post(transport::Chain chain, std::uint64_t first_sequence) noexcept override {
    if (on_post) on_post();
    PostOutcome outcome = FakeLane::post(chain, first_sequence);
    if (refuse_but_take) return {.taken = chain.size(), .error = EIO};
    if (prompt && outcome.error == 0) complete(first_sequence + chain.size() - 1, ends_as);
    ++posts;
    return outcome;
  }
  std::atomic<bool> prompt{true};
  std::atomic<int> posts{0};
  bool refuse_but_take = false;
  CompletionStatus ends_as = CompletionStatus::kSuccess;
  std::function<void()> on_post;
};

class QueuedLaneAloneTest : public QueuedLaneDriverTest {
 protected:
  void SetUp() override {
    auto lane = std::make_unique<LoneLane>();
    prompt_ = lane.get();
    start(std::move(lane));
  }
  OperationRecord& alone(Opcode opcode, std::uint64_t offset = 0) {
    auto& operation = make(opcode, offset, std::span{buffer_}.first(64));
    operation.sink = nullptr;
    return transport::is_transfer(opcode) ? registered(operation) : operation;
  }
  LoneLane* prompt_ = nullptr;
};

TEST_F(QueuedLaneAloneTest, OperationThatEndsAtOnceIsCountedOnce) {
  auto& operation = alone(Opcode::kRead);
  driver_->run(operation);
  EXPECT_TRUE(operation.outcome.ok);
  EXPECT_EQ(lane_->doorbells, 1);
  EXPECT_EQ(counted("ok"), 1);
  EXPECT_EQ(registry_->value("remora_client_read_bytes_total", {{"transport", "rdma"}}).value(),
            64);
  EXPECT_EQ(registry_->distribution("remora_client_doorbell_work_requests").value().count(), 1U);
  EXPECT_EQ(registry_->distribution("remora_client_poll_completions").value().count(), 1U);
  // The next operation goes the same way.
  auto& next = alone(Opcode::kWrite);
  driver_->run(next);
  EXPECT_TRUE(next.outcome.ok);
  EXPECT_EQ(lane_->posted.back().sequence, 1U);
}

TEST_F(QueuedLaneAloneTest, AtomicFindsItsOldValue) {
  lane_->results[0] = 41;
  auto& operation = make(Opcode::kFetchAdd, 8, {});
  driver_->run(operation);
  EXPECT_TRUE(operation.outcome.ok);
  EXPECT_EQ(operation.old_value, 41U);
}

TEST_F(QueuedLaneAloneTest, CompletionThatIsNotThereYetIsWaitedFor) {
  prompt_->prompt = false;
  auto& operation = alone(Opcode::kRead);
  std::thread later{[&] {
    // The other holder of the lane polls the completion and pushes it to its owner's sink.
    while (prompt_->posts == 0) std::this_thread::yield();
    auto& other = alone(Opcode::kWrite, 128);
    prompt_->prompt = true;
    driver_->run(other);
    EXPECT_TRUE(other.outcome.ok);
  }};
  driver_->run(operation);
  later.join();
  EXPECT_TRUE(operation.outcome.ok);
  EXPECT_EQ(counted("ok"), 2);
}

TEST_F(QueuedLaneAloneTest, FailureEndsItAndTheLane) {
  prompt_->ends_as = CompletionStatus::kRemoteAccessError;
  auto& operation = alone(Opcode::kWrite);
  driver_->run(operation);
  EXPECT_EQ(operation.outcome.code, Code::kAccessRefused);
  EXPECT_TRUE(driver_->broken());
  EXPECT_EQ(told_broken_, 1);
  auto& late = alone(Opcode::kWrite);
  driver_->run(late);
  EXPECT_EQ(late.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(lane_->posted.size(), 1U);
}

TEST_F(QueuedLaneAloneTest, OperationThatTheLaneRefusesNeverLeft) {
  lane_->take_at_most = 0;
  auto& operation = alone(Opcode::kWrite);
  driver_->run(operation);
  EXPECT_EQ(operation.outcome.code, Code::kConnectionLost);
  EXPECT_TRUE(driver_->broken());
}

TEST_F(QueuedLaneAloneTest, OperationThatTheLaneRefusesAndMayHaveTakenIsIndeterminate) {
  prompt_->refuse_but_take = true;
  auto& operation = alone(Opcode::kWrite);
  driver_->run(operation);
  EXPECT_EQ(operation.outcome.code, Code::kIndeterminate);
  EXPECT_GE(lane_->closed, 1) << "before its buffer was given back";
}

TEST_F(QueuedLaneAloneTest, BehindABacklogItKeepsItsPlace) {
  auto lane = std::make_unique<LoneLane>(1, 4096);
  prompt_ = lane.get();
  start(std::move(lane));
  prompt_->prompt = false;
  auto& first = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  auto& second = registered(make(Opcode::kRead, 256, std::span{buffer_}.first(64)));
  first.next = &second;
  submit(first);
  auto& operation = alone(Opcode::kWrite, 512);
  lane_->complete(0);
  prompt_->prompt = true;
  driver_->run(operation);
  EXPECT_TRUE(operation.outcome.ok);
  EXPECT_EQ(taken(), (std::vector{&first, &second}));
  ASSERT_EQ(lane_->posted.size(), 3U);
  EXPECT_EQ(lane_->posted[2].request.remote_address, operation.request.remote_address);
}

TEST_F(QueuedLaneAloneTest, OperationsThatOtherThreadsLeaveMeanwhileArePosted) {
  auto& left = registered(make(Opcode::kRead, 256, std::span{buffer_}.first(64)));
  bool once = true;
  prompt_->on_post = [&] {
    if (!std::exchange(once, false)) return;
    std::thread{[&] { submit(left); }}.join();  // finds the lane taken
  };
  auto& operation = alone(Opcode::kRead);
  driver_->run(operation);
  EXPECT_TRUE(operation.outcome.ok);
  EXPECT_EQ(lane_->posted.size(), 2U);
  wait_all(1);
  EXPECT_TRUE(left.outcome.ok);
}

TEST_F(QueuedLaneAloneTest, OneThatTheLaneNeverAnswersEndsAtItsDeadline) {
  prompt_->prompt = false;
  auto& operation = alone(Opcode::kWrite);
  operation.deadline = Clock::now() + std::chrono::milliseconds{5};
  driver_->run(operation);
  EXPECT_EQ(operation.outcome.code, Code::kIndeterminate);
  EXPECT_TRUE(driver_->broken());
}

}  // namespace
}  // namespace remora::detail
