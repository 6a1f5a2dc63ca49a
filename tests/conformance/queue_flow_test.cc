/// Flow control of a queue: barriers, cancel(), and event loops of the application.

#include <atomic>
#include <chrono>
#include <poll.h>
#include <thread>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

class QueueFlowTest : public ConformanceTest {
 protected:
  /// Waits until the descriptor is readable, at most 20 s.
  static bool fires(int descriptor) {
    pollfd event{.fd = descriptor, .events = POLLIN, .revents = 0};
    return ::poll(&event, 1, 20'000) == 1;
  }
};

TEST_P(QueueFlowTest, BarrierOrdersWhatStandsAroundIt) {
  const Region region = make_region({.size_bytes = 4_MiB});
  Queue queue = region.queue({.depth = 16}).value();
  std::vector<std::byte> seen(3_MiB);
  for (std::uint64_t round = 0; round < steps(20); ++round) {
    const std::vector<std::byte> one = noise(3_MiB, 2 * round);
    const std::vector<std::byte> two = noise(64, 2 * round + 1);
    queue.write(ByteOffset{100}, one);
    queue.barrier();
    queue.write(ByteOffset{3_MiB}, two);
    queue.barrier();
    queue.read(ByteOffset{100}, seen);
    EXPECT_EQ(drain(queue).size(), 3U);
    std::vector<std::byte> wanted = one;
    std::copy(two.begin(), two.end(), wanted.begin() + (3_MiB - 100));
    ASSERT_TRUE(same_bytes(seen, wanted)) << round;
  }
}

TEST_P(QueueFlowTest, ManyBarriersInOneSubmitKeepTheOrder) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 64}).value();
  for (std::uint64_t i = 0; i < 64; ++i) {
    queue.barrier();
    queue.barrier();  // two barriers in a row count as one
    ASSERT_TRUE(queue.fetch_add(ByteOffset{8}, 1, i));
  }
  ASSERT_TRUE(ok(queue.submit()));
  std::uint64_t next = 0;
  while (queue.size() != 0)
    for (const Completion& completion : queue.wait(1)) {
      ASSERT_TRUE(completion.ok()) << completion.error();
      EXPECT_EQ(completion.tag(), next);
      EXPECT_EQ(completion.old_value(), next++);
    }
  EXPECT_EQ(next, 64U);
}

TEST_P(QueueFlowTest, BarrierSpansSubmits) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  const std::vector<std::byte> model = noise(32_KiB, 3);
  std::vector<std::byte> seen(32_KiB);
  queue.write(ByteOffset{0}, model);
  ASSERT_TRUE(ok(queue.submit()));
  queue.barrier();
  queue.read(ByteOffset{0}, seen);
  ASSERT_TRUE(ok(queue.submit()));
  EXPECT_EQ(drain(queue).size(), 2U);
  EXPECT_TRUE(same_bytes(seen, model));
}

TEST_P(QueueFlowTest, CancelledBeforeSubmitHasNoEffect) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 4}).value();
  const Ticket kept = queue.fetch_add(ByteOffset{0}, 1, 1);
  const Ticket dropped = queue.fetch_add(ByteOffset{8}, 1, 2);
  const Ticket last = queue.fetch_add(ByteOffset{16}, 1, 3);
  ASSERT_TRUE(kept && dropped && last);
  EXPECT_TRUE(ok(queue.cancel(dropped)));
  ASSERT_TRUE(ok(queue.submit()));
  std::size_t cancelled = 0;
  while (queue.size() != 0)
    for (const Completion& completion : queue.wait(1)) {
      if (completion.tag() != 2) {
        EXPECT_TRUE(completion.ok());
        continue;
      }
      ++cancelled;
      ASSERT_FALSE(completion.ok());
      EXPECT_EQ(completion.error().code(), Code::kCancelled);
    }
  EXPECT_EQ(cancelled, 1U);
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 1U);
  EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), 0U);
  EXPECT_EQ(region.fetch_add(ByteOffset{16}, 0).value(), 1U);
}

