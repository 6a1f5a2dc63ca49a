/// Many threads and many processes on one region: nothing is lost, nothing lands elsewhere.

#include <array>
#include <atomic>
#include <thread>

#include <remora/sanitizers.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kThreads = 8;
constexpr std::uint64_t kStripe = 64_KiB;
/// Why a test is skipped where the client is another one.

/// Whether `result` is a success; a failure of the test otherwise, which prints the error.
template <typename T>
bool done(const Result<T>& result) {
  EXPECT_TRUE(ok(result));
  return result.ok();
}

class ConcurrencyTest : public ConformanceTest {
 protected:
  [[nodiscard]] Region striped_region() { return make_region({.size_bytes = kThreads * kStripe}); }

  /// Runs `work(thread index)` on all threads at once; false from any of them is a failure.
  template <typename Work>
  static void on_all_threads(Work work) {
    std::array<bool, kThreads> good{};
    std::vector<std::thread> threads;
    for (std::size_t id = 0; id < kThreads; ++id)
      threads.emplace_back([&good, &work, id] { good[id] = work(id); });
    for (std::thread& thread : threads) thread.join();
    for (std::size_t id = 0; id < kThreads; ++id) EXPECT_TRUE(good[id]) << "thread " << id;
  }
};

/// Writes stamped blocks of one stripe in random order through a queue, then reads all of them.
bool work_through_a_queue(const Region& region, SlotPool slots, std::size_t id,
                          std::size_t rounds) {
  Queue queue = region.queue({.depth = 16}).value();
  constexpr std::uint64_t kBlocks = kStripe / 4096;
  for (std::size_t round = 0; round < rounds; ++round)
    for (const bool writing : {true, false}) {
      for (std::uint64_t i = 0; i < kBlocks; ++i) {
        const std::uint64_t block = id * kBlocks + (i * 7 + round) % kBlocks;
        Slot slot = slots.take();
        if (!slot) return false;
        if (writing) stamp(slot.bytes(), round + 1, block * 4096);
        const Ticket taken = writing ? queue.write(Block{block}, std::move(slot), block)
                                     : queue.read(Block{block}, std::move(slot), block);
        if (!taken) return false;
      }
      if (!queue.submit().ok()) return false;
      while (queue.size() != 0)
        for (Completion& completion : queue.wait(1)) {
          if (!completion.ok()) return false;
          if (!writing && !stamped(completion.slot().bytes(), round + 1, completion.tag() * 4096))
            return false;
        }
    }
  return true;
}

TEST_P(ConcurrencyTest, EachThreadsQueueKeepsToItsStripe) {
  const Region region = striped_region();
  const SlotPool slots = engine().allocate_slots(kThreads * 16, 4096).value();
  const std::size_t rounds = steps(200);
  on_all_threads([&](std::size_t id) { return work_through_a_queue(region, slots, id, rounds); });
  const std::vector<std::byte> all = read_all(region);
  for (std::uint64_t at = 0; at < all.size(); at += 4096)
    EXPECT_TRUE(stamped(std::span{all}.subspan(at, 4096), rounds, at));
}

TEST_P(ConcurrencyTest, SynchronousCallsOfManyThreadsKeepToTheirStripes) {
  const Region region = striped_region();
  const std::size_t rounds = steps(1000);
  on_all_threads([&](std::size_t id) {
    std::vector<std::byte> from(3000);
    std::vector<std::byte> into(3000);
    Random random{60 + id};
    for (std::size_t i = 0; i < rounds; ++i) {
      const std::size_t length = 1 + random.below(from.size());
      const ByteOffset at{id * kStripe + random.below(kStripe - length)};
      fill(std::span{from}.first(length), random.next());
      if (!region.write(at, std::span{from}.first(length)).ok()) return false;
      if (!region.read(at, std::span{into}.first(length)).ok()) return false;
      if (!same_bytes(std::span{into}.first(length), std::span{from}.first(length))) return false;
    }
    return true;
  });
}

