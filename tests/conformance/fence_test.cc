/// Fences: the operations of the older grants of a region are refused, in every session; those of
/// other regions are not.

#include <array>
#include <atomic>
#include <chrono>
#include <gmock/gmock.h>
#include <signal.h>
#include <thread>

#include <remora/metrics/registry.h>

#include "conformance_test.h"
#include "outcome.h"
#include "support/child.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

testing::AssertionResult refused_as(const Status& status, Reason reason) {
  if (const auto failed = fails_with(status, Code::kAccessRefused); !failed) return failed;
  if (status.error().reason() == reason) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status.error().message();
}

class FenceTest : public ConformanceTest {
 protected:
  static Region open_by(const Engine& engine, const std::string& uri) {
    return engine.open_region(uri, Rights::kAll).value();
  }
};

TEST_P(FenceTest, OlderGrantsOfAllSessionsAreRefused) {
  const Region mine = make_region();
  const Engine other_engine = open_engine();
  const Region theirs = open_by(other_engine, uri(mine.info().name));
  const std::vector<std::byte> bytes = noise(4096, 1);
  std::vector<std::byte> into(4096);
  const Timed timed;
  const Region fenced = theirs.fence().value();
  EXPECT_TRUE(timed.took_at_most(8s)) << "clients that answer are not waited for";
  EXPECT_GT(fenced.info().epoch, mine.info().epoch);
  EXPECT_EQ(fenced.info().incarnation, mine.info().incarnation);
  EXPECT_EQ(fenced.rights(), Rights::kAll);
  for (const Region* old : {&mine, &theirs}) {
    EXPECT_TRUE(refused_as(old->write(ByteOffset{0}, bytes), Reason::kFenced));
    EXPECT_TRUE(refused_as(old->read(ByteOffset{0}, into), Reason::kFenced));
    EXPECT_TRUE(fails_with(old->fetch_add(ByteOffset{0}, 1), Code::kAccessRefused));
    EXPECT_TRUE(old->connected());
  }
  ASSERT_TRUE(ok(fenced.write(ByteOffset{0}, bytes)));
  EXPECT_EQ(fenced.fetch_add(ByteOffset{4096}, 1).value(), 0U);
  // A client that has lost its grant only has to open the region again.
  const Region again = open(mine.info().name);
  ASSERT_TRUE(ok(again.read(ByteOffset{0}, into)));
  EXPECT_TRUE(same_bytes(into, bytes));
  EXPECT_EQ(again.info().epoch, fenced.info().epoch);
}

TEST_P(FenceTest, ClientThatMayNotOpenARegionDoesNotFenceIt) {
  const RegionInfo made = create({.rights = Rights::kReadWrite, .atomic_domain = "none"});
  const Region mine = open(made.name, Rights::kReadWrite);
  EXPECT_TRUE(fails_with(engine().fence_region(uri(made.name), Rights::kAll), Code::kNoRight));
  EXPECT_TRUE(
      fails_with(engine().fence_region(uri("unknown"), Rights::kRead), Code::kUnknownRegion));
  EXPECT_TRUE(ok(mine.write_zeroes(ByteOffset{0}, 64)));
  EXPECT_EQ(session().stat(made.name).value().epoch, made.epoch);
}

TEST_P(FenceTest, RegionWithoutGrantsIsFencedToo) {
  const RegionInfo made = create();
  const Region fenced = engine().fence_region(uri(made.name), Rights::kAll).value();
  EXPECT_GT(fenced.info().epoch, made.epoch);
  EXPECT_TRUE(ok(fenced.write_zeroes(ByteOffset{0}, 64)));
}

TEST_P(FenceTest, OperationsTakenAndNotSubmittedAreRefused) {
  const Region region = make_region();
  const Region other = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  const std::vector<std::byte> bytes = noise(4096, 2);
  const std::vector<std::byte> many = noise(region.size_bytes(), 3);  // covers several extents
  queue.write(Block{0}, bytes, 1);
  queue.write(ByteOffset{0}, many, 2);
  queue.barrier();
  ASSERT_TRUE(ok(queue.select(other)));
  queue.write(Block{1}, bytes, 3);
  queue.fetch_add(ByteOffset{0}, 5, 4);
  const Engine other_engine = open_engine();
  const Region fenced = open_by(other_engine, uri(region.info().name)).fence().value();
  ASSERT_TRUE(ok(queue.submit()));
  std::map<std::uint64_t, bool> ends;
  while (queue.size() != 0)
    for (const Completion& completion : queue.wait(1)) {
      EXPECT_TRUE(ends.emplace(completion.tag(), completion.ok()).second);
      if (completion.ok()) continue;
      EXPECT_EQ(completion.error().code(), Code::kAccessRefused);
      EXPECT_EQ(completion.error().reason(), Reason::kFenced);
    }
  EXPECT_THAT(ends, testing::ElementsAre(testing::Pair(1, false), testing::Pair(2, false),
                                         testing::Pair(3, true), testing::Pair(4, true)));
  EXPECT_TRUE(region.connected());
  EXPECT_EQ(read_all(fenced), std::vector<std::byte>(fenced.size_bytes()));
}

