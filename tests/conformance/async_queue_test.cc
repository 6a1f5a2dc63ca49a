/// Coroutines without an executor: the poller, the arena or the application's own loop resumes
/// them.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "async_tasks.h"
#include "conformance_test.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kBytes = 4096;

/// A loop of the application: a posted resumption waits until a thread calls run().
class Posted {
 public:
  void post(Resumption next) noexcept {
    const std::lock_guard lock{mutex_};
    posted_.push_back(next);
    changed_.notify_all();
  }
  /// Waits until `count` resumptions are posted, at most 20 s.
  [[nodiscard]] bool wait_for(std::size_t count) {
    std::unique_lock lock{mutex_};
    return changed_.wait_for(lock, std::chrono::seconds{20},
                             [&] { return posted_.size() >= count; });
  }
  /// Runs the posted resumptions in this thread. False: there were none.
  bool run() {
    std::deque<Resumption> now;
    {
      const std::lock_guard lock{mutex_};
      now.swap(posted_);
    }
    for (const Resumption& next : now) next();
    return !now.empty();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Resumption> posted_;
};

/// A loop with a thread that runs it.
class Loop : public Posted {
 public:
  Loop()
      : thread_{[this] {
          while (!stop_)
            if (!run()) std::this_thread::sleep_for(50us);
          while (run()) {
          }
        }} {}
  ~Loop() {
    stop_ = true;
    thread_.join();
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  [[nodiscard]] std::thread::id thread() const { return thread_.get_id(); }

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class AsyncQueueTest : public ConformanceTest {
 protected:
  /// Runs `test` once for each place where the engine can resume a coroutine.
  void everywhere(const std::function<void(Resume)>& test) {
    {
      SCOPED_TRACE("on the poller");
      test(Resume::on_poller());
    }
    {
      SCOPED_TRACE("on the arena");
      test(Resume::on_arena());
    }
    SCOPED_TRACE("in a loop");
    Loop loop;
    test(Resume::on(loop));
  }
};

TEST_P(AsyncQueueTest, EveryOperationGoesOnWithWhatItFound) {
  const auto work = [](AsyncRegion in, Slot slot) -> Task<Status> {
    std::vector<std::byte> mine = noise(kBytes, 5);
    const Status same = co_await write_and_read_back(in, std::move(slot));
    if (!same) co_return same.error();
    std::vector<std::byte> borrowed(kBytes);
    EXPECT_TRUE(ok(co_await in.read(Block{1}, borrowed)));
    EXPECT_TRUE(same_bytes(borrowed, mine));
    EXPECT_TRUE(ok(co_await in.write_zeroes(ByteOffset{kBytes}, 100)));
    EXPECT_TRUE(ok(co_await in.read(ByteOffset{kBytes}, borrowed)));
    std::fill_n(mine.begin(), 100, std::byte{0});
    EXPECT_TRUE(same_bytes(borrowed, mine));
    EXPECT_TRUE(ok(co_await in.write(ByteOffset{100}, borrowed)));
    EXPECT_EQ((co_await in.fetch_add(ByteOffset{8}, 3)).value(), 0U);
    EXPECT_EQ((co_await in.compare_swap(ByteOffset{8}, 3, 0)).value(), 3U);
    EXPECT_EQ((co_await in.fetch_add(ByteOffset{8}, 0)).value(), 0U);
    co_return Status{};
  };
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(2, kBytes).value();
  everywhere([&](Resume resume) {
    AsyncQueue queue = region.async_queue({.depth = 4}, resume).value();
    EXPECT_EQ(queue.depth(), 4U);
    EXPECT_TRUE(ok(sync_wait(work(queue.async(), slots.take()))));
    EXPECT_TRUE(slots.take() && slots.take()) << "all slots are back";
  });
  Executor executor;
  EXPECT_TRUE(ok(executor.run(work(region.async(), slots.take())))) << "the same in an executor";
}

TEST_P(AsyncQueueTest, CoroutinesGoOnWhereTheQueueWasTold) {
  const Region region = make_region();
  const auto where = [](AsyncRegion in) -> Task<std::thread::id> {
    EXPECT_TRUE((co_await in.fetch_add(ByteOffset{8}, 1)).ok());
    co_return std::this_thread::get_id();
  };
  Loop loop;
  AsyncQueue in_loop = region.async_queue({.depth = 4}, Resume::on(loop)).value();
  AsyncQueue on_poller = region.async_queue().value();
  AsyncQueue on_arena = region.async_queue({}, Resume::on_arena()).value();
  const std::thread::id poller = sync_wait(where(on_poller.async()));
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(sync_wait(where(in_loop.async())), loop.thread());
    EXPECT_EQ(sync_wait(where(on_poller.async())), poller);
    const std::thread::id worker = sync_wait(where(on_arena.async()));
    EXPECT_NE(worker, poller);
    EXPECT_NE(worker, std::this_thread::get_id());
  }
}

TEST_P(AsyncQueueTest, ResultsAreMovedOut) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, kBytes).value();
  AsyncQueue queue = region.async_queue().value();
  const auto fetch = [](AsyncRegion in, Slot slot) -> Task<Result<Slot>> {
    co_return co_await in.read(Block{0}, std::move(slot));
  };
  Result<Slot> fetched = sync_wait(fetch(queue.async(), slots.take()));
  ASSERT_TRUE(ok(fetched));
  EXPECT_EQ(fetched->bytes().size(), kBytes);
  EXPECT_FALSE(slots.take());
}

