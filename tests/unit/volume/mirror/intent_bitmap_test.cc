#include "intent_bitmap.h"

#include <atomic>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>
#include <vector>

#include "support/assert_ok.h"
#include "support/eventually.h"

namespace remora::volume::test {
namespace {

using namespace std::chrono_literals;
using detail::IntentBitmap;
using Time = std::chrono::steady_clock::time_point;

Time soon() { return Time::clock::now() + 30s; }

/// Records the words that are written. A write waits while the test holds it.
class Words {
 public:
  IntentBitmap::WriteWord writer() {
    return [this](std::uint32_t word, std::uint64_t value) -> Status {
      ++in_flight_;
      EXPECT_EQ(in_flight_.load(), 1) << "one write of a word at a time";
      while (held_) std::this_thread::yield();
      --in_flight_;
      const std::lock_guard lock{mutex_};
      written_.push_back({word, value});
      if (fails_) return Error{Code::kConnectionLost, "word"};
      return {};
    };
  }
  std::vector<std::pair<std::uint32_t, std::uint64_t>> written() {
    const std::lock_guard lock{mutex_};
    return written_;
  }
  std::atomic<bool> held_ = false;
  std::atomic<bool> fails_ = false;
  std::atomic<int> in_flight_ = 0;

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> written_;
};

TEST(IntentBitmap, WritesAWordOnceForAZone) {
  Words words;
  IntentBitmap bitmap{130, words.writer()};
  ASSERT_OK(bitmap.mark(65, soon()));
  ASSERT_OK(bitmap.mark(65, soon()));
  ASSERT_OK(bitmap.mark(66, soon()));
  ASSERT_EQ(words.written().size(), 2U);
  EXPECT_EQ(words.written()[0].first, 1U);
  EXPECT_EQ(words.written()[0].second, 2U);
  EXPECT_EQ(words.written()[1].second, 6U);
}

TEST(IntentBitmap, MarksThatWaitGoWithOneWrite) {
  Words words;
  words.held_ = true;
  IntentBitmap bitmap{64, words.writer()};
  std::vector<std::thread> threads;
  std::atomic<int> begun = 0;
  for (std::uint32_t zone = 0; zone < 4; ++zone)
    threads.emplace_back([&, zone] {
      ++begun;
      EXPECT_TRUE(bitmap.mark(zone, soon()).ok());
    });
  EXPECT_TRUE(remora::test::eventually([&] { return begun == 4 && words.in_flight_ == 1; }));
  words.held_ = false;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(words.written().back().second, 15U);
}

TEST(IntentBitmap, ForgetsTheBitBeforeTheClearIsPosted) {
  Words words;
  IntentBitmap bitmap{64, words.writer()};
  ASSERT_OK(bitmap.mark(3, soon()));
  words.held_ = true;
  std::thread clears{[&] { EXPECT_TRUE(bitmap.clear(0, 8, soon()).ok()); }};
  EXPECT_TRUE(remora::test::eventually([&] { return words.in_flight_ == 1; }));
  EXPECT_FALSE(bitmap.marked().has(3)) << "a write that comes now marks it again";
  words.held_ = false;
  clears.join();
  EXPECT_EQ(words.written().back().second, 0U);
}

TEST(IntentBitmap, AMarkThatFailsMarksNothing) {
  Words words;
  words.fails_ = true;
  IntentBitmap bitmap{64, words.writer()};
  EXPECT_CODE(bitmap.mark(3, soon()), kConnectionLost);
  EXPECT_FALSE(bitmap.marked().has(3));
  words.fails_ = false;
  ASSERT_OK(bitmap.mark(3, soon()));
}

TEST(IntentBitmap, AClearThatFailsLeavesTheZoneUnmarkedForTheWriter) {
  Words words;
  IntentBitmap bitmap{64, words.writer()};
  ASSERT_OK(bitmap.mark(3, soon()));
  words.fails_ = true;
  EXPECT_CODE(bitmap.clear(0, 8, soon()), kConnectionLost);
  words.fails_ = false;
  ASSERT_OK(bitmap.mark(3, soon()));
  EXPECT_EQ(words.written().size(), 3U) << "members may not have the bit any more";
}

TEST(IntentBitmap, AMarkThatWaitsTooLongTimesOut) {
  Words words;
  words.held_ = true;
  IntentBitmap bitmap{64, words.writer()};
  std::thread marks{[&] { EXPECT_TRUE(bitmap.mark(0, soon()).ok()); }};
  EXPECT_TRUE(remora::test::eventually([&] { return words.in_flight_ == 1; }));
  EXPECT_CODE(bitmap.mark(1, Time::clock::now()), kTimedOut);
  words.held_ = false;
  marks.join();
}

TEST(IntentBitmap, AMarkBeginsNoWriteAfterItsDeadline) {
  Words words;
  IntentBitmap bitmap{64, words.writer()};
  EXPECT_CODE(bitmap.mark(3, Time::clock::now()), kTimedOut);
  EXPECT_TRUE(words.written().empty());
  ASSERT_OK(bitmap.mark(3, soon()));
  ASSERT_OK(bitmap.mark(3, Time::clock::now()));  // it is marked
}

}  // namespace
}  // namespace remora::volume::test
