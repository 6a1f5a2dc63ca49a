/// Grants as memory windows, on a server that uses them without checks of its device: binding and
/// deallocating them, the lane of each key, and sessions that are resumed. These tests do not check
/// the isolation that rxe of Linux 6.1 lacks (the range of a window; invalidation by another
/// client). protection_test checks it on servers whose device passes all checks.

#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/remora.h>
#include <remora/testing/fault_transport.h>
#include <remora/verbs/verbs.h>

#include "protocol/messages.h"
#include "raw_session.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/pattern.h"
#include "support/resources.h"
#include "support/runtime_dir.h"
#include "support/server.h"
#include "support/transport.h"
#include "transport/rdma/client_isolation.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::Opcode;

/// So small that the regions here have several extents.
constexpr std::uint64_t kWindowPieceBytes = 256_KiB;
constexpr std::uint64_t kWindowPoolBytes = 8_MiB;

class WindowsTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
    (void)verbs::connection_manager_devices();  // the devices stay open from now on
    baseline_ = Resources::settled();
    failures_ = verbs::teardown_failure_count();
  }
  void TearDown() override {
    if (!server_) return;
    server_->stop();
    server_.reset();
    EXPECT_TRUE(back_at(*baseline_)) << "queue pairs, windows, registrations";
    EXPECT_EQ(verbs::teardown_failure_count(), failures_);
  }
  [[nodiscard]] static config::ServerConfig configuration() {
    config::ServerConfig config = server_config(
        GetParam(), {.pool_bytes = kWindowPoolBytes, .piece_bytes = kWindowPieceBytes});
    config.transports.rdma_protection = config::RdmaProtection::kWindowsUnchecked;
    return config;
  }
  void start(const config::ServerConfig& config) {
    server_.emplace(Server::start(config).value());
    address_ = {listen_address(GetParam()), server_->port()};
  }
  RegionInfo make(const std::string& name, std::uint64_t size_bytes, bool shm = false) {
    RegionSpec spec;
    spec.name = name;
    spec.size_bytes = size_bytes;
    spec.shm = shm;
    return server_->create_region(spec).value();
  }
  [[nodiscard]] std::string uri(const std::string& region) const {
    return "remora://" + address_.host + ":" + std::to_string(address_.port) + "/" + region +
           "?transport=" + std::string{to_string(GetParam())};
  }
  [[nodiscard]] RawSession raw(RawSession::LaneKeys keys = RawSession::LaneKeys::kAlways) const {
    return RawSession{address_, GetParam(), nullptr, keys};
  }
  [[nodiscard]] double gauge(const char* name) const {
    const auto sum = server_->registry().sum(name, {});
    return sum ? *sum : -1.0;
  }
  [[nodiscard]] double windows() const { return gauge("remora_server_windows"); }
  [[nodiscard]] double registrations() const { return gauge("remora_server_registrations"); }
  template <typename Condition>
  static bool soon(Condition condition) {
    for (Patience patience{std::chrono::seconds{20}}; !condition() && !patience.over();)
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
    return condition();
  }

  /// A client whose connections a test can break.
  struct Client {
    testing::FaultTransport faults = testing::FaultTransport::create().value();
    std::atomic<int> interrupted{0};
    std::atomic<int> resumed{0};
    std::optional<Engine> engine{};
  };
  static std::unique_ptr<Client> client(std::uint32_t lanes) {
    auto made = std::make_unique<Client>();
    EngineOptions options{.lanes = lanes};
    options.handlers.on_interrupted = [raw = made.get()](const auto& /*event*/) {
      ++raw->interrupted;
    };
    options.handlers.on_resumed = [raw = made.get()](const auto& /*event*/) { ++raw->resumed; };
    options.faults = made->faults.hook();
    made->engine = Engine::open(options).value();
    return made;
  }

  std::optional<Resources> baseline_;
  std::uint64_t failures_ = 0;
  std::optional<Server> server_;
  ServerAddress address_;
};

