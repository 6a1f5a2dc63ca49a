/// A server that follows another one with the same memory: what goes on, what has ended, and when
/// the memory is new instead.

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "base/unique_fd.h"
#include "server/warm/sealed_record.h"
#include "support/eventually.h"
#include "support/memory_store.h"
#include "support/runtime_dir.h"

namespace remora::detail {
namespace {

using namespace std::chrono_literals;
using config::Availability;

constexpr std::uint64_t kRegionBytes = 64U << 10U;

/// What a client is told of its sessions.
struct Told {
  std::atomic<int> resumed{0};
  std::atomic<int> stale{0};
  std::atomic<int> lost{0};
  std::atomic<Reason> why{Reason::kNone};
};

class WarmRestartTest : public testing::TestWithParam<const char*> {
 protected:
  WarmRestartTest() {
    config_.listen.port = 0;
    config_.transports.rdma = Availability::kOff;
    config_.transports.tcp = Availability::kRequired;
    config_.transports.shm = Availability::kRequired;
    config_.pool = {.size_bytes = 1U << 20U,
                    .piece_bytes = 256U << 10U,
                    .huge_pages = config::HugePages::kNever,
                    .warm_restart = true};
    config_.auth = config::Auth::kNone;
    config_.limits.drain_timeout = 0s;
    config_.limits.session_keep = 60s;  // a machine may be busy
  }

  [[nodiscard]] static bool shm() { return std::string_view{GetParam()} == "shm"; }
  void start() {
    auto server = Server::start(config_, nullptr, nullptr, {}, {}, store_);
    ASSERT_TRUE(server) << server.error().message();
    server_.emplace(std::move(*server));
    config_.listen.port = server_->port();
  }
  void hand_over() {
    server_->hand_over();
    server_.reset();
  }
  void restart() {
    hand_over();
    start();
  }
  /// A server that the clients so far do not find.
  void restart_elsewhere() {
    hand_over();
    port_ = std::exchange(config_.listen.port, std::uint16_t{0});
    start();
  }
  void restart_where_clients_are() {
    hand_over();
    config_.listen.port = port_;
    start();
  }
  void create(const std::string& name, Lifetime lifetime = Lifetime::kPersistent) {
    const auto made = server_->create_region({.name = name,
                                              .size_bytes = kRegionBytes,
                                              .atomic_domain = "cpu",
                                              .shm = shm(),
                                              .lifetime = lifetime});
    ASSERT_TRUE(made) << made.error().message();
  }
  [[nodiscard]] std::string uri(const std::string& name) const {
    return "remora://127.0.0.1:" + std::to_string(config_.listen.port) + "/" + name +
           "?transport=" + GetParam();
  }
  /// `told` outlives the engine.
  static Engine engine(Told& told) {
    EngineOptions options;
    options.handlers.on_resumed = [&told](const SessionEvent&) { ++told.resumed; };
    options.handlers.on_stale = [&told](const SessionEvent&) { ++told.stale; };
    options.handlers.on_lost = [&told](const SessionEvent& event) {
      told.why = event.reason;
      ++told.lost;
    };
    return Engine::open(options).value();
  }
  [[nodiscard]] std::uint64_t memory_id() const {
    const auto regions = server_->regions();
    return regions.empty() ? 0 : regions.front().memory_id;
  }
  [[nodiscard]] bool status_has(std::string_view text) const {
    return server_->status_json().find(text) != std::string::npos;
  }

