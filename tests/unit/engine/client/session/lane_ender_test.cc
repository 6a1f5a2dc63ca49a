/// The ends of broken lanes, each in a thread of its own.

#include "client/session/lane_ender.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <memory>

namespace remora::detail {
namespace {

/// A lane whose device lets it end when the test says so.
class SlowToEnd final : public LaneDriver {
 public:
  void end_broken_lane() noexcept override {
    if (begun_count++ == 0) begun.set_value();
    released.wait();
    if (ended_count++ == 0) ended.set_value();
  }
  void submit(OperationList /*operations*/) noexcept override {}
  void wait(CompletionSink& /*sink*/, std::size_t /*at_least*/,
            DeadlineSource /*earliest_deadline*/) noexcept override {}
  void run(OperationRecord& /*operation*/) noexcept override {}
  void progress_and_arm(CompletionSink& /*sink*/,
                        DeadlineSource /*earliest_deadline*/) noexcept override {}
  bool cancel(OperationRecord& /*operation*/) noexcept override { return false; }
  void fail(Reason /*reason*/) noexcept override {}
  [[nodiscard]] std::uint32_t request_bytes_max() const noexcept override { return 0; }

  std::promise<void> begun;
  std::promise<void> release;
  std::promise<void> ended;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<int> begun_count{0};
  std::atomic<int> ended_count{0};
};

class LaneEnderTest : public ::testing::Test {
 protected:
  std::shared_ptr<int> session_ = std::make_shared<int>(0);
  LaneEnder ender_{[this] { return session_; }};
};

TEST_F(LaneEnderTest, SlowDeviceOfOneLaneDelaysNoOtherLane) {
  SlowToEnd slow;
  SlowToEnd other;
  ASSERT_TRUE(ender_.end_later(slow));
  slow.begun.get_future().wait();
  other.release.set_value();
  ASSERT_TRUE(ender_.end_later(other));
  other.ended.get_future().wait();  // with one thread for both: without end
  EXPECT_EQ(slow.ended_count, 0);
  slow.release.set_value();
  ender_.stop();
  EXPECT_EQ(slow.ended_count, 1);
}

TEST_F(LaneEnderTest, LaneThatBreaksAgainWhileItEndsIsEndedAgain) {
  SlowToEnd lane;
  ASSERT_TRUE(ender_.end_later(lane));
  lane.begun.get_future().wait();
  ASSERT_TRUE(ender_.end_later(lane));
  ASSERT_TRUE(ender_.end_later(lane));
  EXPECT_EQ(lane.begun_count, 1) << "one thread at a time ends a lane";
  lane.release.set_value();
  ender_.stop();
  EXPECT_EQ(lane.ended_count, 2);
  ASSERT_TRUE(ender_.end_later(lane)) << "later there is a thread again";
  ender_.stop();
  EXPECT_EQ(lane.ended_count, 3);
}

TEST_F(LaneEnderTest, SessionThatIsBeingDestroyedGetsNoThread) {
  session_.reset();
  SlowToEnd lane;
  EXPECT_FALSE(ender_.end_later(lane));
}

TEST_F(LaneEnderTest, ThreadKeepsTheSession) {
  SlowToEnd lane;
  const std::weak_ptr<int> seen = session_;
  ASSERT_TRUE(ender_.end_later(lane));
  session_.reset();
  EXPECT_FALSE(seen.expired());
  lane.release.set_value();
  ender_.stop();
  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace remora::detail
