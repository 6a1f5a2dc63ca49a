/// Metrics of the client and the server: sessions begun and ended by reason, memory that removed
/// regions leave behind, counters of devices. The number of series is bounded, whatever clients do.

#include <fcntl.h>
#include <filesystem>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

#include <remora/metrics/process.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::size_t kRegions = 1000;

class SeriesTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 32U << 20U,
            .piece_bytes = 1U << 20U,
            .regions_max = kRegions + 8,
            .sessions_max = 400};
  }
  double served(std::string_view series, const metrics::Labels& labels = {}) {
    return server().registry().sum(series, labels).value();
  }
  [[nodiscard]] bool soon(std::string_view series, const metrics::Labels& labels, double wanted) {
    EXPECT_TRUE(eventually([&] { return served(series, labels) == wanted; }));
    EXPECT_EQ(served(series, labels), wanted) << series;
    return served(series, labels) == wanted;
  }
  static EngineOptions options_with(std::shared_ptr<metrics::Registry> registry) {
    EngineOptions options;
    options.client_name = "series";
    options.operation_deadline = options.control_deadline = 30s;
    options.registry = std::move(registry);
    return options;
  }
};

TEST_P(SeriesTest, SessionsAreCountedOnBothSides) {
  const auto registry = metrics::Registry::create().value();
  const double begun = served("remora_server_sessions_total");
  const double left = served("remora_server_sessions_ended_total", {{"reason", "left"}});
  {
    const Engine own = Engine::open(options_with(registry)).value();
    const Session one = own.connect(uri()).value();
    EXPECT_EQ(registry->sum("remora_client_sessions_total").value(), 1);
    EXPECT_EQ(registry->sum("remora_client_sessions_ended_total").value(), 0);
  }
  // The engine's control thread may hold the last reference to a session.
  const auto closed = [&] {
    return registry->sum("remora_client_sessions_ended_total", {{"reason", "closed"}}).value();
  };
  EXPECT_TRUE(eventually([&] { return closed() == 1; }));
  EXPECT_EQ(closed(), 1);
  EXPECT_EQ(registry->sum("remora_client_sessions_ended_total").value(), 1);
  EXPECT_EQ(served("remora_server_sessions_total"), begun + 1);
  EXPECT_TRUE(soon("remora_server_sessions_ended_total", {{"reason", "left"}}, left + 1));
}

TEST_P(SeriesTest, ServerThatStopsEndsSessionsUnderThatName) {
  const auto registry = metrics::Registry::create().value();
  EngineOptions options = options_with(registry);
  options.reconnect_for = 0s;
  const Engine own = Engine::open(options).value();
  const Session one = own.connect(uri()).value();
  // The session of an engine that connects again is interrupted instead.
  const auto patient_registry = metrics::Registry::create().value();
  const Engine patient = Engine::open(options_with(patient_registry)).value();
  const Session other = patient.connect(uri()).value();
  server().stop();
  const auto interrupted = [&] {
    return patient_registry
        ->sum("remora_client_sessions_interrupted_total", {{"reason", "peer_gone"}})
        .value();
  };
  EXPECT_TRUE(eventually([&] { return interrupted() == 1; }));
  EXPECT_EQ(interrupted(), 1);
  EXPECT_EQ(patient_registry->sum("remora_client_sessions_ended_total").value(), 0);
  EXPECT_EQ(served("remora_server_sessions_ended_total", {{"reason", "stopped"}}), 3);
  EXPECT_TRUE(eventually([&] { return !one.connected(); }));
  EXPECT_FALSE(one.connected());
  EXPECT_EQ(registry->sum("remora_client_sessions_ended_total").value(), 1);
  EXPECT_EQ(registry->sum("remora_client_sessions_ended_total", {{"reason", "closed"}}).value(), 0);
}

