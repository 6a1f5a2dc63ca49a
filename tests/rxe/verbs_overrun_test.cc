/// A completion queue that is too small for what completes there. Nothing prevents it: a queue may
/// be smaller where most requests are unsignaled, until they flush. What is lost then, and what
/// tells of it.

#include <array>
#include <chrono>
#include <set>
#include <thread>

#include "support/fault_line.h"
#include "verbs_loopback.h"

namespace remora::test {
namespace {

using verbs::AsyncEvent;

constexpr std::uint32_t kRequests = 64;
/// How often it is overrun.
int overruns() { return static_cast<int>(rounds_of(20, 200)); }

class VerbsOverrun : public VerbsLoopback {
 protected:
  void SetUp() override {
    VerbsLoopback::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    if (!rig_->device.is_software()) GTEST_SKIP() << "what rxe does: others may end queue pairs";
  }
  /// Connects to itself, with everything completing in `queue`.
  void complete_in(const verbs::CompletionQueue& queue) {
    verbs::QueuePairBuilder<verbs::Rc> builder{rig_->domain, queue, queue};
    builder.send_depth(kRequests).receive_depth(1).timeout(18);
    connect(builder);
  }
  void post_writes(bool signaled) {
    auto batch = pair_->start();
    for (std::uint64_t id = 0; id < kRequests; ++id) {
      auto&& request = batch.write(id, local(0, 64), remote(1024 + 64 * id, 64));
      if (!signaled) request.unsignaled();
    }
    ASSERT_OK(batch.post());
  }
  /// What is found until nothing more comes for a moment.
  static std::vector<verbs::Completion> take_all(const verbs::CompletionQueue& queue) {
    std::vector<verbs::Completion> all;
    std::array<verbs::Completion, 16> storage;
    auto last = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - last < std::chrono::milliseconds{60}) {
      const auto some = queue.poll(storage).value();
      if (some.empty()) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
        continue;
      }
      all.insert(all.end(), some.begin(), some.end());
      last = std::chrono::steady_clock::now();
    }
    return all;
  }
};

TEST_F(VerbsOverrun, CompletionsAreLostAndOnlyAnAsyncEventTells) {
  auto events = verbs::AsyncEvents::open(rig_->device);
  ASSERT_OK(events);
  FaultLine line{.rounds = static_cast<std::uint64_t>(overruns())};
  for (int round = 0; round < overruns(); ++round) {
    const auto small = rig_->device.create_completion_queue({.depth = 4}).value();
    ASSERT_LT(small.depth(), kRequests);
    complete_in(small);
    rig_->fill(0, 64, static_cast<unsigned>(round + 1));
    post_writes(true);
    // No thread polls until the last has landed.
    const auto until = soon();
    while (!same(0, 1024 + 64 * (kRequests - 1), 64) && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    std::this_thread::sleep_for(std::chrono::milliseconds{20});
    const auto found = take_all(small);
    EXPECT_FALSE(found.empty());
    EXPECT_LT(found.size(), kRequests) << "none was lost";
    line.operations += kRequests;
    line.ok += found.size();
    line.failed["completion lost"] += kRequests - found.size();
    std::size_t told = 0;
    for (auto event = events->next_event(); event && event->has_value();
         event = events->next_event())
      if ((*event)->kind == AsyncEvent::Kind::kCompletionQueueError &&
          (*event)->object == small.raw())
        ++told;
    EXPECT_GE(told, 1U) << "nothing told of it";
    // All of them were carried out, and the queue pair goes on as if nothing had been.
    for (std::uint64_t id = 0; id < kRequests; ++id) EXPECT_TRUE(same(0, 1024 + 64 * id, 64)) << id;
    EXPECT_EQ(pair_->query_state().value(), verbs::QueuePairState::kRts);
    auto batch = pair_->start();
    batch.write(1000, local(0, 64), remote(512, 64));
    ASSERT_OK(batch.post());
    auto next = take_all(small);
    for (int i = 0; i < 200 && next.empty(); ++i) next = take_all(small);
    ASSERT_EQ(next.size(), 1U);
    EXPECT_EQ(next[0].id(), 1000U);
    EXPECT_TRUE(next[0].ok());
    pair_.reset();
  }
  line.print("rdma");
}

/// Unsignaled requests flush as well: the depth of the queue pair is what the queue needs.
TEST_F(VerbsOverrun, QueueOfTheQueuePairsDepthTakesAllThatFlushes) {
  auto events = verbs::AsyncEvents::open(rig_->device);
  ASSERT_OK(events);
  FaultLine line{.rounds = static_cast<std::uint64_t>(overruns())};
  for (int round = 0; round < overruns(); ++round) {
    const auto queue = rig_->device.create_completion_queue({.depth = kRequests + 1}).value();
    complete_in(queue);
    ASSERT_OK(pair_->post_receive(5000, local(8192, 64)));
    ASSERT_OK(pair_->to_error());
    post_writes(false);
    const auto found = take_all(queue);
    std::set<std::uint64_t> ids;
    for (const verbs::Completion& each : found) {
      EXPECT_TRUE(each.flushed()) << each;
      line.ended("flushed");
      ids.insert(each.id());
    }
    EXPECT_EQ(found.size(), kRequests + 1);
    EXPECT_EQ(ids.size(), kRequests + 1) << "each once";
    const auto event = events->next_event();
    EXPECT_TRUE(event && !event->has_value()) << "an event";
    pair_.reset();
  }
  line.print("rdma");
}

}  // namespace
}  // namespace remora::test
