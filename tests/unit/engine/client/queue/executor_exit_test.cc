/// An executor that is static, in a process that ends during run().

#include <array>
#include <cstddef>
#include <cstdlib>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remora/engine/executor.h>
#include <remora/engine/region.h>
#include <remora/engine/task.h>

#include "client/engine/engine_core.h"
#include "unit/engine/fake_lane.h"
#include "unit/engine/fake_server.h"

namespace remora::detail {
namespace {

Task<Status> read_first_bytes(const Region& region) {
  std::array<std::byte, 64> into{};
  co_return co_await region.async().read(ByteOffset{0}, Target{std::span<std::byte>{into}});
}

/// Ends the process if the operation of another task is in flight.
Task<Status> exit_beside_a_read(const Region& region) {
  const Task<Status> reading = read_first_bytes(region);
  reading.start();
  if (!reading.done()) std::exit(7);
  co_return Status{};
}

void exit_in_run() {
  static std::vector<std::byte> memory(4096);
  EngineOptions options;
  const auto engine = EngineCore::create(options).value();
  transport::FakeServerEndpoint::Offer offer{};
  offer.lane = std::make_unique<transport::FakeLane>();
  offer.memory = memory;
  const Region region = transport::open_fake_region(engine, std::move(offer));
  static Executor executor;
  (void)executor.run(exit_beside_a_read(region));
}

TEST(ExecutorDeathTest, ExitInATaskEndsTheProcessWithItsStatus) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the child of a fork would be the parent's copy
  EXPECT_EXIT(exit_in_run(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace remora::detail
