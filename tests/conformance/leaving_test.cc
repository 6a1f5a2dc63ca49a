/// Letting go of regions, sessions and engines waits for no server.

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include <remora/testing/fault_transport.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

/// Whether one of a few attempts takes no longer than `limit`, where each that waits would take
/// longer: a machine with other work delays some of them.
template <typename Attempt>
::testing::AssertionResult soon_once(std::chrono::milliseconds limit, Attempt attempt) {
  ::testing::AssertionResult last = ::testing::AssertionFailure();
  for (int i = 0; i < 5; ++i)
    if (last = attempt(limit); last || ::testing::Test::HasFatalFailure()) break;
  return last;
}

class LeavingTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  /// Of servers that stand still.
  static void end(std::vector<ServerProcess>& servers) {
    for (const ServerProcess& server : servers) server.resume();
    for (ServerProcess& server : servers) EXPECT_EQ(server.stop(), 0);
  }
  ::testing::AssertionResult leave_silent_servers(std::chrono::milliseconds limit);
  ::testing::AssertionResult leave_during_attempts(std::chrono::milliseconds limit);
};

::testing::AssertionResult LeavingTest::leave_silent_servers(std::chrono::milliseconds limit) {
  constexpr std::size_t kServers = 4;
  std::vector<ServerProcess> servers;
  servers.reserve(kServers);
  std::optional<Engine> engine{open_engine()};
  std::vector<Region> regions;
  for (std::size_t i = 0; i < kServers; ++i) {
    const ServerProcess& server = servers.emplace_back(transport());
    const ServerAddress address{listen_address(transport()), server.port()};
    const Session session = engine->connect(make_uri(address, transport())).value();
    for (const char* name : {"a", "b"}) {
      session.create_region(spec(name)).value();
      regions.push_back(
          engine->open_region(make_uri(address, transport(), name), Rights::kAll).value());
    }
  }
  for (const ServerProcess& server : servers) server.pause();
  const Timed timed;
  regions.clear();
  engine.reset();
  const ::testing::AssertionResult soon = timed.took_at_most(limit);
  end(servers);
  return soon;
}

TEST_P(LeavingTest, SilentServersAreNotWaitedFor) {
  EXPECT_TRUE(soon_once(4s, [this](auto limit) { return leave_silent_servers(limit); }))
      << "each was waited for";
}

/// A session that was interrupted is being resumed, with a server that does not answer.
::testing::AssertionResult LeavingTest::leave_during_attempts(std::chrono::milliseconds limit) {
  constexpr std::size_t kServers = 3;
  const auto faults = remora::testing::FaultTransport::create({}).value();
  std::atomic<std::size_t> interrupted{0};
  EngineOptions options = patient_options();
  options.faults = faults.hook();
  options.handlers.on_interrupted = [&](const SessionEvent&) { ++interrupted; };
  std::vector<ServerProcess> servers;
  servers.reserve(kServers);
  std::optional<Engine> engine{Engine::open(options).value()};
  std::vector<Session> sessions;
  for (std::size_t i = 0; i < kServers; ++i) {
    const ServerProcess& server = servers.emplace_back(transport());
    const ServerAddress address{listen_address(transport()), server.port()};
    sessions.push_back(engine->connect(make_uri(address, transport())).value());
  }
  for (const ServerProcess& server : servers) server.pause();
  faults.lose_connections();
  EXPECT_TRUE(eventually([&] { return interrupted == kServers; }));
  std::this_thread::sleep_for(100ms);  // most are in an attempt by then; it decides nothing
  const Timed timed;
  sessions.clear();
  engine.reset();
  const ::testing::AssertionResult soon = timed.took_at_most(limit);
  end(servers);
  return soon;
}

TEST_P(LeavingTest, AttemptsToConnectAgainAreNotWaitedFor) {
  if (over_shm()) GTEST_SKIP() << "no faults on demand";
  EXPECT_TRUE(soon_once(1500ms, [this](auto limit) { return leave_during_attempts(limit); }))
      << "an attempt takes 2 s";
}

/// Also where there are more of them than a session may have requests that are not answered.
TEST_P(LeavingTest, RegionsAreClosedBeforeTheNextRequest) {
  for (std::size_t round = 0; round < steps(20); ++round) {
    const RegionInfo made = create();
    std::vector<Region> regions;
    for (int i = 0; i < 40; ++i) regions.push_back(open(made.name));
    regions.clear();
    EXPECT_TRUE(ok(session().remove_region(made.name))) << "round " << round;
    forget(made.name);
  }
}

REMORA_CONFORMANCE(LeavingTest);

}  // namespace
}  // namespace remora::test
