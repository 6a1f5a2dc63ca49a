/// Sessions whose server is killed, restarted or paused for a while: operations that wait for it
/// continue, or fail because the memory is new.

#include <atomic>
#include <chrono>
#include <poll.h>
#include <span>

#include "conformance_test.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

/// A server that dies or is paused, and comes back.
class ServerReturnTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool server_in_other_process() const override { return true; }
  [[nodiscard]] ServerOptions server_options() const override { return {.lease = 3s, .keep = 20s}; }
  void configure_engine(EngineOptions& options) const override {
    options.handlers.on_interrupted = [this](const SessionEvent& event) {
      EXPECT_EQ(event.transport, transport());
      ++interrupted_;
    };
    options.handlers.on_resumed = [this](const SessionEvent& /*event*/) { ++resumed_; };
    options.handlers.on_stale = [this](const SessionEvent& event) {
      EXPECT_EQ(event.reason, Reason::kNewMemory);
      ++stale_;
    };
    options.handlers.on_lost = [this](const SessionEvent& /*event*/) { ++lost_; };
  }
  [[nodiscard]] static bool soon(const std::atomic<int>& count, int wanted) {
    return eventually([&] { return count >= wanted; });
  }
  mutable std::atomic<int> interrupted_{0};
  mutable std::atomic<int> resumed_{0};
  mutable std::atomic<int> stale_{0};
  mutable std::atomic<int> lost_{0};
};

TEST_P(ServerReturnTest, OneWithNewMemoryMakesOldRegionsStale) {
  const RegionInfo made = create();
  const Region old = open(made.name);
  std::vector<std::byte> bytes(64);
  ASSERT_TRUE(ok(old.write(ByteOffset{0}, bytes)));
  kill_server();
  restart_server();
  EXPECT_TRUE(soon(stale_, 1));
  EXPECT_TRUE(fails_with(old.read(ByteOffset{0}, bytes), Code::kStaleRegion));
  EXPECT_TRUE(fails_with(old.write(ByteOffset{0}, bytes), Code::kStaleRegion));
  EXPECT_TRUE(fails_with(old.fetch_add(ByteOffset{0}, 1), Code::kStaleRegion));
  EXPECT_TRUE(ok(old.settled(20s))) << "nothing of the old life can land in the new memory";
  EXPECT_EQ(resumed_, 0);
  EXPECT_EQ(lost_, 0);
  // The same engine works with the new server.
  const Session now = engine().connect(uri()).value();
  ASSERT_TRUE(ok(now.create_region(spec(made.name))));
  {
    const Region region = open(made.name);
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 5).value(), 0U);
    EXPECT_TRUE(fails_with(old.fetch_add(ByteOffset{0}, 1), Code::kStaleRegion));
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 5U);
  }
  EXPECT_TRUE(ok(now.remove_region(made.name)));
}

/// The test waits for no handler: the operation itself says that the region is stale.
TEST_P(ServerReturnTest, FirstOperationAfterARestartIsStale) {
  const RegionInfo made = create();
  const Region old = open(made.name);
  std::vector<std::byte> bytes(64, std::byte{1});
  ASSERT_TRUE(ok(old.write(ByteOffset{0}, bytes)));
  kill_server();
  restart_server();
  // An operation that is posted before the client has noticed could be uncertain.
  EXPECT_TRUE(eventually([&] { return !old.connected(); }));
  EXPECT_TRUE(fails_with(old.read(ByteOffset{0}, bytes), Code::kStaleRegion));
  EXPECT_TRUE(fails_with(old.fetch_add(ByteOffset{0}, 1), Code::kStaleRegion));
  // The new region has the same name and incarnation, and other memory.
  const Session now = engine().connect(uri()).value();
  ASSERT_TRUE(ok(now.create_region(spec(made.name))));
  {
    const Region region = open(made.name);
    EXPECT_EQ(region.info().incarnation, made.incarnation);
    EXPECT_NE(region.info().memory_id, made.memory_id);
    EXPECT_EQ(region.info().memory_id, now.server().memory_id);
    const ReopenedRegion again = old.reopen().value();
    EXPECT_FALSE(again.same_contents) << "the application has to fill it anew";
    EXPECT_EQ(again.region.rights(), old.rights());
    EXPECT_EQ(again.region.fetch_add(ByteOffset{0}, 3).value(), 0U);
    const ReopenedRegion twice = again.region.reopen().value();
    EXPECT_TRUE(twice.same_contents);
    EXPECT_EQ(twice.region.fetch_add(ByteOffset{0}, 0).value(), 3U);
  }
  EXPECT_TRUE(ok(now.remove_region(made.name)));
}

