#include "base/parallel_steps.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <latch>
#include <stop_token>
#include <thread>
#include <vector>

namespace remora::detail {
namespace {

using ::testing::ElementsAre;

TEST(ParallelSteps, OneThreadTakesThemInOrderAndTellsBeforeEach) {
  std::vector<std::size_t> taken;
  std::vector<std::size_t> told;
  const StepsDone made = run_steps(3,
                                   [&](std::size_t index) -> Status {
                                     taken.push_back(index);
                                     return {};
                                   },
                                   {.on_step = [&](std::size_t done) { told.push_back(done); }});
  EXPECT_EQ(made.done, 3U);
  EXPECT_FALSE(made.failed || made.stopped);
  EXPECT_THAT(taken, ElementsAre(0, 1, 2));
  EXPECT_THAT(told, ElementsAre(0, 1, 2, 3));
}

TEST(ParallelSteps, NoneAtAllAreToldOnce) {
  std::vector<std::size_t> told;
  const StepsDone made =
      run_steps(0, [](std::size_t) -> Status { return Error{Code::kInternal}; },
                {.threads_max = 4, .on_step = [&](std::size_t done) { told.push_back(done); }});
  EXPECT_EQ(made.done, 0U);
  EXPECT_FALSE(made.failed || made.stopped);
  EXPECT_THAT(told, ElementsAre(0));
}

TEST(ParallelSteps, SeveralThreadsTakeEachOnce) {
  constexpr std::size_t kSteps = 1000;
  constexpr std::size_t kThreads = 4;
  std::vector<std::atomic<int>> taken(kSteps);
  std::latch all{kThreads};  // each of the first steps waits for the others: no thread does two
  std::atomic<std::size_t> began{0};
  std::atomic<std::size_t> others{0};
  std::vector<std::size_t> told;
  const auto caller = std::this_thread::get_id();
  const StepsDone made = run_steps(kSteps,
                                   [&](std::size_t index) -> Status {
                                     if (began.fetch_add(1) < kThreads) all.arrive_and_wait();
                                     taken[index].fetch_add(1);
                                     return {};
                                   },
                                   {.threads_max = kThreads,
                                    .on_step =
                                        [&](std::size_t done) {
                                          EXPECT_EQ(std::this_thread::get_id(), caller);
                                          told.push_back(done);
                                        },
                                    .on_thread = [&] { others.fetch_add(1); }});
  EXPECT_EQ(made.done, kSteps);
  EXPECT_EQ(others, kThreads - 1);
  for (const auto& count : taken) EXPECT_EQ(count, 1);
  EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  EXPECT_EQ(told.back(), kSteps);
}

TEST(ParallelSteps, ErrorEndsThem) {
  for (const std::size_t threads : {1U, 4U}) {
    std::atomic<std::size_t> taken{0};
    const StepsDone made =
        run_steps(1'000'000,
                  [&](std::size_t index) -> Status {
                    taken.fetch_add(1);
                    if (index == 5) return Error{Code::kOutOfMemory, "step"}.with_errno(ENOMEM);
                    return {};
                  },
                  {.threads_max = threads});
    ASSERT_TRUE(made.failed.has_value());
    EXPECT_EQ(made.failed->code(), Code::kOutOfMemory);
    EXPECT_EQ(made.failed->system_errno(), ENOMEM);
    EXPECT_EQ(made.done, taken - 1);
    EXPECT_FALSE(made.stopped);
    if (threads == 1) {
      EXPECT_EQ(taken, 6U);
    }
  }
}

TEST(ParallelSteps, StopEndsThemBeforeTheNextOne) {
  for (const std::size_t threads : {1U, 4U}) {
    std::stop_source source;
    std::atomic<std::size_t> taken{0};
    const StepsDone made = run_steps(1'000'000,
                                     [&](std::size_t /*index*/) -> Status {
                                       const std::size_t before = taken.fetch_add(1);
                                       if (before == 2) source.request_stop();
                                       // No thread does another one before the stop.
                                       while (before > 2 && !source.stop_requested())
                                         std::this_thread::yield();
                                       return {};
                                     },
                                     {.threads_max = threads, .stop = source.get_token()});
    EXPECT_TRUE(made.stopped);
    EXPECT_FALSE(made.failed.has_value());
    EXPECT_EQ(made.done, taken);
    EXPECT_LE(made.done, 3 + threads);
  }
}

TEST(ParallelSteps, StopAfterTheLastStepIsNone) {
  std::stop_source source;
  const StepsDone made = run_steps(2,
                                   [&](std::size_t index) -> Status {
                                     if (index == 1) source.request_stop();
                                     return {};
                                   },
                                   {.stop = source.get_token()});
  EXPECT_EQ(made.done, 2U);
  EXPECT_FALSE(made.stopped);
}

TEST(ParallelSteps, ThereIsAProcessor) { EXPECT_GE(usable_processors(), 1U); }

}  // namespace
}  // namespace remora::detail