TEST_P(AsyncQueueTest, PipelineOfSixteenCopiesARegion) {
  const Region from = make_region({.size_bytes = 256_KiB});
  const Region to = make_region({.size_bytes = 256_KiB});
  SlotPool slots = engine().allocate_slots(17, kBytes).value();
  std::uint64_t seed = 6;
  everywhere([&](Resume resume) {
    const std::vector<std::byte> model = noise(256_KiB, ++seed);
    ASSERT_TRUE(ok(from.write(ByteOffset{0}, model)));
    AsyncQueue source = from.async_queue({.depth = 8}, resume).value();
    AsyncQueue target = to.async_queue({.depth = 8}, resume).value();
    for (int round = 0; round < 3; ++round)
      ASSERT_TRUE(ok(
          sync_wait(move_blocks(source.async(), target.async(), from.block_count(), slots, 16))));
    EXPECT_TRUE(same_bytes(read_all(to), model));
  });
}

TEST_P(AsyncQueueTest, MoreThanTheDepthWaitForTheirTurn) {
  const auto all = [](AsyncRegion in) -> Task<Status> {
    Scope scope{300};
    for (int i = 0; i < 300; ++i) co_await scope.spawn(add_one(in, ByteOffset{0}));
    co_return co_await scope.join();
  };
  const Region region = make_region();
  everywhere([&](Resume resume) {
    for (const std::size_t depth : {1U, 3U}) {
      AsyncQueue narrow = region.async_queue({.depth = depth}, resume).value();
      EXPECT_TRUE(ok(sync_wait(all(narrow.async()))));
      EXPECT_EQ(region.compare_swap(ByteOffset{0}, 300, 0).value(), 300U);
    }
  });
}

TEST_P(AsyncQueueTest, ThreadsOfAnyNumberAwaitOnOneQueue) {
  constexpr std::size_t kThreads = 4;
  const Region region = make_region();
  const std::size_t each = steps(500);
  everywhere([&](Resume resume) {
    AsyncQueue queue = region.async_queue({.depth = 2}, resume).value();
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&] { EXPECT_TRUE(ok(sync_wait(add_many(queue.async(), each)))); });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(region.compare_swap(ByteOffset{0}, kThreads * each, 0).value(), kThreads * each);
  });
}