TEST_P(ConcurrencyTest, QueuesAndSynchronousCallsShareASession) {
  const Region region = striped_region();
  const std::size_t rounds = steps(1000);
  on_all_threads([&](std::size_t id) {
    if (id % 2 == 0) {
      for (std::size_t i = 0; i < rounds; ++i)
        if (!region.fetch_add(ByteOffset{0}, 1).ok()) return false;
      return true;
    }
    Queue queue = region.queue({.depth = 8}).value();
    for (std::size_t sent = 0, done = 0; done < rounds;) {
      for (; sent < rounds && !queue.full(); ++sent)
        if (!queue.fetch_add(ByteOffset{0}, 1)) return false;
      if (!queue.submit().ok()) return false;
      for (Completion& completion : queue.wait(1)) {
        if (!completion.ok()) return false;
        ++done;
      }
    }
    return true;
  });
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), kThreads * rounds);
}

TEST_P(ConcurrencyTest, ThreadsOpenCloseAndWorkAtOnce) {
  const RegionInfo made = create({.size_bytes = 64_KiB});
  const std::size_t rounds = steps(100);
  on_all_threads([&](std::size_t) {
    for (std::size_t i = 0; i < rounds; ++i) {
      auto region = engine().open_region(uri(made.name), Rights::kAll);
      if (!region.ok() || !region->fetch_add(ByteOffset{0}, 1).ok()) return false;
    }
    return true;
  });
  EXPECT_EQ(open(made.name).fetch_add(ByteOffset{0}, 0).value(), kThreads * rounds);
}

TEST_P(ConcurrencyTest, ThreadsCreateAndRemoveRegionsAtOnce) {
  const std::size_t rounds = steps(50);
  const std::string stem = unique_name();
  on_all_threads([&](std::size_t id) {
    for (std::size_t i = 0; i < rounds; ++i) {
      const std::string name = stem + "." + std::to_string(id);
      if (!done(session().create_region(spec(name, {.size_bytes = 64_KiB})))) return false;
      {
        const auto region = engine().open_region(uri(name), Rights::kAll);
        if (!done(region)) return false;
        const auto before = region->fetch_add(ByteOffset{8}, 1);
        if (!done(before)) return false;
        EXPECT_EQ(*before, 0U) << "round " << i << " of thread " << id;
      }
      if (!done(session().remove_region(name))) return false;
    }
    return true;
  });
}

TEST_P(ConcurrencyTest, FourProcessesCountExactly) {
  constexpr std::uint64_t kProcesses = 4;
  const Region region = make_region();
  const std::uint64_t count = over_shm() ? steps(20'000) : 300;
  std::vector<Child> children;
  for (std::uint64_t i = 0; i < kProcesses; ++i)
    children.emplace_back("contend", std::vector<std::string>{"uri=" + uri(region.info().name),
                                                              "count=" + std::to_string(count)});
  for (Child& child : children) ASSERT_EQ(child.read_line(), "ready");
  for (const Child& child : children) child.write_line("go");
  std::uint64_t sum = 0;
  for (Child& child : children) {
    const auto line = child.read_line(100s);
    ASSERT_TRUE(line.has_value());
    sum += std::stoull(*line);
    EXPECT_EQ(child.wait(), 0);
  }
  const std::uint64_t total = kProcesses * count;
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), total);
  EXPECT_EQ(region.fetch_add(ByteOffset{64}, 0).value(), total);
  // Each value from 0 was handed out once.
  EXPECT_EQ(sum, total * (total - 1) / 2);
}

TEST_P(ConcurrencyTest, ChildProcessInheritsNoDescriptorOfOurs) {
  const Region region = make_region();
  ASSERT_TRUE(ok(region.fetch_add(ByteOffset{0}, 1)));
  Child child{"inherited", {}};
  EXPECT_EQ(child.read_line(), "0");
  EXPECT_EQ(child.wait(), 0);
}

TEST_P(ConcurrencyTest, ClosedStandardDescriptorsStayClosed) {
  if (kThroughC) GTEST_SKIP() << "that process also uses what C does not have";
#if REMORA_THREAD_SANITIZER
  GTEST_SKIP() << "to it, an epoll set that fcntl moved orders nothing: it reports false races";
#endif
  if (external()) GTEST_SKIP() << "it starts a server of its own";
  Child child{"closed-standard", {"transport=" + std::string{to_string(transport())}}};
  EXPECT_EQ(child.read_line(100s), "found ");
  EXPECT_EQ(child.wait(), 0);
}

REMORA_CONFORMANCE(ConcurrencyTest);

}  // namespace
}  // namespace remora::test
