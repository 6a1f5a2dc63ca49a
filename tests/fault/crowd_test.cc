/// Many at once, many that say nothing, and some that are very slow: clients that are served notice
/// nothing. Single peers that are no clients: tests/conformance/{tcp_peers,client_loss}_test.cc.

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "fault_test.h"
#include "proxy.h"
#include "transport/connect.h"
#include "transport/tcp/wire.h"

namespace remora::fault {
namespace {

using Clock = std::chrono::steady_clock;

/// A connection to the server that has said nothing yet.
class RawSocket {
 public:
  RawSocket(TransportKind transport, std::uint16_t port) {
    if (transport == TransportKind::kShm) {
      for (const int kind : {SOCK_SEQPACKET, SOCK_STREAM}) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string path = runtime_dir().path() + "/remora-" + std::to_string(port) + ".sock";
        std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
        if (connect_as(AF_UNIX, kind, address)) return;
      }
      return;
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect_as(AF_INET, SOCK_STREAM, address);
  }
  ~RawSocket() {
    if (socket_ >= 0) ::close(socket_);
  }
  RawSocket(RawSocket&& other) noexcept : socket_{std::exchange(other.socket_, -1)} {}
  RawSocket& operator=(RawSocket&&) = delete;

  [[nodiscard]] bool connected() const { return socket_ >= 0; }
  void say(std::string_view bytes) const {
    static_cast<void>(!::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
  }
  /// The server has hung up, by `until`.
  [[nodiscard]] bool hung_up(Clock::time_point until) const {
    std::array<char, 4096> buffer{};
    for (;;) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      pollfd readable{socket_, POLLIN, 0};
      if (left < 0 || ::poll(&readable, 1, static_cast<int>(left)) <= 0) return false;
      const ssize_t got = ::recv(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
    }
  }

 private:
  template <typename Address>
  bool connect_as(int family, int kind, const Address& address) {
    socket_ = ::socket(family, kind | SOCK_CLOEXEC, 0);
    if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
      return true;
    ::close(std::exchange(socket_, -1));
    return false;
  }
  int socket_ = -1;
};

class CrowdTest : public FaultTest {
 protected:
  static constexpr std::uint32_t kSessionsMax = 100;
  /// Long enough for a client that has its turn late.
  static constexpr auto kHandshake = 5s;
  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.sessions_max = kSessionsMax, .handshake = kHandshake};
  }
  void SetUp() override {
    FaultTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    // Many connections over rdma are more descriptors than is usual: three each.
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &open_files_), 0);
    rlimit more = open_files_;
    more.rlim_cur = std::min<rlim_t>(more.rlim_max, 8192);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &more), 0);
    ASSERT_EQ(server().ask("limit nofile 4000"), "ok");
  }
  void TearDown() override {
    if (open_files_.rlim_cur != 0) ::setrlimit(RLIMIT_NOFILE, &open_files_);
    FaultTest::TearDown();
  }
  /// The report of a client that is served meanwhile.
  void expect_undisturbed(const LoadReport& report) {
    EXPECT_TRUE(report.failed.empty()) << "I7";
    EXPECT_EQ(report.interrupted, 0U);
  }

 private:
  rlimit open_files_{};
};

TEST_P(CrowdTest, ConnectsAtOnceAreServedUpToTheLimit) {
  constexpr std::size_t clients = 200;
  constexpr std::size_t allowed = kSessionsMax - 1;
  // On a busy machine seconds pass between a client's connection and its hello.
  ASSERT_EQ(server().ask("handshake 60000"), "ok");
  LoadProcess& load = start_load("t0", {"fresh=1", "rate=1000", "deadline=20000"});
  const std::uint64_t count = rounds(1, 10);
  for (std::uint64_t round = 0; round < count; ++round) {
    std::vector<std::optional<Engine>> engines(clients);
    std::vector<std::optional<Region>> regions(clients);
    std::atomic<std::size_t> served{0}, refused{0}, next{0};
    std::vector<std::thread> threads;
    threads.reserve(clients);
    for (std::size_t thread = 0; thread < clients; ++thread)
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < clients; i = next++) {
          EngineOptions options;
          options.reconnect_for = 0s;
          options.control_deadline = 30s;
          options.mr_cache_bytes = 0;  // of which a process has fewer
          engines[i] = Engine::open(options).value();
          const auto began = Clock::now();
          auto region = engines[i]->open_region(uri("t0"), Rights::kAll);
          count_one(region ? ok_status() : Status{region.error()}, Clock::now() - began);
          if (region) {
            regions[i].emplace(std::move(*region));
            ++served;
          } else if (fails_with(region, Code::kLimitExceeded)) {
            ++refused;
          } else {
            ADD_FAILURE() << region.error().message();
          }
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(served, allowed);
    EXPECT_EQ(refused, clients - allowed);
    for (const auto& region : regions)
      if (region) {
        EXPECT_TRUE(ok(region->fetch_add(ByteOffset{4_MiB - 8}, 1)));
      }
    regions.clear();
    engines.clear();
    ASSERT_TRUE(server().soon_sessions(1));
  }
  expect_undisturbed(finish(load));
}

