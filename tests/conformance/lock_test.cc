/// A lock in a region: it has one holder at a time, and a holder that has lost it cannot come back.

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <mutex>
#include <thread>

#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

class LockTest : public ConformanceTest {};

TEST_P(LockTest, MisuseIsRefused) {
  const Region region = make_region();
  const Region reads = open(region.info().name, Rights::kRead);
  EXPECT_TRUE(fails_with(Lock::open(reads, ByteOffset{0}), Code::kNoRight));
  EXPECT_TRUE(fails_with(Lock::open(region, ByteOffset{4}), Code::kMisaligned));
  EXPECT_TRUE(fails_with(Lock::open(region, ByteOffset{region.size_bytes()}), Code::kOutOfRange));
  EXPECT_TRUE(fails_with(Lock::open(region, ByteOffset{0}, {.ttl = 1ms}), Code::kInvalidArgument));
}

TEST_P(LockTest, IsHeldByOneUntilItIsReleased) {
  const Region region = make_region();
  const Lock lock = Lock::open(region, ByteOffset{64}).value();
  Held held = lock.try_acquire().value();
  EXPECT_EQ(held.token(), 1U);
  EXPECT_TRUE(fails_with(lock.try_acquire(), Code::kWouldBlock));
  EXPECT_TRUE(fails_with(lock.acquire(50ms), Code::kTimedOut));
  EXPECT_TRUE(ok(held.renew()));
  EXPECT_EQ(held.token(), 1U);
  EXPECT_TRUE(ok(held.release()));
  EXPECT_TRUE(ok(held.release()));
  EXPECT_TRUE(fails_with(held.renew(), Code::kClosed));
  const Held next = lock.acquire(20s).value();
  EXPECT_EQ(next.token(), 2U);
}

TEST_P(LockTest, GoesWithItsHolder) {
  const Lock lock = Lock::open(make_region(), ByteOffset{0}).value();
  { const Held held = lock.try_acquire().value(); }
  EXPECT_TRUE(ok(lock.try_acquire()));
}

TEST_P(LockTest, RenewedLockIsNotTaken) {
  const Lock lock = Lock::open(make_region(), ByteOffset{0}, {.ttl = 5s}).value();
  Held held = lock.try_acquire().value();
  const StallWatch stalls;
  std::atomic<bool> over{false};
  std::thread renewing{[&] {
    for (; !over; std::this_thread::sleep_for(20ms)) EXPECT_TRUE(ok(held.renew()));
  }};
  const auto taken = lock.acquire(8s);
  over = true;
  renewing.join();
  if (taken && stalls.longest() > 1s) GTEST_SKIP() << "the host stood still: it was not renewed";
  EXPECT_TRUE(fails_with(taken, Code::kTimedOut));
  EXPECT_TRUE(ok(held.region().fetch_add(ByteOffset{8}, 1)));
}

TEST_P(LockTest, HolderThatDoesNotRenewLosesItAndIsRefused) {
  const Region region = make_region();
  const Engine other_engine = open_engine();
  const Region theirs = other_engine.open_region(uri(region.info().name), Rights::kAll).value();
  const LockOptions options{.ttl = 150ms};
  Held slow = Lock::open(region, ByteOffset{0}, options).value().try_acquire().value();
  const auto began = Clock::now();
  Held quick = Lock::open(theirs, ByteOffset{0}, options).value().acquire(10s).value();
  EXPECT_GE(Clock::now() - began, 150ms);
  EXPECT_GT(quick.token(), slow.token());
  const std::vector<std::byte> bytes = noise(4096, 1);
  ASSERT_TRUE(ok(quick.region().write(Block{1}, bytes)));
  const std::vector<std::byte> others = noise(4096, 2);
  const Status late = slow.region().write(Block{1}, others);
  ASSERT_TRUE(fails_with(late, Code::kAccessRefused));
  EXPECT_EQ(late.error().reason(), Reason::kFenced);
  const Status renewed = slow.renew();
  EXPECT_TRUE(fails_with(renewed, Code::kAccessRefused));
  EXPECT_TRUE(fails_with(slow.release(), Code::kAccessRefused));
  std::vector<std::byte> found(4096);
  ASSERT_TRUE(ok(quick.region().read(Block{1}, found)));
  EXPECT_TRUE(same_bytes(found, bytes));
  EXPECT_TRUE(ok(quick.release()));
}