TEST_P(WindowsTest, EachExtentIsAWindowOnEachLaneAndAllOfThemGo) {
  start(configuration());
  const auto status = nlohmann::json::parse(server_->status_json());
  EXPECT_EQ(status.at("devices").at(0).at("protection").at("mechanism"), "windows");
  constexpr double kPieces = kWindowPoolBytes / kWindowPieceBytes;
  EXPECT_EQ(registrations(), kPieces) << "the pool, once";
  const auto extents = static_cast<double>(make("long", 1_MiB).extent_count);
  ASSERT_GE(extents, 4.0);
  {
    constexpr std::uint32_t kLanes = 3;
    auto engine = Engine::open({.lanes = kLanes}).value();
    std::optional<Region> region = engine.open_region(uri("long"), Rights::kAll).value();
    EXPECT_EQ(windows(), kLanes * extents);
    EXPECT_EQ(registrations(), kPieces + 1 + kLanes) << "a control channel, and lanes";
    // Each lane reaches each extent.
    const std::vector<std::byte> written = noise(1_MiB, 7);
    std::vector<std::byte> seen(1_MiB);
    for (std::uint32_t i = 0; i < kLanes; ++i) {
      Queue queue = region->queue({.depth = 64}).value();
      for (std::uint64_t at = 0; at < 1_MiB; at += 64_KiB)
        queue.write(ByteOffset{at}, std::span{written}.subspan(at, 64_KiB));
      queue.barrier();
      for (std::uint64_t at = 0; at < 1_MiB; at += 64_KiB)
        queue.read(ByteOffset{at}, std::span{seen}.subspan(at, 64_KiB));
      ASSERT_TRUE(ok(queue.submit()));
      for (std::size_t done = 0; done < 32;)
        for (const Completion& completion : queue.wait(1)) {
          ASSERT_TRUE(completion.ok()) << completion.error();
          ++done;
        }
      EXPECT_TRUE(same_bytes(seen, written));
      std::fill(seen.begin(), seen.end(), std::byte{0});
    }
    EXPECT_TRUE(ok(region->write_zeroes(ByteOffset{0}, 8)));
    EXPECT_EQ(region->fetch_add(ByteOffset{0}, 5).value(), 0U);
    EXPECT_EQ(region->compare_swap(ByteOffset{0}, 5, 6).value(), 5U);
    EXPECT_TRUE(ok(region->flush_visible()));
    region.reset();
    EXPECT_TRUE(soon([&] { return windows() == 0.0; })) << "the grant has gone";
    for (int i = 0; i < 8; ++i) {
      auto again = engine.open_region(uri("long"), Rights::kRead);
      ASSERT_TRUE(again) << again.error();
      EXPECT_EQ(windows(), kLanes * extents);
    }
  }
  EXPECT_TRUE(soon([&] { return registrations() == kPieces && windows() == 0.0; }));
}

TEST_P(WindowsTest, KeyWorksOnItsOwnLaneOnly) {
  start(configuration());
  make("target", 64_KiB);
  RawSession owner = raw();
  ASSERT_TRUE(owner.has_lane_keys());
  const RawSession::Grant grant = owner.open("target", Rights::kAll);
  ASSERT_EQ(grant.lane_keys.lanes, 1U);
  const auto [start, length, address, key] = grant.extents[0];
  EXPECT_EQ(key, grant.lane_keys.keys[0]);
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite, Opcode::kFetchAdd}) {
    RawSession thief = raw();
    (void)thief.open("target", Rights::kAll);
    EXPECT_EQ(thief.run(opcode, address, key, 8), CompletionStatus::kRemoteAccessError);
  }
  // Nor does it work on another lane of the same session.
  {
    RawSession two = raw();
    const auto second = two.open_lane();
    const RawSession::Grant both = two.open("target", Rights::kAll);
    ASSERT_EQ(both.lane_keys.lanes, 2U);
    ASSERT_NE(both.lane_keys.keys[0], both.lane_keys.keys[1]);
    EXPECT_EQ(two.run_on(*second, Opcode::kWrite, both.extents[0].remote_address,
                         both.lane_keys.keys[1], 8),
              CompletionStatus::kSuccess);
    EXPECT_EQ(two.run_on(*second, Opcode::kWrite, both.extents[0].remote_address,
                         both.lane_keys.keys[0], 8),
              CompletionStatus::kRemoteAccessError);
    second->close();
  }
  EXPECT_EQ(owner.run(Opcode::kRead, address, key, 64), CompletionStatus::kSuccess);
}

