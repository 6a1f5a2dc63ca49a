// No thread to be had: at every place that starts one, for one thread and for all from there on.
// What needs a thread says so; what only wanted help is done without.

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <string>
#include <sys/socket.h>
#include <tbb/global_control.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>
#include <remora/remora.h>
#include <remora/testing/fault_transport.h>

#include "support/eventually.h"
#include "support/memory_store.h"
#include "support/refuse_threads.h"
#include "support/runtime_dir.h"
#include "support/server.h"

namespace remora::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kRegionBytes = std::size_t{4} << 20U;
/// More threads than anything here asks for.
constexpr std::size_t kMaxStarts = 64;

/// The one error there may be: it names the limit and says what to do.
void expect_no_thread(const Error& error) {
  EXPECT_EQ(error.code(), Code::kSystem) << error;
  EXPECT_EQ(error.reason(), Reason::kNoThread) << error;
  EXPECT_NE(error.message().find("ulimit -u"), std::string::npos) << error;
}

/// Runs `scenario` with the first thread refused, the second, and so on until none was; each by
/// itself, and all from there on.
void for_every_start(const std::function<void()>& scenario) {
  for (const bool all : {false, true})
    for (std::size_t n = 0;; ++n) {
      SCOPED_TRACE("thread " + std::to_string(n) + (all ? " and later ones" : ""));
      ASSERT_LT(n, kMaxStarts);
      refuse_threads(n, all ? SIZE_MAX : n + 1);
      scenario();
      const bool refused = threads_refused() != 0;
      refuse_threads(SIZE_MAX, SIZE_MAX);
      if (::testing::Test::HasFailure()) return;
      if (!refused) break;
    }
}

class NoThreadsTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  ~NoThreadsTest() override { refuse_threads(SIZE_MAX, SIZE_MAX); }

  static config::ServerConfig configuration() {
    auto config = server_config(GetParam());
    config.regions.push_back(
        {.name = "demo", .size_bytes = kRegionBytes, .shm = GetParam() == TransportKind::kShm});
    return config;
  }
  static std::string uri(const Server& server, const std::string& host = "127.0.0.1") {
    return "remora://" + host + ":" + std::to_string(server.port()) +
           "/demo?transport=" + std::string{to_string(GetParam())};
  }

  /// More of oneTBB's workers would be wanted than this machine may have processors for.
  const tbb::global_control workers_{tbb::global_control::max_allowed_parallelism, 8};
  const RuntimeDir runtime_dir_;
};

/// A loopback address of this process's own, with the usual port.
std::string own_address() {
  const int id = ::getpid();
  return "127." + std::to_string(id / 250 % 250 + 1) + "." + std::to_string(id % 250 + 1) +
         ".9:9471";
}

void write_and_read(const Region& region) {
  std::vector<std::byte> out(kRegionBytes);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i * 7 + i / 4096);
  std::vector<std::byte> in(out.size());
  const Status written = region.write(ByteOffset{0}, out);
  ASSERT_TRUE(written) << written.error();
  const Status read = region.read(ByteOffset{0}, in);
  ASSERT_TRUE(read) << read.error();
  EXPECT_TRUE(in == out);
}

void call_back(const Region& region) {
  auto queue = region.callback_queue({.depth = 4});
  if (!queue) return expect_no_thread(queue.error());
  std::atomic<bool> called{false};
  std::array<std::byte, 64> bytes{};
  const auto taken = queue->read(ByteOffset{0}, bytes, [&](Completion& completion) {
    EXPECT_TRUE(completion.ok());
    called = true;
  });
  ASSERT_TRUE(taken) << taken.error();
  for (Patience patience; !called && !patience.over();) std::this_thread::sleep_for(100us);
  EXPECT_TRUE(called);
}

Task<Status> add_twice(AsyncRegion region) {
  for (int i = 0; i < 2; ++i)
    if (const auto before = co_await region.fetch_add(ByteOffset{8}, 1); !before)
      co_return before.error();
  co_return Status{};
}

void await(const Region& region) {
  auto queue = region.async_queue({.depth = 4}, Resume::on_arena());
  if (!queue) return expect_no_thread(queue.error());
  const Status added = sync_wait(add_twice(queue->async()));
  EXPECT_TRUE(added) << added.error();
}

TEST_P(NoThreadsTest, ClientSaysSoOrWorks) {
  const Server server = Server::start(configuration()).value();
  for_every_start([&] {
    EngineOptions options;
    options.copy_threads = 4;
    options.arena_threads = 3;
    options.pollers = 2;
    const auto engine = Engine::open(options);
    if (!engine) return expect_no_thread(engine.error());
    const auto region = engine->open_region(uri(server), Rights::kAll);
    if (!region) return expect_no_thread(region.error());
    write_and_read(*region);
    call_back(*region);
    await(*region);
    write_and_read(*region);
  });
}

