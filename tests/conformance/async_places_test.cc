/// Awaited operations work in both places: those of Region::async() outside an executor, where a
/// poller drives them, and those of an AsyncQueue inside one, in whose thread the coroutine goes
/// on.

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "async_tasks.h"
#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kAwaitedBytes = 4096;

Task<Status> count_in_many(AsyncRegion in, std::size_t tasks) {
  Scope scope{tasks};
  for (std::size_t i = 0; i < tasks; ++i) co_await scope.spawn(add_many(in, 2));
  co_return co_await scope.join();
}

Task<std::thread::id> thread_after(AsyncRegion in) {
  EXPECT_TRUE((co_await in.fetch_add(ByteOffset{8}, 1)).ok());
  co_return std::this_thread::get_id();
}

class AsyncPlacesTest : public ConformanceTest {};

TEST_P(AsyncPlacesTest, RegionAsyncOutsideAnExecutorGoesOnOnAPoller) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, kAwaitedBytes).value();
  const auto work = [](AsyncRegion in, Slot slot) -> Task<Status> {
    const Status same = co_await write_and_read_back(in, std::move(slot));
    if (!same) co_return same.error();
    EXPECT_TRUE(fails_with(co_await in.fetch_add(ByteOffset{4}, 1), Code::kMisaligned));
    co_return Status{};
  };
  EXPECT_TRUE(ok(sync_wait(work(region.async(), slots.take()))));
  EXPECT_TRUE(slots.take()) << "the slot is back";
  const std::thread::id poller = sync_wait(thread_after(region.async()));
  EXPECT_NE(poller, std::this_thread::get_id());
  EXPECT_EQ(sync_wait(thread_after(region.async())), poller) << "one queue for each region";
}

TEST_P(AsyncPlacesTest, RegionAsyncTakesOperationsOfManyThreads) {
  const Region region = make_region();
  constexpr std::size_t kThreads = 4;
  std::vector<std::thread> threads;
  // More operations than its depth of 64.
  for (std::size_t i = 0; i < kThreads; ++i)
    threads.emplace_back([&] { EXPECT_TRUE(ok(sync_wait(count_in_many(region.async(), 40)))); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), kThreads * 40 * 2);
}

TEST_P(AsyncPlacesTest, AwaitedOperationKeepsTheRegionAndTheLastCoroutineLetsItGo) {
  const RegionInfo made = create();
  for (std::size_t round = 0; round < steps(20); ++round) {
    std::optional<Region> region = open(made.name);
    Task<Status> task = add_many(region->async(), 3);
    std::atomic<bool> ended{false};
    task.on_end({.tell = [](void* flag, std::size_t) noexcept -> std::coroutine_handle<> {
                   static_cast<std::atomic<bool>*>(flag)->store(true);
                   return std::noop_coroutine();
                 },
                 .receiver = &ended});
    task.start();
    region.reset();  // the task has a handle of its own, and its operations use the region
    ASSERT_TRUE(eventually([&] { return ended.load(); }));
    EXPECT_TRUE(ok(task.result()));
  }
  const auto opened = [&] { return session().stat(made.name).value().open_count; };
  EXPECT_TRUE(eventually([&] { return opened() == 0; }));
  EXPECT_EQ(opened(), 0U) << "no queue keeps the grant";
}

TEST_P(AsyncPlacesTest, RegionAsyncWithoutPollersIsUnsupportedOutsideAnExecutor) {
  const RegionInfo made = create();
  EngineOptions options;
  options.pollers = 0;
  const Engine none = Engine::open(options).value();
  const Region region = none.open_region(uri(made.name), Rights::kAll).value();
  EXPECT_TRUE(fails_with(sync_wait(add_many(region.async(), 1)), Code::kUnsupported));
  EXPECT_TRUE(ok(Executor{}.run(add_many(region.async(), 1)))) << "an executor needs no poller";
}

TEST_P(AsyncPlacesTest, AsyncQueueInsideAnExecutorGoesOnInTheThreadOfRun) {
  const Region region = make_region();
  Executor executor;
  for (const Resume resume : {Resume::on_poller(), Resume::on_arena()}) {
    AsyncQueue queue = region.async_queue({.depth = 2}, resume).value();
    for (int i = 0; i < 20; ++i)
      EXPECT_EQ(executor.run(thread_after(queue.async())), std::this_thread::get_id());
    EXPECT_TRUE(ok(executor.run(count_in_many(queue.async(), 30)))) << "more than its depth";
    EXPECT_NE(sync_wait(thread_after(queue.async())), std::this_thread::get_id());
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 2U * 30 * 2);
}