/// The same for operations that wait in a queue, and in a queue that an event loop serves. An
/// operation that is cancelled while it waits has no effect.
TEST_P(ServerReturnTest, QueuedOperationsLearnThatTheMemoryIsNew) {
  const RegionInfo made = create();
  const Region region = open(made.name);
  std::vector<std::byte> bytes(64);
  Queue queue = region.queue({.depth = 8, .deadline = 30s}).value();
  Queue watched = region.queue({.depth = 8, .deadline = 30s}).value();
  const int event = watched.event_fd().value();
  kill_server();
  ASSERT_TRUE(eventually([&] { return !region.connected(); }));
  const Ticket cancelled = queue.write(ByteOffset{0}, bytes, 1);
  ASSERT_TRUE(queue.read(ByteOffset{0}, bytes, 2));
  ASSERT_TRUE(queue.fetch_add(ByteOffset{64}, 1, 3));
  ASSERT_TRUE(ok(queue.submit()));
  ASSERT_TRUE(watched.read(ByteOffset{0}, bytes));
  ASSERT_TRUE(ok(watched.submit()));
  EXPECT_TRUE(ok(queue.cancel(cancelled)));
  EXPECT_TRUE(watched.progress().empty());
  restart_server();
  int ended = 0;
  while (queue.size() != 0)
    for (const Completion& completion : queue.wait(1)) {
      ++ended;
      EXPECT_EQ(completion.error().code(),
                completion.tag() == 1 ? Code::kCancelled : Code::kStaleRegion)
          << completion.error();
    }
  EXPECT_EQ(ended, 3);
  while (watched.size() != 0) {
    pollfd wanted{.fd = event, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&wanted, 1, 30'000), 1) << "the event descriptor tells of no end";
    for (const Completion& completion : watched.progress())
      EXPECT_EQ(completion.error().code(), Code::kStaleRegion) << completion.error();
  }
  const Session now = engine().connect(uri()).value();
  ASSERT_TRUE(ok(now.create_region(spec(made.name))));
  {
    std::vector<std::byte> seen(64, std::byte{1});
    ASSERT_TRUE(ok(open(made.name).read(ByteOffset{0}, seen)));
    EXPECT_EQ(seen, std::vector<std::byte>(64)) << "what was cancelled has been written";
  }
  EXPECT_TRUE(ok(now.remove_region(made.name)));
}

#ifndef REMORA_TEST_THROUGH_C  // the C API has no callback queues
TEST_P(ServerReturnTest, CallbackLearnsThatTheMemoryIsNew) {
  const Region region = open(create().name);
  std::vector<std::byte> bytes(64);
  std::atomic<int> called{0};
  Code code = Code::kInternal;
  CallbackQueue calls = region.callback_queue({.depth = 8, .deadline = 30s}).value();
  kill_server();
  ASSERT_TRUE(eventually([&] { return !region.connected(); }));
  ASSERT_TRUE(ok(calls.read(ByteOffset{0}, bytes, [&](const Completion& completion) {
    if (!completion.ok()) code = completion.error().code();
    called = 1;
  })));
  EXPECT_EQ(called, 0);
  restart_server();
  EXPECT_TRUE(soon(called, 1));
  EXPECT_EQ(code, Code::kStaleRegion);
}
#endif

TEST_P(ServerReturnTest, WhatWaitsForOneThatNeverComesBackEndsByItsDeadline) {
  const RegionInfo made = create();
  const Region region = open(made.name);
  std::vector<std::byte> bytes(64);
  kill_server();
  EXPECT_TRUE(soon(interrupted_, 1));
  Queue queue = region.queue({.depth = 8, .deadline = 1s}).value();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(queue.read(ByteOffset{0}, bytes));
    ASSERT_TRUE(queue.write(ByteOffset{0}, bytes));
  }
  const Timed timed;
  ASSERT_TRUE(ok(queue.submit()));
  int ended = 0;
  for (Patience patience; queue.size() != 0 && !patience.over();)
    for (const Completion& completion : queue.wait(1)) {
      ++ended;
      EXPECT_EQ(completion.error().code(), Code::kTimedOut);
    }
  EXPECT_EQ(ended, 8);
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  EXPECT_TRUE(fails_with(region.settled(500ms), Code::kTimedOut));
  forget(made.name);
}

