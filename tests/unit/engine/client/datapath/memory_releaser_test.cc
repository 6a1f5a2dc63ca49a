// The last handle of registered memory goes while operations use the memory: it stays registered
// until the last of them has been handed out, and no longer.

#include "client/datapath/memory_releaser.h"

#include <array>
#include <atomic>
#include <coroutine>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "client/engine/engine_core.h"
#include "support/eventually.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::detail {
namespace {

/// Counts the registrations that exist.
class CountingDomain final : public transport::MemoryDomain {
 public:
  Result<std::unique_ptr<transport::Registration>> register_bytes(std::span<std::byte>) override {
    class Counted final : public transport::Registration {
     public:
      explicit Counted(std::atomic<int>& count) noexcept : count_{count} { ++count_; }
      ~Counted() override { --count_; }
      Counted(const Counted&) = delete;
      Counted& operator=(const Counted&) = delete;
      [[nodiscard]] std::uint32_t local_key() const noexcept override { return 7; }

     private:
      std::atomic<int>& count_;
    };
    return std::unique_ptr<transport::Registration>{std::make_unique<Counted>(count_)};
  }
  [[nodiscard]] int count() const noexcept { return count_; }

 private:
  std::atomic<int> count_{0};
};

/// Completes its requests when the test says so. Any thread may look at it.
class HeldLane final : public transport::FakeLane {
 public:
  transport::PostOutcome post(transport::Chain chain, std::uint64_t first) noexcept override {
    next_sequence_ = first + chain.size();
    return {.taken = chain.size()};
  }
  std::size_t poll(std::span<transport::LaneCompletion> found) noexcept override {
    const std::uint64_t end = next_sequence_;
    if (!open_ || told_ == end) return 0;
    told_ = end;
    found[0] = {.sequence = end - 1, .status = CompletionStatus::kSuccess, .vendor_error = 0};
    return 1;
  }
  void move_to_error() noexcept override { open_ = true; }

  void open() noexcept { open_ = true; }
  [[nodiscard]] std::uint64_t posted_count() const noexcept { return next_sequence_; }

 private:
  std::atomic<bool> open_{false};
  std::atomic<std::uint64_t> next_sequence_{0};
  std::uint64_t told_ = 0;
};

/// A coroutine that begins at once; no task waits for it.
struct Begun {
  struct promise_type {
    Begun get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

class MemoryReleaserTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto lane = std::make_unique<HeldLane>();
    lane_ = lane.get();
    EngineOptions options;
    options.spin = std::chrono::nanoseconds{0};
    engine_ = EngineCore::create(options).value();
    transport::FakeServerEndpoint::Offer offer{};
    offer.lane = std::move(lane);
    offer.domain = domain_;
    offer.memory = remote_;
    region_.emplace(transport::open_fake_region(engine_, std::move(offer)));
    own_ = domain_->count();  // the engine's own: slots and zeroes
  }
  void TearDown() override {
    if (region_) lane_->open();
    region_.reset();
    engine_.reset();
  }
  RegisteredMemory handle() {
    return RegisteredMemory{engine_->memory().register_memory(local_).value()};
  }
  /// Registrations of the test's memory.
  [[nodiscard]] int registered() const { return domain_->count() - own_; }
  [[nodiscard]] bool none_left() {
    return test::eventually([this] { return registered() == 0; });
  }

