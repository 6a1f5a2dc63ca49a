/// Connections over rdma that do not come from a client: the server refuses and counts them, logs
/// few lines, and its clients lose nothing.

#include <algorithm>
#include <array>
#include <cstdint>
#include <gtest/gtest.h>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/metrics/registry.h>
#include <remora/verbs/verbs.h>

#include "base/log.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/server.h"
#include "support/transport.h"
#include "transport/rdma/wire.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::rdma::Introduction;
using transport::rdma::Purpose;

/// A queue pair that sends `introduction` when it connects.
class RejectedConnection {
 public:
  explicit RejectedConnection(const ServerAddress& server)
      : connector_{verbs::Connector::resolve(
                       verbs::Address::parse(server.host, server.port).value(), soon())
                       .value()} {
    domain_ = connector_.device().allocate_domain().value();
    queue_ = connector_.device().create_completion_queue({.depth = 4}).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain_, queue_, queue_};
    connector_.create_queue_pair(builder.send_depth(1).receive_depth(1)).value();
  }
  Status connect(std::span<const std::byte> introduction) {
    auto connected = std::move(connector_).connect(soon(), {.private_data = introduction});
    if (!connected) return connected.error();
    connection_.emplace(std::move(*connected));
    return {};
  }

 private:
  static verbs::Deadline soon() { return verbs::deadline_in(10s); }

  verbs::ProtectionDomain domain_;
  verbs::CompletionQueue queue_;
  verbs::Connector connector_;
  std::optional<verbs::Connection> connection_;
};

class RdmaRejectedConnectionsTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
    log::logger().sinks().push_back(lines_);
  }
  void TearDown() override {
    if (server_) server_->stop();
    std::erase(log::logger().sinks(), lines_);
  }
  void start(const config::ServerConfig& config) {
    server_ = Server::start(config).value();
    address_ = {listen_address(GetParam()), server_->port()};
  }
  [[nodiscard]] std::string uri() const {
    return "remora://" + address_.host + ":" + std::to_string(address_.port) +
           "/r?transport=" + std::string{to_string(GetParam())};
  }
  [[nodiscard]] std::size_t lines_with(const std::string& text) const {
    const auto lines = lines_->last_formatted();
    return static_cast<std::size_t>(std::count_if(lines.begin(), lines.end(), [&](const auto& l) {
      return l.find(text) != std::string::npos;
    }));
  }
  [[nodiscard]] double counted(const char* name) const {
    return server_->registry().sum(name).value();
  }

  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> lines_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(512);
  std::optional<Server> server_;
  ServerAddress address_;
};

TEST_P(RdmaRejectedConnectionsTest, AreRefusedAndCountedAndLoggedInFewLines) {
  start(server_config(GetParam()));
  const Engine engine = Engine::open({}).value();
  const Session session = engine.connect(uri()).value();
  auto other_version = Introduction{}.to_wire();
  other_version[4] = std::byte{9};
  const auto no_such_lane =
      Introduction{.purpose = Purpose::kLane, .ticket = {.session_id = 7, .secret = 8}}.to_wire();
  constexpr std::array<std::byte, 3> kShort{};
  const std::array<std::span<const std::byte>, 4> said{std::span<const std::byte>{}, kShort,
                                                       other_version, no_such_lane};
  constexpr std::size_t kRounds = 8;
  const auto began = Clock::now();
  for (std::size_t round = 0; round < kRounds; ++round)
    for (const auto introduction : said)
      EXPECT_TRUE(
          fails_with(RejectedConnection{address_}.connect(introduction), Code::kConnectionRefused));
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - began);
  EXPECT_EQ(counted("remora_server_rdma_rejected_connections_total"), kRounds * said.size());
  const std::size_t told =
      lines_with("connection request that is not ours") + lines_with("lane without a session");
  EXPECT_GE(told, 1U);
  // Five lines a second. The time may touch two more seconds than it has.
  EXPECT_LE(told, 5 * (static_cast<std::size_t>(seconds.count()) + 2));
  EXPECT_TRUE(ok(session.regions()));
}

/// The registrations of connections count, but a connection without a Hello keeps no region from a
/// client.
TEST_P(RdmaRejectedConnectionsTest, SilentConnectionsTakeNoRegistrationsFromClients) {
  config::ServerConfig config = server_config(GetParam());
  config.limits.handshake_timeout = 60s;
  // Room for the connections of one client and its one grant, and for no other connection.
  config.limits.registrations_max = 4;
  start(config);
  server_->create_region({.name = "r", .size_bytes = 64_KiB}).value();
  std::list<RejectedConnection> silent;
  const auto introduction = Introduction{}.to_wire();
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(ok(silent.emplace_back(address_).connect(introduction)));
  const Engine engine = Engine::open({}).value();
  const auto region = engine.open_region(uri(), Rights::kAll);
  ASSERT_TRUE(ok(region));
  EXPECT_TRUE(ok(region->fetch_add(ByteOffset{0}, 1)));
  EXPECT_LE(counted("remora_server_registrations"), 4);
  silent.clear();
  EXPECT_TRUE(eventually([&] { return server_->status().sessions == 1; }));
}

TEST_P(RdmaRejectedConnectionsTest, RegistrationsThatAreNotLeftAreLoggedAndCounted) {
  config::ServerConfig config = server_config(GetParam());
  config.limits.registrations_max = 4;
  config.transports.rdma_protection = config::RdmaProtection::kRegistrations;
  start(config);
  server_->create_region({.name = "r", .size_bytes = 64_KiB}).value();
  const Engine engine = Engine::open({}).value();
  std::vector<Region> open;
  for (int i = 0; i < 8; ++i) {
    auto region = engine.open_region(uri(), Rights::kAll);
    if (region) {
      open.push_back(std::move(*region));
      continue;
    }
    EXPECT_EQ(region.error().code(), Code::kLimitExceeded) << region.error();
    EXPECT_EQ(region.error().subject(), "limits.registrations_max");
  }
  ASSERT_LT(open.size(), 8U);
  EXPECT_EQ(server_->registry()
                .value("remora_server_requests_refused_total", {{"limit", "registrations_max"}})
                .value(),
            8 - static_cast<double>(open.size()));
  const std::size_t told = lines_with("limits.registrations_max");
  EXPECT_GE(told, 1U);
  EXPECT_LE(told, 8 - open.size());
}

/// The client learns what the server lacks.
TEST_P(RdmaRejectedConnectionsTest, RefusalCarriesItsReasonToTheClient) {
  config::ServerConfig config = server_config(GetParam());
  config.rdma.mtu = 256;
  start(config);
  const Engine engine = Engine::open({}).value();
  const auto refused = engine.connect(uri());
  ASSERT_TRUE(fails_with(refused, Code::kConnectionRefused));
  EXPECT_NE(refused.error().message().find("the client needs mtu=256"), std::string::npos)
      << refused.error();
  EXPECT_EQ(refused.error().allowed(), 256U);
  const auto session = engine.connect(uri() + "&mtu=256");
  ASSERT_TRUE(ok(session));
  EXPECT_TRUE(ok(session->regions()));
}

INSTANTIATE_TEST_SUITE_P(RdmaRejectedConnections, RdmaRejectedConnectionsTest,
                         testing::Values(TransportKind::kRdma), [](const auto& parameter) {
                           return std::string{to_string(parameter.param)};
                         });

}  // namespace
}  // namespace remora::test
