// A lane breaks and its device takes long: which callers wait, and when the operations end.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "base/unique_fd.h"
#include "client/datapath/revocable_grant.h"
#include "queued_lane_driver_fixture.h"
#include "support/eventually.h"

namespace remora::detail {
namespace {

using transport::FakeLane;
using transport::Opcode;

/// A device that does not flush, and that takes long to destroy its queues.
class SlowLane final : public FakeLane {
 public:
  SlowLane() { flush_when_broken = false; }
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  void close() noexcept override {
    std::unique_lock lock{mutex_};
    closing = true;
    changed_.wait(lock, [this] { return open_; });
    FakeLane::close();
  }
  void let_close() {
    const std::lock_guard lock{mutex_};
    open_ = true;
    changed_.notify_all();
  }
  std::atomic<bool> closing{false};

 private:
  UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

/// A grant of all operations, which was revoked.
class RevokedGrant final : public RevocableGrant {
 public:
  [[nodiscard]] std::uint64_t grant_id() const noexcept override { return 1; }
  [[nodiscard]] const std::vector<transport::WireExtent>& extents() const noexcept override {
    return extents_;
  }
  [[nodiscard]] HeldGrant held() const override { return {}; }
  [[nodiscard]] bool owns(const OperationRecord& /*operation*/) const noexcept override {
    return true;
  }
  void revoke(Reason /*reason*/) noexcept override {}
  [[nodiscard]] Reason revoked() const noexcept override { return Reason::kFenced; }
  [[nodiscard]] bool tell_queues() noexcept override { return true; }

 private:
  std::vector<transport::WireExtent> extents_;
};

class BrokenLaneTest : public QueuedLaneDriverTest {
 protected:
  void SetUp() override {
    bounce_ = SlotStore::create(4, 256).value();
    ASSERT_TRUE(bounce_->memory()->register_with(domain_, 0));
    ASSERT_TRUE(notifier_.open());
    sink_.watch(notifier_);
    start_slow(false);
  }
  /// `revivable`: another lane may follow the slow one.
  void start_slow(bool revivable) {
    auto lane = std::make_unique<SlowLane>();
    lane_ = slow_ = lane.get();
    driver_ = std::make_unique<QueuedLaneDriver>(
        std::move(lane),
        QueuedLaneDriver::Options{
            .spin = std::chrono::nanoseconds{0},
            .domain_index = 0,
            .needs_keys = true,
            .bounce = bounce_,
            .revivable = revivable,
            .revoked = [](const OperationRecord& /*each*/) { return Reason::kFenced; },
            .end_elsewhere = [this](QueuedLaneDriver& broken) { return end_elsewhere_(broken); }},
        ClientMetrics::create(registry_, TransportKind::kRdma).value(), [this] { ++broken_told_; });
  }
  void TearDown() override {
    slow_->let_close();
    if (ender_.joinable()) ender_.join();
    driver_.reset();  // its operations end, and it tells notifier_
  }
  /// Posts two reads, the first of which fails.
  void post_and_fail() {
    for (const std::size_t at : {0U, 512U})
      submit(registered(make(Opcode::kRead, at, std::span{buffer_}.subspan(at, 64))));
    slow_->complete(0, CompletionStatus::kRetryExceeded);
  }
  void progress() {
    const auto never = [] { return Deadline::max(); };
    driver_->progress_and_arm(sink_, DeadlineSource{never});
  }