/// Connections without a handshake, each of which may take longer than a client waits: a client
/// that is served has waited for none of them.
class PendingTest : public CrowdTest {
 protected:
  using Endpoints = std::vector<std::unique_ptr<transport::ClientEndpoint>>;

  [[nodiscard]] FaultServerOptions server_options() const override {
    return {.sessions_max = kSessionsMax, .handshake = 10min};
  }
  void expect_client_is_served() {
    const auto began = Clock::now();
    const Engine engine = plain_engine();
    const auto opened = engine.open_region(uri("t0"), Rights::kAll);
    count_one(opened ? ok_status() : Status{opened.error()}, Clock::now() - began);
    EXPECT_TRUE(ok(opened)) << "pending handshakes were waited for";
  }
  /// Over tcp, three of four introduce themselves, and the server begins a session with each.
  void connect(std::vector<RawSocket>& sockets, std::size_t count) {
    const auto wire = transport::tcp::Introduction{}.to_wire();
    const std::string_view introduction{reinterpret_cast<const char*>(wire.data()), wire.size()};
    for (std::size_t i = 0; i < count; ++i) {
      sockets.emplace_back(transport(), server().port());
      ASSERT_TRUE(sockets.back().connected()) << i;
      if (over_tcp() && i % 4 != 3) sockets.back().say(introduction);
    }
  }
  /// Queue pairs of which nothing is heard. `meanwhile` runs while they connect.
  Endpoints connect_queue_pairs(std::size_t count, const std::function<void()>& meanwhile = {}) {
    const Uri server_uri = Uri::parse(uri("")).value();
    Endpoints silent(count);
    std::atomic<std::size_t> next{0};
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (int thread = 0; thread < 8; ++thread)
      threads.emplace_back([&] {
        for (std::size_t i = next++; i < count; i = next++) {
          auto connected = transport::connect_rdma(server_uri, {}, Clock::now() + 20s);
          EXPECT_TRUE(ok(connected));
          if (connected) silent[i] = std::move(*connected);
        }
      });
    if (meanwhile) meanwhile();
    for (std::thread& thread : threads) thread.join();
    return silent;
  }
  static std::ptrdiff_t hung_up(const std::vector<RawSocket>& sockets) {
    return std::count_if(sockets.begin(), sockets.end(),
                         [](const RawSocket& one) { return one.hung_up(Clock::now()); });
  }
};

TEST_P(PendingTest, ConnectionsKeepNoClientOut) {
  if (over_rdma()) GTEST_SKIP() << "there they are queue pairs: the next test";
  LoadProcess& load = start_load("t0", {"fresh=1", "rate=1000", "deadline=20000"});
  const std::uint64_t count = rounds(1, 10);
  for (std::uint64_t round = 0; round < count; ++round) {
    std::vector<RawSocket> silent;
    ASSERT_NO_FATAL_FAILURE(connect(silent, 500));
    if (over_tcp()) {
      EXPECT_TRUE(test::eventually([&] { return hung_up(silent) >= 100; }))
          << "the oldest make room: limits.pending_handshakes_max";
    }
    expect_client_is_served();
    silent.clear();
    EXPECT_TRUE(server().soon_sessions(1)) << server().ask("status");
  }
  // The server's listener goes by a new limit, too, once a session has ended by it.
  ASSERT_EQ(server().ask("handshake 1000"), "ok");
  std::vector<RawSocket> silent;
  for (const std::size_t sockets : {1U, 200U}) {
    ASSERT_NO_FATAL_FAILURE(connect(silent, sockets));
    EXPECT_TRUE(test::eventually([&] { return hung_up(silent) == std::ssize(silent); }))
        << "limits.handshake_timeout";
  }
  expect_undisturbed(finish(load));
}