TEST_P(FenceTest, EachOperationInFlightEndsOnceAndNoSessionEnds) {
  const RegionInfo made = create();
  const Region neighbour = make_region();
  const Engine other_engine = open_engine();
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> added{0};
  std::thread neighbours{[&] {
    for (; !over; ++added) {
      const auto before = neighbour.fetch_add(ByteOffset{0}, 1);
      ASSERT_TRUE(ok(before));
      ASSERT_EQ(*before, added);
    }
  }};
  const std::vector<std::byte> bytes = noise(4096, 4);
  const std::size_t rounds = steps(20);
  for (std::size_t round = 0; round < rounds; ++round) {
    const Region region = open(made.name);
    Queue queue = region.queue({.depth = 64}).value();
    std::atomic<bool> fenced{false};
    std::thread fencing{[&] {
      EXPECT_TRUE(ok(other_engine.fence_region(uri(made.name), Rights::kAll)));
      fenced = true;
    }};
    std::vector<int> ends;
    std::size_t refused = 0;
    // Until the other thread has fenced the region, and once more.
    for (bool last = false; !last;) {
      last = fenced;
      while (!queue.full()) {
        queue.write(Block{ends.size() % region.block_count()}, bytes, ends.size());
        ends.push_back(0);
      }
      ASSERT_TRUE(ok(queue.submit()));
      for (const Completion& completion : queue.wait(round % 2 == 0 ? 1 : queue.size())) {
        ++ends[completion.tag()];
        if (completion.ok()) continue;
        ++refused;
        EXPECT_EQ(completion.error().code(), Code::kAccessRefused) << completion.error();
        EXPECT_EQ(completion.error().reason(), Reason::kFenced) << completion.error();
      }
    }
    fencing.join();
    for (const Completion& completion : queue.wait(queue.size())) ++ends[completion.tag()];
    EXPECT_THAT(ends, testing::Each(1)) << "round " << round;
    EXPECT_GE(refused, 1U);
    ASSERT_TRUE(region.connected()) << "round " << round;
  }
  over = true;
  neighbours.join();
  EXPECT_TRUE(neighbour.connected());
  EXPECT_GE(added, 1U);
}