  SlowLane* slow_ = nullptr;
  EventNotifier notifier_;
  std::thread ender_;
  std::atomic<int> asked_{0};
  std::atomic<int> broken_told_{0};
  std::function<bool(QueuedLaneDriver&)> end_elsewhere_ = [this](QueuedLaneDriver& broken) {
    ++asked_;
    ender_ = std::thread{[&broken] { broken.end_broken_lane(); }};
    return true;
  };
};

TEST_F(BrokenLaneTest, ProgressReturnsWhileTheDeviceDestroysTheLane) {
  post_and_fail();
  progress();  // it would wait for let_close(), which comes below
  EXPECT_TRUE(driver_->broken());
  EXPECT_EQ(asked_, 1);
  ASSERT_TRUE(test::eventually([&] { return slow_->closing.load(); }));
  for (int i = 0; i < 3; ++i) {
    progress();
    wait_all(0, Deadline::min());  // also past the deadline of its operations
  }
  EXPECT_TRUE(driver_->ending());
  EXPECT_LE(sink_.ready(), 1U) << "the device may still write to the buffer of the second one";
  EXPECT_EQ(broken_told_, 0);
  EXPECT_EQ(asked_, 1);
  OperationRecord& later = registered(make(Opcode::kRead, 1024, std::span{buffer_}.first(64)));
  submit(later);
  EXPECT_FALSE(driver_->cancel(later)) << "the thread that ends the lane has it";
  notifier_.announce_sleep();
  slow_->let_close();
  ASSERT_TRUE(test::eventually([&] { return sink_.ready() == 3; }));
  ender_.join();
  EXPECT_FALSE(driver_->ending());
  EXPECT_EQ(broken_told_, 1);
  for (const OperationRecord* each : taken()) EXPECT_EQ(each->outcome.code, Code::kConnectionLost);
  std::uint64_t events = 0;
  EXPECT_EQ(::read(notifier_.event(), &events, sizeof events), sizeof events) << "not notified";
}

TEST_F(BrokenLaneTest, CallerThatMayWaitEndsTheLaneItself) {
  end_elsewhere_ = [this](QueuedLaneDriver&) {
    ++asked_;  // a thread that comes late
    return true;
  };
  post_and_fail();
  progress();
  EXPECT_EQ(asked_, 1);
  EXPECT_TRUE(driver_->ending());
  slow_->let_close();
  wait_all(2);
  EXPECT_EQ(sink_.ready(), 2U);
  EXPECT_EQ(broken_told_, 1);
  driver_->end_broken_lane();
  EXPECT_EQ(broken_told_, 1);
  EXPECT_EQ(slow_->closed, 1);
}

/// Other threads sleep on it while this one destroys the lane's own descriptor.
TEST_F(BrokenLaneTest, DescriptorStaysAndIsSilentOnceTheLaneEnds) {
  const int descriptor = driver_->event_fd();
  EXPECT_NE(descriptor, slow_->event_fd());
  pollfd event{.fd = descriptor, .events = POLLIN, .revents = 0};
  signal_event(slow_->event_fd());
  EXPECT_EQ(::poll(&event, 1, 0), 1);
  slow_->let_close();
  driver_->interrupt(Reason::kPeerGone);
  EXPECT_EQ(driver_->event_fd(), descriptor);
  EXPECT_EQ(::poll(&event, 1, 0), 0) << "a thread that watches it would not sleep";
}

/// A poller calls it where it leaves a queue, and serves other queues.
TEST_F(BrokenLaneTest, SettlingEventsLeavesTheLaneToTheOtherThread) {
  end_elsewhere_ = [](QueuedLaneDriver&) { return true; };
  post_and_fail();
  progress();
  driver_->settle_events();  // it would wait for let_close(), which comes in TearDown()
  EXPECT_TRUE(driver_->ending());
  EXPECT_EQ(slow_->closed, 0);
}

/// The owner of an operation that has ended destroys its queue, or a poller leaves it.
TEST_F(BrokenLaneTest, SettlingEventsDoesNotWaitForAThreadThatWaitsForTheDevice) {
  post_and_fail();
  ender_ = std::thread{[this] { wait_all(2); }};  // finds the lane broken, and ends it
  ASSERT_TRUE(test::eventually([&] { return slow_->closing.load(); }));
  EXPECT_EQ(sink_.ready(), 1U);
  driver_->settle_events();  // it would wait for let_close(), which comes in TearDown()
  EXPECT_EQ(slow_->closed, 0);
  std::uint64_t events = 0;
  EXPECT_EQ(::read(notifier_.event(), &events, sizeof events), sizeof events)
      << "the notifier is told later, when its owner may have destroyed it";
}

TEST_F(BrokenLaneTest, EndOfTheSessionEndsALaneThatAnotherThreadIsToEnd) {
  end_elsewhere_ = [](QueuedLaneDriver&) { return true; };
  post_and_fail();
  progress();
  slow_->let_close();
  driver_->fail(Reason::kPeerGone);
  EXPECT_EQ(sink_.ready(), 2U);
  EXPECT_EQ(slow_->closed, 1);
}

TEST_F(BrokenLaneTest, WaitingOperationEndsForTheReasonOfTheSession) {
  slow_->let_close();  // the first lane, which goes now
  start_slow(true);
  end_elsewhere_ = [](QueuedLaneDriver&) { return true; };
  post_and_fail();
  progress();
  EXPECT_TRUE(driver_->ending());
  OperationRecord& waits =
      registered(make(Opcode::kWrite, 1024, std::span{buffer_}.subspan(1024, 64)));
  submit(waits);
  slow_->let_close();
  driver_->fail(Reason::kNewMemory);
  EXPECT_EQ(sink_.ready(), 3U);
  EXPECT_EQ(waits.outcome.code, Code::kStaleRegion);
  EXPECT_EQ(waits.outcome.reason, Reason::kNewMemory);
  EXPECT_EQ(slow_->closed, 1);
}

TEST_F(BrokenLaneTest, EndOfTheLaneEndsOverdueOperationsThatWait) {
  slow_->let_close();  // the first lane, which goes now
  start_slow(true);
  end_elsewhere_ = [](QueuedLaneDriver&) { return true; };
  post_and_fail();
  progress();
  OperationRecord& overdue = registered(make(
      Opcode::kRead, 1024, std::span{buffer_}.subspan(1024, 64), std::chrono::milliseconds{0}));
  submit(overdue);
  EXPECT_EQ(sink_.ready(), 0U);
  slow_->let_close();
  driver_->end_broken_lane();
  EXPECT_EQ(taken(), std::vector<OperationRecord*>{&overdue}) << "the others wait for a lane";
  EXPECT_EQ(overdue.outcome.code, Code::kTimedOut);
}

TEST_F(BrokenLaneTest, RevocationLeavesAWriteThatHasBegunToTheEndOfTheLane) {
  end_elsewhere_ = [](QueuedLaneDriver&) { return true; };
  slow_->flush_when_broken = true;
  // Four bounce slots of 256 B: the rest of the write is not posted yet.
  OperationRecord& write = make(Opcode::kWrite, 0, std::span{buffer_}.first(2000));
  submit(write);
  ASSERT_EQ(slow_->posted.size(), 4U);
  slow_->complete(0, CompletionStatus::kRetryExceeded);
  progress();
  progress();  // the other three are flushed
  EXPECT_TRUE(driver_->ending());
  EXPECT_TRUE(driver_->carries(RevokedGrant{}));
  EXPECT_EQ(sink_.ready(), 0U);
  slow_->let_close();
  driver_->end_broken_lane();
  ASSERT_EQ(sink_.ready(), 1U);
  EXPECT_EQ(write.outcome.code, Code::kIndeterminate);
  EXPECT_EQ(write.outcome.status, CompletionStatus::kRetryExceeded);
}

TEST_F(BrokenLaneTest, WithoutAThreadTheCallerEndsTheLane) {
  end_elsewhere_ = [this](QueuedLaneDriver&) {
    ++asked_;
    return false;
  };
  slow_->let_close();
  post_and_fail();
  progress();
  EXPECT_EQ(asked_, 1);
  EXPECT_EQ(sink_.ready(), 2U);
  EXPECT_EQ(broken_told_, 1);
}

}  // namespace
}  // namespace remora::detail
