// How many bytes are copied in a second, in a time that does not pass by itself.

#include "copy_pace.h"

#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>

namespace remora::volume::detail {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): literals only

class CopyPaceTest : public ::testing::Test {
 protected:
  [[nodiscard]] CopyPace pace(std::uint64_t bytes_per_second_max) {
    return CopyPace{bytes_per_second_max,
                    [this] { return stopped_; },
                    {.now = [this] { return now_; },
                     .sleep =
                         [this](CopyPace::Clock::duration duration) {
                           now_ += duration;
                           ++sleeps_;
                         }}};
  }
  void pass(CopyPace::Clock::duration duration) { now_ += duration; }
  void stop() { stopped_ = true; }
  [[nodiscard]] CopyPace::Clock::duration passed() const {
    return now_ - CopyPace::Clock::time_point{};
  }
  [[nodiscard]] int sleeps() const { return sleeps_; }

 private:
  CopyPace::Clock::time_point now_{};
  bool stopped_ = false;
  int sleeps_ = 0;
};

TEST_F(CopyPaceTest, TenCopiesTakeTheTimeOfNine) {
  CopyPace paced = pace(1000);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(paced.wait_for(500));
  EXPECT_EQ(passed(), 4500ms);
}

TEST_F(CopyPaceTest, NoLimitNeverSleeps) {
  CopyPace paced = pace(0);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(paced.wait_for(1U << 20U));
  EXPECT_EQ(sleeps(), 0);
}

TEST_F(CopyPaceTest, IdleTimeIsNotMadeUpFor) {
  CopyPace paced = pace(1000);
  EXPECT_TRUE(paced.wait_for(1000));
  pass(60s);
  EXPECT_TRUE(paced.wait_for(1000));
  EXPECT_TRUE(paced.wait_for(1000));
  EXPECT_EQ(passed(), 61s);
}

TEST_F(CopyPaceTest, ACopyThatHasEndedWaitsNoMore) {
  CopyPace paced = pace(1);
  EXPECT_TRUE(paced.wait_for(1000));
  EXPECT_FALSE(paced.wait_for(1000, [this] { return sleeps() == 3; }));
  EXPECT_EQ(sleeps(), 3);
}

TEST_F(CopyPaceTest, StopEndsAWait) {
  CopyPace paced = pace(1);
  EXPECT_TRUE(paced.wait_for(1000));
  stop();
  EXPECT_FALSE(paced.wait_for(1000));
  EXPECT_EQ(sleeps(), 0);
}

}  // namespace
}  // namespace remora::volume::detail
