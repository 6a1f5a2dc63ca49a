/// A start of a server that cannot serve what is configured fails and says why; one that is told to
/// stop ends at its next step; ready means serving.

#include <arpa/inet.h>
#include <chrono>
#include <cstdlib>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stop_token>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <remora/engine/server.h>
#include <remora/verbs/address.h>

#include "server/memory/pool.h"

namespace remora::detail {
namespace {

using config::Availability;

class ServerStartTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kStep = PopulateSteps::kStepBytes;

  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ::setenv("REMORA_RUNTIME_DIR", folder_.c_str(), 1);
    config_.listen.port = 0;
    config_.transports.rdma = Availability::kOff;
    config_.pool = {
        .size_bytes = 1U << 20U, .piece_bytes = 1U << 20U, .huge_pages = config::HugePages::kNever};
    config_.auth = config::Auth::kNone;
  }
  void TearDown() override {
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "something was left behind";
    ::unsetenv("REMORA_RUNTIME_DIR");
  }
  void offer(Availability tcp, Availability shm) {
    config_.transports.tcp = tcp;
    config_.transports.shm = shm;
  }
  /// A port of `address` that nothing listens on.
  static std::uint16_t free_port() {
    const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
    ::close(socket);
    return ntohs(address.sin_port);
  }
  /// The error of a start that is expected to fail.
  [[nodiscard]] Error failure() const {
    auto server = Server::start(config_);
    EXPECT_FALSE(server.ok()) << server.value().listening().front();
    return server.ok() ? Error{Code::kInternal} : server.error();
  }

  config::ServerConfig config_;

 private:
  std::string folder_ = "/tmp/remora-start.XXXXXX";
};

TEST_F(ServerStartTest, LinkLocalAddressWithoutAZoneIsToldToNameIt) {
  config_.listen.address = "fe80::1";
  const Error error = failure();
  EXPECT_EQ(error.code(), Code::kInvalidArgument);
  EXPECT_EQ(error.operation(), "listen.address");
  EXPECT_EQ(error.subject(), "fe80::1");
  EXPECT_NE(error.message().find("fe80::1%eth0"), std::string::npos) << error.message();
}

struct Offer {
  Availability tcp;
  Availability shm;
};
constexpr Offer kOffers[] = {{Availability::kAuto, Availability::kAuto},
                             {Availability::kOff, Availability::kRequired},
                             {Availability::kRequired, Availability::kOff}};

TEST_F(ServerStartTest, AddressOfAnotherMachineFailsOnEachTransport) {
  for (const char* address : {"192.0.2.55", "2001:db8::55"})
    for (const Offer& offered : kOffers) {
      offer(offered.tcp, offered.shm);
      config_.listen.address = address;
      const Error error = failure();
      EXPECT_EQ(error.code(), Code::kUnreachable);
      EXPECT_EQ(error.operation(), "listen.address");
      EXPECT_EQ(error.subject(), address);
      EXPECT_NE(error.message().find("ip addr"), std::string::npos) << error.message();
    }
}

TEST_F(ServerStartTest, NameThatDoesNotResolveFailsOnEachTransport) {
  for (const Offer& offered : kOffers) {
    offer(offered.tcp, offered.shm);
    config_.listen.address = "nosuchhost.invalid";
    const Error error = failure();
    // A machine without a name service may wait for one.
    EXPECT_TRUE(error.code() == Code::kNotFound || error.code() == Code::kTimedOut);
    EXPECT_EQ(error.operation(), "listen.address");
    EXPECT_EQ(error.subject(), "nosuchhost.invalid");
    EXPECT_NE(error.message().find("getent hosts"), std::string::npos) << error.message();
  }
}

TEST_F(ServerStartTest, MetricsAddressOfAnotherMachineFails) {
  config_.metrics.address = "192.0.2.55:9471";
  const Error error = failure();
  EXPECT_EQ(error.code(), Code::kUnreachable);
  EXPECT_EQ(error.operation(), "metrics.address");
  EXPECT_EQ(error.subject(), "192.0.2.55");
}