TEST_P(QueueFlowTest, HeldBackOperationsCanBeCancelledAndTheBarrierStays) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  std::array<Ticket, 4> tickets{};
  tickets[0] = queue.fetch_add(ByteOffset{0}, 1, 0);
  queue.barrier();
  tickets[1] = queue.fetch_add(ByteOffset{0}, 100, 1);
  tickets[2] = queue.fetch_add(ByteOffset{0}, 10, 2);
  EXPECT_TRUE(ok(queue.cancel(tickets[1])));
  ASSERT_TRUE(ok(queue.submit()));
  std::vector<std::uint64_t> old(3, 99);
  while (queue.size() != 0)
    for (const Completion& completion : queue.wait(queue.size()))
      if (completion.ok()) old.at(completion.tag()) = completion.old_value();
  EXPECT_EQ(old, (std::vector<std::uint64_t>{0, 99, 1}));
}

TEST_P(QueueFlowTest, TicketsOfWhatHasEndedAreNotFound) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 1}).value();
  EXPECT_TRUE(fails_with(queue.cancel(Ticket{}), Code::kNotFound));
  EXPECT_TRUE(fails_with(queue.cancel(Ticket{77, 1}), Code::kNotFound));
  const Ticket first = queue.fetch_add(ByteOffset{0}, 1);
  ASSERT_TRUE(ok(queue.submit()));
  EXPECT_TRUE(fails_with(queue.cancel(first), Code::kBusy));  // it is posted already
  drain(queue);
  EXPECT_TRUE(fails_with(queue.cancel(first), Code::kNotFound));
  // The queue uses the same places again and again, but an old ticket never names a new operation.
  for (int i = 0; i < 8; ++i) {
    const Ticket next = queue.fetch_add(ByteOffset{0}, 1);
    ASSERT_TRUE(next);
    EXPECT_FALSE(next == first);
    EXPECT_TRUE(fails_with(queue.cancel(first), Code::kNotFound));
    ASSERT_TRUE(ok(queue.submit()));
    drain(queue);
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 9U);
}

TEST_P(QueueFlowTest, EventLoopOfTheApplicationNeedsNoOtherThread) {
  const Region region = make_region({.size_bytes = 1_MiB});
  const std::vector<std::byte> model = noise(1_MiB, 7);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  SlotPool slots = engine().allocate_slots(16, 4096).value();
  Queue queue = region.queue({.depth = 16}).value();
  const int descriptor = queue.event_fd().value();
  EXPECT_EQ(queue.event_fd().value(), descriptor);
  const std::uint64_t wanted = steps(2000);
  std::uint64_t sent = 0;
  std::uint64_t done = 0;
  while (done < wanted) {
    for (; sent < wanted && !queue.full(); ++sent)
      ASSERT_TRUE(queue.read(Block{sent % 256}, slots.take(), sent % 256));
    ASSERT_TRUE(ok(queue.submit()));
    ASSERT_TRUE(fires(descriptor)) << done << " of " << wanted;
    for (Completion& completion : queue.progress()) {
      ASSERT_TRUE(completion.ok()) << completion.error();
      const auto part = std::span{model}.subspan(completion.tag() * 4096, 4096);
      ASSERT_TRUE(same_bytes(completion.slot().bytes(), part));
      ++done;
    }
  }
  EXPECT_EQ(queue.next_deadline(), Clock::time_point::max());
}

TEST_P(QueueFlowTest, EventLoopSendsWhatDoesNotFitAtOnce) {
  const Region region = make_region({.size_bytes = 4_MiB});
  const std::vector<std::byte> model = noise(1_MiB, 8);
  Queue queue = region.queue({.depth = 16}).value();
  const int descriptor = queue.event_fd().value();
  for (std::size_t round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < 16; ++i)
      ASSERT_TRUE(queue.write(ByteOffset{i % 4 * 1_MiB}, model, i));
    ASSERT_TRUE(ok(queue.submit()));
    while (queue.size() != 0) {
      ASSERT_TRUE(fires(descriptor)) << queue.size() << " left in round " << round;
      for (const Completion& completion : queue.progress())
        ASSERT_TRUE(completion.ok()) << completion.error();
    }
  }
  std::vector<std::byte> seen(1_MiB);
  ASSERT_TRUE(ok(region.read(ByteOffset{3_MiB}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
}

TEST_P(QueueFlowTest, EventTellsOfWhatIsRefusedAndCancelled) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 4}).value();
  const int descriptor = queue.event_fd().value();
  ASSERT_TRUE(fires(descriptor));
  EXPECT_TRUE(queue.progress().empty());
  std::vector<std::byte> into(64);
  ASSERT_TRUE(queue.read(ByteOffset{region.size_bytes()}, into));
  ASSERT_TRUE(fires(descriptor));
  EXPECT_EQ(queue.progress().size(), 1U);
  const Ticket ticket = queue.read(ByteOffset{0}, into);
  ASSERT_TRUE(ok(queue.cancel(ticket)));
  ASSERT_TRUE(fires(descriptor));
  EXPECT_EQ(queue.progress().size(), 1U);
}

