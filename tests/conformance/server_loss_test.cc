/// A server that stops, dies or is paused while operations are in flight.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "conformance_test.h"
#include "outcome.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kDeadline{5};

/// Reads, writes and counts in turn, `depth` at once, until an operation fails; then waits for all.
void work_until_lost(const Region& region, const RegisteredMemory& memory, Ledger& ledger,
                     Clock::time_point give_up) {
  Queue queue = region.queue({.depth = 32, .deadline = kDeadline}).value();
  constexpr std::size_t kBytes = 16_KiB;
  for (std::size_t i = 0; !ledger.failed() && Clock::now() < give_up;) {
    for (; !queue.full(); ++i) {
      const std::size_t at = i % 32 * kBytes;
      if (i % 3 == 0)
        ASSERT_TRUE(
            queue.write(ByteOffset{at}, Source{memory, at, kBytes}, ledger.begin(Kind::kWrite)));
      else if (i % 3 == 1)
        ASSERT_TRUE(queue.read(ByteOffset{at}, Target{memory, 512_KiB + at, kBytes},
                               ledger.begin(Kind::kRead)));
      else
        ASSERT_TRUE(queue.fetch_add(ByteOffset{512_KiB}, 1, ledger.begin(Kind::kAtomic)));
    }
    ASSERT_TRUE(ok(queue.submit()));
    for (const Completion& completion : queue.wait(1)) ledger.end(completion);
  }
  // The ledger checks that each operation ends in time.
  for (Patience patience; queue.size() != 0 && !patience.over();)
    for (const Completion& completion : queue.wait(queue.size())) ledger.end(completion);
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(queue.poll().empty());
  EXPECT_EQ(ledger.open(), 0U) << "operations that never ended";
}

/// Expects that each call of a region fails at once after its session has ended.
void expect_lost(const Region& region, const Session& session) {
  std::vector<std::byte> bytes(64);
  const Timed timed;
  EXPECT_TRUE(fails_with(region.read(ByteOffset{0}, bytes), Code::kConnectionLost));
  EXPECT_TRUE(fails_with(region.write(ByteOffset{0}, bytes), Code::kConnectionLost));
  EXPECT_TRUE(fails_with(region.fetch_add(ByteOffset{0}, 1), Code::kConnectionLost));
  EXPECT_FALSE(region.connected());
  EXPECT_TRUE(fails_with(session.regions(), Code::kConnectionLost));
  EXPECT_FALSE(session.connected());
  EXPECT_TRUE(timed.took_at_most(kGrace)) << "known to be lost: nothing to wait for";
}

class ServerStopTest : public ConformanceTest {
 protected:
  /// Clients do not reconnect here; those of resume_test.cc do.
  void configure_engine(EngineOptions& options) const override { options.reconnect_for = 0s; }
  [[nodiscard]] bool needs_own_server() const override { return true; }
};

TEST_P(ServerStopTest, OperationsInFlightEndOnceAndTheSessionWithThem) {
  std::vector<std::byte> bytes = noise(1_MiB, 70);
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  const Region region = make_region({.size_bytes = 1_MiB});
  std::thread stopper{[&] {
    std::this_thread::sleep_for(100ms);
    const Timed timed;
    server().stop();
    EXPECT_TRUE(timed.took_at_most(15s));
  }};
  Ledger ledger{kDeadline + kGrace};
  work_until_lost(region, memory, ledger, Clock::now() + 20s);
  stopper.join();
  EXPECT_TRUE(ledger.failed()) << "the end of the server was never noticed";
  expect_lost(region, session());
}

TEST_P(ServerStopTest, SynchronousCallersOfManyThreadsAllReturn) {
  const Region region = make_region({.size_bytes = 1_MiB});
  std::atomic<bool> wrong = false;
  std::atomic<int> returned = 0;
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < 4; ++id)
    threads.emplace_back([&, id] {
      std::vector<std::byte> bytes(64_KiB);
      const auto give_up = Clock::now() + 20s;
      while (Clock::now() < give_up) {
        const Kind kind = id % 2 == 0 ? Kind::kRead : Kind::kWrite;
        const ByteOffset at{id * 64_KiB};
        const Status status = kind == Kind::kRead ? region.read(at, bytes, kDeadline)
                                                  : region.write(at, bytes, kDeadline);
        if (status.ok()) continue;
        if (!allowed_when_lost(kind, status.error().code())) wrong = true;
        ++returned;
        return;
      }
    });
  std::this_thread::sleep_for(100ms);
  server().stop();
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(wrong);
  EXPECT_EQ(returned, 4);
}

TEST_P(ServerStopTest, StopIsIdempotentAndDestructionAfterItIsQuiet) {
  server().stop();
  server().stop();
  EXPECT_TRUE(fails_with(session().regions(), Code::kConnectionLost));
  EXPECT_TRUE(fails_with(engine().connect(uri()), Code::kConnectionRefused));
}

