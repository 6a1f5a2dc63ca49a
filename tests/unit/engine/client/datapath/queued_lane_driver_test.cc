/// The requests that operations become, and their completions.

#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <thread>
#include <vector>

#include "queued_lane_driver_fixture.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::Opcode;

TEST_F(QueuedLaneDriverTest, SeveralOperationsAreOneDoorbell) {
  auto& first = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  auto& second = registered(make(Opcode::kRead, 64, std::span{buffer_}.first(64)));
  first.next = &second;
  submit(first);
  EXPECT_EQ(lane_->doorbells, 1);
  ASSERT_EQ(lane_->posted.size(), 2U);
  EXPECT_EQ(lane_->posted[1].request.remote_address, 0x10040U);
  EXPECT_EQ(lane_->posted[0].request.local_key, FakeDomain::kKey);
  lane_->complete(1);
  wait_all(2);
  EXPECT_TRUE(first.outcome.ok && second.outcome.ok);
  EXPECT_EQ(counted("ok"), 2);
}

TEST_F(QueuedLaneDriverTest, NeighboursOnBothSidesAreOneRequest) {
  // 64 bytes each: three that follow each other on both sides, and one that follows only remotely.
  std::vector<OperationRecord*> all;
  for (const std::size_t at : {0U, 64U, 128U, 192U})
    all.push_back(&registered(
        make(Opcode::kRead, at, std::span{buffer_}.subspan(at == 192 ? 1024 : at, 64))));
  for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i]->next = all[i + 1];
  submit(*all.front());
  ASSERT_EQ(lane_->posted.size(), 2U);
  EXPECT_EQ(lane_->posted[0].request.remote_address, 0x10000U);
  EXPECT_EQ(lane_->posted[0].request.local, buffer_.data());
  EXPECT_EQ(lane_->posted[0].request.length_bytes, 192U);
  EXPECT_EQ(lane_->posted[1].request.length_bytes, 64U);
  lane_->complete(1);
  wait_all(4);
  EXPECT_EQ(taken(), all) << "in their order";
  for (const OperationRecord* operation : all) EXPECT_TRUE(operation->outcome.ok);
  EXPECT_EQ(counted("ok"), 4);
}

TEST_F(QueuedLaneDriverTest, NeighboursOfAnotherKindAreRequestsOfTheirOwn) {
  auto& read = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  auto& write = registered(make(Opcode::kWrite, 64, std::span{buffer_}.subspan(64, 64)));
  // Small writes need no key, so there is none that the joined request could use.
  auto& keyless = make(Opcode::kWrite, 128, std::span{buffer_}.subspan(128, 8));
  auto& keyless_too = make(Opcode::kWrite, 136, std::span{buffer_}.subspan(136, 8));
  auto& add = make(Opcode::kFetchAdd, 144, {});
  read.next = &write;
  write.next = &keyless;
  keyless.next = &keyless_too;
  keyless_too.next = &add;
  submit(read);
  EXPECT_EQ(lane_->posted.size(), 5U);
  lane_->complete(4);
  wait_all(5);
}

TEST_F(QueuedLaneDriverTest, JoinedRequestKeepsTheLanesLimit) {
  std::vector<OperationRecord*> all;
  for (std::size_t i = 0; i < 8; ++i)
    all.push_back(
        &registered(make(Opcode::kWrite, i * 256, std::span{buffer_}.subspan(i * 256, 256))));
  for (std::size_t i = 0; i + 1 < all.size(); ++i) all[i]->next = all[i + 1];
  submit(*all.front());
  ASSERT_EQ(lane_->posted.size(), 2U);
  EXPECT_EQ(lane_->posted[0].request.length_bytes, 1024U);
  EXPECT_EQ(lane_->posted[1].request.remote_address, 0x10400U);
  lane_->complete(1);
  wait_all(8);
  EXPECT_EQ(counted("ok"), 8);
}

TEST_F(QueuedLaneDriverTest, JoinedOperationsFailTogetherAndEachByItsDeadline) {
  auto& first = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(64)));
  auto& second = registered(
      make(Opcode::kRead, 64, std::span{buffer_}.subspan(64, 64), std::chrono::milliseconds{5}));
  first.next = &second;
  submit(first);
  ASSERT_EQ(lane_->posted.size(), 1U);
  wait_all(2, second.deadline);
  EXPECT_EQ(first.outcome.code, Code::kConnectionLost);
  EXPECT_EQ(second.outcome.code, Code::kTimedOut);

  start(std::make_unique<FakeLane>());
  auto& one = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  auto& other = registered(make(Opcode::kWrite, 64, std::span{buffer_}.subspan(64, 64)));
  one.next = &other;
  submit(one);
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(4);
  EXPECT_EQ(one.outcome.code, Code::kAccessRefused);
  EXPECT_EQ(other.outcome.code, Code::kAccessRefused);
}

