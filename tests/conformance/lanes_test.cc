/// Sessions of several lanes: large transfers go over all of them and arrive whole, queues take
/// turns, and what is counted and left behind is as with one. Over shm there is one way to the
/// memory, whatever is asked for.

#include <barrier>
#include <latch>
#include <thread>

#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint32_t kLanes = 3;

class LanesTest : public ConformanceTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 16U << 20U, .piece_bytes = 1U << 20U};
  }
  void SetUp() override {
    ConformanceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    EngineOptions options;
    options.client_name = "lanes";
    options.operation_deadline = options.control_deadline = 30s;
    options.lanes = kLanes;
    many_.emplace(Engine::open(options).value());
  }
  void TearDown() override {
    many_.reset();
    ConformanceTest::TearDown();
  }
  /// A region of `size_bytes`, opened over several lanes.
  Region wide(std::uint64_t size_bytes) {
    const RegionInfo made = create({.size_bytes = size_bytes});
    return many_->open_region(uri(made.name), Rights::kAll).value();
  }
  double counted(std::string_view series, const metrics::Labels& labels = {}) {
    return many_->registry().sum(series, labels).value();
  }

  std::optional<Engine> many_;
};

TEST_P(LanesTest, SessionHasAsManyAsAskedFor) {
  const Region region = wide(64_KiB);
  EXPECT_EQ(counted("remora_client_lanes"), over_shm() ? 1 : kLanes);
}

