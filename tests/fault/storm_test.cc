/// All clients lose their server at once and come back together: each session is resumed within a
/// bound, the server gives none of them up, and a client that has lost nothing is served meanwhile.

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include "fault_test.h"

// Its namespace hides GoogleTest's in namespace remora.
#include <remora/testing/fault_transport.h>

namespace remora::fault {
namespace {

using Clock = std::chrono::steady_clock;

class StormTest : public FaultTest {
 protected:
  /// From the loss until the last session goes on.
  static constexpr std::chrono::seconds kBound{30};
  /// The time for which clients try, for each 100 of them: an emulator resumes two clients a second
  /// over rdma.
  static constexpr std::chrono::seconds kReconnectFor{120};
  /// 1,000 over tcp; over rdma REMORA_STORM_CLIENTS, by default 100.
  [[nodiscard]] std::size_t client_count() const {
    const char* const asked = std::getenv("REMORA_STORM_CLIENTS");
    const std::size_t over_devices = asked == nullptr ? 100 : std::strtoul(asked, nullptr, 10);
    return over_rdma() ? over_devices : 1000;
  }
  [[nodiscard]] std::chrono::seconds reconnect_for() const {
    const auto hundreds = static_cast<std::int64_t>((client_count() + 99) / 100);
    return kReconnectFor * (over_rdma() ? std::max<std::int64_t>(hundreds, 1) : 1);
  }
  [[nodiscard]] FaultServerOptions server_options() const override {
    // As long as clients wait for the server, it keeps sessions for a minute more.
    return {.sessions_max = 1100,
            .lease = 60s,
            .keep = reconnect_for() - kReconnectFor + 10s,
            .apart = true};
  }
  void SetUp() override {
    FaultTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &open_files_), 0);
    rlimit more = open_files_;
    more.rlim_cur = more.rlim_max;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &more), 0);
    ASSERT_EQ(server().ask("limit nofile -1"), "ok");
  }
  void TearDown() override {
    clients_.clear();
    if (open_files_.rlim_cur != 0) ::setrlimit(RLIMIT_NOFILE, &open_files_);
    FaultTest::TearDown();
  }

  struct Client {
    std::optional<Engine> engine{};
    std::optional<Region> region{};
  };
  [[nodiscard]] Client connect() {
    EngineOptions options;
    options.control_deadline = 60s;
    options.operation_deadline = 60s;
    options.reconnect_for = reconnect_for();
    options.mr_cache_bytes = 0;  // of which a process has fewer
    if (over_rdma()) options.faults = faults_.hook();
    options.handlers.on_interrupted = [this](const SessionEvent&) { ++interrupted_; };
    options.handlers.on_resumed = [this](const SessionEvent&) { ++resumed_; };
    options.handlers.on_lost = options.handlers.on_stale = [this](const SessionEvent&) { ++lost_; };
    Client made{.engine = Engine::open(options).value()};
    made.region = made.engine->open_region(uri("t0"), Rights::kAll).value();
    return made;
  }
  void connect_all() {
    clients_.resize(client_count());
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 8; ++thread)
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < clients_.size(); i = next++) clients_[i] = connect();
      });
    for (std::thread& thread : threads) thread.join();
  }
  /// This process's connections to the server.
  [[nodiscard]] std::set<int> sockets() const {
    std::set<int> found;
    for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
      const int fd = std::atoi(entry.path().filename().c_str());
      sockaddr_in peer{};
      socklen_t length = sizeof peer;
      if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) == 0 &&
          peer.sin_family == AF_INET && ntohs(peer.sin_port) == uri_port())
        found.insert(fd);
    }
    return found;
  }
  /// All connections of the clients end at the same time; over tcp all but those in `kept`.
  void lose_connections(const std::set<int>& kept) {
    if (over_rdma()) return faults_.lose_connections();
    for (const int fd : sockets())
      if (kept.count(fd) == 0) ::shutdown(fd, SHUT_RDWR);
  }
  [[nodiscard]] std::uint16_t uri_port() const { return Uri::parse(uri("")).value().port; }

  std::atomic<std::size_t> interrupted_{0}, resumed_{0}, lost_{0};
  remora::testing::FaultTransport faults_ = remora::testing::FaultTransport::create().value();
  std::vector<Client> clients_;

 private:
  rlimit open_files_{};
};

TEST_P(StormTest, ClientsThatLoseTheirConnectionsAtOnceComeBack) {
  if (over_shm()) GTEST_SKIP() << "there is no connection that could be lost";
  // It loses nothing.
  const Engine beside = plain_engine();
  const Session session = beside.connect(uri("")).value();
  const std::set<int> kept = sockets();
  connect_all();
  const std::size_t clients = client_count();
  const std::uint64_t count = exactly_rounds(2, 10);
  std::chrono::nanoseconds longest_return{}, longest_wait{};
  for (std::uint64_t round = 0; round < count; ++round) {
    interrupted_ = resumed_ = 0;
    const test::Timed timed;
    lose_connections(kept);
    const auto all_back = [&] { return interrupted_ >= clients && resumed_ >= interrupted_; };
    std::atomic<bool> over{false};
    std::size_t answered = 0, failed = 0;  // of the client beside them
    std::thread other{[&] {
      do {
        const auto began = Clock::now();
        const auto stat = session.stat("t0");
        const std::chrono::nanoseconds took = Clock::now() - began;
        count_one(stat ? ok_status() : Status{stat.error()}, took);
        ++(stat ? answered : failed);
        longest_wait = std::max(longest_wait, took);
        std::this_thread::sleep_for(10ms);
      } while (!over);
    }};
    EXPECT_TRUE(test::eventually(all_back, over_rdma() ? reconnect_for() : 2 * kBound))
        << interrupted_ << " interrupted, " << resumed_ << " resumed";
    const std::chrono::nanoseconds took = Clock::now() - timed.began();
    longest_return = std::max(longest_return, took);
    // Over rdma most of it is the emulator's: the connection manager takes half a second a client.
    if (!over_rdma()) {
      EXPECT_TRUE(timed.took_at_most(kBound));
    }
    over = true;
    other.join();
    EXPECT_GT(answered, 0U);
    EXPECT_EQ(failed, 0U) << "requests of a client that had lost nothing";
    EXPECT_EQ(lost_, 0U) << "sessions that their server had given up";
    EXPECT_EQ(server().ask("lapsed"), "0");
    for (const Client& client : clients_)
      EXPECT_TRUE(ok(client.region->fetch_add(ByteOffset{kRegionBytes - 8}, 1)));
  }
  // Measured, and not judged: another process may have had the processors.
  const auto ms = [](std::chrono::nanoseconds time) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(time).count());
  };
  std::cout << "storm: clients=" << clients << " longest_return_ms=" << ms(longest_return)
            << " longest_request_beside_ms=" << ms(longest_wait) << '\n';
}

REMORA_FAULT(StormTest);

}  // namespace
}  // namespace remora::fault
