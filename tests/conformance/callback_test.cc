/// Operations with callbacks: every kind, many threads, bounds, chains, sleeping pollers.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

// Types that may be a callback, and types that may not.
struct Large {
  std::array<std::byte, kMaxCallbackBytes + 1> bytes;
  void operator()(Completion& /*completion*/) const {}
};
struct Fits {
  std::array<std::byte, kMaxCallbackBytes> bytes;
  void operator()(Completion& /*completion*/) const {}
};
using Function = std::function<void(Completion&)>;
static_assert(CompletionCallback<Fits> && !CompletionCallback<Large>);
static_assert(CompletionCallback<Function> && !CompletionCallback<Function&>, "a copy may throw");
static_assert(CompletionCallback<void (*)(Completion&)> && !CompletionCallback<int>);

/// Counts the callbacks that are still to come.
class Pending {
 public:
  explicit Pending(std::int64_t count) : left_{count} {}
  void done() {
    if (left_.fetch_sub(1) == 1) left_.notify_all();
  }
  /// Waits for all callbacks. False: some have not come within `limit`.
  [[nodiscard]] bool wait(std::chrono::nanoseconds limit = 30s) const {
    for (Patience patience{limit}; left_ > 0 && !patience.over();)
      std::this_thread::sleep_for(100us);
    return left_ == 0;
  }

 private:
  std::atomic<std::int64_t> left_;
};

class CallbackTest : public ConformanceTest {
 protected:
  /// Submits again while the queue is full.
  template <typename Submit>
  static Status patiently(Submit submit) {
    while (true) {
      const Status status = submit();
      if (status || status.error().code() != Code::kWouldBlock) return status;
      std::this_thread::yield();
    }
  }
  /// The result of one operation.
  struct End {
    Status status{};
    std::uint64_t old_value = 0;
    std::uint64_t tag = 0;
    Slot slot{};
  };
  /// Submits one operation, and waits for its callback.
  template <typename Submit>
  static End one(Submit submit) {
    std::promise<End> promise;
    const Status taken = submit([&promise](Completion& completion) {
      promise.set_value({.status = completion.ok() ? Status{} : Status{completion.error()},
                         .old_value = completion.old_value(),
                         .tag = completion.tag(),
                         .slot = std::move(completion.slot())});
    });
    if (!taken) return {.status = taken};
    return promise.get_future().get();
  }
};

TEST_P(CallbackTest, EveryOperationTellsItsEnd) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(2, 4096).value();
  CallbackQueue queue = region.callback_queue({.depth = 4}).value();
  EXPECT_EQ(queue.depth(), 4U);
  Slot slot = slots.take();
  fill(slot.bytes(), 5);
  End end = one([&](auto f) { return queue.write(Block{1}, std::move(slot), f, 11); });
  ASSERT_TRUE(ok(end.status));
  EXPECT_EQ(end.tag, 11U);
  ASSERT_TRUE(end.slot) << "the slot comes back";
  std::vector<std::byte> seen(4096);
  ASSERT_TRUE(ok(one([&](auto f) { return queue.read(Block{1}, seen, f); }).status));
  EXPECT_TRUE(same_bytes(seen, noise(4096, 5)));
  const std::vector<std::byte> two = noise(100, 6);
  ASSERT_TRUE(ok(one([&](auto f) { return queue.write(ByteOffset{4096}, two, f); }).status));
  end = one([&](auto f) { return queue.read(ByteOffset{4096}, std::move(end.slot), f); });
  ASSERT_TRUE(ok(end.status));
  EXPECT_TRUE(same_bytes(end.slot.bytes().first(100), two));
  ASSERT_TRUE(
      ok(one([&](auto f) { return queue.write_zeroes(ByteOffset{4096}, 4096, f); }).status));
  ASSERT_TRUE(ok(one([&](auto f) { return queue.read(Block{1}, seen, f); }).status));
  EXPECT_EQ(seen, std::vector<std::byte>(4096));
  EXPECT_EQ(one([&](auto f) { return queue.fetch_add(ByteOffset{8}, 3, f); }).old_value, 0U);
  EXPECT_EQ(one([&](auto f) { return queue.compare_swap(ByteOffset{8}, 3, 9, f); }).old_value, 3U);
  EXPECT_EQ(one([&](auto f) { return queue.fetch_add(ByteOffset{8}, 0, f); }).old_value, 9U);
}

