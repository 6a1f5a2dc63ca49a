/// A host that is short of ports: sessions and resumes leave none behind them, and what is missing
/// is said to be missing here, and waited for. In a network namespace of the test's own.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <net/if.h>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/testing/fault_transport.h>
#include <remora/verbs/address.h>

#include "support/eventually.h"
#include "support/expect.h"
#include "support/server.h"
#include "transport/tcp/socket.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

constexpr int kPorts = 24;

/// Goes to a network namespace with kPorts local ports. What was in the way, or nothing.
std::string enter_namespace() {
  if (::unshare(CLONE_NEWNET) != 0)
    return std::string{"unshare(CLONE_NEWNET): "} + std::strerror(errno);
  const UniqueFd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq up{};
  std::strcpy(up.ifr_name, "lo");
  up.ifr_flags = IFF_UP;
  if (::ioctl(socket.get(), SIOCSIFFLAGS, &up) != 0)
    return std::string{"lo up: "} + std::strerror(errno);
  std::ofstream range{"/proc/sys/net/ipv4/ip_local_port_range"};
  range << "40000 " << 40000 + kPorts - 1 << std::flush;
  // Else the kernel gives a port out again that has waited for a second.
  std::ofstream reuse{"/proc/sys/net/ipv4/tcp_tw_reuse"};
  reuse << 0 << std::flush;
  return range && reuse ? "" : "cannot set ip_local_port_range and tcp_tw_reuse";
}

/// Runs `body` in a thread of its own, in that namespace: what it starts is there, too.
void in_namespace(const std::function<void()>& body) {
  std::string why_not;
  std::thread{[&] {
    why_not = enter_namespace();
    if (why_not.empty()) body();
  }}.join();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

Server tcp_server() {
  ServerOptions options;
  options.port = 7471;  // outside of the range
  config::ServerConfig config = server_config(TransportKind::kTcp, options);
  config.limits.resumes_per_minute = 100'000;
  config.limits.pending_handshakes_max = 256;
  return Server::start(config).value();
}

EngineOptions options_of(std::chrono::milliseconds control) {
  EngineOptions options;
  options.control_deadline = control;
  options.operation_deadline = std::chrono::seconds{30};
  return options;
}

const char* const kServer = "remora://127.0.0.1:7471?transport=tcp";

TEST(LocalPorts, SessionsDoNotUseThemUp) {
  in_namespace([] {
    const Server server = tcp_server();
    for (int i = 0; i < 3 * kPorts; ++i) {
      const Engine engine = Engine::open(options_of(std::chrono::seconds{5})).value();
      const auto session = engine.connect(kServer);
      ASSERT_TRUE(ok(session)) << "session " << i;
    }
  });
}

TEST(LocalPorts, ResumesDoNotUseThemUp) {
  in_namespace([] {
    const Server server = tcp_server();
    const auto faults = testing::FaultTransport::create({}).value();
    std::atomic<int> resumed{0};
    std::atomic<Reason> lost{Reason::kNone};
    EngineOptions options = options_of(std::chrono::seconds{30});
    options.faults = faults.hook();
    options.reconnect_for = std::chrono::seconds{10};
    options.handlers.on_resumed = [&](const SessionEvent&) { ++resumed; };
    options.handlers.on_lost = [&](const SessionEvent& event) { lost = event.reason; };
    const Engine engine = Engine::open(options).value();
    const Session session = engine.connect(kServer).value();
    for (int i = 0; i < 2 * kPorts && lost.load() == Reason::kNone; ++i) {
      faults.lose_connections();
      EXPECT_TRUE(eventually([&] { return resumed > i || lost.load() != Reason::kNone; }));
    }
    EXPECT_EQ(lost.load(), Reason::kNone);
    EXPECT_TRUE(session.connected());
  });
}

TEST(LocalPorts, ShortageIsNamedAndWaitedFor) {
  in_namespace([] {
    const Server server = tcp_server();
    const verbs::Address address = verbs::Address::parse("127.0.0.1", 7471).value();
    std::vector<UniqueFd> taken;
    while (true) {
      auto socket = transport::tcp::connect_socket(address, Clock::now());
      if (!socket) break;
      transport::tcp::set_abortive_close(socket->get(), true);
      taken.push_back(std::move(*socket));
    }
    const Engine hasty = Engine::open(options_of(std::chrono::milliseconds{100})).value();
    const auto refused = hasty.connect(kServer);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().system_errno(), EADDRNOTAVAIL);
    EXPECT_EQ(refused.error().reason(), Reason::kLocalShortage);
    const std::string text = refused.error().message();
    EXPECT_NE(text.find("ip_local_port_range"), std::string::npos) << text;
    EXPECT_EQ(text.find("ibv_devinfo"), std::string::npos) << text;

    const Engine patient = Engine::open(options_of(std::chrono::seconds{60})).value();
    std::optional<Result<Session>> waited;
    std::thread connecting{[&] { waited.emplace(patient.connect(kServer)); }};
    taken.resize(taken.size() / 2);
    connecting.join();
    EXPECT_TRUE(ok(*waited));
  });
}

TEST(LocalPorts, AddressWithoutARouteIsSaidToHaveNone) {
  in_namespace([] {
    const Engine engine = Engine::open(options_of(std::chrono::seconds{5})).value();
    const auto refused = engine.connect("remora://192.0.2.1:7471?transport=tcp");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().system_errno(), ENETUNREACH);
    const std::string text = refused.error().message();
    EXPECT_NE(text.find("ip route get"), std::string::npos) << text;
    EXPECT_EQ(text.find("ibv_devinfo"), std::string::npos) << text;
  });
}

}  // namespace
}  // namespace remora::test
