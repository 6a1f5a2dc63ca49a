// One channel for many completion queues, and how long to wait on it.
#include "fake_verbs.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;

class SharedChannel : public FakeTest {
 protected:
  void SetUp() override {
    device_ = open();
    channel_ = device_.create_completion_channel().value();
    for (int& tag : tags_)
      queues_.push_back(
          device_.create_completion_queue({.depth = 8, .channel = channel_, .context = &tag})
              .value());
  }
  void TearDown() override {
    queues_.clear();
    channel_ = {};
    device_ = {};
    FakeTest::TearDown();
  }
  verbs::Device device_;
  verbs::CompletionChannel channel_;
  std::array<int, 2> tags_{};
  std::vector<verbs::CompletionQueue> queues_;
};

TEST_F(SharedChannel, WaitTellsWhichQueueFired) {
  fake_.raise(queues_[1].raw());
  fake_.raise(queues_[0].raw());
  const auto deadline = verbs::deadline_in(milliseconds{10'000});
  const auto first = channel_.wait_event(deadline);
  ASSERT_OK(first);
  EXPECT_EQ(first->queue, queues_[1].raw());
  EXPECT_EQ(first->context, &tags_[1]);
  const auto second = channel_.wait_event(deadline);
  ASSERT_OK(second);
  EXPECT_EQ(second->queue, queues_[0].raw());
}

TEST_F(SharedChannel, WaitEndsAtTheDeadline) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_CODE(channel_.wait_event(verbs::deadline_in(milliseconds{20})), kTimedOut);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds{20});
}

TEST_F(SharedChannel, EventThatIsThereIsTakenAfterTheDeadlineToo) {
  fake_.raise(queues_[0].raw());
  ASSERT_OK(channel_.wait_event(verbs::deadline_in(milliseconds{-1})));
}

TEST_F(SharedChannel, WaitFailureIsKept) {
  fake_.fail("get_cq_event", 1, EIO);
  const auto event = channel_.wait_event(verbs::deadline_in(milliseconds{20}));
  EXPECT_CODE(event, kProvider);
  EXPECT_EQ(event.error().operation(), "ibv_get_cq_event");
}

TEST_F(SharedChannel, DeviceTellsHowManyVectorsItHas) {
  EXPECT_EQ(device_.completion_vector_count(), 2U);
  ASSERT_OK(device_.create_completion_queue({.depth = 8, .vector = 1}));
}

}  // namespace
}  // namespace remora::test
