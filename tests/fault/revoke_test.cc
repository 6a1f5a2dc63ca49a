/// Grants that are taken back, and regions that go, while operations are in flight.

#include <thread>

#include "fault_test.h"

namespace remora::fault {
namespace {

class RevokeTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.regions = 2, .grace = 10s};
  }
};

TEST_P(RevokeTest, FencedWithOperationsInFlight) {
  LoadProcess& fenced = start_load("t0", {"fresh=1"});
  LoadProcess& neighbour =
      start_load("t1", {"fresh=1", "rate=2000", "threads=1", "queues=1", "deadline=20000"});
  const std::uint64_t count = rounds(20, 200);
  {
    const Engine engine = plain_engine();
    std::uint64_t epoch = 0;
    for (std::uint64_t round = 0; round < count; ++round) {
      pause_for_a_while(20ms, 150ms);
      const auto taken = engine.fence_region(uri("t0"), Rights::kAll);
      ASSERT_TRUE(ok(taken));
      EXPECT_GT(taken->info().epoch, epoch);
      epoch = taken->info().epoch;
    }
    pause_for_a_while(200ms, 300ms);
  }
  const LoadReport report = finish(fenced);
  EXPECT_GT(report.opened, count / 4) << "it was refused, and opened the region again";
  EXPECT_EQ(report.lives, 1U) << "what it wrote before is there";
  EXPECT_GT(report.failed.count("access refused"), 0U);
  const LoadReport other = finish(neighbour);
  EXPECT_TRUE(other.failed.empty()) << "I7: another region's users notice nothing";
}

TEST_P(RevokeTest, RemovedAtOnceWithOperationsInFlight) {
  LoadProcess& load = start_load("t0", {"fresh=1"});
  LoadProcess& neighbour =
      start_load("t1", {"fresh=1", "rate=2000", "threads=1", "queues=1", "deadline=20000"});
  const std::uint64_t count = rounds(20, 200);
  for (std::uint64_t round = 0; round < count; ++round) {
    pause_for_a_while(20ms, 150ms);
    ASSERT_EQ(server().ask("remove t0"), "ok");
    pause_for_a_while(0ms, 30ms);
    ASSERT_EQ(server().ask("create t0"), "ok");
    // Its grant is out again.
    bool out = false;
    for (int i = 0; i < 4000 && !out; ++i, std::this_thread::sleep_for(5ms))
      out = server().ask("status").find("grants 2") != std::string::npos;
    ASSERT_TRUE(out);
  }
  pause_for_a_while(100ms, 200ms);
  const LoadReport report = finish(load);
  // Its blocks are new and zero each time, as a fresh region's are: the load checks that.
  EXPECT_EQ(report.lives, count + 1);
  EXPECT_GT(report.failed.count("access refused"), 0U);
  const LoadReport other = finish(neighbour);
  EXPECT_TRUE(other.failed.empty()) << "I7: another region's users notice nothing";
}

REMORA_FAULT(RevokeTest);

}  // namespace
}  // namespace remora::fault