  test::RuntimeDir folder_;
  config::ServerConfig config_;
  std::shared_ptr<test::MemoryStore> store_ = std::make_shared<test::MemoryStore>();
  std::optional<Server> server_;
  std::uint16_t port_ = 0;
};

std::array<std::byte, 8> word(std::uint64_t value) {
  std::array<std::byte, 8> bytes{};
  std::memcpy(bytes.data(), &value, bytes.size());
  return bytes;
}

Status write_word(const Region& region, ByteOffset at, std::uint64_t value) {
  const std::array<std::byte, 8> bytes = word(value);
  return region.write(at, bytes);
}

/// By a client, or by the server's own view.
template <typename Memory>
std::uint64_t read_word(const Memory& region, std::uint64_t at) {
  std::array<std::byte, 8> bytes{};
  std::uint64_t value = 0;
  const Status read = region.read(ByteOffset{at}, bytes);
  EXPECT_TRUE(read) << read.error().message();
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void expect_refused(const Status& late, Reason reason) {
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kAccessRefused);
  EXPECT_EQ(late.error().reason(), reason);
}

TEST_P(WarmRestartTest, SessionBytesAndAtomicsGoOn) {
  start();
  create("a");
  const std::uint64_t memory = memory_id();
  Told told;
  const Engine client = engine(told);
  const Region region = client.open_region(uri("a"), Rights::kAll).value();
  ASSERT_TRUE(write_word(region, ByteOffset{kRegionBytes - 8}, 77));
  ASSERT_EQ(region.fetch_add(ByteOffset{0}, 5).value(), 0U);
  for (int round = 1; round <= 3; ++round) {
    restart();
    EXPECT_EQ(memory_id(), memory);
    EXPECT_EQ(read_word(region, kRegionBytes - 8), 77U);
    EXPECT_EQ(region.fetch_add(ByteOffset{0}, 5).value(), 5U * static_cast<unsigned>(round));
    EXPECT_TRUE(test::eventually([&] { return told.resumed == round; }));
  }
  EXPECT_EQ(told.stale, 0);
  EXPECT_EQ(told.lost, 0);
  EXPECT_TRUE(status_has(R"("taken_over":true)"));
}

TEST_P(WarmRestartTest, NewClientFindsTheSameRegion) {
  start();
  create("a");
  const RegionInfo before = server_->regions().front();
  ASSERT_TRUE(server_->view("a")->write(ByteOffset{8}, word(9)));
  restart();
  Told told;
  const Engine client = engine(told);
  const Region region = client.open_region(uri("a"), Rights::kAll).value();
  EXPECT_EQ(read_word(region, 8), 9U);
  EXPECT_EQ(region.info().memory_id, before.memory_id);
  EXPECT_EQ(region.info().incarnation, before.incarnation);
}

TEST_P(WarmRestartTest, GrantThatWasFencedMeanwhileStaysFenced) {
  start();
  create("a");
  Told told;
  const Engine client = engine(told);
  const Region fenced = client.open_region(uri("a"), Rights::kAll).value();
  restart_elsewhere();
  {
    Told others;
    const Engine other = engine(others);
    const auto fence = other.fence_region(uri("a"), Rights::kAll);
    // Over shm this process is one that may still write what it has mapped.
    if (shm()) {
      ASSERT_FALSE(fence);
      EXPECT_EQ(fence.error().code(), Code::kBusy);
      return;
    }
    ASSERT_TRUE(fence) << fence.error().message();
    ASSERT_TRUE(write_word(*fence, ByteOffset{0}, 1));
  }
  restart_where_clients_are();
  expect_refused(write_word(fenced, ByteOffset{0}, 2), Reason::kFenced);
  EXPECT_EQ(told.lost, 0) << "the session goes on without the grant";
  EXPECT_EQ(read_word(server_->view("a").value(), 0), 1U);
}

TEST_P(WarmRestartTest, GrantOfARemovedRegionReachesNoOtherRegion) {
  start();
  create("a");
  Told told;
  const Engine client = engine(told);
  const Region removed = client.open_region(uri("a"), Rights::kAll).value();
  ASSERT_TRUE(write_word(removed, ByteOffset{0}, 1));
  restart_elsewhere();
  EXPECT_EQ(server_->remove_region("a").error().code(), Code::kBusy) << "its client may come back";
  ASSERT_TRUE(server_->remove_region("a", Removal::kNow));
  create("a");  // of the same name
  restart_where_clients_are();
  expect_refused(write_word(removed, ByteOffset{0}, 2), Reason::kRevoked);
  EXPECT_EQ(read_word(server_->view("a").value(), 0), 0U) << "a new region begins as zeros";
}

/// The old handle closes its grant when it goes. That must not be the new grant of the same
/// session: over shm the client would write on, unseen by every fence.
TEST_P(WarmRestartTest, HandleOfARefusedGrantDoesNotCloseTheNewOne) {
  start();
  create("a");
  Told told;
  const Engine client = engine(told);
  std::optional<Region> removed{client.open_region(uri("a"), Rights::kAll).value()};
  restart_elsewhere();
  ASSERT_TRUE(server_->remove_region("a", Removal::kNow));
  create("a");
  restart_where_clients_are();
  ASSERT_TRUE(test::eventually([&] { return told.resumed == 1; }));
  const Region again = removed->reopen().value().region;
  removed.reset();
  // Its session has served the close by the time that it serves another request.
  ASSERT_TRUE(client.open_region(uri("a"), Rights::kRead));
  ASSERT_TRUE(write_word(again, ByteOffset{0}, 1));
  Told others;
  const Engine other = engine(others);
  const Region fence = other.fence_region(uri("a"), Rights::kAll).value();
  const Status late = write_word(again, ByteOffset{0}, 2);
  ASSERT_FALSE(late) << "the fence has not reached it";
  EXPECT_EQ(late.error().code(), Code::kAccessRefused);
  EXPECT_EQ(late.error().reason(), Reason::kFenced);
  EXPECT_EQ(read_word(fence, 0), 1U);
}

TEST_P(WarmRestartTest, GrantGoesOnWhereItsRegionHasGrown) {
  if (shm()) GTEST_SKIP() << "memory for shm keeps its size";
  start();
  create("a");
  Told told;
  const Engine client = engine(told);
  const Region region = client.open_region(uri("a"), Rights::kAll).value();
  ASSERT_TRUE(write_word(region, ByteOffset{kRegionBytes - 8}, 3));
  restart_elsewhere();
  ASSERT_TRUE(server_->resize_region("a", 8 * kRegionBytes));
  restart_where_clients_are();
  EXPECT_EQ(read_word(region, kRegionBytes - 8), 3U);
}

TEST_P(WarmRestartTest, SessionThatLapsedMeanwhileDoesNotComeBack) {
  config_.limits.session_keep = 300ms;
  start();
  create("a");
  Told told;
  const Engine client = engine(told);
  const Region region = client.open_region(uri("a"), Rights::kAll).value();
  restart_elsewhere();
  ASSERT_TRUE(test::eventually([&] { return status_has(R"("sessions_awaited":0)"); }));
  restart_where_clients_are();
  ASSERT_TRUE(test::eventually([&] { return told.lost == 1; }));
  EXPECT_EQ(told.why, Reason::kLapsed);
  EXPECT_FALSE(write_word(region, ByteOffset{0}, 2));
}

TEST_P(WarmRestartTest, RegionOfASessionGoesWithIt) {
  start();
  Told told;
  const Engine client = engine(told);
  const Session session = client.connect(uri("")).value();
  ASSERT_TRUE(session.create_region({.name = "own",
                                     .size_bytes = kRegionBytes,
                                     .atomic_domain = "cpu",
                                     .shm = shm(),
                                     .lifetime = Lifetime::kSession}));
  restart();
  ASSERT_TRUE(test::eventually([&] { return told.resumed == 1; }));
  EXPECT_EQ(server_->status().regions, 1U) << "its session goes on";
  config_.limits.session_keep = 300ms;
  restart_elsewhere();
  EXPECT_TRUE(test::eventually([&] { return server_->status().regions == 0; }));
}

TEST_P(WarmRestartTest, MemoryOfNoRegionIsZeroAgain) {
  start();
  create("a");
  {
    const std::vector<std::byte> ones(kRegionBytes, std::byte{0xff});
    ASSERT_TRUE(server_->view("a")->write(ByteOffset{0}, ones));
  }
  ASSERT_TRUE(server_->remove_region("a"));
  restart();
  const auto made = server_->create_region(
      {.name = "all", .size_bytes = config_.pool.size_bytes, .atomic_domain = "cpu"});
  ASSERT_TRUE(made) << made.error().message();
  std::vector<std::byte> bytes(config_.pool.size_bytes, std::byte{1});
  ASSERT_TRUE(server_->view("all")->read(ByteOffset{0}, bytes));
  EXPECT_EQ(bytes, std::vector<std::byte>(config_.pool.size_bytes));
}

/// The memory is new: clients are told, and the reason is there to read.
class ColdStartTest : public WarmRestartTest {
 protected:
  /// What is changed between the two processes.
  void expect_new_memory(const std::function<void()>& change, std::string_view reason) {
    start();
    create("a");
    const std::uint64_t memory = memory_id();
    Told told;
    const Engine client = engine(told);
    const Region region = client.open_region(uri("a"), Rights::kAll).value();
    ASSERT_TRUE(write_word(region, ByteOffset{0}, 1));
    hand_over();
    change();
    start();
    ASSERT_TRUE(test::eventually([&] { return told.stale == 1; }));
    EXPECT_EQ(server_->regions().size(), 0U);
    create("a");
    EXPECT_NE(memory_id(), memory);
    EXPECT_TRUE(status_has(R"("taken_over":false)"));
    EXPECT_TRUE(status_has(reason)) << server_->status_json();
    EXPECT_TRUE(status_has(R"("ready":true)")) << "the next restart is warm";
  }
};

TEST_P(ColdStartTest, CatalogIsDamaged) {
  expect_new_memory(
      [&] {
        const int fd = store_->fd("remora-catalog");
        // Both slots: one of them is the committed one.
        for (std::uint64_t slot = 0; slot < 2; ++slot) {
          const auto at =
              static_cast<off_t>(SealedRecord::kFirstSlot + slot * SealedRecord::kSlotBytes +
                                 SealedRecord::kHeaderBytes + 3);
          std::byte byte{};
          ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
          byte ^= std::byte{1};
          ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
        }
      },
      "CRC");
}

TEST_P(ColdStartTest, SessionsAreMissing) {
  expect_new_memory([&] { store_->remove("remora-sessions"); }, "remora-sessions");
}

TEST_P(ColdStartTest, PoolIsMissing) {
  expect_new_memory([&] { store_->remove("remora-pool"); }, "remora-pool");
}

TEST_P(ColdStartTest, PoolHasAnotherSize) {
  expect_new_memory([&] { config_.pool.size_bytes *= 2; }, "pool.size");
}

TEST_P(ColdStartTest, MemoryOfARegionIsMissing) {
  if (!shm()) GTEST_SKIP() << "it lies in the pool";
  expect_new_memory([&] { store_->remove("remora-region-1"); }, "remora-region-1");
}

/// A client reads what it has mapped until it finds that its connection has ended: never zeros.
TEST_P(ColdStartTest, MemoryThatClientsHaveMappedKeepsItsBytes) {
  if (!shm()) GTEST_SKIP() << "no client maps the pool";
  start();
  create("a");
  ASSERT_TRUE(server_->view("a")->write(ByteOffset{0}, word(6)));
  hand_over();
  const UniqueFd mapped{::fcntl(store_->fd("remora-region-1"), F_DUPFD_CLOEXEC, 3)};
  store_->remove("remora-sessions");
  start();
  EXPECT_TRUE(status_has(R"("taken_over":false)"));
  std::array<std::byte, 8> bytes{};
  ASSERT_EQ(::pread(mapped.get(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  EXPECT_EQ(bytes, word(6));
}

TEST_P(WarmRestartTest, StartThatFailsLeavesTheMemory) {
  start();
  create("a");
  const std::uint64_t memory = memory_id();
  ASSERT_TRUE(server_->view("a")->write(ByteOffset{0}, word(4)));
  hand_over();
  const config::ServerConfig good = config_;
  config_.regions = {{.name = "more", .size_bytes = 2 * config_.pool.size_bytes}};
  EXPECT_FALSE(Server::start(config_, nullptr, nullptr, {}, {}, store_));
  config_ = good;
  start();
  EXPECT_EQ(memory_id(), memory);
  EXPECT_EQ(read_word(server_->view("a").value(), 0), 4U);
}

/// Memory that cannot be mapped now (RLIMIT_AS, vm.max_map_count) is not damaged.
TEST_P(WarmRestartTest, MemoryThatCannotBeMappedStays) {
  start();
  create("a");
  const std::uint64_t memory = memory_id();
  ASSERT_TRUE(server_->view("a")->write(ByteOffset{8}, word(5)));
  hand_over();
  const UniqueFd pool{::fcntl(store_->fd("remora-pool"), F_DUPFD_CLOEXEC, 3)};
  const std::string path = "/proc/self/fd/" + std::to_string(pool.get());
  // Opened again without the right to write: mmap() fails.
  const UniqueFd no_writes{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  ASSERT_TRUE(no_writes);
  store_->remove("remora-pool");
  ASSERT_TRUE(store_->store("remora-pool", no_writes.get()));
  const std::size_t stored = store_->size();
  const auto failed = Server::start(config_, nullptr, nullptr, {}, {}, store_);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code(), Code::kSystem);
  EXPECT_EQ(store_->size(), stored);
  store_->remove("remora-pool");
  ASSERT_TRUE(store_->store("remora-pool", pool.get()));
  start();
  EXPECT_EQ(memory_id(), memory);
  std::array<std::byte, 8> bytes{};
  ASSERT_TRUE(server_->view("a")->read(ByteOffset{8}, bytes));
  EXPECT_EQ(bytes, word(5));
}

TEST_P(WarmRestartTest, RegionsOfAServerThatHasHandedOverAreClosed) {
  start();
  create("a");
  server_->hand_over();
  EXPECT_EQ(server_->view("a").error().code(), Code::kClosed);
  EXPECT_EQ(server_->create_region({.name = "b", .size_bytes = kRegionBytes}).error().code(),
            Code::kClosed);
  EXPECT_EQ(server_->remove_region("a").error().code(), Code::kClosed);
  server_->stop();  // changes nothing
  EXPECT_GE(store_->size(), 3U);
}

TEST_P(WarmRestartTest, StopGivesTheMemoryUp) {
  start();
  create("a");
  EXPECT_GE(store_->size(), 3U);
  server_->stop();
  EXPECT_EQ(store_->size(), 0U);
}

TEST_P(WarmRestartTest, RegionThatIsRemovedIsStoredNoMore) {
  if (!shm()) GTEST_SKIP() << "it lies in the pool";
  start();
  create("a");
  EXPECT_EQ(store_->size(), 4U);
  ASSERT_TRUE(server_->remove_region("a"));
  EXPECT_EQ(store_->size(), 3U);
}

TEST_P(WarmRestartTest, NothingIsHandedOverWhenTheStoreIsFull) {
  if (!shm()) GTEST_SKIP() << "nothing more is stored";
  start();
  store_->fill();
  create("a");  // still serves
  EXPECT_TRUE(status_has(R"("ready":false)"));
}

TEST_P(WarmRestartTest, ServerWithoutAStoreDoesNotStart) {
  const auto server = Server::start(config_);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code(), Code::kUnsupported);
  EXPECT_EQ(server.error().operation(), "pool.warm_restart");
}

INSTANTIATE_TEST_SUITE_P(Warm, WarmRestartTest, testing::Values("tcp", "shm"));
INSTANTIATE_TEST_SUITE_P(Warm, ColdStartTest, testing::Values("tcp", "shm"));

}  // namespace
}  // namespace remora::detail
