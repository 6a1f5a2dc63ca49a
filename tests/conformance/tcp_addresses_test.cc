/// The properties of tcp alone: IPv6, the port that all transports share, servers of other
/// protocols, checksums of the data, counts.

#include <algorithm>
#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <list>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>

#include "tcp_peers_fixture.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only

TEST_F(TcpPeersTest, Ipv6LoopbackWorks) {
  config::ServerConfig config = server_config(TransportKind::kTcp);
  config.listen.address = "::1";
  start(config);
  EXPECT_EQ(server_->listening().front(), "tcp [::1]:" + std::to_string(server_->port()));
  expect_works(engine_->open_region(uri(), Rights::kAll).value(), 1);
}

TEST_F(TcpPeersTest, EveryAddressTakesBothFamilies) {
  config::ServerConfig config = server_config(TransportKind::kTcp);
  config.listen.address = "::";
  start(config);
  for (const char* host : {"127.0.0.1", "::1"}) {
    host_ = host;
    expect_works(engine_->open_region(uri(), Rights::kAll).value(), 2);
  }
}

TEST_F(TcpPeersTest, NameIsListenedOnAndFound) {
  config::ServerConfig config = server_config(TransportKind::kTcp);
  config.listen.address = "localhost";
  start(config);
  expect_works(engine_->open_region(uri(), Rights::kAll).value(), 3);
}

TEST_F(TcpPeersTest, AddressOfAnotherHostCannotBeListenedOn) {
  config::ServerConfig config = server_config(TransportKind::kTcp);
  config.listen.address = "192.0.2.1";  // for documentation. Source: RFC 5737
  EXPECT_TRUE(fails_with(Server::start(config), Code::kUnreachable));
}

/// A server of another protocol: it accepts one connection, and sends `says` first.
class OtherServer {
 public:
  explicit OtherServer(std::string says) : says_{std::move(says)} {
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof own;
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&own), length), 0);
    EXPECT_EQ(::listen(listener_.get(), 4), 0);
    EXPECT_EQ(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &length), 0);
    port_ = ntohs(own.sin_port);
    thread_ = std::thread{[this] {
      const UniqueFd taken{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
      (void)!::send(taken.get(), says_.data(), says_.size(), MSG_NOSIGNAL);
      std::array<std::byte, 64> bytes{};
      while (::recv(taken.get(), bytes.data(), bytes.size(), 0) > 0) {
      }
    }};
  }
  ~OtherServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);  // wakes accept4() if no client has connected
    thread_.join();
  }
  OtherServer(const OtherServer&) = delete;
  OtherServer& operator=(const OtherServer&) = delete;
  [[nodiscard]] std::string uri() const {
    return "remora://127.0.0.1:" + std::to_string(port_) + "/r?transport=tcp";
  }

 private:
  std::string says_;
  UniqueFd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t port_ = 0;
  std::thread thread_;
};

/// The deadline is an hour: an error that waited for it would never come.
TEST_F(TcpPeersTest, ServerOfAnotherProtocolIsToldByItsFirstWords) {
  EngineOptions options;
  options.control_deadline = 1h;
  const Engine patient = Engine::open(options).value();
  const auto reason = [&](const std::string& says) {
    const OtherServer other{says};
    const auto refused = patient.open_region(other.uri(), Rights::kRead);
    EXPECT_TRUE(fails_with(refused, Code::kProtocol));
    return refused ? Reason::kNone : refused.error().reason();
  };
  EXPECT_EQ(reason("SSH-2.0-OpenSSH_9.2p1\r\n"), Reason::kNotRemora);
  EXPECT_EQ(reason("220 mail\r\n"), Reason::kNotRemora);
  EXPECT_EQ(reason("HTTP/1.1 400 Bad Request\r\n\r\n"), Reason::kHttp);
}

TEST_F(TcpPeersTest, SilentServerIsToldFromOneThatCannotBeReached) {
  EngineOptions options;
  options.control_deadline = 300ms;
  const Engine hasty = Engine::open(options).value();
  const auto error_at = [&](const std::string& target) {
    const auto refused = hasty.open_region(target, Rights::kRead);
    EXPECT_TRUE(fails_with(refused, Code::kTimedOut));
    return refused.error();
  };
  const OtherServer silent{""};
  EXPECT_EQ(error_at(silent.uri()).reason(), Reason::kSilent);
  // When the queue of a listening socket is full, the kernel answers no connection request.
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof own;
  const UniqueFd full{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  ASSERT_EQ(::bind(full.get(), reinterpret_cast<sockaddr*>(&own), length), 0);
  ASSERT_EQ(::listen(full.get(), 0), 0);
  ASSERT_EQ(::getsockname(full.get(), reinterpret_cast<sockaddr*>(&own), &length), 0);
  std::list<UniqueFd> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    (void)::connect(waiting.back().get(), reinterpret_cast<sockaddr*>(&own), length);
  }
  const Error error =
      error_at("remora://127.0.0.1:" + std::to_string(ntohs(own.sin_port)) + "/r?transport=tcp");
  EXPECT_EQ(error.reason(), Reason::kUnreachable) << error;
  EXPECT_EQ(error.server(), "127.0.0.1:" + std::to_string(ntohs(own.sin_port)));
}

