/// A tcp server and peers that are no clients, slow, silent or malicious. And the properties of tcp
/// alone: IPv6, checksums of the data, the port that all transports share.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <list>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>
#include <remora/verbs/address.h>

#include "raw_session.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/fault_line.h"
#include "support/held_before.h"
#include "support/pattern.h"
#include "support/runtime_dir.h"
#include "support/server.h"
#include "support/timed.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::Opcode;
using transport::WorkRequest;
using transport::tcp::FrameHeader;
using transport::tcp::Introduction;
using transport::tcp::Purpose;

constexpr std::chrono::seconds kHandshake{3};

/// A connection to the server that sends the bytes of the test.
class RawPeer {
 public:
  explicit RawPeer(std::uint16_t port)
      : socket_{transport::tcp::connect_socket(verbs::Address::parse("127.0.0.1", port).value(),
                                               Clock::now() + 5s)
                    .value()} {}

  void say(std::span<const std::byte> bytes) const {
    (void)transport::tcp::send_all(socket_.get(), bytes, Clock::now() + 20s);
  }
  /// Introduces itself as a client. Whether the server welcomes it.
  [[nodiscard]] bool welcome() const {
    say(Introduction{}.to_wire());
    std::array<std::byte, transport::tcp::Welcome::kWireBytes> answer{};
    return transport::tcp::receive_all(socket_.get(), answer, Clock::now() + 20s).ok() &&
           transport::tcp::Welcome::from_wire(answer).has_value();
  }
  /// The bytes that the server sends until it hangs up.
  [[nodiscard]] std::string hear_all() const {
    std::string all;
    std::byte next{};
    while (transport::tcp::receive_all(socket_.get(), {&next, 1}, Clock::now() + 30s))
      all += static_cast<char>(next);
    return all;
  }
  /// Whether the server hangs up within 30 s: for silence alone, most tests let it wait 60 s.
  [[nodiscard]] bool hung_up() const {
    std::array<std::byte, 4096> bytes{};
    const Status end = transport::tcp::receive_all(socket_.get(), bytes, Clock::now() + 30s);
    return !end && end.error().code() == Code::kConnectionLost;
  }

 private:
  UniqueFd socket_;
};

class TcpPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_.emplace(Engine::open({}).value());
    start(plain());
  }
  void TearDown() override {
    engine_.reset();
    held_before_.expect_again(server_);
  }
  [[nodiscard]] static config::ServerConfig plain() {
    config::ServerConfig config = server_config(TransportKind::kTcp, {.piece_bytes = 1U << 20U});
    config.limits.handshake_timeout = 60s;
    return config;
  }
  void start(const config::ServerConfig& config) {
    if (server_) server_->stop();
    host_ = config.listen.address;
    server_ = Server::start(config).value();
    address_ = {host_, server_->port()};
    server_->create_region({.name = "target", .size_bytes = 4_MiB}).value();
  }
  [[nodiscard]] std::string uri(const std::string& region = "target",
                                const std::string& options = "transport=tcp") const {
    const bool v6 = host_.find(':') != std::string::npos;
    return "remora://" + (v6 ? "[" + host_ + "]" : host_) + ":" + std::to_string(server_->port()) +
           "/" + region + (options.empty() ? "" : "?" + options);
  }
  [[nodiscard]] bool soon_sessions(std::uint64_t wanted) const {
    return eventually([&] { return server_->status().sessions == wanted; });
  }
  /// Writes and reads the whole region, and adds to a word.
  static void expect_works(const Region& region, std::uint64_t seed) {
    const std::vector<std::byte> model = noise(region.size_bytes(), seed);
    ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
    std::vector<std::byte> seen(region.size_bytes());
    ASSERT_TRUE(ok(region.read(ByteOffset{0}, seen)));
    EXPECT_TRUE(same_bytes(seen, model));
    const std::uint64_t before = region.fetch_add(ByteOffset{8}, 5).value();
    EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), before + 5);
  }

  RuntimeDir folder_;
  std::optional<Server> server_;
  std::string host_;
  ServerAddress address_;
  const HeldBefore held_before_{
      "tcp_peers", [this] {
        start(server_config(TransportKind::kTcp, {.all_transports = true}));
        {
          const Engine engine = Engine::open({}).value();
          for (const char* const options : {"transport=tcp", ""})
            expect_works(engine.open_region(uri("target", options), Rights::kAll).value(), 1);
          RawSession session{address_, TransportKind::kTcp};
          (void)session.open("target", Rights::kAll);
        }
        server_->stop();
        server_.reset();
      }};
  std::optional<Engine> engine_;
};