TEST_P(LanesTest, LargeTransfersArriveWholeFromAnyMemory) {
  const Region region = wide(5_MiB);
  std::vector<std::byte> model = noise(5_MiB, 1);
  ASSERT_TRUE(
      ok(region.write(ByteOffset{0}, model)));  // through bounce slots where keys are needed
  std::vector<std::byte> bytes(model.size());
  const RegisteredMemory memory = many_->register_memory(bytes).value();
  ASSERT_TRUE(ok(region.read(ByteOffset{0}, Target{memory, 0, bytes.size()})));
  EXPECT_TRUE(same_bytes(bytes, model));

  // Lengths and places that no number of lanes divides.
  Random random{2};
  for (std::size_t i = 0; i < steps(20); ++i) {
    const std::uint64_t length = 512_KiB + random.below(3_MiB);
    const std::uint64_t at = random.below(model.size() - length);
    const auto part = std::span{model}.subspan(at, length);
    fill(part, 10 + i);
    ASSERT_TRUE(ok(region.write(ByteOffset{at}, part)));
    fill(bytes, 1);
    ASSERT_TRUE(ok(region.read(ByteOffset{at}, Target{memory, 0, length})));
    ASSERT_TRUE(same_bytes(std::span{bytes}.first(length), part)) << at << " + " << length;
  }
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

TEST_P(LanesTest, ZeroesGoOverAllOfThem) {
  const Region region = wide(3_MiB);
  std::vector<std::byte> model = noise(3_MiB, 3);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  ASSERT_TRUE(ok(region.write_zeroes(ByteOffset{12'345}, 2_MiB)));
  std::fill_n(model.begin() + 12'345, 2_MiB, std::byte{0});
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

TEST_P(LanesTest, WholeIsCountedOnce) {
  const Region region = wide(3_MiB);
  const std::vector<std::byte> bytes = noise(3_MiB, 4);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
  ASSERT_TRUE(ok(region.flush_visible()));
  EXPECT_EQ(counted("remora_client_operations_total", {{"op", "write"}, {"status", "ok"}}), 1);
  EXPECT_EQ(counted("remora_client_operations_total", {{"op", "read"}, {"status", "ok"}}), 1);
  EXPECT_EQ(counted("remora_client_operations_total"), 2);
  EXPECT_EQ(counted("remora_client_written_bytes_total"), static_cast<double>(bytes.size()));
}

TEST_P(LanesTest, ThreadsAndQueuesSeeWhatOthersHaveWritten) {
  constexpr std::size_t kThreads = 4;
  const Region region = wide(1_MiB);
  // Each has a lane by its turn; a write that was acknowledged on one is what the others read.
  std::barrier<> together{kThreads};
  std::vector<std::thread> threads;
  std::array<std::string, kThreads> faults;
  for (std::size_t self = 0; self < kThreads; ++self)
    threads.emplace_back([&, self] {
      Queue queue = region.queue({.depth = 8}).value();
      std::vector<std::byte> mine(4096);
      for (std::size_t round = 0; round < steps(50); ++round) {
        fill(mine, round * kThreads + self);
        if (round % 2 == 0) {
          if (!region.write(Block{self}, mine)) faults[self] = "write";
        } else {
          queue.write(Block{self}, mine);
          if (!queue.submit()) faults[self] = "submit";
          for (const Completion& completion : queue.wait(1))
            if (!completion.ok()) faults[self] = completion.error().message();
        }
        together.arrive_and_wait();
        std::vector<std::byte> seen(4096);
        const std::size_t other = (self + 1 + round) % kThreads;
        if (!region.read(Block{other}, seen)) faults[self] = "read";
        std::vector<std::byte> expected(4096);
        fill(expected, round * kThreads + other);
        if (seen != expected) faults[self] = "old bytes in round " + std::to_string(round);
        together.arrive_and_wait();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

TEST_P(LanesTest, LargeTransfersOfSeveralThreadsAtOnce) {
  constexpr std::size_t kThreads = 3;
  const Region region = wide(kThreads * 2_MiB);
  std::vector<std::thread> threads;
  std::array<std::string, kThreads> faults;
  for (std::size_t self = 0; self < kThreads; ++self)
    threads.emplace_back([&, self] {
      const ByteOffset at{self * 2_MiB};
      std::vector<std::byte> into(2_MiB);
      for (std::size_t round = 0; round < steps(20); ++round) {
        const std::vector<std::byte> bytes = noise(2_MiB, round * kThreads + self);
        if (!region.write(at, bytes)) faults[self] = "write";
        if (!region.read(at, into)) faults[self] = "read";
        if (into != bytes) faults[self] = "other bytes";
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& fault : faults) EXPECT_EQ(fault, "");
}

/// Ends with `expected` completions, all of them ok.
[[nodiscard]] std::string drain_well(Queue& queue, std::size_t expected) {
  std::size_t ended = 0;
  while (queue.size() > 0)
    for (const Completion& completion : queue.wait(1)) {
      ++ended;
      if (!completion.ok()) return completion.error().message();
    }
  return ended == expected ? "" : std::to_string(ended) + " completions";
}

TEST_P(LanesTest, QueueOnEachLaneMovesLargeTransfersAtOnce) {
  constexpr std::size_t kEach = 2;
  const Region region = wide(kLanes * kEach * 2_MiB);
  const std::vector<std::byte> model = noise(kLanes * kEach * 2_MiB, 20);
  std::vector<std::byte> bytes(model.size());
  const RegisteredMemory memory = many_->register_memory(bytes).value();
  std::vector<Queue> queues;
  for (std::uint32_t i = 0; i < kLanes; ++i)
    queues.push_back(region.queue({.depth = 2 * kEach}).value());
  for (const bool write : {true, false}) {
    // Written from memory that is not registered.
    for (std::size_t i = 0; i < kLanes * kEach; ++i) {
      const std::uint64_t at = i * 2_MiB;
      Queue& queue = queues[i % kLanes];
      if (write)
        queue.write(ByteOffset{at}, std::span{model}.subspan(at, 2_MiB));
      else
        queue.read(ByteOffset{at}, Target{memory, at, 2_MiB});
      ASSERT_TRUE(ok(queue.submit()));
    }
    for (Queue& queue : queues) EXPECT_EQ(drain_well(queue, kEach), "");
  }
  EXPECT_TRUE(same_bytes(bytes, model));
}

TEST_P(LanesTest, QueueGoesOnBesideTransfersOverAllLanes) {
  const Region region = wide(6_MiB);
  std::vector<std::byte> queued(1_MiB);
  std::vector<std::byte> read(1_MiB);
  Queue queue = region.queue({.depth = 4}).value();
  std::string fault;
  std::thread beside{[&] {
    std::vector<std::byte> into(4_MiB);
    for (std::size_t round = 0; round < steps(10); ++round) {
      const std::vector<std::byte> bytes = noise(4_MiB, round);
      if (!region.write(ByteOffset{2_MiB}, bytes)) fault = "write";
      if (!region.flush_visible()) fault = "flush_visible";
      if (!region.read(ByteOffset{2_MiB}, into)) fault = "read";
      if (into != bytes) fault = "other bytes";
    }
  }};
  for (std::size_t round = 0; round < steps(20); ++round) {
    fill(queued, 100 + round);
    queue.write(ByteOffset{0}, queued);
    queue.write(ByteOffset{1_MiB}, std::span{queued}.first(64));
    queue.barrier();
    queue.read(ByteOffset{0}, read);
    queue.flush_visible();
    EXPECT_TRUE(ok(queue.submit()));
    EXPECT_EQ(drain_well(queue, 4), "");
    EXPECT_TRUE(same_bytes(read, queued)) << round;
  }
  beside.join();
  EXPECT_EQ(fault, "");
}

TEST_P(LanesTest, MoreThanThereCanBeAreRefused) {
  for (const std::uint32_t lanes : {0U, kMaxLanes + 1}) {
    EngineOptions options;
    options.lanes = lanes;
    const auto engine = Engine::open(options);
    ASSERT_FALSE(engine);
    EXPECT_EQ(engine.error().code(), Code::kInvalidArgument);
    EXPECT_NE(engine.error().message().find("lanes"), std::string::npos);
  }
}

REMORA_CONFORMANCE(LanesTest);

class LanesLossTest : public LanesTest {
 protected:
  [[nodiscard]] bool server_in_other_process() const override { return true; }
};

TEST_P(LanesLossTest, LargeTransfersEndWithTheServer) {
  const Region region = wide(4_MiB);
  std::latch begun{1};
  Status last;
  std::thread writer{[&] {
    const std::vector<std::byte> bytes = noise(4_MiB, 5);
    bool first = true;
    while ((last = region.write(ByteOffset{0}, bytes, over_shm() ? 3s : 10s)))
      if (std::exchange(first, false)) begun.count_down();
  }};
  begun.wait();
  kill_server();
  const Timed killed;
  writer.join();
  EXPECT_TRUE(killed.took_at_most(30s + kGrace));
  // A device refuses what comes between the end of the process's registrations and that of its
  // queue pairs. A write that begins after the end waits for the server to come back.
  const Code code = last.error().code();
  EXPECT_TRUE(code == Code::kIndeterminate || code == Code::kConnectionLost ||
              code == Code::kTimedOut || (over_rdma() && code == Code::kAccessRefused))
      << last.error();
  EXPECT_FALSE(region.connected());
}

REMORA_CONFORMANCE(LanesLossTest);

}  // namespace
}  // namespace remora::test
