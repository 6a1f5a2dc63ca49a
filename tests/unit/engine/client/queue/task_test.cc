/// Tasks and scopes without an engine: the test resumes the coroutines itself.

#include <coroutine>
#include <gtest/gtest.h>
#include <stop_token>
#include <utility>
#include <vector>

#include <remora/engine/executor.h>
#include <remora/engine/task.h>

namespace remora::detail {
namespace {

/// Suspends its awaiting coroutines until the test resumes them.
struct Gate {
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> waiter) { waiters.push_back(waiter); }
  void await_resume() const noexcept {}
  void resume_oldest() {
    const std::coroutine_handle<> next = waiters.front();
    waiters.erase(waiters.begin());
    next.resume();
  }
  std::vector<std::coroutine_handle<>> waiters{};
};

Task<Status> pass(Gate& gate, Status result) {
  co_await gate;
  co_return result;
}

Task<Status> spawn_all(Gate& gate, std::size_t limit, std::vector<Status> results, int& spawned) {
  Scope scope{limit};
  for (const Status& each : results)
    if (co_await scope.spawn(pass(gate, each))) ++spawned;
  co_return co_await scope.join();
}

TEST(Task, WithoutACoroutineEndsAsClosed) {
  EXPECT_EQ(sync_wait(Task<Status>{}).error().code(), Code::kClosed);
}

TEST(Task, StartsWhenItIsRun) {
  bool ran = false;
  const auto set = [](bool& flag) -> Task<Status> {
    flag = true;
    co_return Status{};
  };
  auto task = set(ran);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(sync_wait(std::move(task)));
  EXPECT_TRUE(ran);
}

TEST(Scope, RunsNoMoreTasksThanItsLimit) {
  Gate gate;
  int spawned = 0;
  const Task<Status> all = spawn_all(gate, 2, std::vector<Status>(3), spawned);
  all.start();
  EXPECT_EQ(gate.waiters.size(), 2U) << "the third task waits for room";
  gate.resume_oldest();
  EXPECT_EQ(gate.waiters.size(), 2U);
  EXPECT_EQ(spawned, 3);
  gate.resume_oldest();
  EXPECT_FALSE(all.done()) << "join() waits for the last task";
  gate.resume_oldest();
  ASSERT_TRUE(all.done());
  EXPECT_TRUE(all.result());
}

TEST(Scope, StartsNoTaskAfterAFailureAndReturnsTheFirst) {
  Gate gate;
  int spawned = 0;
  const std::vector<Status> results{Error{Code::kTimedOut, "first"}, Error{Code::kClosed, "second"},
                                    Status{}};
  const Task<Status> all = spawn_all(gate, 2, results, spawned);
  all.start();
  gate.resume_oldest();  // the first one fails: the third is not started
  EXPECT_EQ(spawned, 2);
  gate.resume_oldest();
  ASSERT_TRUE(all.done());
  EXPECT_EQ(all.result().error().code(), Code::kTimedOut);
  EXPECT_TRUE(gate.waiters.empty());
}

TEST(Scope, StartsNoTaskAfterAStopWasRequested) {
  Gate gate;
  std::stop_source stop;
  stop.request_stop();
  const auto spawn_one = [](Gate& closed, std::stop_token token) -> Task<Status> {
    Scope scope{1, std::move(token)};
    EXPECT_FALSE(co_await scope.spawn(pass(closed, {})));
    co_return co_await scope.join();
  };
  const Task<Status> all = spawn_one(gate, stop.get_token());
  all.start();
  ASSERT_TRUE(all.done());
  EXPECT_EQ(all.result().error().code(), Code::kCancelled);
  EXPECT_TRUE(gate.waiters.empty());
}

TEST(Executor, RefusesASecondTaskWhileItRunsOne) {
  Executor executor;
  bool began = false;
  const auto set = [](bool& flag) -> Task<Status> {
    flag = true;
    co_return Status{};
  };
  const auto nested = [&]() -> Task<Status> {
    EXPECT_EQ(executor.run(set(began)).error().code(), Code::kBusy);
    co_return Status{};
  };
  EXPECT_TRUE(executor.run(nested()).ok());
  EXPECT_FALSE(began);
  EXPECT_TRUE(executor.run(set(began)).ok());
  EXPECT_TRUE(began);
}

TEST(ExecutorDeathTest, TaskThatNothingResumesEndsTheProgramWithTheReason) {
  Gate gate;
  EXPECT_DEATH((void)Executor{}.run(pass(gate, {})), "no operation is in flight that could resume");
}

}  // namespace
}  // namespace remora::detail