TEST_F(TcpPeersTest, NonsenseIsHungUpOn) {
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  for (std::size_t i = 0; i < 20; ++i) {
    const RawPeer peer{server_->port()};
    peer.say(noise(32 + i * 500, i));
    EXPECT_TRUE(peer.hung_up()) << i;
  }
  const RawPeer browser{server_->port()};
  const std::string_view text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  browser.say(std::as_bytes(std::span{text}));
  EXPECT_TRUE(browser.hung_up());
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  EXPECT_TRUE(soon_sessions(1));
}

TEST_F(TcpPeersTest, SilenceIsHungUpOnAfterTheHandshakeTimeout) {
  config::ServerConfig config = plain();
  config.limits.handshake_timeout = kHandshake;
  start(config);
  const RawPeer silent{server_->port()};
  const RawPeer slow{server_->port()};
  const auto introduction = Introduction{}.to_wire();
  slow.say(std::span{introduction}.first(20));
  const RawPeer welcome_and_silent{server_->port()};
  ASSERT_TRUE(welcome_and_silent.welcome());
  const RawPeer half_a_hello{server_->port()};
  ASSERT_TRUE(half_a_hello.welcome());
  half_a_hello.say(FrameHeader{.length_bytes = 100}.to_wire());
  for (const RawPeer* peer : {&silent, &slow, &welcome_and_silent, &half_a_hello})
    EXPECT_TRUE(peer->hung_up());
  EXPECT_TRUE(soon_sessions(0));
}

TEST_F(TcpPeersTest, MessagesOutOfBoundsEndTheirSession) {
  const std::array frames{FrameHeader{.length_bytes = 16385}, FrameHeader{.length_bytes = 0},
                          FrameHeader{.length_bytes = UINT32_MAX}};
  for (const FrameHeader& frame : frames) {
    const RawPeer peer{server_->port()};
    ASSERT_TRUE(peer.welcome());
    peer.say(frame.to_wire());
    EXPECT_TRUE(peer.hung_up());
  }
  for (const std::size_t size : {1UL, 100UL, 16384UL}) {
    RawSession bad{address_, TransportKind::kTcp};
    bad.send_control(noise(size, size));
    EXPECT_TRUE(bad.ended()) << size;
  }
  EXPECT_TRUE(soon_sessions(0));
}

TEST_F(TcpPeersTest, LaneNeedsTheSecretOfItsSession) {
  RawSession session{address_, TransportKind::kTcp};
  const RawSession::Grant grant = session.open("target", Rights::kAll);
  const auto introduced = [&](std::uint64_t id, std::uint64_t secret) {
    RawPeer peer{server_->port()};
    peer.say(Introduction{.purpose = Purpose::kLane, .ticket = {.session_id = id, .secret = secret}}
                 .to_wire());
    return peer;
  };
  const auto& ticket = session.ticket();
  EXPECT_TRUE(introduced(ticket.session_id, ticket.secret ^ 1U).hung_up());
  EXPECT_TRUE(introduced(ticket.session_id + 1, ticket.secret).hung_up());
  EXPECT_TRUE(introduced(0, 0).hung_up());
  EXPECT_EQ(
      session.run(Opcode::kRead, grant.extents[0].remote_address, grant.extents[0].remote_key, 64),
      CompletionStatus::kSuccess);
}

TEST_F(TcpPeersTest, NonsenseOnALaneEndsItsSessionOnly) {
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  RawSession session{address_, TransportKind::kTcp};
  const RawPeer lane{server_->port()};
  lane.say(Introduction{.purpose = Purpose::kLane, .ticket = session.ticket()}.to_wire());
  lane.say(noise(4096, 3));
  EXPECT_TRUE(lane.hung_up());
  EXPECT_TRUE(session.ended());
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
}

TEST_F(TcpPeersTest, CrowdOfSilentPeersKeepsNoClientOut) {
  config::ServerConfig config = plain();
  config.limits.handshake_timeout = 5s;  // for the silent peers and the client alike
  start(config);
  std::vector<RawPeer> crowd;
  constexpr std::size_t kCrowd = 300;
  crowd.reserve(kCrowd);
  while (crowd.size() < kCrowd) crowd.emplace_back(server_->port());
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  for (const RawPeer& peer : crowd) EXPECT_TRUE(peer.hung_up());
}

TEST_F(TcpPeersTest, PeerThatStopsReadingHoldsUpNoOtherClient) {
  std::vector<std::byte> into(1_MiB);
  RawSession lazy{address_, TransportKind::kTcp};
  const RawSession::Grant grant = lazy.open("target", Rights::kAll);
  const WorkRequest read{.local = into.data(),
                         .length_bytes = 1_MiB,
                         .remote_address = grant.extents[0].remote_address,
                         .remote_key = grant.extents[0].remote_key,
                         .opcode = Opcode::kRead};
  const std::vector<const WorkRequest*> chain(16, &read);
  ASSERT_EQ(lazy.lane().post(chain, 0).error, 0);
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  const Timed timed;
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), i);
  EXPECT_TRUE(timed.took_at_most(30s));
  // The server serves the peer as soon as it reads again.
  std::array<transport::LaneCompletion, 16> found;
  std::uint64_t last = 0;
  for (Patience patience; last != 15 && !patience.over();)
    for (std::size_t i = 0, count = lazy.lane().poll(found); i < count; ++i) {
      ASSERT_EQ(found[i].status, CompletionStatus::kSuccess);
      last = found[i].sequence;
    }
  EXPECT_EQ(last, 15U);
}