TEST_P(FenceTest, FencesOfSeveralTakeTurns) {
  const RegionInfo made = create();
  constexpr std::size_t kClients = 4;
  std::vector<Engine> engines;
  for (std::size_t i = 0; i < kClients; ++i) engines.push_back(open_engine());
  std::array<std::vector<std::uint64_t>, kClients> epochs;
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < kClients; ++i)
    threads.emplace_back([&, i] {
      for (std::size_t round = 0; round < steps(20); ++round) {
        const auto fenced = engines[i].fence_region(uri(made.name), Rights::kAll);
        ASSERT_TRUE(ok(fenced));
        epochs[i].push_back(fenced->info().epoch);
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<std::uint64_t> all;
  for (const auto& each : epochs) all.insert(all.end(), each.begin(), each.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end()) << "an epoch was given twice";
  EXPECT_EQ(all.size(), kClients * steps(20));
}

/// The holder of the grant is a paused process.
class PausedHolderTest : public FenceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  void configure(config::ServerConfig& config) const override {
    config.limits.revoke_grace = 300ms;
  }
  Child late_writer(const std::string& region, bool comes_back = false) {
    Child child{"write-late",
                {"uri=" + uri(region), "comes_back=" + std::to_string(int{comes_back})}};
    EXPECT_EQ(child.read_line(), "ready");
    return child;
  }
};

TEST_P(PausedHolderTest, LateWriteIsRefusedAndTheNewHoldersBytesStay) {
  const std::size_t rounds = over_shm() ? 1 : steps(5);
  for (std::size_t round = 0; round < rounds; ++round) {
    const RegionInfo made = create();
    const Region neighbour = make_region();
    Child child = late_writer(made.name);
    child.pause();
    const Timed timed;
    const auto fenced = engine().fence_region(uri(made.name), Rights::kAll);
    EXPECT_GE(Clock::now() - timed.began(), 250ms);
    EXPECT_TRUE(timed.took_at_most(300ms + 2 * kGrace));
    if (over_shm()) {
      // The server cannot revoke memory that a client has mapped, and the error says so.
      EXPECT_TRUE(fails_with(fenced, Code::kBusy));
      child.send_signal(SIGCONT);
      // The child gives up its grant only after it has received the event.
      for (Patience patience{20s};
           !engine().fence_region(uri(made.name), Rights::kAll) && !patience.over();) {
      }
      child.write_line("write");
      EXPECT_EQ(child.read_line(), "access refused: fenced by a newer grant");
      EXPECT_EQ(child.wait(), 0);
      continue;
    }
    ASSERT_TRUE(ok(fenced));
    const std::vector<std::byte> bytes = noise(4096, 5 + round);
    ASSERT_TRUE(ok(fenced->write(Block{0}, bytes)));
    child.write_line("write");  // before SIGCONT, so that the write is the first thing it does
    child.send_signal(SIGCONT);
    EXPECT_EQ(child.read_line(), "access refused: fenced by a newer grant");
    EXPECT_EQ(child.wait(), 0);
    std::vector<std::byte> found(4096);
    ASSERT_TRUE(ok(fenced->read(Block{0}, found)));
    EXPECT_TRUE(same_bytes(found, bytes));
    EXPECT_TRUE(ok(neighbour.write(Block{0}, bytes)));
    EXPECT_TRUE(session().connected());
  }
}

TEST_P(PausedHolderTest, ClientThatDiesMeanwhileIsNotWaitedFor) {
  const RegionInfo made = create();
  Child child = late_writer(made.name);
  child.pause();
  std::thread killing{[&] {
    std::this_thread::sleep_for(50ms);
    child.kill();
  }};
  const auto fenced = engine().fence_region(uri(made.name), Rights::kAll);
  killing.join();
  EXPECT_TRUE(ok(fenced));
}

#ifndef REMORA_TEST_THROUGH_C  // the C API has no locks
/// The server keeps the session of the killed client, but no process uses its mappings any more.
TEST_P(PausedHolderTest, ClientThatIsKilledAndWouldHaveComeBackIsNotWaitedFor) {
  const RegionInfo made = create();
  for (std::size_t round = 0; round < steps(5); ++round) {
    Child child = late_writer(made.name, true);
    const Lock lock = Lock::open(open(made.name), ByteOffset{64}, {.ttl = 300ms}).value();
    child.kill();
    // The server keeps such a session for 10 s.
    const auto held = lock.acquire(over_shm() ? 5s : 20s);
    ASSERT_TRUE(ok(held)) << "killed before another client wants the lock, round " << round;
  }
}
#endif

TEST_P(PausedHolderTest, ClientThatDiesMeanwhileAndWouldHaveComeBackIsNotWaitedFor) {
  const RegionInfo made = create();
  Child child = late_writer(made.name, true);
  child.pause();
  std::thread killing{[&] {
    std::this_thread::sleep_for(50ms);
    child.kill();
  }};
  const auto fenced = engine().fence_region(uri(made.name), Rights::kAll);
  killing.join();
  EXPECT_TRUE(ok(fenced));
}

/// A server that offers more than one transport.
class FenceOverAnyTest : public PausedHolderTest {
 protected:
  void configure(config::ServerConfig& config) const override {
    PausedHolderTest::configure(config);
    config.transports.tcp = config::Availability::kRequired;
  }
  [[nodiscard]] double fences_asked() {
    double count = 0;
    for (const char* status : {"ok", "error"})
      count += server()
                   .registry()
                   .value("remora_server_control_requests_total",
                          {{"request", "fence"}, {"status", status}})
                   .value();
    return count;
  }
};

TEST_P(FenceOverAnyTest, OneThatFailsOverATransportIsNotAskedForOverTheNext) {
  if (!over_shm()) GTEST_SKIP() << "elsewhere no fence fails for a client that stands still";
  const RegionInfo made = create();
  Child child = late_writer(made.name);
  child.pause();
  const std::string any =
      "remora://" + address().host + ":" + std::to_string(address().port) + "/" + made.name;
  EXPECT_TRUE(fails_with(engine().fence_region(any, Rights::kAll), Code::kBusy));
  EXPECT_EQ(fences_asked(), 1);
  child.kill();
}

REMORA_CONFORMANCE(FenceTest);
REMORA_CONFORMANCE(PausedHolderTest);
REMORA_CONFORMANCE(FenceOverAnyTest);

}  // namespace
}  // namespace remora::test
