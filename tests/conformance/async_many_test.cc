/// Groups of pairs that a coroutine awaits as one operation.

#include <algorithm>
#include <functional>
#include <optional>
#include <stop_token>
#include <vector>

#include "async_tasks.h"
#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kValueBytes = 64;

class AsyncManyTest : public ConformanceTest {
 protected:
  static std::vector<ReadPair> reads(std::span<std::byte> bytes, std::size_t count) {
    std::vector<ReadPair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back({ByteOffset{128 * i}, bytes.subspan(kValueBytes * i, kValueBytes)});
    return pairs;
  }
  static std::vector<WritePair> writes(std::span<const std::byte> bytes, std::size_t count) {
    std::vector<WritePair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back({ByteOffset{128 * i}, bytes.subspan(kValueBytes * i, kValueBytes)});
    return pairs;
  }
  /// Runs the task of `work` in each place where an operation can be awaited, on queues of `depth`
  /// operations.
  static void everywhere(const Region& region, std::size_t depth,
                         const std::function<Task<Status>(AsyncRegion)>& work) {
    {
      SCOPED_TRACE("in an executor");
      EXPECT_TRUE(ok(Executor{{.depth = depth}}.run(work(region.async()))));
    }
    for (const Resume resume : {Resume::on_poller(), Resume::on_arena()}) {
      SCOPED_TRACE("with a queue");
      AsyncQueue queue = region.async_queue({.depth = depth}, resume).value();
      EXPECT_TRUE(ok(sync_wait(work(queue.async()))));
    }
    AsyncQueue queue = region.async_queue({.depth = depth}).value();
    SCOPED_TRACE("with a queue in an executor");
    EXPECT_TRUE(ok(Executor{}.run(work(queue.async()))));
  }
};

TEST_P(AsyncManyTest, EveryKindEndsOnceForAllItsPairs) {
  const Region region = make_region();
  std::uint64_t seed = 0;
  everywhere(region, 64, [&](AsyncRegion in) -> Task<Status> {
    const std::vector<std::byte> model = noise(50 * kValueBytes, ++seed);
    std::vector<ManyOutcome> each(50);
    each[7].ok = false;  // of an earlier call
    EXPECT_TRUE(ok(co_await in.write_many(writes(model, 50), each)));
    EXPECT_TRUE(std::ranges::all_of(each, &ManyOutcome::ok));
    std::vector<std::byte> into(50 * kValueBytes);
    EXPECT_TRUE(ok(co_await in.read_many(reads(into, 50))));
    EXPECT_TRUE(same_bytes(into, model));
    EXPECT_TRUE(ok(co_await in.write_zeroes(ByteOffset{0}, 400)));
    std::vector<FetchAddPair> adds;
    std::vector<CompareSwapPair> swaps;
    for (std::uint64_t i = 0; i < 40; ++i) {
      adds.push_back({ByteOffset{8 * i}, i + 1});
      swaps.push_back({ByteOffset{8 * i}, i % 2 == 0 ? i + 1 : 0, 100});
    }
    EXPECT_TRUE(ok(co_await in.fetch_add_many(adds)));
    EXPECT_TRUE(ok(co_await in.compare_swap_many(swaps)));
    for (std::uint64_t i = 0; i < 40; ++i) {
      EXPECT_EQ(adds[i].before, 0U);
      EXPECT_EQ(swaps[i].before, i + 1);
      EXPECT_EQ((co_await in.fetch_add(ByteOffset{8 * i}, 0)).value(), i % 2 == 0 ? 100 : i + 1);
    }
    co_return Status{};
  });
}

TEST_P(AsyncManyTest, FailedPairIsNamedAndTheOthersAreCarriedOut) {
  const Region region = make_region();
  std::uint64_t seed = 100;
  everywhere(region, 64, [&](AsyncRegion in) -> Task<Status> {
    const std::vector<std::byte> model = noise(50 * kValueBytes, ++seed);
    auto pairs = writes(model, 50);
    pairs[30].to = ByteOffset{region.size_bytes()};
    pairs[40].from = std::span<const std::byte>{};
    std::vector<ManyOutcome> each(50);
    const Status status = co_await in.write_many(pairs, each);
    if (status) {
      ADD_FAILURE() << "pair 30 is outside of the region";
      co_return Status{};
    }
    EXPECT_EQ(status.error().code(), Code::kOutOfRange);
    EXPECT_TRUE(status.error().subject().ends_with(", pair 30")) << status.error();
    std::vector<std::byte> into(50 * kValueBytes);
    EXPECT_TRUE(ok(co_await in.read_many(reads(into, 50))));
    for (std::size_t i = 0; i < 50; ++i) {
      EXPECT_EQ(each[i].ok, i != 30 && i != 40) << i;
      const auto part = [&](std::span<const std::byte> of) {
        return of.subspan(i * kValueBytes, kValueBytes);
      };
      if (each[i].ok) {
        EXPECT_TRUE(same_bytes(part(into), part(model))) << i;
      }
    }
    EXPECT_EQ(each[40].code, Code::kInvalidArgument);
    co_return Status{};
  });
}