TEST_P(ServerStopTest, QueueWithOperationsInFlightOutlivesTheServer) {
  const Region region = make_region();
  std::optional<Queue> queue = region.queue({.depth = 8, .deadline = 2s}).value();
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(queue->fetch_add(ByteOffset{0}, 1));
  ASSERT_TRUE(ok(queue->submit()));
  for (int i = 0; i < 4; ++i)
    ASSERT_TRUE(queue->fetch_add(ByteOffset{0}, 1));  // these are not submitted
  server().stop();
  const Timed timed;
  queue.reset();
  EXPECT_TRUE(timed.took_at_most(2s + kGrace));
}

#ifndef REMORA_TEST_THROUGH_C  // the C API has no locks
TEST_P(ServerStopTest, LockIsWaitedForNoLongerThanToldHoweverLongOneMayConnect) {
  EngineOptions options = patient_options();
  options.reconnect_for = 0s;
  options.connect_for = std::chrono::hours{1};
  const RegionInfo made = create();
  const Engine waiting = Engine::open(options).value();
  const Region region = waiting.open_region(uri(made.name), Rights::kAll).value();
  const Lock lock = Lock::open(region, ByteOffset{0}).value();
  std::optional<Held> held{lock.try_acquire().value()};
  server().stop();
  const Timed timed;
  EXPECT_FALSE(lock.acquire(100ms));
  EXPECT_FALSE(held->release());
  held.reset();
  EXPECT_TRUE(timed.took_at_most(kDeadline + kGrace));
}
#endif

REMORA_CONFORMANCE(ServerStopTest);

class DrainTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override { config.limits.drain_timeout = 20s; }
};

TEST_P(DrainTest, SessionsThatLeaveInTimeLoseNothing) {
  const RegionInfo made = create();
  std::atomic<bool> left{false};
  std::optional<std::thread> stopper;
  {
    const Engine other = open_engine();
    const Region region = other.open_region(uri(made.name), Rights::kAll).value();
    end_session();
    stopper.emplace([&] {
      const Timed timed;
      server().stop();
      EXPECT_TRUE(left) << "it did not wait";
      EXPECT_TRUE(timed.took_at_most(15s)) << "it waited although no client was left";
    });
    const auto until = Clock::now() + 300ms;
    while (Clock::now() < until) ASSERT_TRUE(ok(region.fetch_add(ByteOffset{0}, 1)));
    EXPECT_TRUE(region.connected());
    left = true;
  }
  stopper->join();
}

REMORA_CONFORMANCE(DrainTest);

/// Also with a server that runs elsewhere, if REMORA_TEST_KILL is the command that kills it.
class ServerKillTest : public ConformanceTest {
 protected:
  /// Clients do not reconnect here; those of resume_test.cc do.
  void configure_engine(EngineOptions& options) const override { options.reconnect_for = 0s; }
  [[nodiscard]] bool server_in_other_process() const override { return true; }
  [[nodiscard]] bool needs_own_server() const override {
    return std::getenv("REMORA_TEST_KILL") == nullptr;
  }
};

TEST_P(ServerKillTest, KilledServerEndsEachOperationOnce) {
  std::vector<std::byte> bytes = noise(1_MiB, 71);
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  const Region region = make_region({.size_bytes = 1_MiB});
  std::thread killer{[&] {
    std::this_thread::sleep_for(150ms);
    kill_server();
  }};
  Ledger ledger{kDeadline + kGrace};
  work_until_lost(region, memory, ledger, Clock::now() + 20s);
  killer.join();
  EXPECT_TRUE(ledger.failed()) << "the death of the server was never noticed";
  expect_lost(region, session());
}

TEST_P(ServerKillTest, OperationsTakenBeforeTheDeathAndSubmittedAfterItEndOnce) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 3, .deadline = 2s}).value();
  std::vector<std::byte> bytes(64);
  Ledger ledger{2s + kGrace};
  kill_server();
  // The client notices soon that the connection is closed, with and without operations.
  EXPECT_TRUE(eventually([&] { return !region.connected(); }));
  ASSERT_TRUE(queue.read(ByteOffset{0}, bytes, ledger.begin(Kind::kRead)));
  ASSERT_TRUE(queue.write(ByteOffset{0}, bytes, ledger.begin(Kind::kWrite)));
  ASSERT_TRUE(queue.fetch_add(ByteOffset{0}, 1, ledger.begin(Kind::kAtomic)));
  ASSERT_TRUE(ok(queue.submit()));
  for (Patience patience; queue.size() != 0 && !patience.over();)
    for (const Completion& completion : queue.wait(1)) ledger.end(completion);
  EXPECT_EQ(ledger.open(), 0U);
  EXPECT_EQ(ledger.ends().size(), 1U);
  EXPECT_EQ(ledger.ends().begin()->first, to_string(Code::kConnectionLost));
}