TEST_P(WindowsTest, WindowAllowsWhatItsGrantDoes) {
  start(configuration());
  make("target", 64_KiB);
  struct Forbidden {
    Rights rights;
    Opcode opcode;
  };
  for (const Forbidden each :
       {Forbidden{Rights::kRead, Opcode::kWrite}, Forbidden{Rights::kRead, Opcode::kFetchAdd},
        Forbidden{Rights::kWrite, Opcode::kRead},
        Forbidden{Rights::kReadWrite, Opcode::kFetchAdd}}) {
    RawSession session = raw();
    const auto [start, length, address, key] = session.open("target", each.rights).extents[0];
    EXPECT_EQ(session.run(each.opcode, address, key, 8), CompletionStatus::kRemoteAccessError)
        << static_cast<int>(each.rights) << " " << static_cast<int>(each.opcode);
  }
}

TEST_P(WindowsTest, WindowOfAClosedGrantIsOfNoUse) {
  start(configuration());
  make("target", 64_KiB);
  RawSession session = raw();
  const RawSession::Grant grant = session.open("target", Rights::kAll);
  const auto [start, length, address, key] = grant.extents[0];
  ASSERT_EQ(session.run(Opcode::kRead, address, key, 64), CompletionStatus::kSuccess);
  session.close(grant);
  EXPECT_EQ(windows(), 0.0);
  EXPECT_EQ(session.run(Opcode::kRead, address, key, 64), CompletionStatus::kRemoteAccessError);
}

TEST_P(WindowsTest, LaneThatComesLaterGetsItsKeysWhenTheyAreAskedFor) {
  start(configuration());
  make("target", 64_KiB);
  RawSession session = raw();
  const RawSession::Grant grant = session.open("target", Rights::kAll);
  const auto late = session.open_lane();
  EXPECT_EQ(windows(), 1.0);
  const RawSession::Grant again = session.ask_again(grant);
  EXPECT_EQ(windows(), 2.0);
  ASSERT_EQ(again.lane_keys.lanes, 2U);
  EXPECT_EQ(again.lane_keys.keys[0], grant.lane_keys.keys[0]) << "what it had stays";
  const std::uint64_t address = grant.extents[0].remote_address;
  EXPECT_EQ(session.run_on(*late, Opcode::kWrite, address, again.lane_keys.keys[1], 64),
            CompletionStatus::kSuccess);
  EXPECT_EQ(session.run(Opcode::kRead, address, again.lane_keys.keys[0], 64),
            CompletionStatus::kSuccess);
  (void)session.ask_again(grant);
  EXPECT_EQ(windows(), 2.0) << "nothing was missing";
  late->close();
}

TEST_P(WindowsTest, ClientThatDoesNotSayThatItCanGetsARegistration) {
  start(configuration());
  make("target", 64_KiB);
  RawSession old = raw(RawSession::LaneKeys::kNever);
  EXPECT_FALSE(old.has_lane_keys());
  const double before = registrations();
  const RawSession::Grant grant = old.open("target", Rights::kAll);
  EXPECT_EQ(grant.lane_keys.lanes, 0U);
  EXPECT_EQ(windows(), 0.0);
  EXPECT_EQ(registrations(), before + 1);
  const auto [start, length, address, key] = grant.extents[0];
  const auto second = old.open_lane();
  for (transport::Lane* const lane : {&old.lane(), second.get()})
    EXPECT_EQ(old.run_on(*lane, Opcode::kWrite, address, key, 64), CompletionStatus::kSuccess);
  // The server refuses operations beyond the grant.
  EXPECT_EQ(old.run(Opcode::kRead, address + length, key, 8), CompletionStatus::kRemoteAccessError);
  second->close();
}

TEST_P(WindowsTest, WindowsAreCountedAndBounded) {
  constexpr std::uint32_t kMaxWindows = 6;
  config::ServerConfig config = configuration();
  config.limits.windows_max = kMaxWindows;
  start(config);
  make("small", 64_KiB);
  const std::uint64_t extents = make("long", 768_KiB).extent_count;
  ASSERT_GE(2 * extents, kMaxWindows - 1);
  auto engine = Engine::open({.lanes = 2}).value();
  std::optional<Region> small = engine.open_region(uri("small"), Rights::kAll).value();
  EXPECT_EQ(windows(), 2.0);
  const auto refused = engine.open_region(uri("long"), Rights::kAll);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kLimitExceeded) << refused.error();
  EXPECT_EQ(refused.error().subject(), "limits.windows_max") << refused.error();
  EXPECT_EQ(refused.error().asked(), 2 + 2 * extents);
  EXPECT_EQ(refused.error().allowed(), kMaxWindows);
  EXPECT_EQ(windows(), 2.0) << "a refusal takes nothing";
  EXPECT_TRUE(small->fetch_add(ByteOffset{0}, 1));
  for (int i = 0; i < 8; ++i) {
    small.reset();
    auto again = engine.open_region(uri("small"), Rights::kAll);
    ASSERT_TRUE(again) << again.error();
    small.emplace(std::move(*again));
  }
  EXPECT_EQ(windows(), 2.0);
}

