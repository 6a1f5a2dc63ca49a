#include "server/memory/allocation_queue.h"

#include <gtest/gtest.h>
#include <string>

namespace remora::detail {
namespace {

using namespace std::chrono_literals;

/// A pool that has there_ bytes ready, and zeroes more while zeroing_ is set.
class AllocationQueueTest : public ::testing::Test {
 protected:
  AllocationQueue::Job note(const std::string& name) {
    return [this, name] { went_ += name; };
  }
  std::uint64_t there_ = 0;
  bool zeroing_ = true;
  std::string went_;
  AllocationQueue queue_{
      [this](std::uint64_t size_bytes) { return zeroing_ && size_bytes > there_; }};
};

constexpr auto kLong = 1h;

TEST_F(AllocationQueueTest, EachRunsWhenItsBytesAreThereInTheOrderOfJoining) {
  queue_.join(100, Clock::now() + kLong, note("a"));
  queue_.join(10, Clock::now() + kLong, note("b"));
  queue_.join(50, Clock::now() + kLong, note("c"));
  EXPECT_FALSE(queue_.empty());
  queue_.run_ready();
  EXPECT_EQ(went_, "");
  there_ = 60;
  queue_.run_ready();
  EXPECT_EQ(went_, "bc") << "a large job does not delay smaller ones";
  queue_.run_ready();
  EXPECT_EQ(went_, "bc") << "each once";
  there_ = 100;
  queue_.run_ready();
  EXPECT_EQ(went_, "bca");
  EXPECT_TRUE(queue_.empty());
}

TEST_F(AllocationQueueTest, JobWhoseDeadlineIsOverRunsWithoutMemory) {
  queue_.join(100, Clock::now() + kLong, note("a"));
  queue_.join(100, Clock::now(), note("b"));
  queue_.run_ready();
  EXPECT_EQ(went_, "b");
  EXPECT_FALSE(queue_.empty());
}

TEST_F(AllocationQueueTest, NoJobWaitsWhenNothingMoreIsZeroed) {
  queue_.join(100, Clock::now() + kLong, note("a"));
  zeroing_ = false;
  queue_.run_ready();
  EXPECT_EQ(went_, "a") << "to hear that the pool is full";
}

TEST_F(AllocationQueueTest, JobThatTakesAllMemoryLeavesTheNextToWait) {
  const auto take = [this](const char* name) {
    return [this, name] {
      went_ += name;
      there_ -= 60;
    };
  };
  queue_.join(60, Clock::now() + kLong, take("a"));
  queue_.join(60, Clock::now() + kLong, take("b"));
  there_ = 100;
  queue_.run_ready();
  EXPECT_EQ(went_, "a");
  there_ = 60;
  queue_.run_ready();
  EXPECT_EQ(went_, "ab");
}

TEST_F(AllocationQueueTest, JobThatJoinsAgainStandsBehindTheOthers) {
  queue_.join(10, Clock::now() + kLong,
              [this] { queue_.join(10, Clock::now() + kLong, note("again")); });
  queue_.join(100, Clock::now() + kLong, note("b"));
  there_ = 10;
  queue_.run_ready();
  EXPECT_EQ(went_, "");
  EXPECT_FALSE(queue_.empty());
  there_ = 100;
  queue_.run_ready();
  EXPECT_EQ(went_, "bagain");
}

TEST_F(AllocationQueueTest, DroppedJobIsNotCalled) {
  queue_.join(10, Clock::now() + kLong, note("a"));
  queue_.clear();
  EXPECT_TRUE(queue_.empty());
  there_ = 10;
  queue_.run_ready();
  EXPECT_EQ(went_, "");
}

}  // namespace
}  // namespace remora::detail