TEST_F(ServerStartTest, MetricsAddressMayBeAName) {
  char name[256] = "localhost";
  ASSERT_EQ(::gethostname(name, sizeof name - 1), 0);
  const bool known =
      verbs::Address::resolve_all(name, 0, Clock::now() + std::chrono::seconds{10}).ok();
  config_.metrics.address =
      std::string{known ? name : "localhost"} + ":" + std::to_string(free_port());
  auto server = Server::start(config_);
  // The name of this machine may stand for an address that it does not have.
  if (!server && server.error().code() == Code::kUnreachable) GTEST_SKIP() << server.error();
  ASSERT_TRUE(server.ok()) << server.error();
  EXPECT_TRUE(server->metrics_address().starts_with("http://")) << server->metrics_address();
}

TEST_F(ServerStartTest, RegionThatNoTransportOpensFails) {
  offer(Availability::kOff, Availability::kRequired);
  config_.regions = {{.name = "cache", .size_bytes = 4096}};
  const Error error = failure();
  EXPECT_EQ(error.code(), Code::kUnsupported);
  EXPECT_EQ(error.subject(), "regions: cache");
  EXPECT_NE(error.message().find("shm: true"), std::string::npos) << error.message();
}

TEST_F(ServerStartTest, StopEndsItBeforeTheNextStepOfThePool) {
  config_.pool.size_bytes = 4 * kStep;
  config_.pool.piece_bytes = kStep;
  std::stop_source source;
  std::vector<std::uint64_t> done;
  const auto server = Server::start(config_, nullptr, nullptr, source.get_token(),
                                    [&](const StartProgress& progress) {
                                      EXPECT_EQ(progress.step, StartProgress::Step::kPool);
                                      EXPECT_EQ(progress.total_bytes, 4 * kStep);
                                      done.push_back(progress.done_bytes);
                                      if (progress.done_bytes == kStep) source.request_stop();
                                    });
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kCancelled);
  EXPECT_EQ(server.error().allowed(), kStep) << "what was populated";
  EXPECT_EQ(done, (std::vector<std::uint64_t>{0, kStep}));
}

TEST_F(ServerStartTest, StopEndsItBeforeTheNextStepOfARegion) {
  offer(Availability::kOff, Availability::kRequired);
  config_.pool.size_bytes = 3 * kStep;
  config_.pool.piece_bytes = kStep;
  config_.pool.populate = true;
  config_.regions = {{.name = "small", .size_bytes = 1U << 20U, .shm = true},
                     {.name = "large", .size_bytes = 2 * kStep, .shm = true}};
  std::stop_source source;
  std::uint64_t last = 0;
  const auto server = Server::start(config_, nullptr, nullptr, source.get_token(),
                                    [&](const StartProgress& progress) {
                                      if (progress.step != StartProgress::Step::kRegions) return;
                                      EXPECT_EQ(progress.total_bytes, (1U << 20U) + 2 * kStep);
                                      last = progress.done_bytes;
                                      if (last == (1U << 20U) + kStep) source.request_stop();
                                    });
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kCancelled);
  EXPECT_EQ(last, (1U << 20U) + kStep);
}

TEST_F(ServerStartTest, StopBeforeItStartsNothing) {
  std::stop_source source;
  source.request_stop();
  config_.pool.populate = false;
  const auto server = Server::start(config_, nullptr, nullptr, source.get_token());
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.error().code(), Code::kCancelled);
}

/// The status of GET /readyz at 127.0.0.1.
std::string readyz(std::uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  std::string answer(12, '\0');  // "HTTP/1.1 503"
  constexpr std::string_view kRequest = "GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::send(socket, kRequest.data(), kRequest.size(), MSG_NOSIGNAL) < 0 ||
      ::recv(socket, answer.data(), answer.size(), MSG_WAITALL) != 12)
    answer = "no answer";
  ::close(socket);
  return answer;
}

TEST_F(ServerStartTest, ReadyMeansServing) {
  const std::uint16_t port = free_port();
  config_.metrics.address = "127.0.0.1:" + std::to_string(port);
  config_.regions = {{.name = "cache", .size_bytes = 4096}};
  std::vector<std::string> meanwhile;
  const auto server = Server::start(config_, nullptr, nullptr, {}, [&](const StartProgress&) {
    meanwhile.push_back(readyz(port));
  });
  ASSERT_TRUE(server.ok()) << server.error();
  EXPECT_EQ(meanwhile, (std::vector<std::string>{"HTTP/1.1 503", "HTTP/1.1 503"}));
  EXPECT_EQ(readyz(port), "HTTP/1.1 200");
}

}  // namespace
}  // namespace remora::detail