TEST_P(AsyncQueueTest, FirstErrorStopsTheRest) {
  const Region region = make_region({.size_bytes = 64_KiB});
  SlotPool slots = engine().allocate_slots(4, kBytes).value();
  const auto all = [&](AsyncRegion in, std::size_t& started) -> Task<Status> {
    Scope scope{1};
    for (std::uint64_t block = 14; block < 100; ++block)  // there are 16
      started += co_await scope.spawn(move_block(in, in, block, slots.take()));
    co_return co_await scope.join();
  };
  everywhere([&](Resume resume) {
    std::size_t started = 0;
    AsyncQueue queue = region.async_queue({.depth = 4}, resume).value();
    EXPECT_TRUE(fails_with(sync_wait(all(queue.async(), started)), Code::kOutOfRange));
    EXPECT_EQ(started, 3U);
    for (int i = 0; i < 4; ++i) EXPECT_TRUE(Slot{slots.take()});
  });
}

/// One inner scope of a tree: four tasks of it count.
Task<Status> count_in_fours(AsyncRegion in) {
  Scope scope{3};
  for (int i = 0; i < 4; ++i) co_await scope.spawn(add_one(in, ByteOffset{16}));
  co_return co_await scope.join();
}

TEST_P(AsyncQueueTest, ScopesWhoseTasksEndOnSeveralThreadsAtOnceLoseNothing) {
  EngineOptions options;
  options.pollers = 2;
  options.arena_threads = 4;
  options.operation_deadline = options.control_deadline = 30s;
  const RegionInfo made = create();
  const Engine other = Engine::open(options).value();
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  const auto all = [](AsyncRegion one, AsyncRegion two, std::size_t count) -> Task<Status> {
    Scope scope{8};
    for (std::size_t i = 0; i < count; ++i)
      co_await scope.spawn(count_in_fours(i % 2 == 0 ? one : two));
    co_return co_await scope.join();
  };
  const std::size_t count = steps(1000);
  everywhere([&](Resume resume) {
    AsyncQueue one = region.async_queue({.depth = 16}, resume).value();  // a poller for each queue
    AsyncQueue two = region.async_queue({.depth = 16}, resume).value();
    EXPECT_TRUE(ok(sync_wait(all(one.async(), two.async(), count))));
    EXPECT_EQ(region.compare_swap(ByteOffset{16}, 4 * count, 0).value(), 4 * count);
  });
}

TEST_P(AsyncQueueTest, WhatIsRefusedAtOnceDoesNotSuspend) {
  const Region region = make_region({.size_bytes = 64_KiB});
  SlotPool slots = engine().allocate_slots(1, kBytes).value();
  AsyncQueue queue = region.async_queue({.depth = 1}, Resume::on_arena()).value();
  const auto refused = [](AsyncRegion in, Slot slot) -> Task<Status> {
    const std::thread::id here = std::this_thread::get_id();
    EXPECT_TRUE(fails_with(co_await in.read(Block{16}, std::move(slot)), Code::kOutOfRange));
    EXPECT_TRUE(fails_with(co_await in.fetch_add(ByteOffset{4}, 1), Code::kMisaligned));
    EXPECT_TRUE(fails_with(co_await in.write(Block{0}, Slot{}), Code::kInvalidArgument));
    EXPECT_TRUE(fails_with(co_await in.write_zeroes(ByteOffset{0}, 0), Code::kInvalidArgument));
    EXPECT_EQ(std::this_thread::get_id(), here);
    EXPECT_TRUE((co_await in.fetch_add(ByteOffset{8}, 1)).ok()) << "the place is free again";
    EXPECT_NE(std::this_thread::get_id(), here);
    co_return Status{};
  };
  EXPECT_TRUE(ok(sync_wait(refused(queue.async(), slots.take()))));
  EXPECT_TRUE(slots.take()) << "the slot is back in its pool";
}