TEST_P(CallbackTest, MisuseTakesNothingAndRunsNoCallback) {
  const Region region = make_region({.size_bytes = 64_KiB});
  SlotPool slots = engine().allocate_slots(1, 4096).value();
  CallbackQueue queue = region.callback_queue({.depth = 1}).value();
  std::atomic<int> called{0};
  const auto count = [&called](Completion& /*completion*/) { ++called; };
  Slot slot = slots.take();
  EXPECT_TRUE(fails_with(queue.read(Block{16}, std::move(slot), count), Code::kOutOfRange));
  EXPECT_TRUE(slot) << "still the caller's";  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(fails_with(queue.write(Block{1}, Slot{}, count), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(queue.fetch_add(ByteOffset{4}, 1, count), Code::kMisaligned));
  EXPECT_TRUE(fails_with(queue.write_zeroes(ByteOffset{0}, 0, count), Code::kInvalidArgument));
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(ok(one([&](auto f) { return queue.fetch_add(ByteOffset{8}, 1, f); }).status));
  EXPECT_EQ(called, 0);
  EXPECT_TRUE(fails_with(region.callback_queue({.depth = 0}), Code::kInvalidArgument));
  EXPECT_TRUE(
      fails_with(region.callback_queue({.depth = kMaxQueueDepth + 1}), Code::kInvalidArgument));
}

TEST_P(CallbackTest, ManyThreadsSubmitToOneQueueAndEachIsCalledBackOnce) {
  const Region region = make_region();
  CallbackQueue queue = region.callback_queue({.depth = 32}).value();
  constexpr std::size_t kThreads = 4;
  const std::size_t each = steps(2000);
  std::vector<std::atomic<int>> called(kThreads * each);
  Pending pending{static_cast<std::int64_t>(called.size())};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < kThreads; ++id)
    threads.emplace_back([&, id] {
      for (std::size_t i = id * each; i < (id + 1) * each; ++i) {
        const Status taken = patiently([&] {
          return queue.fetch_add(
              ByteOffset{8}, 1,
              [&](Completion& completion) {
                if (!completion.ok() || called[completion.tag()]++ != 0) ++wrong;
                pending.done();
              },
              i);
        });
        if (!taken) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(pending.wait());
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(std::all_of(called.begin(), called.end(), [](const auto& n) { return n == 1; }));
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), kThreads * each);
}

TEST_P(CallbackTest, FullQueueWouldBlockAndTakesNothing) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, 4096).value();
  CallbackQueue gate = region.callback_queue({.depth = 1}).value();
  CallbackQueue queue = region.callback_queue({.depth = 3}).value();
  // The poller waits in a callback, so it runs no other callback meanwhile.
  std::promise<void> inside;
  std::promise<void> open;
  ASSERT_TRUE(ok(gate.fetch_add(ByteOffset{0}, 1, [&](Completion& /*completion*/) {
    inside.set_value();
    open.get_future().wait();
  })));
  inside.get_future().wait();
  Pending pending{3};
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(ok(queue.fetch_add(ByteOffset{8}, 1, [&](Completion& completion) {
      EXPECT_TRUE(completion.ok());
      pending.done();
    })));
  EXPECT_EQ(queue.size(), 3U);
  Slot slot = slots.take();
  EXPECT_TRUE(fails_with(queue.read(Block{1}, std::move(slot), [](Completion&) { FAIL(); }),
                         Code::kWouldBlock));
  EXPECT_TRUE(slot) << "still the caller's";  // NOLINT(bugprone-use-after-move)
  open.set_value();
  ASSERT_TRUE(pending.wait());
  EXPECT_TRUE(
      ok(one([&](auto f) { return queue.read(Block{1}, std::move(slot), std::move(f)); }).status));
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), 3U);
}

/// Adds 1 again and again; the callback of each operation submits the next one.
struct Chain {
  CallbackQueue& queue;
  Pending& pending;
  std::uint64_t count;

  void next(std::uint64_t at) {
    const Status taken = queue.fetch_add(
        ByteOffset{8}, 1,
        [this](Completion& completion) {
          EXPECT_TRUE(completion.ok());
          EXPECT_EQ(completion.old_value(), completion.tag());
          if (completion.tag() + 1 < count) next(completion.tag() + 1);
          pending.done();
        },
        at);
    EXPECT_TRUE(ok(taken));
  }
};

TEST_P(CallbackTest, CallbackSubmitsTheNextOfAChainAlsoAtDepthOne) {
  const Region region = make_region();
  for (const std::size_t depth : {1U, 8U}) {
    CallbackQueue queue = region.callback_queue({.depth = depth}).value();
    Pending pending{1000};
    Chain chain{queue, pending, 1000};
    chain.next(0);
    ASSERT_TRUE(pending.wait(60s));
    EXPECT_EQ(region.compare_swap(ByteOffset{8}, 1000, 0).value(), 1000U);
  }
}

TEST_P(CallbackTest, CallbackThatThrowsIsCountedAndTheProgramGoesOn) {
  const Region region = make_region();
  CallbackQueue queue = region.callback_queue({.depth = 4}).value();
  constexpr int kThrown = 5;
  Pending pending{kThrown};
  for (int i = 0; i < kThrown; ++i)
    ASSERT_TRUE(ok(patiently([&] {
      return queue.fetch_add(ByteOffset{8}, 1, [&pending, i](Completion& /*completion*/) {
        pending.done();
        if (i % 2 == 0) throw std::runtime_error{"of the test"};
        throw i;
      });
    })));
  ASSERT_TRUE(pending.wait());
  EXPECT_TRUE(ok(one([&](auto f) { return queue.fetch_add(ByteOffset{8}, 1, f); }).status));
  const std::string text = engine().registry().text();
  EXPECT_NE(text.find("remora_client_callback_exceptions_total{transport=\"" +
                      std::string{to_string(transport())} + "\"} 5"),
            std::string::npos);
  EXPECT_NE(text.find("remora_client_poller_cpu_seconds_total "), std::string::npos);
}