/// Over tcp the paused server serves no data. Over the other transports clients notice only that
/// its control channel is silent.
TEST_P(ServerReturnTest, OneThatStoodStillForLongGoesOnWithEverySession) {
  const RegionInfo made = create();
  const Region region = open(made.name);
  std::vector<std::byte> bytes(4096, std::byte{7});
  ASSERT_TRUE(ok(region.write(ByteOffset{4096}, bytes)));
  std::vector<std::byte> room(8UL * 4096);
  const RegisteredMemory memory = engine().register_memory(room).value();
  process().pause();
  EXPECT_TRUE(soon(interrupted_, 1)) << "the client did not notice the silence";
  // Submitted while the session has no lane: reads and writes wait for one.
  Queue queue = region.queue({.depth = 8, .deadline = 25s}).value();
  for (std::size_t i = 0; i < 4; ++i)
    ASSERT_TRUE(queue.read(ByteOffset{4096}, Target{memory, i * 4096, 4096}, i));
  ASSERT_TRUE(queue.write(ByteOffset{8192}, Source{memory, 4UL * 4096, 4096}, 4));
  ASSERT_TRUE(ok(queue.submit()));
  process().resume();
  for (Patience patience{25s}; queue.size() != 0 && !patience.over();)
    for (const Completion& completion : queue.wait(1))
      EXPECT_TRUE(completion.ok()) << completion.error();
  EXPECT_TRUE(soon(resumed_, 1));
  EXPECT_TRUE(ok(region.settled(20s)));
  EXPECT_TRUE(region.connected());
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), std::span{room}.subspan(i * 4096).begin()));
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  EXPECT_TRUE(ok(session().stat(made.name)));
  EXPECT_EQ(process().lapsed(), 0) << "for the server's own pause";
  EXPECT_EQ(stale_, 0);
  EXPECT_EQ(lost_, 0);
}

/// The lease is so long that a short silence ends no session.
class BrokenLaneTest : public ServerReturnTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override {
    return {.lease = 20s, .keep = 20s};
  }
};

/// An operation whose deadline passes while it is posted breaks its lane.
TEST_P(BrokenLaneTest, IsFollowedByAnotherWhenItWasADeadline) {
  if (!over_tcp()) GTEST_SKIP() << "the server's processor takes no part in it";
  const RegionInfo made = create();
  const Region region = open(made.name);
  std::vector<std::byte> bytes(64);
  std::vector<std::byte> room(8UL * 4096);
  const RegisteredMemory memory = engine().register_memory(room).value();
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
  Queue patient = region.queue({.depth = 8, .deadline = 25s}).value();
  process().pause();
  for (std::size_t i = 0; i < 4; ++i)
    ASSERT_TRUE(patient.read(ByteOffset{0}, Target{memory, i * 4096, 4096}, i));
  ASSERT_TRUE(ok(patient.submit()));
  EXPECT_TRUE(fails_with(region.write(ByteOffset{0}, bytes, 1s), Code::kIndeterminate));
  EXPECT_TRUE(fails_with(region.settled(100ms), Code::kTimedOut)) << "the server stands still";
  process().resume();
  EXPECT_TRUE(ok(region.settled(20s)));
  // The reads beside it did not cause the failure: the next lane carries them out.
  for (Patience patience{25s}; patient.size() != 0 && !patience.over();)
    for (const Completion& completion : patient.wait(1))
      EXPECT_TRUE(completion.ok()) << completion.error();
  EXPECT_EQ(patient.size(), 0U);
  EXPECT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
  // Operations continue before the engine has called the handlers.
  EXPECT_TRUE(soon(resumed_, 1));
  EXPECT_EQ(resumed_, 1);
}

#ifndef REMORA_TEST_THROUGH_C  // the C API has no locks
/// The holder's write was under way when its session ended, and may still take effect. So the lock
/// stays taken, and the next client fences the region.
TEST_P(BrokenLaneTest, LockWhoseHoldersSessionHasEndedIsNotReleasedButFenced) {
  if (!over_tcp()) GTEST_SKIP() << "the server's processor takes no part in it";
  const RegionInfo made = create();
  EngineOptions options = patient_options();
  options.reconnect_for = 0s;
  const Engine doomed = Engine::open(options).value();
  const Region theirs = doomed.open_region(uri(made.name), Rights::kAll).value();
  const LockOptions lock_options{.ttl = 300ms};
  Held held = Lock::open(theirs, ByteOffset{0}, lock_options).value().try_acquire().value();
  const std::vector<std::byte> bytes = noise(4096, 1);
  process().pause();
  EXPECT_TRUE(fails_with(held.region().write(Block{1}, bytes, 1s), Code::kIndeterminate));
  process().resume();
  EXPECT_TRUE(fails_with(held.release(), Code::kConnectionLost));
  const Region region = open(made.name);
  EXPECT_NE(region.fetch_add(ByteOffset{0}, 0).value() & 0xffffffU, 0U) << "it has an owner";
  const auto began = Clock::now();
  const Held next = Lock::open(region, ByteOffset{0}, lock_options).value().acquire(20s).value();
  EXPECT_GE(Clock::now() - began, lock_options.ttl);
  EXPECT_EQ(next.token(), 2U);
  EXPECT_TRUE(fails_with(region.write(Block{1}, bytes), Code::kAccessRefused)) << "it has fenced";
}
#endif

REMORA_CONFORMANCE(ServerReturnTest);
REMORA_CONFORMANCE(BrokenLaneTest);

}  // namespace
}  // namespace remora::test