TEST_F(QueuedLaneDriverTest, JoinedRequestThatIsNotTakenEndsAllOfItsOperations) {
  lane_->take_at_most = 0;
  auto& first = registered(make(Opcode::kWrite, 0, std::span{buffer_}.first(64)));
  auto& second = registered(make(Opcode::kWrite, 64, std::span{buffer_}.subspan(64, 64)));
  first.next = &second;
  submit(first);
  wait_all(2);
  EXPECT_EQ(first.outcome.code, Code::kConnectionLost) << "it never left";
  EXPECT_EQ(second.outcome.code, Code::kConnectionLost);
}

TEST_F(QueuedLaneDriverTest, TransferIsCutAtExtentsAndAtTheLanesLimit) {
  auto& operation = registered(make(Opcode::kWrite, 3000, std::span{buffer_}.first(2500)));
  submit(operation);
  ASSERT_EQ(lane_->posted.size(), 4U);  // 1024 + 72 | 1024 + 380
  EXPECT_EQ(lane_->posted[1].request.length_bytes, 72U);
  EXPECT_EQ(lane_->posted[2].request.remote_address, 0x50000U);
  EXPECT_EQ(lane_->posted[2].request.remote_key, 2U);
  EXPECT_EQ(lane_->posted[3].request.length_bytes, 380U);
  lane_->complete(2);
  wait_all(0);
  EXPECT_EQ(sink_.ready(), 0U) << "one part is still out";
  lane_->complete(3);
  wait_all(1);
  EXPECT_TRUE(operation.outcome.ok);
}

TEST_F(QueuedLaneDriverTest, NoticeFollowsTheRequestsOfItsWriteWithAllOfItsFields) {
  auto& operation = registered(make(Opcode::kWrite, 3000, std::span{buffer_}.first(2500)));
  operation.notice = {.grant_id = 7, .offset_bytes = 3000, .length_bytes = 2500, .tag = 9};
  submit(operation);
  ASSERT_EQ(lane_->posted.size(), 5U);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(lane_->posted[i].request.opcode, Opcode::kWrite) << i;
  const transport::WorkRequest& last = lane_->posted[4].request;
  ASSERT_EQ(last.opcode, Opcode::kNotify);
  EXPECT_EQ(last.local, nullptr);
  EXPECT_EQ(last.notice().grant_id, 7U);
  EXPECT_EQ(last.notice().offset_bytes, 3000U);
  EXPECT_EQ(last.notice().length_bytes, 2500U);
  EXPECT_EQ(last.notice().tag, 9U);
  lane_->complete(3);
  wait_all(0);
  EXPECT_EQ(sink_.ready(), 0U) << "the notice is still out";
  lane_->complete(4);
  wait_all(1);
  EXPECT_TRUE(operation.outcome.ok);
}

TEST_F(QueuedLaneDriverTest, TransferLargerThanTheSendQueueIsPostedAsRoomComes) {
  start(std::make_unique<FakeLane>(2, 256));
  auto& operation = registered(make(Opcode::kRead, 0, std::span{buffer_}.first(1000)));
  submit(operation);
  EXPECT_EQ(lane_->posted.size(), 2U);
  lane_->complete(1);
  wait_all(0);
  EXPECT_EQ(lane_->posted.size(), 4U);
  lane_->complete(3);
  wait_all(1);
  EXPECT_TRUE(operation.outcome.ok);
}

TEST_F(QueuedLaneDriverTest, SmallWriteGoesInlineWithoutAKey) {
  auto& operation = make(Opcode::kWrite, 0, std::span{buffer_}.first(16));
  submit(operation);
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.local, buffer_.data());
  lane_->complete(0);
  wait_all(1);
}

TEST_F(QueuedLaneDriverTest, UnregisteredReadIsBouncedAndCopiedWhenItCompletes) {
  auto& operation = make(Opcode::kRead, 0, std::span{buffer_}.first(100));
  submit(operation);
  ASSERT_EQ(lane_->posted.size(), 1U);
  std::byte* const slot = lane_->posted[0].request.local;
  EXPECT_NE(slot, buffer_.data());
  slot[99] = std::byte{42};
  lane_->complete(0);
  wait_all(1);
  EXPECT_EQ(buffer_[99], std::byte{42});
}

TEST_F(QueuedLaneDriverTest, FailedBouncedReadDoesNotTouchTheBuffer) {
  auto& operation = make(Opcode::kRead, 0, std::span{buffer_}.first(100));
  submit(operation);
  lane_->posted[0].request.local[0] = std::byte{42};
  lane_->complete(0, CompletionStatus::kRemoteAccessError);
  wait_all(1);
  EXPECT_EQ(operation.outcome.code, Code::kAccessRefused);
  EXPECT_EQ(operation.outcome.status, CompletionStatus::kRemoteAccessError);
  EXPECT_EQ(buffer_[0], std::byte{0});
}

