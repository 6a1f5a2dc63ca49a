/// Servers that stand still and go on, and the holder of a lock that does, past its lease.

#include <gmock/gmock.h>
#include <thread>

#include "fault_test.h"

namespace remora::fault {
namespace {

using Clock = std::chrono::steady_clock;

class ServerPauseTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.lease = 2s, .keep = 20s};
  }

  /// The server is the one that was stopped: no session lapses for it, and no memory is lost.
  void stop_for(std::chrono::seconds length, std::uint64_t count) {
    // A load that gives its session up while the server stands still says nothing of the server.
    LoadProcess& load = start_load("t0", {"fresh=1", "reconnect=90000"});
    for (std::uint64_t round = 0; round < count; ++round) {
      pause_for_a_while(100ms, 400ms);
      server().pause();
      std::this_thread::sleep_for(length);
      server().resume();
      std::this_thread::sleep_for(1s);  // until it has seen what its client did meanwhile
      ASSERT_TRUE(server().soon_sessions(1)) << "its session did not come back";
    }
    pause_for_a_while(300ms, 500ms);
    EXPECT_EQ(server().ask("lapsed"), "0") << "a session has lapsed for the server's own pause";
    const LoadReport report = finish(load);
    if (over_tcp()) {  // its processor serves the data
      EXPECT_GE(report.longest_silence_ms, 900 * static_cast<std::uint64_t>(length.count()))
          << "the server did not stand still";
    }
    if (length > server_options().lease) {
      EXPECT_GE(report.interrupted, count) << "no client noticed";
    }
    EXPECT_EQ(report.lives, 1U);
    EXPECT_EQ(report.lost, 0U) << "its grants and its session were kept";
    EXPECT_EQ(report.stale, 0U);
    EXPECT_EQ(report.opened, 1U);
    EXPECT_EQ(report.resumed, report.interrupted);
  }
};

TEST_P(ServerPauseTest, OneSecond) { stop_for(1s, rounds(2, 20)); }

TEST_P(ServerPauseTest, FiveSeconds) { stop_for(5s, rounds(2, 20)); }

TEST_P(ServerPauseTest, ThirtySeconds) {
  if (!long_rounds() && over_rdma())
    GTEST_SKIP() << "that is a minute of waiting, done between two guests: here with "
                    "REMORA_FAULT_ROUNDS=long";
  stop_for(30s, rounds(2, 20));
}

REMORA_FAULT(ServerPauseTest);

class LockHolderPauseTest : public FaultTest {
 protected:
  /// Over shm a holder may end before it has come back. Elsewhere its refused write breaks its
  /// lanes, and it comes back to hear why: in an emulator that takes a second, and the pause more.
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.lease = 60s, .keep = over_shm() ? 1s : 20s};
  }
  static constexpr ByteOffset kLockAt{1U << 20U};
  static constexpr ByteOffset kGuarded{2U << 20U};
};

/// A holder that is stopped past its lock's ttl, and writes when it wakes up.
TEST_P(LockHolderPauseTest, LateWriteIsRefused) {
  const Engine engine = plain_engine();
  LoadProcess& neighbour =
      start_load("t0", {"fresh=1", "rate=2000", "threads=1", "queues=1", "deadline=20000"});
  const Session session = engine.connect(uri({})).value();
  ASSERT_TRUE(
      ok(session.create_region({.name = "lock", .size_bytes = kRegionBytes, .shm = over_shm()})));
  const LockOptions options{.ttl = 300ms};
  const std::uint64_t count = rounds(2, 20);
  for (std::uint64_t round = 0; round < count; ++round) {
    test::Child holder{"lock-holder", {"uri=" + uri("lock")}};
    ASSERT_EQ(holder.read_line(), "held");
    holder.pause();
    std::vector<std::byte> mine(4096, std::byte{1});
    {
      const Region region = engine.open_region(uri("lock"), Rights::kAll).value();
      const Lock lock = Lock::open(region, kLockAt, options).value();
      auto taken = lock.acquire(10s);
      if (over_shm()) {
        // The server cannot unmap what it has mapped, so its lock is not taken either. Once awake
        // it may hear of the attempt before it writes.
        ASSERT_TRUE(fails_with(taken, Code::kBusy));
        holder.send_signal(SIGCONT);
        holder.write_line("write");
        EXPECT_THAT(holder.read_line().value_or("nothing"),
                    testing::AnyOf("ok", "access refused: fenced by a newer grant"));
        EXPECT_EQ(holder.wait(), 0);
        continue;
      }
      ASSERT_TRUE(ok(taken));
      ASSERT_TRUE(ok(taken->region().write(kGuarded, mine)));
      holder.send_signal(SIGCONT);
      holder.write_line("write");
      EXPECT_EQ(holder.read_line(), "access refused: fenced by a newer grant");
      EXPECT_EQ(holder.wait(), 0);
      std::vector<std::byte> found(4096);
      ASSERT_TRUE(ok(taken->region().read(kGuarded, found)));
      EXPECT_TRUE(test::same_bytes(found, mine));
      EXPECT_TRUE(ok(taken->release()));
    }
  }
  EXPECT_TRUE(test::eventually([&] { return session.remove_region("lock"); }));
  const LoadReport report = finish(neighbour);
  EXPECT_TRUE(report.failed.empty()) << "I7: another region's users notice nothing";
}