  std::shared_ptr<CountingDomain> domain_ = std::make_shared<CountingDomain>();
  alignas(64) std::array<std::byte, 4096> remote_{};
  std::array<std::byte, 512> local_{};
  std::shared_ptr<EngineCore> engine_;
  std::optional<Region> region_;
  HeldLane* lane_ = nullptr;
  int own_ = 0;
};

TEST_F(MemoryReleaserTest, UnusedMemoryIsDeregisteredAtOnce) {
  Queue queue = region_->queue({.depth = 4}).value();
  std::optional<RegisteredMemory> used{handle()};
  std::optional<RegisteredMemory> unused{handle()};
  EXPECT_EQ(registered(), 2);
  ASSERT_TRUE(queue.read(ByteOffset{0}, Target{*used, 0, 256}));
  ASSERT_TRUE(queue.submit());
  unused.reset();
  EXPECT_EQ(registered(), 1);
  lane_->open();
  EXPECT_EQ(queue.wait(1).size(), 1U);
  used.reset();  // a queue that still exists had used it
  EXPECT_EQ(registered(), 0);
}

TEST_F(MemoryReleaserTest, QueueKeepsWhatItHasTakenUntilItIsHandedOut) {
  Queue queue = region_->queue({.depth = 4}).value();
  {
    const RegisteredMemory memory = handle();
    ASSERT_TRUE(queue.read(ByteOffset{0}, Target{memory, 0, 256}));
  }
  EXPECT_EQ(registered(), 1) << "taken, not submitted";
  ASSERT_TRUE(queue.submit());
  engine_->memory().releaser()->sweep();
  EXPECT_EQ(registered(), 1) << "in flight";
  lane_->open();
  const Completions found = queue.wait(1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(found.begin()->ok());
  EXPECT_TRUE(none_left());
}

TEST_F(MemoryReleaserTest, QueueThatGoesWithoutASubmitLeavesNothing) {
  {
    Queue queue = region_->queue({.depth = 4}).value();
    ASSERT_TRUE(queue.read(ByteOffset{0}, Target{handle(), 0, 256}));
    EXPECT_EQ(registered(), 1);
  }
  EXPECT_TRUE(none_left());
}

TEST_F(MemoryReleaserTest, OperationInPiecesKeepsAllOfThem) {
  Queue queue = region_->queue({.depth = 4}).value();
  std::optional<RegisteredMemory> first{handle()};
  std::optional<RegisteredMemory> second{handle()};
  const std::array pieces{Target{*first, 0, 64}, Target{*second, 64, 64}};
  ASSERT_TRUE(queue.read(ByteOffset{0}, pieces));
  second.reset();
  first.reset();
  EXPECT_EQ(registered(), 2) << "taken, not submitted";
  ASSERT_TRUE(queue.submit());
  engine_->memory().releaser()->sweep();
  EXPECT_EQ(registered(), 2) << "in flight";
  // A later operation cannot use them.
  const RegisteredMemory third = handle();
  const std::array later{Target{third, 0, 64}};
  lane_->open();
  EXPECT_EQ(queue.wait(1).size(), 1U);
  ASSERT_TRUE(queue.read(ByteOffset{0}, later));
  EXPECT_TRUE(test::eventually([this] { return registered() == 1; }));
}

TEST_F(MemoryReleaserTest, CallbackQueueKeepsWhatItHasTaken) {
  std::atomic<int> called{0};
  CallbackQueue queue = region_->callback_queue({.depth = 4}).value();
  ASSERT_TRUE(queue.read(ByteOffset{0}, Target{handle(), 0, 256}, [&](Completion& completion) {
    EXPECT_TRUE(completion.ok());
    ++called;
  }));
  engine_->memory().releaser()->sweep();
  EXPECT_EQ(registered(), 1);
  lane_->open();
  EXPECT_TRUE(none_left());
  EXPECT_TRUE(test::eventually([&] { return called == 1; }));
}

TEST_F(MemoryReleaserTest, SynchronousCallKeepsWhatItUses) {
  std::optional<RegisteredMemory> memory{handle()};
  const Target target{*memory, 0, 256};
  std::thread caller{[&] { EXPECT_TRUE(region_->read(ByteOffset{0}, target)); }};
  EXPECT_TRUE(test::eventually([&] { return lane_->posted_count() != 0; }));
  memory.reset();
  EXPECT_EQ(registered(), 1);
  lane_->open();
  caller.join();
  EXPECT_TRUE(none_left());
}

TEST_F(MemoryReleaserTest, SynchronousCallInPiecesKeepsWhatItUses) {
  std::optional<RegisteredMemory> memory{handle()};
  const std::array pieces{Target{*memory, 0, 64}, Target{*memory, 128, 64}};
  std::thread caller{
      [&] { EXPECT_TRUE(region_->read(ByteOffset{0}, std::span<const Target>{pieces})); }};
  EXPECT_TRUE(test::eventually([&] { return lane_->posted_count() != 0; }));
  memory.reset();
  EXPECT_EQ(registered(), 1);
  lane_->open();
  caller.join();
  EXPECT_TRUE(none_left());
}

TEST_F(MemoryReleaserTest, AwaitedOperationThatWaitsForAPlaceKeepsItsMemory) {
  std::atomic<int> ended{0};
  AsyncQueue queue = region_->async_queue({.depth = 1}).value();
  const auto begin = [&](const RegisteredMemory& memory) -> Begun {
    const Status status = co_await queue.async().read(ByteOffset{0}, Target{memory, 0, 256});
    EXPECT_TRUE(status.ok());
    ++ended;
  };
  std::array<std::optional<RegisteredMemory>, 3> memories{handle(), handle(), handle()};
  for (const auto& memory : memories) begin(*memory);  // one in flight, two in the backlog
  for (auto& memory : memories) memory.reset();
  engine_->memory().releaser()->sweep();
  EXPECT_EQ(registered(), 3);
  lane_->open();
  EXPECT_TRUE(test::eventually([&] { return ended == 3; }));
  EXPECT_TRUE(none_left());
}

TEST_F(MemoryReleaserTest, OperationThatWaitsForAnExecutorsQueueKeepsItsMemory) {
  Executor executor{{.depth = 1}};
  std::array<std::optional<RegisteredMemory>, 2> memories{handle(), handle()};
  int ended = 0;
  const auto read = [&](std::size_t i) -> Task<Status> {
    const Status status =
        co_await region_->async().read(ByteOffset{0}, Target{*memories[i], 0, 256});
    ++ended;
    co_return status;
  };
  const auto release = [&]() -> Task<Status> {
    for (auto& memory : memories) memory.reset();
    EXPECT_EQ(registered(), 2);
    lane_->open();
    co_return Status{};
  };
  const auto all = [&]() -> Task<Status> {
    Scope scope{4};
    co_await scope.spawn(read(0));
    co_await scope.spawn(read(1));
    co_await scope.spawn(release());
    co_return co_await scope.join();
  };
  EXPECT_TRUE(executor.run(all()).ok());
  EXPECT_EQ(ended, 2);
  EXPECT_TRUE(none_left());
}

TEST_F(MemoryReleaserTest, HandleThatOutlivesItsEngineDeregisters) {
  std::optional<RegisteredMemory> memory{handle()};
  lane_->open();
  region_.reset();
  engine_.reset();
  EXPECT_TRUE(test::eventually([&] { return domain_->count() == 1; }));
  memory.reset();
  EXPECT_EQ(domain_->count(), 0);
}

}  // namespace
}  // namespace remora::detail
