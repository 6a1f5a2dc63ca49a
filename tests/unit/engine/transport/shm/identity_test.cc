/// A server over shm is the one of the URI, or none: by the host, the port and the network
/// namespace. Its socket's name has the port alone.

#include "transport/shm/identity.h"

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <memory>
#include <optional>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>

#include "base/log.h"
#include "transport/listen.h"

namespace remora::transport::identity {
namespace {

using namespace std::chrono_literals;

constexpr std::uint16_t kOwnPort = 7471;
const std::string kOwnPath = "/run/remora/remora-7471.sock";

Deadline soon() { return Clock::now() + 10s; }

/// Of a server that listens at `listen`; a name that is not known stands for no address.
ShmIdentity identity_of(std::string_view listen) {
  const auto found = verbs::Address::resolve_all(listen, kOwnPort, soon());
  return make_identity(listen, kOwnPort, found ? *found : std::vector<verbs::Address>{});
}

/// What a client that asks for `host` thinks of a server at `listen`.
Status compare(std::string_view listen, const std::string& host, std::uint16_t port = kOwnPort) {
  return check_identity(identity_of(listen), {.host = host, .port = port},
                        addresses_of(host, soon()).value(), kOwnPath);
}

bool reaches(std::string_view listen, const std::string& host) {
  return compare(listen, host).ok();
}

TEST(ShmIdentity, AddressIsThatOfTheServer) {
  EXPECT_TRUE(reaches("127.0.0.1", "127.0.0.1"));
  EXPECT_TRUE(reaches("127.0.0.1", "localhost"));
  EXPECT_TRUE(reaches("127.0.0.1", "::ffff:127.0.0.1"));
  EXPECT_TRUE(reaches("127.0.0.1", "0.0.0.0")) << "as the kernel takes it";
  EXPECT_FALSE(reaches("127.0.0.1", "127.0.0.2"));
  EXPECT_FALSE(reaches("127.0.0.1", "::1"));
  EXPECT_FALSE(reaches("127.0.0.1", "10.0.0.1"));
  EXPECT_TRUE(reaches("::1", "::1"));
  EXPECT_TRUE(reaches("::1", "localhost"));
  EXPECT_FALSE(reaches("::1", "127.0.0.1"));
  EXPECT_TRUE(reaches("localhost", "localhost"));
  EXPECT_TRUE(reaches("localhost", "127.0.0.1"));
}

TEST(ShmIdentity, EveryAddressIsOfItsFamily) {
  EXPECT_TRUE(reaches("0.0.0.0", "127.0.0.1"));
  EXPECT_TRUE(reaches("0.0.0.0", "127.0.0.2"));
  EXPECT_TRUE(reaches("0.0.0.0", "10.0.0.1")) << "whether it is local is asked before";
  EXPECT_TRUE(reaches("0.0.0.0", "localhost"));
  EXPECT_FALSE(reaches("0.0.0.0", "::1"));
  EXPECT_TRUE(reaches("::", "::1"));
  EXPECT_TRUE(reaches("::", "127.0.0.1")) << "IPv4 comes in there, too";
}

TEST(ShmIdentity, ZoneIsPartOfTheAddress) {
  EXPECT_TRUE(reaches("fe80::1%lo", "fe80::1%lo"));
  EXPECT_FALSE(reaches("fe80::1%lo", "fe80::1"));
  EXPECT_FALSE(reaches("fe80::1%lo", "fe80::2%lo"));
}

TEST(ShmIdentity, PortIsThatOfTheServer) {
  EXPECT_EQ(compare("127.0.0.1", "127.0.0.1", 7472).error().code(), Code::kConnectionRefused);
}

TEST(ShmIdentity, ErrorNamesBoth) {
  const Error error = compare("127.0.0.1", "127.0.0.2").error();
  EXPECT_EQ(error.code(), Code::kConnectionRefused);
  EXPECT_NE(error.message().find("127.0.0.2:7471"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find("127.0.0.1:7471"), std::string::npos) << error.message();
  EXPECT_NE(error.message().find(kOwnPath), std::string::npos) << error.message();
}

TEST(ShmIdentity, NetworkNamespaceIsThatOfTheClient) {
  ShmIdentity told = identity_of("127.0.0.1");
  const Uri uri{.host = "127.0.0.1", .port = kOwnPort};
  const auto addresses = addresses_of(uri.host, soon()).value();
  ASSERT_NE(told.network_inode, 0U);
  ++told.network_inode;
  const Status other = check_identity(told, uri, addresses, kOwnPath);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code(), Code::kConnectionRefused);
  EXPECT_NE(other.error().message().find("another network namespace"), std::string::npos);
  told.network_inode = 0;
  EXPECT_TRUE(check_identity(told, uri, addresses, kOwnPath))
      << "one that is not known is not held";
}

TEST(ShmIdentity, OlderServerSaysNothing) {
  EXPECT_TRUE(check_identity({}, {.host = "127.0.0.1", .port = kOwnPort},
                             addresses_of("127.0.0.1", soon()).value(), kOwnPath));
}

TEST(ShmIdentity, NonsenseIsRefused) {
  const Uri uri{.host = "127.0.0.1", .port = kOwnPort};
  const auto addresses = addresses_of(uri.host, soon()).value();
  ShmIdentity many = identity_of("127.0.0.1");
  many.address_count = ShmIdentity::kMaxAddresses + 1;
  EXPECT_EQ(check_identity(many, uri, addresses, kOwnPath).error().code(), Code::kProtocol);
  ShmIdentity endless = identity_of("127.0.0.1");
  endless.listen_address.fill('x');
  EXPECT_EQ(check_identity(endless, uri, addresses, kOwnPath).error().code(), Code::kProtocol);
}

TEST(ShmIdentity, ThisHostHasItsOwnAddressesAlone) {
  const auto local = [](std::string_view host) {
    return is_this_host(addresses_of(host, soon()).value());
  };
  for (const char* host : {"localhost", "LOCALHOST", "127.0.0.1", "127.8.9.10", "::1", "0.0.0.0",
                           "::", "::ffff:127.0.0.1"})
    EXPECT_TRUE(local(host)) << host;
  for (const char* host : {"192.0.2.55", "2001:db8::55", "::ffff:192.0.2.55"})
    EXPECT_FALSE(local(host)) << host;
  ifaddrs* interfaces = nullptr;
  ASSERT_EQ(::getifaddrs(&interfaces), 0);
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner{interfaces, &::freeifaddrs};
  for (const ifaddrs* own = interfaces; own != nullptr; own = own->ifa_next) {
    if (own->ifa_addr == nullptr) continue;
    const int family = own->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const std::string host = verbs::Address::from(own->ifa_addr).host();
    EXPECT_TRUE(local(host)) << host;
  }
}

/// Two servers of one host with one port: one at 127.0.0.1 over shm and tcp, one at 127.0.0.2 over
/// tcp alone. Each has a region of the same name.
class TwoServersTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ::setenv("REMORA_RUNTIME_DIR", folder_.c_str(), 1);
    first_ = start("127.0.0.1", 0, config::Availability::kRequired);
    ASSERT_TRUE(first_);
    second_ = start("127.0.0.2", first_->port(), config::Availability::kOff);
    ASSERT_TRUE(second_);
  }
  void TearDown() override {
    second_.reset();
    first_.reset();
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "something was left behind";
    ::unsetenv("REMORA_RUNTIME_DIR");
  }
  static std::optional<Server> start(const std::string& address, std::uint16_t port,
                                     config::Availability shm) {
    config::ServerConfig config;
    config.listen = {.address = address, .port = port};
    config.transports.rdma = config::Availability::kOff;
    config.transports.tcp = config::Availability::kRequired;
    config.transports.shm = shm;
    config.pool.size_bytes = 1U << 20U;
    config.pool.piece_bytes = 1U << 20U;
    config.pool.huge_pages = config::HugePages::kNever;
    config.auth = config::Auth::kNone;
    auto server = Server::start(config);
    if (!server) {
      ADD_FAILURE() << server.error();
      return std::nullopt;
    }
    EXPECT_TRUE(server->create_region(
        {.name = "r", .size_bytes = 4096, .shm = shm != config::Availability::kOff}));
    return std::move(*server);
  }
  [[nodiscard]] std::string uri(const std::string& host, const std::string& rest) const {
    return "remora://" + host + ":" + std::to_string(first_->port()) + rest;
  }