TEST_P(QueueFlowTest, EventIsNotMissedWhenAnotherCallerPolls) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 4}).value();
  const int descriptor = queue.event_fd().value();
  std::atomic<bool> enough{false};
  // Callers of the same session: a caller that polls the lane completes the operations of all.
  std::thread others{[&] {
    while (!enough) EXPECT_TRUE(region.fetch_add(ByteOffset{8}, 1).ok());
  }};
  for (std::uint64_t i = 0; i < steps(300); ++i) {
    ASSERT_TRUE(queue.fetch_add(ByteOffset{16}, 1));
    EXPECT_TRUE(ok(queue.submit()));
    EXPECT_LE(queue.next_deadline(), Clock::now() + 1h);
    std::uint64_t done = 0;
    while (done == 0) {
      if (!fires(descriptor)) break;
      for (const Completion& completion : queue.progress()) {
        EXPECT_TRUE(completion.ok());
        EXPECT_EQ(completion.old_value(), i);
        ++done;
      }
    }
    if (done != 1) {
      ADD_FAILURE() << "not told of operation " << i;
      break;
    }
  }
  enough = true;
  others.join();
}

TEST_P(QueueFlowTest, QueueWithAnEventDescriptorMayGoWhileOthersPoll) {
  const Region region = make_region();
  std::atomic<bool> enough{false};
  std::thread others{[&] {
    while (!enough) EXPECT_TRUE(region.fetch_add(ByteOffset{8}, 1).ok());
  }};
  for (std::uint64_t i = 0; i < steps(100); ++i) {
    Queue queue = region.queue({.depth = 4}).value();
    ASSERT_TRUE(queue.event_fd().ok());
    for (int k = 0; k < 4; ++k) ASSERT_TRUE(queue.fetch_add(ByteOffset{16}, 1));
    ASSERT_TRUE(ok(queue.submit()));
  }
  enough = true;
  others.join();
  EXPECT_EQ(region.fetch_add(ByteOffset{16}, 0).value(), 4 * steps(100));
}

TEST_P(QueueFlowTest, HugeSubmissionStopsAtItsDeadline) {
  if (!over_shm()) GTEST_SKIP() << "where operations are posted, a deadline ends their lane";
  const Region region = make_region({.size_bytes = 1_MiB});
  const std::vector<std::byte> before = noise(1_MiB, 30);
  const std::vector<std::byte> after(1_MiB, std::byte{1});
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, before)));
  Queue queue = region.queue({.depth = 4096, .deadline = std::chrono::milliseconds{10}}).value();
  for (std::uint64_t i = 0; i < 4095; ++i) ASSERT_TRUE(queue.write(ByteOffset{0}, before, i));
  ASSERT_TRUE(queue.write(ByteOffset{0}, after, 4095));
  ASSERT_TRUE(ok(queue.submit()));
  std::size_t late = 0;
  for (const Completion& completion : queue.wait(4096))
    if (!completion.ok()) {
      EXPECT_EQ(completion.error().code(), Code::kTimedOut);
      ++late;
    }
  EXPECT_GT(late, 0U) << "4 GiB, from one cache to the same, take 100 ms at the least";
  EXPECT_EQ(read_all(region), before) << "what timed out has had no effect";
}

REMORA_CONFORMANCE(QueueFlowTest);

}  // namespace
}  // namespace remora::test
