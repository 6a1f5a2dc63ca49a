#include "server/memory/allocation_queue.h"

#include <gtest/gtest.h>
#include <string>

namespace remora::detail {
namespace {

using namespace std::chrono_literals;

/// A pool that has so many bytes, and zeroes more.
class MemoryLineTest : public ::testing::Test {
 protected:
  AllocationQueue::Job note(const std::string& name) {
    return [this, name] { went_ += name; };
  }
  std::uint64_t there_ = 0;
  bool zeroing_ = true;
  std::string went_;
  AllocationQueue line_{
      [this](std::uint64_t size_bytes) { return zeroing_ && size_bytes > there_; }};
};

constexpr auto kLong = 1h;

TEST_F(MemoryLineTest, EachGoesOnWhenItsBytesAreThereInTheOrderOfTheirComing) {
  line_.join(100, Clock::now() + kLong, note("a"));
  line_.join(10, Clock::now() + kLong, note("b"));
  line_.join(50, Clock::now() + kLong, note("c"));
  EXPECT_FALSE(line_.empty());
  line_.look();
  EXPECT_EQ(went_, "");
  there_ = 60;
  line_.look();
  EXPECT_EQ(went_, "bc") << "who wants much holds nobody up";
  line_.look();
  EXPECT_EQ(went_, "bc") << "each once";
  there_ = 100;
  line_.look();
  EXPECT_EQ(went_, "bca");
  EXPECT_TRUE(line_.empty());
}

TEST_F(MemoryLineTest, WhoseTimeIsOverGoesOnWithout) {
  line_.join(100, Clock::now() + kLong, note("a"));
  line_.join(100, Clock::now(), note("b"));
  line_.look();
  EXPECT_EQ(went_, "b");
  EXPECT_FALSE(line_.empty());
}

TEST_F(MemoryLineTest, NothingMoreIsZeroedMeansNobodyWaits) {
  line_.join(100, Clock::now() + kLong, note("a"));
  zeroing_ = false;
  line_.look();
  EXPECT_EQ(went_, "a") << "to hear that the pool is full";
}

TEST_F(MemoryLineTest, OneThatTakesItAllLeavesTheNextToWait) {
  const auto take = [this](const char* name) {
    return [this, name] {
      went_ += name;
      there_ -= 60;
    };
  };
  line_.join(60, Clock::now() + kLong, take("a"));
  line_.join(60, Clock::now() + kLong, take("b"));
  there_ = 100;
  line_.look();
  EXPECT_EQ(went_, "a");
  there_ = 60;
  line_.look();
  EXPECT_EQ(went_, "ab");
}

TEST_F(MemoryLineTest, OneThatJoinsAgainStandsBehindTheOthers) {
  line_.join(10, Clock::now() + kLong,
             [this] { line_.join(10, Clock::now() + kLong, note("again")); });
  line_.join(100, Clock::now() + kLong, note("b"));
  there_ = 10;
  line_.look();
  EXPECT_EQ(went_, "");
  EXPECT_FALSE(line_.empty());
  there_ = 100;
  line_.look();
  EXPECT_EQ(went_, "bagain");
}

TEST_F(MemoryLineTest, WhatIsDroppedIsNotCalled) {
  line_.join(10, Clock::now() + kLong, note("a"));
  line_.clear();
  EXPECT_TRUE(line_.empty());
  there_ = 10;
  line_.look();
  EXPECT_EQ(went_, "");
}

}  // namespace
}  // namespace remora::detail