TEST_F(QueuedLaneDriverTest, BounceSlotsComeBackAndTheRestFollows) {
  start(std::make_unique<FakeLane>(), 1);
  auto& operation = make(Opcode::kRead, 0, std::span{buffer_}.first(600));  // slots of 256
  submit(operation);
  for (std::uint64_t sequence = 0; sequence < 3; ++sequence) {
    ASSERT_EQ(lane_->posted.size(), sequence + 1);
    lane_->complete(sequence);
    wait_all(sequence == 2 ? 1 : 0);
  }
  EXPECT_TRUE(operation.outcome.ok);
  const std::uint32_t back = bounce_->take();
  ASSERT_NE(back, SlotStore::kNone) << "the slot is back";
  bounce_->give_back(back);
}

TEST_F(QueuedLaneDriverTest, AtomicBringsTheOldValue) {
  auto& operation = make(Opcode::kFetchAdd, 4096, {});
  operation.request.operands.atomic.compare_or_add = 5;
  submit(operation);
  ASSERT_EQ(lane_->posted.size(), 1U);
  EXPECT_EQ(lane_->posted[0].request.operands.atomic.compare_or_add, 5U);
  EXPECT_EQ(lane_->posted[0].request.remote_address, 0x50000U);
  lane_->results[0] = 123;
  lane_->complete(0);
  wait_all(1);
  EXPECT_EQ(operation.old_value, 123U);
}

TEST_F(QueuedLaneDriverTest, RequestsAreCountedByWhetherTheyWereSignaled) {
  const auto requests = [&](const char* kind) {
    return registry_
        ->value("remora_client_work_requests_total", {{"transport", "rdma"}, {"kind", kind}})
        .value();
  };
  const auto post_three = [&] {
    auto& first = make(Opcode::kFetchAdd, 0, {});
    auto& second = make(Opcode::kFetchAdd, 8, {});
    auto& third = make(Opcode::kFetchAdd, 16, {});
    first.next = &second;
    second.next = &third;
    submit(first);
  };
  post_three();
  EXPECT_EQ(requests("signaled"), 1);
  EXPECT_EQ(requests("unsignaled"), 2);
  lane_->set_signaled_within(1);
  post_three();
  EXPECT_EQ(requests("signaled"), 3);
  EXPECT_EQ(requests("unsignaled"), 3);
  lane_->set_signaled_within(0);
  lane_->take_at_most = 1;  // the last request of the chain, which is signaled, is not posted
  post_three();
  EXPECT_EQ(requests("signaled"), 3);
  EXPECT_EQ(requests("unsignaled"), 4);
}

TEST_F(QueuedLaneDriverTest, CapacityShownIsThatOfTheSmallestOpenLane) {
  const auto capacity = [&] {
    return registry_->value("remora_client_cq_capacity", {{"transport", "rdma"}}).value();
  };
  EXPECT_EQ(capacity(), 8);
  // A lane of another engine, which shares the registry.
  const auto other = [&](std::uint32_t depth) {
    return std::make_unique<QueuedLaneDriver>(
        std::make_unique<FakeLane>(depth),
        QueuedLaneDriver::Options{
            .spin = std::chrono::nanoseconds{0}, .bounce = nullptr, .zeroes = nullptr},
        ClientMetrics::create(registry_, TransportKind::kRdma).value(), [] {});
  };
  auto small = other(4);
  const auto large = other(16);
  EXPECT_EQ(capacity(), 4);
  small.reset();
  EXPECT_EQ(capacity(), 8);
  driver_.reset();
  EXPECT_EQ(capacity(), 16);
}

/// Blocks in its first post() until the test sets go_on.
class HeldLane final : public FakeLane {
 public:
  transport::PostOutcome post(transport::Chain chain,
                              std::uint64_t first_sequence) noexcept override {
    chains.push_back(chain.size());
    if (chains.size() == 1) {
      inside = true;
      while (!go_on) std::this_thread::yield();
    }
    return FakeLane::post(chain, first_sequence);
  }
  std::atomic<bool> inside{false};
  std::atomic<bool> go_on{false};
  std::vector<std::size_t> chains;
};

TEST_F(QueuedLaneDriverTest, HolderPostsOperationsOfOtherThreadsWithOneDoorbell) {
  auto held = std::make_unique<HeldLane>();
  HeldLane& lane = *held;
  start(std::move(held));
  std::array<OperationRecord*, 4> all{};
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i] = &registered(make(Opcode::kFetchAdd, 8 * i, {}));
  std::thread holder{[&] { submit(*all[0]); }};
  while (!lane.inside) std::this_thread::yield();
  // The lane is taken, and none of these calls waits.
  for (std::size_t i = 1; i < all.size(); ++i) submit(*all[i]);
  EXPECT_EQ(lane.chains.size(), 1U);
  lane.go_on = true;
  holder.join();
  EXPECT_EQ(lane.chains, (std::vector<std::size_t>{1, 3}));
  lane.complete(3);
  wait_all(4);
}

}  // namespace
}  // namespace remora::detail