TEST_P(SeriesTest, WorkRequestsAreAllSignaledOrNot) {
  if (over_shm()) GTEST_SKIP() << "nothing is posted over shm";
  const auto registry = metrics::Registry::create().value();
  const Engine own = Engine::open(options_with(registry)).value();
  const RegionInfo made = create();
  const Region region = own.open_region(uri(made.name), Rights::kAll).value();
  SlotPool slots = own.allocate_slots(32, 4096).value();
  Queue queue = region.queue({.depth = 32}).value();
  // Writes every other block: the engine joins neighbours into one request.
  for (std::uint64_t i = 0; i < 32; ++i) queue.write(Block{i * 2 % 64}, slots.take());
  ASSERT_TRUE(ok(queue.submit()));
  drain(queue);
  const double posted =
      static_cast<double>(registry->distribution("remora_client_doorbell_work_requests")->sum());
  const double signaled =
      registry->sum("remora_client_work_requests_total", {{"kind", "signaled"}}).value();
  EXPECT_EQ(registry->sum("remora_client_work_requests_total").value(), posted);
  EXPECT_GE(signaled, 1);
  EXPECT_LT(signaled, posted) << "a chain has one completion";
  if (!over_rdma()) return;
  EXPECT_EQ(registry->sum("remora_client_inline_work_requests_total").value(), 0);
  std::array<std::byte, 8> small{};
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, small)));
  EXPECT_EQ(registry->sum("remora_client_inline_work_requests_total").value(), 1);
}

/// Descriptors of this process for the memory of regions.
std::set<int> region_descriptors() {
  std::set<int> found;
  for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/fd"}) {
    std::error_code gone;
    const auto target = std::filesystem::read_symlink(entry.path(), gone);
    if (!gone && target.string().find("memfd:remora-region") != std::string::npos)
      found.insert(std::stoi(entry.path().filename()));
  }
  return found;
}

TEST_P(SeriesTest, RemovedRegionThatAProcessMapsIsOrphaned) {
  if (!over_shm()) GTEST_SKIP() << "memory is handed out over shm only";
  const std::set<int> before = region_descriptors();
  const RegionInfo made = create({.size_bytes = 128_KiB});
  open(made.name);  // a client that closes the region leaves nothing
  // The server closes its duplicate of the descriptor after it has sent the reply.
  std::set<int> of_region;
  ASSERT_TRUE(eventually([&] {
    of_region = region_descriptors();
    for (const int fd : before) of_region.erase(fd);
    return of_region.size() == 1;
  }));
  const std::string path = "/proc/self/fd/" + std::to_string(*of_region.begin());
  const int held = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(held, 0);
  void* const mapped = ::mmap(nullptr, 128_KiB, PROT_READ, MAP_SHARED, held, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ::close(held);
  EXPECT_EQ(served("remora_server_orphaned_bytes"), 0);
  ASSERT_TRUE(ok(session().remove_region(made.name)));
  forget(made.name);
  EXPECT_EQ(served("remora_server_orphaned_bytes"), 128_KiB);
  EXPECT_EQ(served("remora_server_pool_bytes", {{"state", "used"}}), 0) << "no longer the pool's";
  ::munmap(mapped, 128_KiB);
  EXPECT_EQ(served("remora_server_orphaned_bytes"), 0);
}

TEST_P(SeriesTest, DevicesOwnCountersMove) {
  if (!over_rdma()) GTEST_SKIP() << "there is no device";
  const auto registry = metrics::Registry::create().value();
  const Engine own = Engine::open(options_with(registry)).value();
  const RegionInfo made = create();
  const Region region = own.open_region(uri(made.name), Rights::kAll).value();
  const auto all = [](const metrics::Registry& of) {
    const auto sum = of.sum("remora_nic_events_total");
    return sum ? *sum : -1.0;
  };
  const double client = all(*registry);
  const double server_side = all(server().registry());
  ASSERT_GE(client, 0) << "no series";
  ASSERT_GE(server_side, 0) << "no series";
  std::vector<std::byte> bytes(64_KiB);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
  EXPECT_GT(all(*registry), client);
  EXPECT_GT(all(server().registry()), server_side);
  const double sent = registry->sum("remora_nic_events_total", {{"counter", "sent_pkts"}}).value();
  std::printf("sent_pkts %.0f\n", sent);
  EXPECT_GT(sent, 20);
}

/// A name of maximal length, with characters beside letters and digits.
std::string hostile_name(std::size_t number) {
  std::string name = "..-_..{le=+Inf}\"\\n" + std::to_string(number);
  for (char& sign : name)
    if (std::string_view{"{}=+\"\\"}.find(sign) != std::string_view::npos) sign = '.';
  name.resize(64, '_');
  return name;
}

TEST_P(SeriesTest, TheyAreBoundedWhateverClientsDo) {
  // Server, clients and the process share a registry, as in an application that is both.
  const auto registry = metrics::Registry::create().value();
  ASSERT_TRUE(ok(metrics::register_process_metrics(*registry, "test")));
  auto config = server_config(transport(), server_options());
  const Server both = Server::start(config, registry).value();
  const ServerAddress address{listen_address(transport()), both.port()};
  const auto engine = std::make_unique<Engine>(Engine::open(options_with(registry)).value());
  const Session first = engine->connect(make_uri(address, transport())).value();
  const std::size_t few = registry->series_count();
  std::printf("%zu series with one session\n", few);

  const std::size_t regions = steps(kRegions);
  for (std::size_t i = 0; i < regions; ++i) {
    RegionSpec wanted = spec(hostile_name(i), {.size_bytes = 4096, .block_bytes = 64});
    ASSERT_TRUE(ok(first.create_region(wanted)));
  }
  for (const std::string& refused : {std::string(65, 'x'), std::string{"a\"} 1\n"}, std::string{}})
    EXPECT_FALSE(first.create_region(spec(refused, {.size_bytes = 4096})));
  std::vector<Engine> engines;
  std::vector<Region> open;
  const std::size_t sessions = steps(over_rdma() ? 40 : 300);
  std::array<std::byte, 64> bytes{};
  for (std::size_t i = 0; i < sessions; ++i) {
    EngineOptions options = options_with(registry);
    options.client_name = std::string(40, '"') + "\n{}" + std::to_string(i);
    options.pollers = 1;
    engines.push_back(Engine::open(options).value());
    const std::string name = hostile_name(i % regions);
    const Rights rights = i % 2 == 0 ? Rights::kAll : Rights::kRead;
    open.push_back(
        engines.back().open_region(make_uri(address, transport(), name), rights).value());
    const Region& region = open.back();
    EXPECT_TRUE(ok(region.read(ByteOffset{0}, bytes)));
    EXPECT_EQ(region.write(ByteOffset{0}, bytes).ok(), i % 2 == 0);
    EXPECT_FALSE(region.read(ByteOffset{4096}, bytes));
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).ok(), i % 2 == 0);
    EXPECT_FALSE(region.compare_swap(ByteOffset{1}, 0, 0));
    EXPECT_FALSE(engines.back().open_region(
        make_uri(address, transport(), "absent" + std::to_string(i)), Rights::kAll));
  }
  const std::size_t many = registry->series_count();
  std::printf("%zu series with %zu sessions and %zu regions\n", many, sessions, regions);
  EXPECT_EQ(many, few) << "clients add series";
  EXPECT_LE(many, 400U);
  const std::string text = registry->text();
  EXPECT_EQ(text.find("absent"), std::string::npos);
  EXPECT_EQ(text.find("..-_.."), std::string::npos) << "a region's name";
}