TEST_F(TcpPeersTest, GrantIsTakenBackWhileItsRegionIsBusy) {
  std::vector<std::byte> into(1_MiB);
  RawSession session{address_, TransportKind::kTcp};
  const RawSession::Grant busy = session.open("target", Rights::kAll);
  const WorkRequest read{.local = into.data(),
                         .length_bytes = 1_MiB,
                         .remote_address = busy.extents[0].remote_address,
                         .remote_key = busy.extents[0].remote_key,
                         .opcode = Opcode::kRead};
  const std::vector<const WorkRequest*> chain(16, &read);
  ASSERT_EQ(session.lane().post(chain, 0).error, 0);
  // The session does not poll its lane, so the server has sent part of an answer. Its reply to
  // close() may be lost with the session.
  try {
    session.close(busy);
  } catch (const Exception&) {
  }
  EXPECT_TRUE(session.ended());
  EXPECT_TRUE(soon_sessions(0));
  EXPECT_TRUE(eventually([&] { return server_->status().grants == 0; }));
  EXPECT_TRUE(ok(server_->remove_region("target")));
}

TEST_F(TcpPeersTest, CraftyRequestsAreRefusedAndChangeNothing) {
  server_->create_region({.name = "plain", .size_bytes = 64_KiB, .atomic_domain = "none"}).value();
  const std::vector<std::byte> model = noise(64_KiB, 4);
  const RegionView view = server_->view("plain").value();
  ASSERT_TRUE(ok(view.write(ByteOffset{0}, model)));
  struct Case {
    Opcode opcode;
    std::uint64_t address;
    std::uint32_t length;
    CompletionStatus status;
  };
  constexpr auto kInvalid = CompletionStatus::kRemoteInvalidRequest;
  constexpr auto kRefused = CompletionStatus::kRemoteAccessError;
  const std::array cases{
      Case{Opcode::kFetchAdd, 0, 8, kRefused},  // the atomic domain is none
      Case{Opcode::kCompareSwap, 0, 8, kRefused},
      Case{Opcode::kFetchAdd, 4, 8, kInvalid},
      Case{Opcode::kFetchAdd, 0, 16, kInvalid},
      Case{Opcode::kRead, 0, 0, kInvalid},
      Case{Opcode::kWrite, UINT64_MAX - 63, 128, kRefused},  // wraps
      Case{Opcode::kRead, UINT64_MAX, 2, kRefused},
  };
  FaultLine line{.rounds = cases.size()};
  std::list<RawSession> sessions;
  for (const Case& wrong : cases) {
    RawSession& session = sessions.emplace_back(address_, TransportKind::kTcp);
    const RawSession::Grant grant = session.open("plain", Rights::kAll);
    const auto began = Clock::now();
    const CompletionStatus end =
        session.run(wrong.opcode, grant.extents[0].remote_address + wrong.address,
                    grant.extents[0].remote_key, wrong.length);
    line.ended(end == CompletionStatus::kSuccess ? "" : to_string(end), Clock::now() - began);
    EXPECT_EQ(end, wrong.status) << wrong.address << " " << wrong.length;
  }
  // The server gives each client a second to read the reason.
  for (RawSession& session : sessions) EXPECT_TRUE(session.ended());
  std::vector<std::byte> seen(64_KiB);
  ASSERT_TRUE(ok(view.read(ByteOffset{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
  line.print("tcp");
}

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

TEST_F(TcpPeersTest, GrantsComeAndGoWhileAnotherOfTheSessionIsBusy) {
  server_->create_region({.name = "other", .size_bytes = 64_KiB}).value();
  const Region busy = engine_->open_region(uri(), Rights::kAll).value();
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::thread worker{[&] {
    std::vector<std::byte> bytes(256_KiB);
    while (!stop)
      if (!busy.read(ByteOffset{0}, bytes).ok() || !busy.write(ByteOffset{1_MiB}, bytes).ok())
        failed = true;
  }};
  const Timed timed;
  for (int i = 0; i < 100; ++i) {
    const Region region = engine_->open_region(uri("other"), Rights::kAll).value();
    EXPECT_TRUE(ok(region.fetch_add(ByteOffset{0}, 1)));
  }
  EXPECT_TRUE(timed.took_at_most(40s));
  stop = true;
  worker.join();
  EXPECT_FALSE(failed);
}

}  // namespace
}  // namespace remora::test