REMORA_CONFORMANCE(ServerKillTest);

class ServerLossTest : public ConformanceTest {
 protected:
  /// Clients do not reconnect here; those of resume_test.cc do.
  void configure_engine(EngineOptions& options) const override { options.reconnect_for = 0s; }
  [[nodiscard]] bool server_in_other_process() const override { return true; }
};

TEST_P(ServerLossTest, NewServerAtTheSameAddressIsANewLife) {
  const RegionInfo made = create();
  const Region old = open(made.name);
  const std::uint64_t memory_id = session().server().memory_id;
  const std::uint64_t boot_id = session().server().boot_id;
  kill_server();
  restart_server();
  EXPECT_TRUE(eventually([&] { return !old.connected(); }));
  EXPECT_TRUE(fails_with(old.fetch_add(ByteOffset{0}, 1), Code::kConnectionLost));
  // The same engine connects to the new server.
  const Session now = engine().connect(uri()).value();
  EXPECT_NE(now.server().memory_id, memory_id);
  EXPECT_NE(now.server().boot_id, boot_id);
  EXPECT_TRUE(
      fails_with(engine().open_region(uri(made.name), Rights::kRead), Code::kUnknownRegion));
  ASSERT_TRUE(ok(now.create_region(spec(made.name))));
  {
    const Region region = open(made.name);
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 5).value(), 0U);
    EXPECT_TRUE(fails_with(old.fetch_add(ByteOffset{0}, 1), Code::kConnectionLost));
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 5U);
  }
  EXPECT_TRUE(ok(now.remove_region(made.name)));
}

TEST_P(ServerLossTest, PausedServerKeepsNoCallerBeyondTheDeadline) {
  if (!over_tcp()) GTEST_SKIP() << "the server's processor takes no part in it";
  const RegionInfo made = create();
  const Region region = open(made.name);
  Queue queue = region.queue({.depth = 3, .deadline = 1s}).value();
  std::vector<std::byte> bytes(64);
  process().pause();
  ASSERT_TRUE(queue.read(ByteOffset{0}, bytes, 0));
  ASSERT_TRUE(queue.write(ByteOffset{64}, bytes, 1));
  ASSERT_TRUE(queue.fetch_add(ByteOffset{128}, 1, 2));
  const Timed timed;
  ASSERT_TRUE(ok(queue.submit()));
  std::array<std::optional<Code>, 3> ends;
  for (Patience patience; queue.size() != 0 && !patience.over();)
    for (const Completion& completion : queue.wait(1))
      ends.at(completion.tag()) = completion.error().code();
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  EXPECT_EQ(ends[0], Code::kTimedOut);
  EXPECT_EQ(ends[1], Code::kIndeterminate);
  EXPECT_EQ(ends[2], Code::kIndeterminate);
  process().resume();
  EXPECT_TRUE(ok(engine().open_region(uri(made.name), Rights::kRead))) << "a new session";
}

REMORA_CONFORMANCE(ServerLossTest);

/// The lease is so long that clients do not notice the pause by the silence.
class PausedServerTest : public ServerLossTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override { return {.lease = 60s}; }
};

TEST_P(PausedServerTest, StillServesDataAndTimesOutControl) {
  if (over_tcp()) GTEST_SKIP() << "the server's processor serves the data";
  EngineOptions options;
  options.control_deadline = 4s;
  options.reconnect_for = 0s;
  const Engine impatient = Engine::open(options).value();
  const RegionInfo made = create();
  const Session control = impatient.connect(uri()).value();
  const Region region = open(made.name);
  process().pause();
  // One-sided operations: the server's processor takes no part in them.
  for (std::uint64_t i = 0; i < 100; ++i)
    ASSERT_EQ(region.fetch_add(ByteOffset{0}, 1, 20s).value(), i);
  const Timed timed;
  EXPECT_TRUE(fails_with(control.stat(made.name), Code::kTimedOut));
  EXPECT_TRUE(timed.took_at_most(4s + kGrace));
  for (std::uint64_t i = 100; i < 200; ++i)
    ASSERT_EQ(region.fetch_add(ByteOffset{0}, 1, 20s).value(), i);
  const Timed connecting;
  const Engine late = Engine::open(options).value();
  EXPECT_TRUE(fails_with(late.connect(uri()), Code::kTimedOut));
  EXPECT_TRUE(connecting.took_at_most(4s + kGrace));
  process().resume();
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 200U);
  EXPECT_TRUE(ok(session().stat(made.name))) << "a session that asked nothing meanwhile";
  EXPECT_TRUE(ok(open_engine().connect(uri())));
}

REMORA_CONFORMANCE(PausedServerTest);

}  // namespace
}  // namespace remora::test