TEST_P(AsyncQueueTest, OptionsOutOfRangeAreRefused) {
  const Region region = make_region();
  EXPECT_TRUE(fails_with(region.async_queue({.depth = 0}), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(region.async_queue({.depth = kMaxQueueDepth + 1}, Resume::on_arena()),
                         Code::kInvalidArgument));
  EngineOptions options;
  options.pollers = 0;
  const Engine none = Engine::open(options).value();
  const Region other = none.open_region(uri(region.info().name), Rights::kAll).value();
  EXPECT_TRUE(fails_with(other.async_queue(), Code::kUnsupported));
  options.arena_threads = kMaxArenaThreads + 1;
  EXPECT_TRUE(fails_with(Engine::open(options), Code::kInvalidArgument));
}

TEST_P(AsyncQueueTest, ScopeLeftEarlyOnThePollerDestroysWhatRunsAndWhatWaits) {
  const Region region = make_region({.size_bytes = 1_MiB});
  SlotPool slots = engine().allocate_slots(8, 64_KiB).value();
  const auto leave = [&](AsyncRegion in) -> Task<Status> {
    (void)co_await in.fetch_add(ByteOffset{8}, 1);  // from here on the poller runs this coroutine
    co_return co_await leave_reads_early(in, slots);
  };
  for (const std::size_t depth : {3U, 8U})
    for (std::size_t round = 0; round < steps(50); ++round) {
      std::optional<AsyncQueue> queue = region.async_queue({.depth = depth}).value();
      ASSERT_TRUE(ok(sync_wait(leave(queue->async()))));
      queue.reset();  // waits for the operations in flight
      std::vector<Slot> all(8);
      for (Slot& slot : all) ASSERT_TRUE(slot = slots.take()) << round;
    }
}

TEST_P(AsyncQueueTest, TaskDestroyedInTheLoopIsNotResumedByWhatWasPosted) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(5, kBytes).value();
  for (const bool queue_first : {false, true}) {
    Posted loop;
    std::optional<AsyncQueue> queue = region.async_queue({.depth = 3}, Resume::on(loop)).value();
    const auto read = [](AsyncRegion in, Slot slot) -> Task<Status> {
      (void)co_await in.read(Block{0}, std::move(slot));
      ADD_FAILURE() << "a destroyed task was resumed";
      co_return Status{};
    };
    std::vector<Task<Status>> tasks;
    for (int i = 0; i < 5; ++i) {  // three tasks in flight, two in the queue's line
      tasks.push_back(read(queue->async(), slots.take()));
      tasks.back().start();
    }
    ASSERT_TRUE(loop.wait_for(3));
    if (queue_first) queue.reset();
    tasks.clear();
    EXPECT_TRUE(loop.run());
    EXPECT_FALSE(loop.run());
    std::vector<Slot> all(5);
    for (Slot& slot : all) EXPECT_TRUE(slot = slots.take());
    queue.reset();
  }
}

TEST_P(AsyncQueueTest, TurnThatComesTooLateIsTimedOutAndWasNeverSent) {
  const Region region = make_region();
  Posted loop;
  AsyncQueue queue = region.async_queue({.depth = 1, .deadline = 4s}, Resume::on(loop)).value();
  std::vector<Task<Status>> tasks;
  for (int i = 0; i < 3; ++i) {
    tasks.push_back(add_one(queue.async(), ByteOffset{8}));
    tasks.back().start();
  }
  ASSERT_TRUE(loop.wait_for(1));
  std::this_thread::sleep_for(4200ms);  // the first keeps its place
  while (!tasks.back().done()) ASSERT_TRUE(loop.wait_for(1) && loop.run());
  EXPECT_TRUE(ok(tasks[0].result()));
  EXPECT_TRUE(fails_with(tasks[1].result(), Code::kTimedOut));
  EXPECT_TRUE(fails_with(tasks[2].result(), Code::kTimedOut));
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), 1U);
}