  std::string folder_ = "/tmp/remora-test-XXXXXX";
  std::optional<Server> first_;
  std::optional<Server> second_;
};

TEST_F(TwoServersTest, EachIsReachedByItsAddress) {
  const Engine engine = Engine::open({}).value();
  {
    const Region region = engine.open_region(uri("127.0.0.2", "/r"), Rights::kAll).value();
    EXPECT_NE(region.transport_reason().find("tcp"), std::string::npos);
    EXPECT_NE(region.transport_reason().find("127.0.0.1:"), std::string::npos)
        << "not which server shm would have reached: " << region.transport_reason();
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 5).value(), 0U);
  }
  {
    const Region region = engine.open_region(uri("localhost", "/r"), Rights::kAll).value();
    EXPECT_NE(region.transport_reason().find("shm: same host"), std::string::npos)
        << region.transport_reason();
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 0U) << "the other server's";
  }
  const Session second = engine.connect(uri("127.0.0.2", "")).value();
  EXPECT_EQ(second.transport(), TransportKind::kTcp);
  const Session first = engine.connect(uri("127.0.0.1", "")).value();
  EXPECT_EQ(first.transport(), TransportKind::kShm);
  EXPECT_NE(first.server().boot_id, second.server().boot_id);
  EXPECT_TRUE(second.remove_region("r"));
  EXPECT_TRUE(first.stat("r"));
}