/// A lost session that the client may resume keeps its room for windows, so that other sessions do
/// not take it meanwhile.
TEST_P(WindowsTest, LostSessionMakesNoRoomForOthers) {
  config::ServerConfig config = configuration();
  config.limits.windows_max = 1;
  config.limits.session_keep = std::chrono::minutes{1};
  start(config);
  make("mine", 64_KiB);
  make("other", 64_KiB);
  const auto one = client(1);
  const Region mine = one->engine->open_region(uri("mine"), Rights::kAll).value();
  one->faults.refuse_connects_for(std::chrono::hours{1});
  one->faults.lose_connections();
  ASSERT_TRUE(soon([&] { return gauge("remora_server_sessions_kept") == 1.0; }));
  EXPECT_EQ(windows(), 1.0);
  auto others = Engine::open({.lanes = 1}).value();
  EXPECT_TRUE(fails_with(others.open_region(uri("other"), Rights::kAll), Code::kLimitExceeded));
  one->faults.refuse_connects_for(std::chrono::milliseconds{0});
  ASSERT_TRUE(soon([&] { return one->resumed == 1; }));
  EXPECT_EQ(windows(), 1.0);
  EXPECT_TRUE(mine.fetch_add(ByteOffset{0}, 1));
}

TEST_P(WindowsTest, SessionComesBackWithOtherKeysAndTheSameGrants) {
  start(configuration());
  const auto one = client(2);
  std::vector<Region> regions;
  constexpr std::size_t kRegions = 5;
  for (std::size_t i = 0; i < kRegions; ++i) {
    const std::string name = "r" + std::to_string(i);
    make(name, 512_KiB);
    regions.push_back(one->engine->open_region(uri(name), Rights::kAll).value());
  }
  const double all = windows();
  for (int round = 1; round <= 3; ++round) {
    one->faults.lose_connections();
    ASSERT_TRUE(soon([&] { return one->resumed == round; }));
    EXPECT_EQ(windows(), all) << "those of the old lanes are gone";
    for (std::size_t i = 0; i < kRegions; ++i) {
      EXPECT_EQ(regions[i].fetch_add(ByteOffset{8}, 1).value(),
                static_cast<std::uint64_t>(round - 1));
      const std::vector<std::byte> written = noise(512_KiB - 16, i + 1);
      ASSERT_TRUE(ok(regions[i].write(ByteOffset{16}, written)));
      std::vector<std::byte> seen(written.size());
      server_->view("r" + std::to_string(i)).value().read(ByteOffset{16}, seen).value();
      EXPECT_TRUE(same_bytes(seen, written));
    }
  }
}

/// The region has more extents than a lane's send queue takes at once, and than a message holds.
TEST_P(WindowsTest, RegionOfManyExtentsIsBoundInChainsAndToldOfInPagesAlsoAfterAResume) {
  constexpr std::uint64_t kSmallPiece = 16_KiB;
  config::ServerConfig config = configuration();
  config.pool.piece_bytes = kSmallPiece;
  start(config);
  const auto extents = make("long", 4_MiB).extent_count;
  ASSERT_GT(extents, control::kExtentsPerPage);
  const auto one = client(2);
  const Region region = one->engine->open_region(uri("long"), Rights::kAll).value();
  EXPECT_EQ(windows(), 2.0 * static_cast<double>(extents));
  for (int round = 0; round < 2; ++round) {
    const std::vector<std::byte> written = noise(4_MiB, static_cast<unsigned>(round) + 20);
    ASSERT_TRUE(ok(region.write(ByteOffset{0}, written)));
    std::vector<std::byte> seen(written.size());
    server_->view("long").value().read(ByteOffset{0}, seen).value();
    EXPECT_TRUE(same_bytes(seen, written));
    if (round == 1) break;
    one->faults.lose_connections();
    ASSERT_TRUE(soon([&] { return one->resumed == 1; }));
    EXPECT_EQ(windows(), 2.0 * static_cast<double>(extents));
  }
}