TEST_P(SeriesTest, ClientOfEveryTransportFitsWithADevice) {
  if (over_shm()) GTEST_SKIP() << "once is enough: all transports are in it";
  // All series that a client process has by default, with a device and callbacks. Those of kept
  // registrations, of volumes and of their store come with the first use of each.
  const auto registry = metrics::Registry::create().value();
  ASSERT_TRUE(ok(metrics::register_process_metrics(*registry, "test")));
  std::vector<TransportKind> open;
  std::vector<Server> servers;
  std::vector<Engine> engines;
  std::vector<Session> sessions;
  for (const TransportKind kind :
       {TransportKind::kShm, TransportKind::kTcp, TransportKind::kRdma}) {
    if (!why_unavailable(kind).empty()) continue;
    open.push_back(kind);
    servers.push_back(Server::start(server_config(kind)).value());
    EngineOptions options;
    options.registry = registry;
    options.control_deadline = 30s;
    engines.push_back(Engine::open(options).value());
    sessions.push_back(engines.back()
                           .connect(make_uri({listen_address(kind), servers.back().port()}, kind))
                           .value());
  }
  std::printf("%zu series, %zu transports\n", registry->series_count(), open.size());
  EXPECT_LE(registry->series_count(), 400U);
  // The registry has the series of all transports.
  for (const TransportKind kind : open)
    EXPECT_EQ(
        registry->sum("remora_client_sessions_total", {{"transport", std::string{to_string(kind)}}})
            .value(),
        1);
}

REMORA_CONFORMANCE(SeriesTest);

}  // namespace
}  // namespace remora::test