TEST_P(PendingTest, QueuePairsKeepNoClientOut) {
  if (!over_rdma()) GTEST_SKIP() << "there they are sockets: the test before";
  LoadProcess& load = start_load("t0", {"fresh=1", "rate=50", "threads=1", "deadline=20000"});
  const std::uint64_t count = rounds(1, 10);
  for (std::uint64_t round = 0; round < count; ++round) {
    // While they come, when one more is let in in its turn, and when they are all there.
    const Endpoints silent = connect_queue_pairs(500, [this] { expect_client_is_served(); });
    expect_client_is_served();
  }
  ASSERT_TRUE(server().soon_sessions(1)) << server().ask("status");
  ASSERT_EQ(server().ask("handshake 1000"), "ok");
  const Endpoints silent = connect_queue_pairs(50);
  const auto gone = [](const auto& one) { return one == nullptr || !one->receive().ok(); };
  EXPECT_TRUE(test::eventually([&] { return std::all_of(silent.begin(), silent.end(), gone); }))
      << "limits.handshake_timeout";
  expect_undisturbed(finish(load));
}

TEST_P(CrowdTest, OneByteASecondIsNotWaitedFor) {
  if (over_rdma()) GTEST_SKIP() << "messages come whole there";
  LoadProcess& load = start_load("t0", {"fresh=1", "rate=1000", "deadline=20000"});
  const std::uint64_t count = rounds(1, 10);
  for (std::uint64_t round = 0; round < count; ++round) {
    std::vector<RawSocket> slow;
    slow.reserve(20);
    for (int i = 0; i < 20; ++i) slow.emplace_back(transport(), server().port());
    // Half of them within their introduction; the others behind it, within a message's header.
    const auto wire = transport::tcp::Introduction{}.to_wire();
    const std::string_view introduction{reinterpret_cast<const char*>(wire.data()), wire.size()};
    for (std::size_t i = 1; i < slow.size() && over_tcp(); i += 2) slow[i].say(introduction);
    // Each second a byte, and none of them begins the time anew.
    std::size_t there = slow.size();
    constexpr std::size_t kBytes = 10;  // neither is complete by then
    for (std::size_t at = 0; there != 0 && at < kBytes; ++at) {
      for (std::size_t i = 0; i < slow.size(); ++i)
        slow[i].say(i % 2 == 0 ? introduction.substr(at, 1) : std::string_view{"\1", 1});
      there = 0;
      const auto until = Clock::now() + 1s;
      for (const RawSocket& one : slow)
        if (!one.hung_up(until)) ++there;
      std::this_thread::sleep_until(until);
    }
    EXPECT_EQ(there, 0U) << "they are waited for, byte by byte";
  }
  expect_undisturbed(finish(load));
}

TEST_P(CrowdTest, SlowReaderHoldsUpItselfOnly) {
  if (!over_tcp()) GTEST_SKIP() << "the proxy speaks tcp";
  TcpProxy proxy{server().port()};
  LoadProcess& load = start_load("t0", {"fresh=1", "rate=1000", "deadline=20000"});
  LoadProcess& slow = start_load_by(
      uri("t0", proxy.port()),
      {"first=400", "reads=1", "writes=0", "swaps=0", "adds=0", "fresh=1", "rate=2000"});
  const Engine engine = plain_engine();
  const Region region = engine.open_region(uri("t0"), Rights::kRead).value();
  std::vector<std::byte> bytes(64);
  const std::uint64_t count = rounds(1, 10);
  for (std::uint64_t round = 0; round < count; ++round) {
    proxy.slow_down(1024);
    // It stays slow until others were served: if these waited for it, they would fail.
    const auto full = Clock::now() + 6s;  // its sockets are, long before
    Status served;
    for (int reads = 0; served && (reads < 500 || Clock::now() < full); ++reads) {
      served = region.read(ByteOffset{0}, bytes);
      EXPECT_TRUE(ok(served)) << "after " << reads;
      std::this_thread::sleep_for(2ms);
    }
    proxy.slow_down(0);
    pause_for_a_while(200ms, 300ms);
  }
  expect_undisturbed(finish(load));
  EXPECT_GT(finish(slow).longest_verdict_ms, 0U) << "it was not slow";
}

REMORA_FAULT(CrowdTest);
REMORA_FAULT(PendingTest);

}  // namespace
}  // namespace remora::fault
