/// How callback queues end: with operations in flight, with chains, with callbacks that do what
/// they must not, and with their server.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "conformance_test.h"
#include "outcome.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

class CallbackEndTest : public ConformanceTest {};

TEST_P(CallbackEndTest, DestructorWaitsForWhatIsInFlightAndForItsCallbacks) {
  const Region region = make_region({.size_bytes = 1_MiB});
  std::vector<std::byte> bytes = noise(1_MiB, 9);
  for (std::size_t round = 0; round < steps(50); ++round) {
    std::atomic<int> called{0};
    std::optional<CallbackQueue> queue = region.callback_queue({.depth = 16}).value();
    for (std::size_t i = 0; i < 16; ++i)
      ASSERT_TRUE(ok(queue->write(ByteOffset{i * 64_KiB},
                                  Source{std::span{bytes}.subspan(i * 64_KiB, 64_KiB)},
                                  [&called](Completion& /*completion*/) { ++called; })));
    std::thread{[&] { queue.reset(); }}.join();
    ASSERT_EQ(called, 16) << round;
  }
}

TEST_P(CallbackEndTest, ChainWithoutAnEndEndsWithItsQueue) {
  const Region region = make_region();
  std::optional<CallbackQueue> owner = region.callback_queue({.depth = 2, .deadline = 5s}).value();
  CallbackQueue& queue = *owner;
  std::atomic<int> closed{0};
  std::atomic<std::uint64_t> rounds{0};
  std::function<void(Completion&)> again = [&](Completion& /*completion*/) {
    ++rounds;
    const Status taken = queue.fetch_add(ByteOffset{8}, 1, [&](Completion& c) { again(c); });
    if (taken) return;
    EXPECT_EQ(taken.error().code(), Code::kClosed);
    ++closed;
  };
  for (int i = 0; i < 2; ++i)
    ASSERT_TRUE(ok(queue.fetch_add(ByteOffset{8}, 1, [&](Completion& c) { again(c); })));
  while (rounds < 50) std::this_thread::yield();
  const Timed timed;
  owner.reset();
  EXPECT_TRUE(timed.took_at_most(5s + kGrace));
  EXPECT_EQ(closed, 2);
}

TEST_P(CallbackEndTest, CallbackThatBlocksHoldsTheDestructorNoLongerThanItsLimit) {
  const RegionInfo made = create();
  std::promise<void> inside;
  std::promise<void> open;
  std::atomic<int> called{0};
  std::vector<std::byte> bytes(64);
  std::optional<CallbackQueue> queue;
  {
    // Gone but for what the queue holds: the poller ends what is left of all of it.
    const Engine other = open_engine();
    queue = other.open_region(uri(made.name), Rights::kAll)
                .value()
                .callback_queue({.depth = 4, .deadline = 300ms})
                .value();
  }
  ASSERT_TRUE(ok(queue->fetch_add(ByteOffset{8}, 1, [&](Completion& /*completion*/) {
    inside.set_value();
    open.get_future().wait();
    ++called;
  })));
  inside.get_future().wait();
  const auto count = [&](Completion& /*completion*/) { ++called; };
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(ok(queue->read(ByteOffset{0}, bytes, count)));
  const Timed timed;
  queue.reset();
  EXPECT_GE(Clock::now() - timed.began(), 2s);
  EXPECT_TRUE(timed.took_at_most(12s));
  EXPECT_EQ(called, 0);
  open.set_value();
  EXPECT_TRUE(
      eventually([&] { return called == 4 && session().stat(made.name).value().open_count == 0; }));
}

TEST_P(CallbackEndTest, QueueThatACallbackDestroysGoesWithoutHarm) {
  const RegionInfo made = create();
  std::atomic<bool> gone{false};
  {
    const Region region = open(made.name);
    auto queue = std::make_unique<CallbackQueue>(region.callback_queue({.depth = 2}).value());
    CallbackQueue& alive = *queue;
    ASSERT_TRUE(ok(alive.fetch_add(ByteOffset{8}, 1, [&](Completion& /*completion*/) {
      queue.reset();
      gone = true;
    })));
    while (!gone) std::this_thread::yield();
    CallbackQueue next = region.callback_queue({.depth = 2}).value();
    std::atomic<bool> told{false};
    ASSERT_TRUE(ok(next.fetch_add(ByteOffset{8}, 1, [&](Completion& /*c*/) { told = true; })));
    EXPECT_TRUE(eventually([&] { return told.load(); })) << "the poller goes on";
  }
  EXPECT_TRUE(eventually([&] { return session().stat(made.name).value().open_count == 0; }));
}

REMORA_CONFORMANCE(CallbackEndTest);

class CallbackLossTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool server_in_other_process() const override { return true; }
  static constexpr std::chrono::seconds kDeadline{5};
};

TEST_P(CallbackLossTest, ServerKilledMidFlightEndsEachOnceWithinItsDeadline) {
  const Region region = make_region({.size_bytes = 1_MiB});
  constexpr std::size_t kMaxEnds = 1U << 20U;
  const Timed timed;
  std::vector<std::byte> bytes = noise(1_MiB, 70);
  std::optional<CallbackQueue> queue =
      region.callback_queue({.depth = 32, .deadline = kDeadline}).value();
  std::vector<std::uint8_t> ended(kMaxEnds);  // the poller's, until the queue is gone
  std::size_t wrong = 0;
  std::atomic<bool> lost{false};
  std::size_t taken = 0;
  std::thread killer{[&] {
    std::this_thread::sleep_for(100ms);
    kill_server();
  }};
  const auto began = Clock::now();
  while (taken < kMaxEnds && Clock::now() - began < 20s) {
    const Kind kind = taken % 2 == 0 ? Kind::kRead : Kind::kAtomic;
    const auto told = [&, kind, sent = Clock::now()](Completion& completion) {
      if (ended[completion.tag()]++ != 0 || !timed.took_at_most(kDeadline + kGrace, sent)) ++wrong;
      if (completion.ok()) return;
      // Those that were not posted wait for a server that does not come back.
      const Code code = completion.error().code();
      if (!allowed_when_lost(kind, code) && code != Code::kTimedOut) ++wrong;
      lost = true;
    };
    const auto at = taken % 32 * 16_KiB;
    const Status status =
        kind == Kind::kRead
            ? queue->read(ByteOffset{at}, Target{std::span{bytes}.subspan(at, 16_KiB)}, told, taken)
            : queue->fetch_add(ByteOffset{512_KiB}, 1, told, taken);
    if (status) {
      ++taken;
    } else if (status.error().code() == Code::kWouldBlock) {
      std::this_thread::yield();
    } else {
      EXPECT_EQ(status.error().code(), Code::kConnectionLost);
      lost = true;
    }
    if (lost) break;
  }
  killer.join();
  EXPECT_TRUE(lost) << "the end of the server was never noticed";
  const Timed closing;
  queue.reset();
  EXPECT_TRUE(closing.took_at_most(kDeadline + kGrace));
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(std::count(ended.begin(), ended.end(), 1), static_cast<std::ptrdiff_t>(taken));
}

TEST_P(CallbackLossTest, PausedServerKeepsNoCallbackBeyondTheDeadline) {
  if (!over_tcp()) GTEST_SKIP() << "the server's processor takes no part in it";
  const Region region = make_region();
  std::optional<CallbackQueue> queue = region.callback_queue({.depth = 3, .deadline = 1s}).value();
  std::vector<std::byte> bytes(64);
  std::array<std::optional<Code>, 3> ends;
  std::atomic<int> called{0};
  const auto told = [&](Completion& completion) {
    if (!completion.ok()) ends.at(completion.tag()) = completion.error().code();
    ++called;
  };
  std::this_thread::sleep_for(10ms);  // the poller sleeps
  process().pause();
  const Timed timed;
  ASSERT_TRUE(ok(queue->read(ByteOffset{0}, bytes, told, 0)));
  ASSERT_TRUE(ok(queue->write(ByteOffset{64}, bytes, told, 1)));
  ASSERT_TRUE(ok(queue->fetch_add(ByteOffset{128}, 1, told, 2)));
  EXPECT_TRUE(eventually([&] { return called == 3; }));
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  EXPECT_GE(Clock::now() - timed.began(), 1s);
  EXPECT_EQ(ends[0], Code::kTimedOut);
  EXPECT_EQ(ends[1], Code::kIndeterminate);
  EXPECT_EQ(ends[2], Code::kIndeterminate);
  process().resume();
}

TEST_P(CallbackLossTest, DestructorEndsWhatAPausedServerHolds) {
  if (!over_tcp()) GTEST_SKIP() << "the server's processor takes no part in it";
  const Region region = make_region();
  std::optional<CallbackQueue> queue = region.callback_queue({.depth = 3, .deadline = 1s}).value();
  std::atomic<int> called{0};
  process().pause();
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(ok(queue->fetch_add(ByteOffset{8}, 1, [&](Completion& completion) {
      EXPECT_FALSE(completion.ok());
      ++called;
    })));
  const Timed timed;
  queue.reset();
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  EXPECT_EQ(called, 3);
  process().resume();
}

REMORA_CONFORMANCE(CallbackLossTest);

}  // namespace
}  // namespace remora::test