TEST_F(TcpPeersTest, MetricsPortInsteadOfTheServersSaysSo) {
  EngineOptions options;
  options.control_deadline = 1h;
  const Engine patient = Engine::open(options).value();
  metrics::HttpOptions http;
  http.address = "127.0.0.1:0";
  http.request_timeout = 10min;
  const auto endpoint =
      metrics::HttpEndpoint::start(metrics::Registry::create().value(), http).value();
  const std::string server = "remora://127.0.0.1:" + std::to_string(endpoint.port());
  for (const std::string& target : {server + "/r?transport=tcp", server + "/r"}) {
    const auto refused = patient.open_region(target, Rights::kRead);
    ASSERT_TRUE(fails_with(refused, Code::kProtocol));
    EXPECT_EQ(refused.error().reason(), Reason::kHttp) << refused.error();
    EXPECT_NE(refused.error().message().find("metrics.address"), std::string::npos)
        << refused.error();
  }
}

TEST_F(TcpPeersTest, HttpAtTheServersPortIsAnsweredInHttp) {
  for (const std::string& request :
       {std::string{"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"}, std::string{"HEAD"},
        "POST / HTTP/1.1\r\n" + std::string(5000, 'x')}) {
    const RawPeer browser{server_->port()};
    browser.say(std::as_bytes(std::span{request.data(), request.size()}));
    const std::string answer = browser.hear_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 400 ")) << answer;
    EXPECT_NE(answer.find("metrics.address"), std::string::npos) << answer;
  }
  expect_works(engine_->open_region(uri(), Rights::kAll).value(), 4);
}

TEST_F(TcpPeersTest, PayloadChecksumByUriAndByOption) {
  expect_works(
      engine_->open_region(uri("target", "transport=tcp&crc=payload"), Rights::kAll).value(), 5);
  EngineOptions options;
  options.tcp_payload_crc = true;
  const Engine checking = Engine::open(options).value();
  expect_works(checking.open_region(uri(), Rights::kAll).value(), 6);
  expect_works(engine_->open_region(uri(), Rights::kAll).value(), 7);
}

TEST_F(TcpPeersTest, AutoTakesShmWhereItMayElseTcp) {
  start(server_config(TransportKind::kShm, {.all_transports = true}));
  server_->create_region({.name = "shared", .size_bytes = 64_KiB, .shm = true}).value();
  const Region shared = engine_->open_region(uri("shared", ""), Rights::kAll).value();
  EXPECT_EQ(shared.transport(), TransportKind::kShm);
  const Region region = engine_->open_region(uri("target", ""), Rights::kAll).value();
  EXPECT_EQ(region.transport(), TransportKind::kTcp) << region.transport_reason();
  EXPECT_EQ(region.transport_reason().rfind("tcp: ", 0), 0U) << region.transport_reason();
  EXPECT_NE(region.transport_reason().find("shm: "), std::string::npos);
  expect_works(region, 8);
  // Mapped or not, it is the same memory, and its atomics are the processor's either way.
  const Region same = engine_->open_region(uri("shared"), Rights::kAll).value();
  EXPECT_EQ(shared.fetch_add(ByteOffset{0}, 3).value(), 0U);
  EXPECT_EQ(same.fetch_add(ByteOffset{0}, 4).value(), 3U);
  EXPECT_EQ(shared.fetch_add(ByteOffset{0}, 0).value(), 7U);
}

TEST_F(TcpPeersTest, TransportsShareOnePort) {
  for (int i = 0; i < 5; ++i) {
    start(server_config(TransportKind::kTcp, {.all_transports = true}));
    const std::string port = std::to_string(server_->port());
    const std::vector<std::string> lines = server_->listening();
    EXPECT_EQ(std::count_if(
                  lines.begin(), lines.end(),
                  [&](const std::string& line) { return line.find(port) != std::string::npos; }),
              static_cast<std::ptrdiff_t>(lines.size()));
    EXPECT_GE(lines.size(), 2U);
  }
}

TEST_F(TcpPeersTest, ServerCountsWhatItServes) {
  const auto counted = [&](const char* name, const char* op) {
    metrics::Registry& registry = server_->registry();
    return registry.value(registry.counter(name, "-", {{"op", op}}).value());
  };
  {
    const Region region = engine_->open_region(uri(), Rights::kAll).value();
    std::vector<std::byte> bytes(4096);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(ok(region.read(ByteOffset{0}, bytes)));
    ASSERT_TRUE(ok(region.fetch_add(ByteOffset{0}, 1)));
    ASSERT_TRUE(ok(region.compare_swap(ByteOffset{0}, 9, 1)));
  }
  // By the server's thread, after it has answered; in this order.
  EXPECT_TRUE(
      eventually([&] { return counted("remora_server_tcp_operations_total", "cas") != 0; }));
  EXPECT_EQ(counted("remora_server_tcp_operations_total", "write"), 3U);
  EXPECT_EQ(counted("remora_server_tcp_operations_total", "read"), 5U);
  EXPECT_EQ(counted("remora_server_tcp_operations_total", "add"), 1U);
  EXPECT_EQ(counted("remora_server_tcp_operations_total", "cas"), 1U);
  EXPECT_EQ(counted("remora_server_tcp_bytes_total", "read"), 5U * 4096);
  EXPECT_EQ(counted("remora_server_tcp_bytes_total", "write"), 3U * 4096);
}

}  // namespace
}  // namespace remora::test