TEST_P(NoThreadsTest, NameThatCannotBeLookedUpSaysSo) {
  const Server server = Server::start(configuration()).value();
  const auto engine = Engine::open({}).value();
  ASSERT_TRUE(engine.open_region(uri(server), Rights::kAll));  // has what threads it needs
  refuse_threads(0, SIZE_MAX);
  const auto region = engine.open_region(uri(server, "localhost"), Rights::kAll);
  refuse_threads(SIZE_MAX, SIZE_MAX);
  if (GetParam() == TransportKind::kShm) {  // whose server is found without a name
    EXPECT_TRUE(region);
    return;
  }
  ASSERT_FALSE(region);
  expect_no_thread(region.error());
}

TEST_P(NoThreadsTest, ServerSaysSoOrServes) {
  for_every_start([&] {
    auto config = configuration();
    config.metrics.address = own_address();
    const auto server = Server::start(config);
    if (!server) return expect_no_thread(server.error());
    refuse_threads(SIZE_MAX, SIZE_MAX);
    const auto engine = Engine::open({}).value();
    const auto region = engine.open_region(uri(*server), Rights::kAll);
    ASSERT_TRUE(region) << region.error();
    write_and_read(*region);
  });
}

/// The memory that the process before has left stays stored, whichever thread is missing.
TEST_P(NoThreadsTest, StartThatFailsLeavesTheMemory) {
  const auto store = std::make_shared<MemoryStore>();
  auto config = configuration();
  config.pool.warm_restart = true;
  const auto start = [&] { return Server::start(config, nullptr, nullptr, {}, {}, store); };
  std::uint64_t memory_id = 0;
  {
    Server first = start().value();
    memory_id = first.regions().front().memory_id;
    first.hand_over();
  }
  for_every_start([&] {
    auto server = start();
    if (!server) return expect_no_thread(server.error());
    EXPECT_EQ(server->regions().front().memory_id, memory_id);
    server->hand_over();
  });
  EXPECT_EQ(start().value().regions().front().memory_id, memory_id);
}

TEST_P(NoThreadsTest, HandlerOfNotificationsIsRefused) {
  const Server server = Server::start(configuration()).value();
  const auto listen = [&] { return server.on_notify("demo", [](const Notification&) {}); };
  refuse_threads(0, SIZE_MAX);
  const Status refused = listen();
  refuse_threads(SIZE_MAX, SIZE_MAX);
  ASSERT_FALSE(refused);
  expect_no_thread(refused.error());
  EXPECT_TRUE(listen());
}

TEST_P(NoThreadsTest, SessionThatCannotComeBackSaysWhy) {
  if (GetParam() == TransportKind::kShm) GTEST_SKIP() << "over shm there is no lane to lose";
  const Server server = Server::start(configuration()).value();
  const auto faults = testing::FaultTransport::create({.seed = 1}).value();
  EngineOptions options;
  options.faults = faults.hook();
  const auto engine = Engine::open(options).value();
  const auto region = engine.open_region(uri(server), Rights::kAll).value();
  std::array<std::byte, 64> bytes{};
  ASSERT_TRUE(region.write(ByteOffset{0}, bytes));
  refuse_threads(0, SIZE_MAX);
  faults.lose_next_lane(testing::Landing::kLanded);
  EXPECT_FALSE(region.write(ByteOffset{0}, bytes));
  const Status lost = region.write(ByteOffset{0}, bytes);
  refuse_threads(SIZE_MAX, SIZE_MAX);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().code(), Code::kConnectionLost) << lost.error();
  EXPECT_EQ(lost.error().reason(), Reason::kNoThread) << lost.error();
  EXPECT_NE(lost.error().message().find("ulimit -u"), std::string::npos) << lost.error();
}

/// What an endpoint answers to GET `path`.
std::string get(std::uint16_t port, const std::string& path) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  const std::string request = "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      ::send(socket, request.data(), request.size(), MSG_NOSIGNAL) ==
          static_cast<ssize_t>(request.size())) {
    std::array<char, 4096> part{};
    for (ssize_t count = 0; (count = ::recv(socket, part.data(), part.size(), 0)) > 0;)
      answer.append(part.data(), static_cast<std::size_t>(count));
  }
  ::close(socket);
  return answer;
}

TEST(NoThreadsForAnEndpointTest, ItSaysSoOrAnswers) {
  const auto registry = metrics::Registry::create().value();
  for_every_start([&] {
    const auto endpoint = metrics::HttpEndpoint::start(registry, {.address = "127.0.0.1:0"});
    if (!endpoint) return expect_no_thread(endpoint.error());
    // By its own thread where there is no other.
    for (const char* path : {"/healthz", "/metrics"})
      EXPECT_TRUE(get(endpoint->port(), path).starts_with("HTTP/1.1 200 ")) << path;
  });
}

INSTANTIATE_TEST_SUITE_P(All, NoThreadsTest,
                         ::testing::Values(TransportKind::kTcp, TransportKind::kShm),
                         [](const auto& transport) {
                           return std::string{to_string(transport.param)};
                         });

}  // namespace
}  // namespace remora::test