/// The client posts an operation that waited for a connection with the keys of the new lanes.
TEST_P(WindowsTest, OperationThatWaitedForTheNextConnectionFindsItsMemory) {
  start(configuration());
  make("target", 512_KiB);
  const auto one = client(1);
  const Region region = one->engine->open_region(uri("target"), Rights::kAll).value();
  one->faults.refuse_connects_for(std::chrono::hours{1});
  one->faults.lose_connections();
  ASSERT_TRUE(soon([&] { return one->interrupted == 1; }));
  const std::vector<std::byte> written = noise(512_KiB, 3);
  Queue queue = region.queue({.depth = 8, .deadline = std::chrono::seconds{20}}).value();
  queue.write(ByteOffset{0}, written);
  ASSERT_TRUE(ok(queue.submit()));
  one->faults.refuse_connects_for(std::chrono::milliseconds{0});
  std::size_t done = 0;
  for (const Completion& completion : queue.wait(1)) {
    EXPECT_TRUE(completion.ok()) << completion.error();
    ++done;
  }
  EXPECT_EQ(done, 1U);
  std::vector<std::byte> seen(written.size());
  server_->view("target").value().read(ByteOffset{0}, seen).value();
  EXPECT_TRUE(same_bytes(seen, written));
}

/// A region whose memory is not part of the pool that is registered with the device.
TEST_P(WindowsTest, OwnMemoryOfARegionIsRegisteredWithItsGrant) {
  const RuntimeDir folder;
  config::ServerConfig config = configuration();
  config.transports.shm = config::Availability::kRequired;
  start(config);
  make("shared", 512_KiB, true);
  make("plain", 512_KiB);
  auto engine = Engine::open({.lanes = 1}).value();
  const Region plain = engine.open_region(uri("plain"), Rights::kAll).value();
  const double before = registrations();
  std::optional<Region> shared = engine.open_region(uri("shared"), Rights::kAll).value();
  EXPECT_EQ(registrations(), before + 1);
  const std::vector<std::byte> written = noise(512_KiB, 9);
  ASSERT_TRUE(ok(shared->write(ByteOffset{0}, written)));
  std::vector<std::byte> seen(written.size());
  server_->view("shared").value().read(ByteOffset{0}, seen).value();
  EXPECT_TRUE(same_bytes(seen, written));
  shared.reset();
  EXPECT_TRUE(soon([&] { return registrations() == before; }));
  ASSERT_TRUE(ok(server_->remove_region("shared", Removal::kNow)));
  // The pool's pages that the removed region had reserved are the same as before, and still
  // registered.
  constexpr std::uint64_t kAllElse = kWindowPoolBytes - 512_KiB;
  RegionSpec spec;
  spec.name = "next";
  spec.size_bytes = kAllElse;
  bool made = false;  // succeeds once the reaper has zeroed the removed region
  ASSERT_TRUE(soon([&] { return made = made || server_->create_region(spec); }));
  const Region next = engine.open_region(uri("next"), Rights::kAll).value();
  const std::vector<std::byte> all = noise(kAllElse, 11);
  ASSERT_TRUE(ok(next.write(ByteOffset{0}, all)));
  seen.assign(all.size(), std::byte{0});
  server_->view("next").value().read(ByteOffset{0}, seen).value();
  EXPECT_TRUE(same_bytes(seen, all));
}

TEST_P(WindowsTest, WindowsThatAreAskedForByNameNeedADeviceThatKeepsThem) {
  const auto devices = verbs::connection_manager_devices().value();
  const auto found =
      transport::rdma::probe_windows(devices[0], verbs::deadline_in(std::chrono::seconds{10}));
  // Also with `rdma: auto` the server fails to start, rather than start without windows.
  for (const auto wanted : {config::Availability::kRequired, config::Availability::kAuto}) {
    config::ServerConfig config = configuration();
    config.transports.rdma = wanted;
    config.transports.tcp = config::Availability::kAuto;
    config.transports.rdma_protection = config::RdmaProtection::kWindows;
    const auto started = Server::start(config);
    if (found.all_kept()) {
      EXPECT_TRUE(started);
      continue;
    }
    ASSERT_FALSE(started);
    EXPECT_EQ(started.error().code(), Code::kUnsupported) << started.error();
    EXPECT_TRUE(started.error().subject().starts_with("transports.rdma_protection on "))
        << started.error();
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, WindowsTest, ::testing::Values(TransportKind::kRdma),
                         [](const auto& parameter) {
                           return std::string{to_string(parameter.param)};
                         });

}  // namespace
}  // namespace remora::test