TEST_P(AsyncPlacesTest, ExecutorRunsOperationsOfBothKindsTogether) {
  const Region region = make_region();
  AsyncQueue queue = region.async_queue({.depth = 3}).value();
  const auto both = [&]() -> Task<Status> {
    Scope scope{8};
    for (int i = 0; i < 20; ++i) {
      // Not within the co_await: GCC 12 destroys both objects of a conditional expression there.
      AsyncRegion in = i % 2 == 0 ? queue.async() : region.async();
      co_await scope.spawn(add_many(std::move(in), 5));
    }
    co_return co_await scope.join();
  };
  EXPECT_TRUE(ok(Executor{}.run(both())));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 100U);
}

TEST_P(AsyncPlacesTest, TaskDestroyedInAnExecutorIsNotResumedByItsQueue) {
  const Region region = make_region({.size_bytes = 1_MiB});
  SlotPool slots = engine().allocate_slots(8, 64_KiB).value();
  Executor executor;
  for (std::size_t round = 0; round < steps(20); ++round) {
    std::optional<AsyncQueue> queue = region.async_queue({.depth = 3}).value();
    ASSERT_TRUE(ok(executor.run(leave_reads_early(queue->async(), slots))));
    queue.reset();  // waits for the operations in flight
    std::vector<Slot> all(8);
    // The executor has given all places back that its tasks had left.
    for (Slot& slot : all) ASSERT_TRUE(slot = slots.take()) << round;
  }
}

TEST_P(AsyncPlacesTest, QueueThatATaskOfAnExecutorDestroysEndsWhatIsAwaited) {
  const Region region = make_region();
  std::optional<AsyncQueue> queue = region.async_queue({.depth = 2, .deadline = 20s}).value();
  const auto destroy = [&](AsyncRegion other) -> Task<Status> {
    EXPECT_TRUE((co_await other.fetch_add(ByteOffset{8}, 1)).ok());
    const Timed timed;
    queue.reset();
    EXPECT_TRUE(timed.took_at_most(20s)) << "it does not wait for this thread";
    co_return Status{};
  };
  const auto all = [&]() -> Task<Status> {
    Scope scope{6};
    for (int i = 0; i < 5; ++i)
      co_await scope.spawn(add_until_it_ends(queue->async(), ByteOffset{0}));
    co_await scope.spawn(destroy(region.async()));
    co_return co_await scope.join();
  };
  EXPECT_TRUE(fails_with(Executor{}.run(all()), Code::kClosed));
}

TEST_P(AsyncPlacesTest, SyncWaitInATaskOfAnExecutorIsDrivenByAPoller) {
  const Region region = make_region();
  AsyncQueue queue = region.async_queue().value();
  const auto blocking = [&]() -> Task<Status> {
    const Status first = sync_wait(add_many(region.async(), 2));
    const Status second = sync_wait(add_many(queue.async(), 2));
    const std::thread::id here = std::this_thread::get_id();
    EXPECT_TRUE((co_await region.async().fetch_add(ByteOffset{0}, 1)).ok());
    EXPECT_EQ(std::this_thread::get_id(), here);
    co_return first ? second : first;
  };
  EXPECT_TRUE(ok(Executor{}.run(blocking())));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 5U);
}

/// Of the tasks that outlive run(), one is in flight, one waits in line, and a poller drives the
/// third one's operation.
TEST_P(AsyncPlacesTest, TasksThatOutliveTheTaskOfAnExecutorGoOn) {
  const Region region = make_region();
  AsyncQueue queue = region.async_queue({.depth = 1}).value();
  std::atomic<std::size_t> ended{0};
  std::vector<Task<Status>> outside;
  outside.push_back(add_many(region.async(), 3));
  outside.push_back(add_many(region.async(), 3));
  outside.push_back(add_many(queue.async(), 3));
  const auto begin = [&]() -> Task<Status> {
    for (Task<Status>& task : outside) {
      task.on_end({.tell = [](void* count, std::size_t) noexcept -> std::coroutine_handle<> {
                     static_cast<std::atomic<std::size_t>*>(count)->fetch_add(1);
                     return std::noop_coroutine();
                   },
                   .receiver = &ended});
      task.start();
    }
    co_return Status{};
  };
  EXPECT_TRUE(ok(Executor{{.depth = 1}}.run(begin())));
  ASSERT_TRUE(eventually([&] { return ended.load() == outside.size(); }));
  for (Task<Status>& task : outside) EXPECT_TRUE(ok(task.result()));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 9U);
}

REMORA_CONFORMANCE(AsyncPlacesTest);

}  // namespace
}  // namespace remora::test