REMORA_FAULT(LockHolderPauseTest);

/// Its session is given up meanwhile, and kept for it to come back.
class LockHolderLapseTest : public LockHolderPauseTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.lease = 3s, .keep = 20s};
  }
};

TEST_P(LockHolderLapseTest, LateWriteOfOneThatHasLapsedIsRefused) {
  if (over_shm()) GTEST_SKIP() << "no lease lapses there";
  const Engine engine = plain_engine();
  const Session session = engine.connect(uri({})).value();
  ASSERT_TRUE(ok(session.create_region({.name = "lock", .size_bytes = kRegionBytes})));
  const std::uint64_t count = rounds(2, 20);
  for (std::uint64_t round = 0; round < count; ++round) {
    test::Child holder{"lock-holder", {"uri=" + uri("lock")}};
    ASSERT_EQ(holder.read_line(), "held");
    holder.pause();
    ASSERT_TRUE(server().soon_sessions(1)) << "the holder's has not lapsed";
    const Region region = engine.open_region(uri("lock"), Rights::kAll).value();
    const Lock lock = Lock::open(region, kLockAt, {.ttl = 300ms}).value();
    auto taken = lock.acquire(10s);
    ASSERT_TRUE(ok(taken));
    const std::vector<std::byte> mine(4096, std::byte{1});
    ASSERT_TRUE(ok(taken->region().write(kGuarded, mine)));
    holder.send_signal(SIGCONT);
    holder.write_line("write");
    const auto began = Clock::now();
    const std::string late = holder.read_line().value_or("nothing");
    const Code code = late.find("indeterminate") == 0 ? Code::kIndeterminate : Code::kAccessRefused;
    count_one(Error{code, "write"}, Clock::now() - began);
    // Posted before it has heard that its lanes are gone, its outcome is not known to it.
    EXPECT_THAT(late, testing::AnyOf("access refused: fenced by a newer grant",
                                     testing::StartsWith("indeterminate")));
    EXPECT_EQ(holder.wait(), 0);
    std::vector<std::byte> found(4096);
    ASSERT_TRUE(ok(taken->region().read(kGuarded, found)));
    EXPECT_TRUE(test::same_bytes(found, mine)) << "it has landed";
    EXPECT_TRUE(ok(taken->release()));
    EXPECT_EQ(server().ask("lapsed"), std::to_string(round + 1));
  }
  EXPECT_TRUE(test::eventually([&] { return session.remove_region("lock"); }));
}

REMORA_FAULT(LockHolderLapseTest);

}  // namespace

int lock_holder(const test::HelperArguments& arguments) {
  EngineOptions options;
  options.operation_deadline = options.control_deadline = std::chrono::seconds{20};
  const Engine engine = Engine::open(options).value();
  const Region region = engine.open_region(arguments.text("uri"), Rights::kAll).value();
  const Lock lock = Lock::open(region, ByteOffset{1U << 20U}, {.ttl = 300ms}).value();
  // Over shm a process that a busy machine holds up for limits.revoke_grace keeps its mapping: this
  // one, too, whose own grant the fence takes.
  auto taken = lock.acquire(20s);
  for (const auto until = Clock::now() + 20s;
       !taken && taken.error().code() == Code::kBusy && Clock::now() < until;)
    taken = lock.acquire(20s);
  Held held = std::move(taken).value();
  test::say("held");
  if (!test::hear()) return 1;
  const std::vector<std::byte> late(4096, std::byte{0xff});
  const Status written = held.region().write(ByteOffset{2U << 20U}, late);
  test::say(written ? "ok"
                    : std::string{to_string(written.error().code())} + ": " +
                          std::string{to_string(written.error().reason())});
  return 0;
}

}  // namespace remora::fault
