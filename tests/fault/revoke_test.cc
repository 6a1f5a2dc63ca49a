/// Grants that are taken back, and regions that go or change their size, while operations are in
/// flight.

#include <thread>
#include <vector>

#include "fault_test.h"

namespace remora::fault {
namespace {

class RevokeTest : public FaultTest {
 protected:
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.regions = 2, .grace = 10s};
  }
  LoadProcess& start_neighbour() {
    return start_load("t1", {"fresh=1", "rate=2000", "threads=1", "queues=1", "deadline=20000"});
  }
  void expect_unnoticed(LoadProcess& neighbour) {
    EXPECT_TRUE(finish(neighbour).failed.empty()) << "I7: another region's users notice nothing";
  }
};

TEST_P(RevokeTest, FencedWithOperationsInFlight) {
  LoadProcess& fenced = start_load("t0", {"fresh=1"});
  LoadProcess& neighbour = start_neighbour();
  const std::uint64_t count = exactly_rounds(20, 200);
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
  expect_unnoticed(neighbour);
}

TEST_P(RevokeTest, RemovedAtOnceWithOperationsInFlight) {
  LoadProcess& load = start_load("t0", {"fresh=1"});
  LoadProcess& neighbour = start_neighbour();
  const std::uint64_t count = exactly_rounds(20, 200);
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
  expect_unnoticed(neighbour);
}

TEST_P(RevokeTest, ResizedWithOperationsInFlight) {
  if (over_shm()) GTEST_SKIP() << "memory for shm is sealed and keeps its size";
  constexpr std::uint64_t kSmall = kRegionBytes / 2;  // the load works below
  constexpr std::uint64_t kRestBytes = kRegionBytes - kSmall;
  LoadProcess& load = start_load("t0", {"fresh=1"});
  LoadProcess& neighbour = start_neighbour();
  const std::uint64_t count = exactly_rounds(20, 200);
  {
    const Engine engine = plain_engine();
    const Session session = engine.connect(uri("")).value();
    const std::vector<std::byte> secret(kRestBytes, std::byte{0x5a});
    const std::vector<std::byte> zeros(kRestBytes);
    std::vector<std::byte> rest(kRestBytes);
    std::uint64_t epoch = 0;
    for (std::uint64_t round = 0; round < count; ++round) {
      const auto whole = engine.open_region(uri("t0"), Rights::kAll);
      ASSERT_TRUE(ok(whole));
      ASSERT_TRUE(ok(whole->read(ByteOffset{kSmall}, rest)));
      ASSERT_EQ(rest, zeros) << "what was cut off is zero when it is there again";
      ASSERT_TRUE(ok(whole->write(ByteOffset{kSmall}, secret)));
      pause_for_a_while(20ms, 150ms);
      const auto shrunk = session.resize_region("t0", kSmall);
      ASSERT_TRUE(ok(shrunk));
      EXPECT_EQ(shrunk->size_bytes, kSmall);
      EXPECT_GT(shrunk->epoch, epoch);
      epoch = shrunk->epoch;
      const Status late = whole->write(ByteOffset{kSmall}, secret);
      ASSERT_FALSE(late.ok()) << "a grant of the larger one reaches what was cut off";
      EXPECT_EQ(late.error().code(), Code::kAccessRefused) << late.error().message();
      pause_for_a_while(0ms, 50ms);
      ASSERT_TRUE(ok(session.resize_region("t0", kRegionBytes)));
    }
    pause_for_a_while(200ms, 300ms);
  }
  const LoadReport report = finish(load);
  EXPECT_GT(report.opened, count / 4) << "it was refused, and opened the region again";
  EXPECT_EQ(report.lives, 1U) << "what is below the new end stays";
  EXPECT_GT(report.failed.count("access refused"), 0U);
  expect_unnoticed(neighbour);
}

REMORA_FAULT(RevokeTest);

}  // namespace
}  // namespace remora::fault