TEST_P(AsyncQueueTest, DestroyedQueueEndsWhatIsAwaitedAndWhatIsAwaitedLater) {
  const Region region = make_region();
  everywhere([&](Resume resume) {
    for (std::size_t round = 0; round < steps(20); ++round) {
      std::optional<AsyncQueue> queue =
          region.async_queue({.depth = 3, .deadline = 5s}, resume).value();
      const AsyncRegion left = queue->async();
      std::vector<std::thread> threads;
      threads.reserve(6);
      std::atomic<int> closed{0};
      for (int i = 0; i < 6; ++i)
        threads.emplace_back([&] {
          const Status ended = sync_wait(add_until_it_ends(left, ByteOffset{8}));
          if (ended.error().code() == Code::kClosed) ++closed;
        });
      std::this_thread::sleep_for(std::chrono::microseconds{round * 100});
      const Timed timed;
      queue.reset();
      EXPECT_TRUE(timed.took_at_most(5s + kGrace));
      for (std::thread& thread : threads) thread.join();
      ASSERT_EQ(closed, 6);
      EXPECT_TRUE(fails_with(sync_wait(add_one(left, ByteOffset{8})), Code::kClosed));
    }
  });
}

TEST_P(AsyncQueueTest, DestructorWaitsForTheCoroutineOfTheLastOperation) {
  const Region region = make_region();
  for (const Resume where : {Resume::on_arena(), Resume::on_poller()})
    for (std::size_t round = 0; round < steps(20); ++round) {
      std::optional<AsyncQueue> queue = region.async_queue({.depth = 1}, where).value();
      std::atomic<int> finished{0};
      const auto slow = [&finished](AsyncRegion in) -> Task<Status> {
        const auto before = co_await in.fetch_add(ByteOffset{8}, 1);
        std::this_thread::sleep_for(5ms);  // as work that takes its time
        finished.fetch_add(1);
        co_return before ? Status{} : Status{before.error()};
      };
      // One in flight, one in line.
      std::vector<Task<Status>> tasks;
      for (int i = 0; i < 2; ++i) {
        tasks.push_back(slow(queue->async()));
        tasks.back().start();
      }
      queue.reset();
      EXPECT_EQ(finished.load(), 2) << "its frame may go now";
    }
}

TEST_P(AsyncQueueTest, QueueThatItsOwnCoroutineDestroysGoesWithoutHarm) {
  const RegionInfo made = create();
  for (const Resume& resume : {Resume::on_poller(), Resume::on_arena()}) {
    const Region region = open(made.name);
    std::optional<AsyncQueue> queue =
        region.async_queue({.depth = 2, .deadline = 20s}, resume).value();
    const auto destroy = [&](AsyncRegion in) -> Task<Status> {
      EXPECT_TRUE((co_await in.fetch_add(ByteOffset{8}, 1)).ok());
      const Timed timed;
      queue.reset();
      EXPECT_TRUE(timed.took_at_most(20s)) << "it does not wait for itself";
      co_return (co_await in.fetch_add(ByteOffset{8}, 1)).error();
    };
    EXPECT_TRUE(fails_with(sync_wait(destroy(queue->async())), Code::kClosed));
    AsyncQueue next = region.async_queue({.depth = 2}).value();
    EXPECT_TRUE(ok(sync_wait(add_one(next.async(), ByteOffset{8})))) << "the poller goes on";
  }
  // No call has waited for the last queue to close its grant.
  const auto opened = [&] { return session().stat(made.name).value().open_count; };
  EXPECT_TRUE(eventually([&] { return opened() == 0; }));
  EXPECT_EQ(opened(), 0U);
}

TEST_P(AsyncQueueTest, QueueOutlivesTheHandlesItWasMadeFrom) {
  const RegionInfo made = create();
  for (const Resume& resume : {Resume::on_poller(), Resume::on_arena()}) {
    std::optional<AsyncQueue> queue;
    {
      const Engine other = open_engine();
      queue =
          other.open_region(uri(made.name), Rights::kAll).value().async_queue({}, resume).value();
    }
    EXPECT_TRUE(ok(sync_wait(add_one(queue->async(), ByteOffset{8}))));
  }
}

REMORA_CONFORMANCE(AsyncQueueTest);

}  // namespace
}  // namespace remora::test
