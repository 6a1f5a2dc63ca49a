/// Coroutines of an AsyncQueue whose server is killed, or paused.

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "async_tasks.h"
#include "conformance_test.h"
#include "outcome.h"

namespace remora::test {
namespace {

class AsyncQueueLossTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool server_in_other_process() const override { return true; }
  static constexpr std::chrono::seconds kDeadline{5};
};

TEST_P(AsyncQueueLossTest, ServerKilledEndsEveryTaskWithinItsDeadline) {
  const Region region = make_region();
  std::vector<AsyncQueue> queues;
  for (const Resume& resume : {Resume::on_poller(), Resume::on_arena()})
    queues.push_back(region.async_queue({.depth = 4, .deadline = kDeadline}, resume).value());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t i = 0; i < 12; ++i)  // more tasks than the queues have room for
    threads.emplace_back([&, i] {
      const Status ended = sync_wait(add_until_it_ends(queues[i % 2].async(), ByteOffset{8}));
      // Operations that were not posted wait for a server that does not come back.
      const Code code = ended.error().code();
      if (!allowed_when_lost(Kind::kAtomic, code) && code != Code::kTimedOut) ++wrong;
    });
  std::this_thread::sleep_for(100ms);
  const Timed timed;
  kill_server();
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(timed.took_at_most(kDeadline + kGrace));
  EXPECT_EQ(wrong, 0);
}

TEST_P(AsyncQueueLossTest, PausedServerKeepsNoTaskInLineBeyondTheDeadline) {
  if (!over_tcp()) GTEST_SKIP() << "the server's processor takes no part in it";
  const Region region = make_region();
  AsyncQueue queue = region.async_queue({.depth = 2, .deadline = 1s}).value();
  std::vector<std::thread> threads;
  threads.reserve(8);
  std::atomic<int> failed{0};
  process().pause();
  const Timed timed;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      if (!sync_wait(add_one(queue.async(), ByteOffset{8}))) ++failed;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  EXPECT_EQ(failed, 8);
  process().resume();
}

REMORA_CONFORMANCE(AsyncQueueLossTest);

}  // namespace
}  // namespace remora::test
