/// RLIMIT_MEMLOCK, which bounds what an unprivileged process may register with a device: a server
/// that reaches it, and a client.

#include <algorithm>

#include "fault_test.h"
#include "support/child.h"

namespace remora::fault {
namespace {

class MemlockTest : public FaultTest {
 protected:
  void SetUp() override {
    if (!over_rdma()) GTEST_SKIP() << "nothing is pinned";
    FaultTest::SetUp();
  }
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.regions = 2, .unprivileged = true};
  }
  static Result<Region> open_one(const Engine& engine, const std::string& uri) {
    return engine.open_region(uri, Rights::kAll);
  }
};

TEST_P(MemlockTest, ServerThatMayPinNoMoreRefusesRegionsAndServesThoseItHas) {
  LoadProcess& load = start_load("t0", {"fresh=1", "rate=100", "deadline=20000"});
  const std::uint64_t count_of_rounds = exactly_rounds(2, 20);
  for (std::uint64_t round = 0; round < count_of_rounds; ++round) {
    const Engine engine = plain_engine();
    const Session session = engine.connect(uri("")).value();
    // A session's control buffers, and not 4 MiB.
    ASSERT_EQ(server().ask("limit memlock 1048576"), "ok");
    const auto refused = open_one(engine, uri("t1"));
    ASSERT_FALSE(refused.ok()) << "it was registered beyond the limit";
    EXPECT_EQ(refused.error().code(), Code::kOutOfMemory) << refused.error().message();
    EXPECT_EQ(refused.error().reason(), Reason::kMemlock) << refused.error().message();
    EXPECT_NE(refused.error().message().find("t1"), std::string::npos) << "it says which region";
    EXPECT_NE(refused.error().message().find("raise the server's limit"), std::string::npos)
        << "it says whose limit: " << refused.error().message();
    EXPECT_TRUE(ok(session.usage())) << "the session goes on";
    ASSERT_EQ(server().ask("limit memlock -1"), "ok");
    const auto opened = open_one(engine, uri("t1"));
    ASSERT_TRUE(ok(opened)) << "it recovers";
    std::vector<std::byte> bytes(4096);
    EXPECT_TRUE(ok(opened->read(ByteOffset{kRegionBytes - 4096}, bytes)));
  }
  EXPECT_TRUE(finish(load).failed.empty()) << "those that had theirs open noticed nothing";
}

TEST_P(MemlockTest, ClientThatMayPinNoMoreIsToldAndGoesOn) {
  constexpr std::uint64_t kBytes = 4U << 20U;
  const std::uint64_t count_of_rounds = exactly_rounds(2, 20);
  test::Child client{"pinner", {"uri=" + uri("t1"), "bytes=" + std::to_string(kBytes)}};
  const auto ask = [&](const std::string& line) {
    client.write_line(line);
    return client.read_line().value_or("no answer");
  };
  ASSERT_EQ(client.read_line().value_or("no answer"), "ready");
  EXPECT_EQ(ask("read"), "ok");
  for (std::uint64_t round = 0; round < count_of_rounds; ++round) {
    ASSERT_EQ(ask("limit 1048576"), "ok");
    const auto began = std::chrono::steady_clock::now();
    const std::string refused = ask("read");
    const bool told = refused.find(to_string(Code::kOutOfMemory)) != std::string::npos;
    count_one(told ? Status{Error{Code::kOutOfMemory, "read"}} : ok_status(),
              std::chrono::steady_clock::now() - began);
    EXPECT_TRUE(told) << refused;
    EXPECT_NE(refused.find("asked " + std::to_string(kBytes) + ", allowed "), std::string::npos)
        << "it says how much: " << refused;
    EXPECT_NE(refused.find("raise this process's limit"), std::string::npos)
        << "it says what to do: " << refused;
    ASSERT_EQ(ask("limit -1"), "ok");
    EXPECT_EQ(ask("read"), "ok") << "it recovers";
    count_one(ok_status(), {});
  }
  client.close_input();
  EXPECT_EQ(client.wait(), 0);
}

REMORA_FAULT(MemlockTest);

}  // namespace
}  // namespace remora::fault
