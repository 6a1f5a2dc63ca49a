/// The last handle of registered memory goes while operations that use it are taken: they end well,
/// the session goes on, and the registration goes behind them.

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kPartBytes = 65536;
constexpr std::size_t kParts = 16;
constexpr std::size_t kBytes = kParts * kPartBytes;

class LastRegistrationTest : public ConformanceTest {
 protected:
  void configure_engine(EngineOptions& options) const override {
    options.lanes = 2;
    options.handlers.on_interrupted = [this](const SessionEvent&) { ++interrupted_; };
  }
  void SetUp() override {
    ConformanceTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    region_.emplace(make_region({.size_bytes = kBytes}));
  }
  void TearDown() override {
    region_.reset();
    ConformanceTest::TearDown();
  }
  RegisteredMemory handle() { return engine().register_memory(bytes_).value(); }
  void expect_written() {
    EXPECT_EQ(interrupted_, 0);
    EXPECT_TRUE(region_->connected());
    EXPECT_TRUE(same_bytes(read_all(*region_), bytes_));
  }

  std::vector<std::byte> bytes_ = noise(kBytes, 7);
  std::optional<Region> region_;
  mutable std::atomic<int> interrupted_{0};
};

TEST_P(LastRegistrationTest, OfWhatAQueueHasSubmitted) {
  for (std::size_t round = 0; round < steps(40); ++round) {
    auto memory = std::make_unique<RegisteredMemory>(handle());
    Queue queue = region_->queue({.depth = kParts}).value();
    for (std::size_t i = 0; i < kParts; ++i)
      ASSERT_TRUE(
          queue.write(ByteOffset{i * kPartBytes}, Source{*memory, i * kPartBytes, kPartBytes}));
    ASSERT_TRUE(ok(queue.submit()));
    memory.reset();
    EXPECT_EQ(drain(queue).size(), kParts);
  }
  expect_written();
}

TEST_P(LastRegistrationTest, OfWhatAQueueHasTaken) {
  auto memory = std::make_unique<RegisteredMemory>(handle());
  Queue queue = region_->queue({.depth = kParts}).value();
  for (std::size_t i = 0; i < kParts; ++i)
    ASSERT_TRUE(
        queue.write(ByteOffset{i * kPartBytes}, Source{*memory, i * kPartBytes, kPartBytes}));
  memory.reset();
  EXPECT_EQ(drain(queue).size(), kParts);
  expect_written();
}

TEST_P(LastRegistrationTest, OfPieces) {
  auto memory = std::make_unique<RegisteredMemory>(handle());
  std::vector<Source> pieces;
  for (std::size_t i = 0; i < kParts; ++i) pieces.emplace_back(*memory, i * kPartBytes, kPartBytes);
  Queue queue = region_->queue({.depth = 2}).value();
  ASSERT_TRUE(queue.write(ByteOffset{0}, pieces));
  memory.reset();
  EXPECT_EQ(drain(queue).size(), 1U);
  expect_written();
}

TEST_P(LastRegistrationTest, OfWhatIsBehindABarrier) {
  auto memory = std::make_unique<RegisteredMemory>(handle());
  Queue queue = region_->queue({.depth = kParts}).value();
  for (std::size_t i = 0; i < kParts; ++i) {
    ASSERT_TRUE(
        queue.write(ByteOffset{i * kPartBytes}, Source{*memory, i * kPartBytes, kPartBytes}));
    queue.barrier();
  }
  ASSERT_TRUE(ok(queue.submit()));
  memory.reset();
  EXPECT_EQ(drain(queue).size(), kParts);
  expect_written();
}

TEST_P(LastRegistrationTest, OfCallbacks) {
  auto memory = std::make_unique<RegisteredMemory>(handle());
  std::atomic<std::size_t> ended{0};
  CallbackQueue queue = region_->callback_queue({.depth = kParts}).value();
  for (std::size_t i = 0; i < kParts; ++i)
    ASSERT_TRUE(
        ok(queue.write(ByteOffset{i * kPartBytes}, Source{*memory, i * kPartBytes, kPartBytes},
                       [&ended](Completion& completion) {
                         EXPECT_TRUE(completion.ok());
                         ++ended;
                       })));
  memory.reset();
  EXPECT_TRUE(eventually([&] { return ended == kParts; }));
  expect_written();
}

TEST_P(LastRegistrationTest, OfCoroutines) {
  auto memory = std::make_unique<RegisteredMemory>(handle());
  const auto write = [&](std::size_t i) -> Task<Status> {
    co_return co_await region_->async().write(ByteOffset{i * kPartBytes},
                                              Source{*memory, i * kPartBytes, kPartBytes});
  };
  const auto all = [&]() -> Task<Status> {
    Scope scope{kParts};
    for (std::size_t i = 0; i < kParts; ++i) co_await scope.spawn(write(i));
    memory.reset();  // most of them wait for a place
    co_return co_await scope.join();
  };
  Executor executor{{.depth = 4}};
  EXPECT_TRUE(ok(executor.run(all())));
  expect_written();
}

REMORA_CONFORMANCE(LastRegistrationTest);

}  // namespace
}  // namespace remora::test