TEST_P(CallbackTest, CapturesAreDestroyedOnceAndHeldNoLonger) {
  const Region region = make_region();
  const auto held = std::make_shared<int>(0);
  {
    CallbackQueue queue = region.callback_queue({.depth = 2}).value();
    for (int i = 0; i < 20; ++i)
      ASSERT_TRUE(ok(patiently([&] {
        return queue.fetch_add(ByteOffset{8}, 1, [held](Completion& /*completion*/) {});
      })));
    const auto misaligned = patiently(
        [&] { return queue.fetch_add(ByteOffset{1}, 1, [held](Completion& /*completion*/) {}); });
    EXPECT_TRUE(fails_with(misaligned, Code::kMisaligned));
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST_P(CallbackTest, MixedWithSynchronousCallersOnTheSameLane) {
  const Region region = make_region();
  CallbackQueue queue = region.callback_queue({.depth = 8}).value();
  const std::size_t each = steps(1000);
  Pending pending{static_cast<std::int64_t>(2 * each)};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int id = 0; id < 2; ++id)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < each; ++i)
        if (!region.fetch_add(ByteOffset{16}, 1)) ++wrong;
    });
  for (int id = 0; id < 2; ++id)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < each; ++i)
        if (!patiently([&] {
              return queue.fetch_add(ByteOffset{8}, 1, [&](Completion& completion) {
                if (!completion.ok()) ++wrong;
                pending.done();
              });
            }))
          ++wrong;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(pending.wait());
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), 2 * each);
  EXPECT_EQ(region.fetch_add(ByteOffset{16}, 0).value(), 2 * each);
}

TEST_P(CallbackTest, PollerThatSleepsWakesInTime) {
  const Region region = make_region();
  CallbackQueue queue = region.callback_queue({.depth = 4}).value();
  // The synchronous operations of another thread sometimes poll the completions that the sleeping
  // poller waits for.
  std::atomic<bool> enough{false};
  std::thread other{[&] {
    while (!enough) {
      EXPECT_TRUE(region.fetch_add(ByteOffset{16}, 1).ok());
      std::this_thread::sleep_for(300us);
    }
  }};
  const Timed timed;
  for (std::size_t i = 0; i < steps(300); ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds{i % 7 * 100});
    const auto began = Clock::now();
    EXPECT_TRUE(ok(one([&](auto f) { return queue.fetch_add(ByteOffset{8}, 1, f); }).status));
    EXPECT_TRUE(timed.took_at_most(20s, began)) << "a wake-up was lost";
  }
  enough = true;
  other.join();
}

TEST_P(CallbackTest, SeveralQueuesShareFewerPollers) {
  EngineOptions options;
  options.pollers = 2;
  options.operation_deadline = options.control_deadline = 30s;
  const RegionInfo made = create();
  const Engine other = Engine::open(options).value();
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  std::vector<CallbackQueue> queues;
  for (std::size_t i = 0; i < 5; ++i) queues.push_back(region.callback_queue({.depth = 8}).value());
  const std::size_t rounds = steps(500);
  Pending pending{static_cast<std::int64_t>(queues.size() * rounds)};
  for (std::size_t i = 0; i < rounds; ++i)
    for (CallbackQueue& queue : queues)
      ASSERT_TRUE(ok(patiently([&] {
        return queue.fetch_add(ByteOffset{8}, 1, [&](Completion& completion) {
          EXPECT_TRUE(completion.ok());
          pending.done();
        });
      })));
  ASSERT_TRUE(pending.wait());
  queues.erase(queues.begin() + 1, queues.begin() + 3);
  EXPECT_TRUE(ok(one([&](auto f) { return queues[2].fetch_add(ByteOffset{8}, 1, f); }).status));
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), 5 * rounds + 1);
}

TEST_P(CallbackTest, EngineWithoutPollersSaysWhatToSet) {
  EngineOptions options;
  options.pollers = 0;
  const RegionInfo made = create();
  const Engine other = Engine::open(options).value();
  const Region region = other.open_region(uri(made.name), Rights::kAll).value();
  const auto refused = region.callback_queue();
  ASSERT_TRUE(fails_with(refused, Code::kUnsupported));
  EXPECT_NE(refused.error().message().find("EngineOptions::pollers"), std::string::npos);
  options.pollers = kMaxPollers + 1;
  EXPECT_TRUE(fails_with(Engine::open(options), Code::kInvalidArgument));
}

TEST_P(CallbackTest, QueueOutlivesTheHandlesItWasMadeFrom) {
  const RegionInfo made = create();
  std::optional<CallbackQueue> queue;
  {
    const Engine other = open_engine();
    queue = other.open_region(uri(made.name), Rights::kAll).value().callback_queue().value();
  }
  EXPECT_TRUE(ok(one([&](auto f) { return queue->fetch_add(ByteOffset{8}, 1, f); }).status));
}

REMORA_CONFORMANCE(CallbackTest);

}  // namespace
}  // namespace remora::test