TEST_F(TwoServersTest, AutoNamesTheAddressThatIsListenedAtInstead) {
  const Engine engine = Engine::open({}).value();
  const auto expect_named = [&](const auto& refused) {
    ASSERT_FALSE(refused);
    const Error& error = refused.error();
    EXPECT_EQ(error.code(), Code::kConnectionRefused) << error;
    EXPECT_EQ(error.operation(), "connect over tcp") << error;
    const std::string text = error.message();
    EXPECT_NE(text.find(uri("127.0.0.3", "").substr(9)), std::string::npos) << text;
    EXPECT_NE(text.find("listens at " + uri("127.0.0.1", "").substr(9)), std::string::npos) << text;
    EXPECT_EQ(text.find("transport="), std::string::npos) << text;
  };
  expect_named(engine.open_region(uri("127.0.0.3", "/r"), Rights::kAll));
  expect_named(engine.connect(uri("127.0.0.3", "")));
}

TEST_F(TwoServersTest, ReasonOfTheTransportIsOneShortLine) {
  const Engine engine = Engine::open({}).value();
  const Region region = engine.open_region(uri("127.0.0.2", "/r"), Rights::kAll).value();
  EXPECT_LT(region.transport_reason().size(), 120U) << region.transport_reason();
  EXPECT_EQ(region.transport_reason().find('\n'), std::string::npos);
}

/// A server that is not there is waited for with one line at the first attempt and one at the end.
TEST_F(TwoServersTest, WaitingForAServerIsTwoLinesInTheLog) {
  EngineOptions options;
  options.connect_for = std::chrono::seconds{1};
  const Engine engine = Engine::open(options).value();
  const auto sink = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000);
  auto& sinks = log::logger().sinks();
  const auto before = std::exchange(sinks, {sink});
  const auto refused = engine.open_region("remora://127.0.0.1:9/r", Rights::kAll);
  sinks = before;
  ASSERT_FALSE(refused);
  std::vector<std::string> lines = sink->last_formatted();
  std::erase_if(lines,
                [](const std::string& line) { return line.find("warning") == std::string::npos; });
  ASSERT_EQ(lines.size(), 2U) << testing::PrintToString(lines);
  EXPECT_NE(lines[0].find("not let in yet: "), std::string::npos) << lines[0];
  EXPECT_NE(lines[1].find("not let in: "), std::string::npos) << lines[1];
  // Each says of each transport why it does not fit.
  for (const std::string& line : lines) EXPECT_NE(line.find("tcp"), std::string::npos) << line;
}

TEST_F(TwoServersTest, NamedTransportFailsAndNamesBoth) {
  const Engine engine = Engine::open({}).value();
  const auto refused = engine.open_region(uri("127.0.0.2", "/r?transport=shm"), Rights::kAll);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kConnectionRefused);
  const std::string text = refused.error().message();
  EXPECT_NE(text.find("127.0.0.2:"), std::string::npos) << text;
  EXPECT_NE(text.find("127.0.0.1:"), std::string::npos) << text;
  const auto elsewhere = engine.connect(uri("192.0.2.55", "?transport=shm"));
  ASSERT_FALSE(elsewhere);
  EXPECT_EQ(elsewhere.error().code(), Code::kUnreachable);
  EXPECT_NE(elsewhere.error().message().find("192.0.2.55"), std::string::npos);
  EXPECT_NE(elsewhere.error().message().find(folder_), std::string::npos);
}

TEST_F(TwoServersTest, RegionsSayWhichMemoryTheyAreOf) {
  const Engine engine = Engine::open({}).value();
  for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
    const Session session = engine.connect(uri(host, "")).value();
    const std::uint64_t memory_id = session.server().memory_id;
    EXPECT_NE(memory_id, 0U);
    EXPECT_EQ(session.stat("r").value().memory_id, memory_id);
    EXPECT_EQ(session.regions().value().front().memory_id, memory_id);
    EXPECT_EQ(session.create_region({.name = "s", .size_bytes = 4096}).value().memory_id,
              memory_id);
    EXPECT_EQ(engine.open_region(uri(host, "/r"), Rights::kRead).value().info().memory_id,
              memory_id);
  }
  EXPECT_NE(first_->regions().front().memory_id, second_->regions().front().memory_id);
}

}  // namespace
}  // namespace remora::transport::identity
