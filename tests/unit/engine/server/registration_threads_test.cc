/// Jobs run beside each other, each once, and all of them before the end.

#include "server/registration_threads.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "support/resources.h"

namespace remora::detail {
namespace {

TEST(RegistrationThreadsTest, RunEachJobBeforeTheyEnd) {
  std::atomic<int> ran{0};
  RegistrationThreads threads;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(threads.enqueue([&ran] { ++ran; }));
  threads.stop();
  EXPECT_EQ(ran.load(), 100);
  EXPECT_FALSE(threads.enqueue([] {})) << "the caller does it";
  threads.stop();
}

TEST(RegistrationThreadsTest, OneThatWaitsKeepsNoOtherFromRunning) {
  RegistrationThreads threads;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  ASSERT_TRUE(threads.enqueue([released] { released.wait(); }));
  for (std::size_t i = 1; i < RegistrationThreads::kMaxThreads; ++i) {
    const auto ran = std::make_shared<std::promise<void>>();
    ASSERT_TRUE(threads.enqueue([ran] { ran->set_value(); }));
    ran->get_future().wait();
  }
  release.set_value();
  (void)threads.drain();
  EXPECT_FALSE(threads.drain()) << "there is none";
}

TEST(RegistrationThreadsTest, DrainWaitsForThoseThatRunAndThoseThatWait) {
  RegistrationThreads threads;
  std::atomic<int> ran{0};
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  const auto count = [&ran, released] {
    released.wait();
    ++ran;
  };
  for (std::size_t i = 0; i < 2 * RegistrationThreads::kMaxThreads; ++i)
    ASSERT_TRUE(threads.enqueue(count));
  EXPECT_EQ(ran.load(), 0);
  auto drained = std::async(std::launch::async, [&threads] { return threads.drain(); });
  release.set_value();
  (void)drained.get();
  EXPECT_EQ(ran.load(), static_cast<int>(2 * RegistrationThreads::kMaxThreads));
}

TEST(RegistrationThreadsTest, JobsOfOneGroupRunOneAfterTheOtherAndLeaveThreadsToOthers) {
  RegistrationThreads threads;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < 2 * RegistrationThreads::kMaxThreads; ++i)
    ASSERT_TRUE(threads.enqueue(
        [&order, i, released] {
          released.wait();
          order.push_back(i);
        },
        "one"));
  for (const char* const group : {"", "another"}) {
    std::promise<void> ran;
    ASSERT_TRUE(threads.enqueue([&ran] { ran.set_value(); }, group));
    ran.get_future().wait();  // without groups: all threads wait for `release`
  }
  release.set_value();
  (void)threads.drain();
  ASSERT_EQ(order.size(), 2 * RegistrationThreads::kMaxThreads);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(RegistrationThreadsTest, LetGoOfAJobBeforeItCountsAsDone) {
  RegistrationThreads threads;
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> seen = held;
  ASSERT_TRUE(threads.enqueue([held = std::move(held)] {}));
  (void)threads.drain();
  EXPECT_TRUE(seen.expired());
}

TEST(RegistrationThreadsTest, WithoutAJobThereIsNoThread) {
  const test::Resources before = test::Resources::settled();
  RegistrationThreads threads;
  std::promise<void> release;
  const std::shared_future<void> released = release.get_future().share();
  for (std::size_t i = 0; i < RegistrationThreads::kMaxThreads; ++i)
    ASSERT_TRUE(threads.enqueue([released] { released.wait(); }));
  EXPECT_FALSE(before.difference(test::Resources::now()).empty()) << "they run beside each other";
  release.set_value();
  EXPECT_TRUE(test::back_at(before));
  // The next job is one for a thread that is started for it.
  std::promise<void> ran;
  ASSERT_TRUE(threads.enqueue([&ran] { ran.set_value(); }));
  ran.get_future().wait();
  EXPECT_TRUE(test::back_at(before));
}

}  // namespace
}  // namespace remora::detail