TEST_P(AsyncManyTest, GroupThatTheQueueCannotTakeDoesNotSuspend) {
  const Region region = make_region();
  everywhere(region, 8, [](AsyncRegion in) -> Task<Status> {
    std::vector<std::byte> into(9 * kValueBytes);
    const auto pairs = reads(into, 9);
    const Status refused = co_await in.read_many(pairs);
    if (refused) {
      ADD_FAILURE() << "more pairs than the depth";
      co_return Status{};
    }
    EXPECT_EQ(refused.error().code(), Code::kLimitExceeded);
    EXPECT_EQ(refused.error().asked(), 9U);
    EXPECT_EQ(refused.error().allowed(), 8U);
    std::vector<ManyOutcome> each(7);
    EXPECT_TRUE(
        fails_with(co_await in.read_many(std::span{pairs}.first(8), each), Code::kInvalidArgument));
    EXPECT_TRUE(fails_with(co_await in.read_many({}, each), Code::kInvalidArgument));
    EXPECT_TRUE(ok(co_await in.read_many({})));
    EXPECT_TRUE(ok(co_await in.read_many(std::span{pairs}.first(8))));
    co_return Status{};
  });
}

Task<Status> add_in_groups(AsyncRegion in, std::size_t count, std::size_t times) {
  std::vector<FetchAddPair> pairs(count, {ByteOffset{0}, 1});
  for (std::size_t i = 0; i < times; ++i) {
    const Status added = co_await in.fetch_add_many(pairs);
    if (!added) co_return added.error();
  }
  co_return Status{};
}

/// The word at 0 counts every addition, whatever waits for room.
TEST_P(AsyncManyTest, GroupsAndSingleOperationsWaitForRoom) {
  const Region region = make_region();
  std::uint64_t expected = 0;
  everywhere(region, 8, [&](AsyncRegion in) -> Task<Status> {
    Scope scope{12};
    for (std::size_t i = 0; i < 4; ++i) {
      co_await scope.spawn(add_in_groups(in, 8, steps(10)));
      co_await scope.spawn(add_many(in, steps(10)));
      co_await scope.spawn(add_in_groups(in, 5, steps(10)));
    }
    const Status joined = co_await scope.join();
    expected += 4 * steps(10) * (8 + 1 + 5);
    EXPECT_EQ((co_await in.fetch_add(ByteOffset{0}, 0)).value(), expected);
    co_return joined;
  });
}

TEST_P(AsyncManyTest, StopEndsAGroupThatIsAwaitedLater) {
  const Region region = make_region();
  everywhere(region, 8, [&](AsyncRegion in) -> Task<Status> {
    std::stop_source stop;
    const AsyncRegion stoppable = in.with_stop(stop.get_token());
    const std::vector<std::byte> ones(8 * kValueBytes, std::byte{1});
    stop.request_stop();
    const Status status = co_await stoppable.write_many(writes(ones, 8));
    EXPECT_TRUE(fails_with(status, Code::kCancelled));
    std::vector<std::byte> into(kValueBytes);
    EXPECT_TRUE(ok(co_await in.read(ByteOffset{0}, into)));
    EXPECT_EQ(into, std::vector<std::byte>(kValueBytes)) << "it was never sent";
    co_return Status{};
  });
}

/// What a destroyed group had reserved is free for the operations behind it.
TEST_P(AsyncManyTest, DestroyedGroupInLineLeavesItsPlaces) {
  const Region region = make_region({.size_bytes = 1_MiB});
  SlotPool slots = engine().allocate_slots(8, 64_KiB).value();
  std::vector<FetchAddPair> pairs(4, {ByteOffset{16}, 1});  // outlives the tasks
  Executor executor{{.depth = 4}};
  const auto group = [&](AsyncRegion in) -> Task<Status> {
    const Status added = co_await in.fetch_add_many(pairs);
    ADD_FAILURE() << "a destroyed task was resumed";
    co_return added;
  };
  const auto leave = [&](AsyncRegion in) -> Task<Status> {
    {
      Scope scope{8};
      for (int i = 0; i < 3; ++i)
        co_await scope.spawn([](AsyncRegion from, Slot slot) -> Task<Status> {
          const auto read = co_await from.read(ByteOffset{0}, std::move(slot));
          co_return read ? Status{} : Status{read.error()};
        }(in, slots.take()));
      co_await scope.spawn(group(in));
      co_await scope.spawn(group(in));
    }
    co_return co_await add_in_groups(in, 4, 3);
  };
  for (std::size_t round = 0; round < steps(20); ++round)
    ASSERT_TRUE(ok(executor.run(leave(region.async()))));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), steps(20) * 12);
}

/// The last handle of its memory goes while the group waits for room.
TEST_P(AsyncManyTest, GroupInLineKeepsItsMemory) {
  const Region region = make_region();
  const std::vector<std::byte> model = noise(8 * kValueBytes, 9);
  ASSERT_TRUE(ok(region.write_many(writes(model, 8))));
  AsyncQueue queue = region.async_queue({.depth = 8}).value();
  for (std::size_t round = 0; round < steps(20); ++round) {
    std::vector<std::vector<std::byte>> into(4, std::vector<std::byte>(8 * kValueBytes));
    std::optional<RegisteredMemory> memory;
    const auto all = [&]() -> Task<Status> {
      Scope scope{8};
      std::vector<std::vector<ReadPair>> of_task(into.size());
      for (std::size_t i = 0; i < into.size(); ++i) {
        memory.emplace(engine().register_memory(into[i]).value());
        for (std::size_t k = 0; k < 8; ++k)
          of_task[i].push_back(
              {ByteOffset{128 * k}, Target{*memory, kValueBytes * k, kValueBytes}});
        co_await scope.spawn([](AsyncRegion in, std::span<const ReadPair> of) -> Task<Status> {
          co_return co_await in.read_many(of);
        }(queue.async(), of_task[i]));
        memory.reset();
      }
      co_return co_await scope.join();
    };
    ASSERT_TRUE(ok(sync_wait(all())));
    for (const auto& bytes : into) EXPECT_TRUE(same_bytes(bytes, model));
  }
}

REMORA_CONFORMANCE(AsyncManyTest);

}  // namespace
}  // namespace remora::test