TEST_P(LockTest, CriticalSectionsOfEightDoNotOverlap) {
  constexpr std::size_t kContenders = 8;
  const std::size_t rounds = steps(200);
  const Region region = make_region();
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::vector<std::uint64_t> tokens;
  for (std::size_t i = 0; i < kContenders; ++i)
    threads.emplace_back([&] {
      const Lock lock = Lock::open(region, ByteOffset{0}, {.ttl = 30s}).value();
      for (std::size_t round = 0; round < rounds; ++round) {
        auto held = lock.acquire(60s);
        ASSERT_TRUE(ok(held));
        // Reads and writes without an atomic: only the lock keeps the count exact.
        std::array<std::byte, 8> bytes{};
        ASSERT_TRUE(ok(held->region().read(ByteOffset{64}, bytes)));
        auto count = std::bit_cast<std::uint64_t>(bytes) + 1;
        bytes = std::bit_cast<std::array<std::byte, 8>>(count);
        ASSERT_TRUE(ok(held->region().write(ByteOffset{64}, bytes)));
        {
          const std::lock_guard guard{mutex};
          tokens.push_back(held->token());
        }
        ASSERT_TRUE(ok(held->release()));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(region.fetch_add(ByteOffset{64}, 0).value(), kContenders * rounds);
  ASSERT_EQ(tokens.size(), kContenders * rounds);
  // Each holder has the next token.
  for (std::size_t i = 0; i < tokens.size(); ++i) ASSERT_EQ(tokens[i], i + 1);
}

/// The requests that a lock sends to its server after another client has fenced the region.
class LockGrantTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  [[nodiscard]] double opens() {
    return server()
        .registry()
        .sum("remora_server_control_requests_total", {{"request", "open"}})
        .value();
  }
  void fence(const Region& region) {
    const Engine other = open_engine();
    ASSERT_TRUE(ok(other.fence_region(uri(region.info().name), Rights::kAll)));
  }
};

TEST_P(LockGrantTest, IsReplacedOnceAfterAFence) {
  const Region region = make_region();
  const Lock lock = Lock::open(region, ByteOffset{0}).value();
  for (int round = 1; round <= 3; ++round) {
    fence(region);
    const double before = opens();
    for (int i = 0; i < 200; ++i) {
      Held held = lock.acquire(20s).value();
      ASSERT_TRUE(ok(held.region().fetch_add(ByteOffset{8}, 1)));
      ASSERT_TRUE(ok(held.release()));
    }
    EXPECT_EQ(opens() - before, 1) << "fence " << round;
  }
}

TEST_P(LockGrantTest, IsSharedByCopiesAndThreads) {
  const Region region = make_region();
  const Lock lock = Lock::open(region, ByteOffset{0}, {.ttl = 60s}).value();
  fence(region);
  const double before = opens();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([copy = lock] {
      for (int round = 0; round < 50; ++round) ASSERT_TRUE(ok(copy.acquire(60s)));
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(opens() - before, 1);
}

TEST_P(LockGrantTest, OfAFenceIsKeptForTheNextAcquisition) {
  const Region region = make_region();
  const Lock lock = Lock::open(region, ByteOffset{0}, {.ttl = 150ms}).value();
  const Engine other = open_engine();
  const Region theirs = other.open_region(uri(region.info().name), Rights::kAll).value();
  const Lock slow = Lock::open(theirs, ByteOffset{0}, {.ttl = 150ms}).value();
  Held lost = slow.try_acquire().value();
  ASSERT_TRUE(ok(lock.acquire(20s)));  // by a fence
  const double before = opens();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(ok(lock.acquire(20s)));
  EXPECT_EQ(opens() - before, 0);
  // A holder that has lost the lock stays refused, though its Lock has a new grant by now.
  ASSERT_TRUE(ok(slow.acquire(20s)));
  const Status late = lost.region().write_zeroes(ByteOffset{8}, 8);
  ASSERT_TRUE(fails_with(late, Code::kAccessRefused));
  EXPECT_TRUE(fails_with(lost.release(), Code::kAccessRefused));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(ok(slow.acquire(20s)));
  EXPECT_EQ(opens() - before, 1);
}

TEST_P(LockGrantTest, LeavesTheRestOfItsSessionAlone) {
  const Region region = make_region();
  const Region unrelated = make_region();
  const Lock lock = Lock::open(region, ByteOffset{0}).value();
  fence(region);
  // A session that sends so many requests at once is slowed down (limits.requests_per_second).
  for (std::size_t i = 0; i < steps(3'000); ++i) ASSERT_TRUE(ok(lock.acquire(20s)));
  EXPECT_EQ(server().registry().sum("remora_server_requests_delayed_total").value(), 0);
  EXPECT_TRUE(ok(unrelated.write_zeroes(ByteOffset{0}, 8)));
  EXPECT_TRUE(unrelated.connected());
}

class RemovalTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  bool soon_free(std::uint64_t used_bytes) {
    for (int i = 0; i < 6000; ++i, std::this_thread::sleep_for(10ms)) {
      const ServerStatus status = server().status();
      if (status.pool_used_bytes == used_bytes && status.pool_freeing_bytes == 0) return true;
    }
    return false;
  }
};

TEST_P(RemovalTest, NowTakesTheRegionFromItsHolders) {
  const RegionInfo made = create();
  const Region region = open(made.name);
  Queue queue = region.queue({.depth = 64}).value();
  const std::vector<std::byte> bytes = noise(4096, 3);
  for (std::uint64_t i = 0; i < 64; ++i) queue.write(Block{i}, bytes, i);
  ASSERT_TRUE(ok(queue.submit()));
  ASSERT_TRUE(ok(session().remove_region(made.name, Removal::kNow)));
  forget(made.name);
  std::size_t ended = 0;
  for (const Completion& completion : queue.wait(64)) {
    ++ended;
    EXPECT_TRUE(completion.ok()) << "what was in flight was waited for: " << completion.error();
  }
  EXPECT_EQ(ended, 64U);
  const Status late = region.write(Block{0}, bytes);
  ASSERT_TRUE(fails_with(late, Code::kAccessRefused));
  EXPECT_EQ(late.error().reason(), Reason::kRevoked);
  EXPECT_TRUE(fails_with(session().stat(made.name), Code::kUnknownRegion));
  EXPECT_TRUE(region.connected());
  EXPECT_TRUE(soon_free(0)) << "its memory is free though handles of it are there";
  EXPECT_TRUE(fails_with(session().remove_region(made.name, Removal::kNow), Code::kUnknownRegion));
}

TEST_P(RemovalTest, NowByTheServingApplication) {
  const RegionInfo made = create();
  const Region region = open(made.name);
  EXPECT_TRUE(fails_with(server().remove_region(made.name), Code::kBusy));
  ASSERT_TRUE(ok(server().remove_region(made.name, Removal::kNow)));
  forget(made.name);
  EXPECT_TRUE(fails_with(region.fetch_add(ByteOffset{0}, 1), Code::kAccessRefused));
}

TEST_P(RemovalTest, WhenUnusedLeavesTheRegionToItsHolders) {
  const RegionInfo made = create();
  std::optional<Region> region = open(made.name);
  ASSERT_TRUE(ok(session().remove_region(made.name, Removal::kWhenUnused)));
  EXPECT_TRUE(
      fails_with(engine().open_region(uri(made.name), Rights::kRead), Code::kUnknownRegion));
  EXPECT_EQ(region->fetch_add(ByteOffset{0}, 1).value(), 0U);
  // The name is free, the memory is not.
  ASSERT_TRUE(ok(session().create_region(spec(made.name))));
  EXPECT_EQ(open(made.name).fetch_add(ByteOffset{0}, 7).value(), 0U);
  EXPECT_EQ(region->fetch_add(ByteOffset{0}, 1).value(), 1U);
  const std::uint64_t both = server().status().pool_used_bytes;
  region.reset();
  EXPECT_TRUE(soon_free(both / 2));
}

TEST_P(RemovalTest, RegionOfASessionGoesWithIt) {
  RegionSpec wanted = spec(unique_name());
  wanted.lifetime = Lifetime::kSession;
  const Region mine = [&] {
    const Engine owner = open_engine();
    const Session theirs = owner.connect(uri()).value();
    const RegionInfo made = theirs.create_region(wanted).value();
    EXPECT_EQ(made.lifetime, Lifetime::kSession);
    Region opened = open(made.name);
    EXPECT_TRUE(ok(opened.fetch_add(ByteOffset{0}, 1)));
    return opened;
  }();
  EXPECT_TRUE(eventually([&] { return !session().stat(wanted.name).ok(); }, 60s));
  EXPECT_TRUE(fails_with(session().stat(wanted.name), Code::kUnknownRegion));
  EXPECT_TRUE(soon_free(0));
  EXPECT_TRUE(fails_with(mine.fetch_add(ByteOffset{0}, 1), Code::kAccessRefused));
}

TEST_P(RemovalTest, RegionWithATtlIsRemovedOnceItHasBeenUnusedForSoLong) {
  RegionSpec wanted = spec(unique_name());
  wanted.lifetime = Lifetime::kTtl;
  EXPECT_TRUE(fails_with(session().create_region(wanted), Code::kInvalidArgument)) << "no ttl";
  wanted.ttl = 4s;
  EXPECT_EQ(session().create_region(wanted).value().ttl, 4s);
  auto closed = Clock::now();
  {
    const Region region = open(wanted.name);
    std::this_thread::sleep_for(5s);
    EXPECT_TRUE(ok(region.fetch_add(ByteOffset{0}, 1)));
    EXPECT_TRUE(ok(session().stat(wanted.name)));
    closed = Clock::now();
  }
  while (session().stat(wanted.name).ok() && Clock::now() < closed + 20s)
    std::this_thread::sleep_for(10ms);
  EXPECT_GE(Clock::now() - closed, 4s);
  EXPECT_TRUE(fails_with(session().stat(wanted.name), Code::kUnknownRegion));
}

REMORA_CONFORMANCE(LockTest);
REMORA_CONFORMANCE(LockGrantTest);
REMORA_CONFORMANCE(RemovalTest);

}  // namespace
}  // namespace remora::test
