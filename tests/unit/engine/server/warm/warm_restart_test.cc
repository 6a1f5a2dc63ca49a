/// A server that follows another one with the same memory: what goes on, and what has ended.

#include <array>
#include <chrono>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "base/unique_fd.h"
#include "client/datapath/mapped_access.h"
#include "support/eventually.h"
#include "unit/engine/server/warm/warm_restart_fixture.h"

namespace remora::detail {
namespace {

using namespace std::chrono_literals;

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
  const Status late = write_word(fenced, ByteOffset{0}, 2);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kAccessRefused);
  EXPECT_EQ(late.error().reason(), Reason::kFenced);
  EXPECT_EQ(told.lost, 0) << "the session goes on without the grant";
  std::array<std::byte, 8> bytes{};
  ASSERT_TRUE(server_->view("a")->read(ByteOffset{0}, bytes));
  EXPECT_EQ(bytes, word(1));
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
  const Status late = write_word(removed, ByteOffset{0}, 2);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kAccessRefused);
  EXPECT_EQ(late.error().reason(), Reason::kRevoked);
  std::array<std::byte, 8> bytes{};
  ASSERT_TRUE(server_->view("a")->read(ByteOffset{0}, bytes));
  EXPECT_EQ(bytes, word(0)) << "a new region begins as zeros";
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
  std::optional<Region> fence;
  ASSERT_TRUE(test::eventually([&] {  // kBusy until the client has returned whole
    auto made = other.fence_region(uri("a"), Rights::kAll);
    if (made) fence.emplace(std::move(*made));
    return made.ok();
  }));
  const Status late = write_word(again, ByteOffset{0}, 2);
  ASSERT_FALSE(late) << "the fence has not reached it";
  EXPECT_EQ(late.error().code(), Code::kAccessRefused);
  EXPECT_EQ(late.error().reason(), Reason::kFenced);
  EXPECT_EQ(read_word(*fence, 0), 1U);
}

/// A thread that copies by a grant which its client has not got again: no fence passes before it
/// has ended.
TEST_P(WarmRestartTest, FenceWaitsForACopyOfAClientThatIsBack) {
  if (!shm()) GTEST_SKIP() << "no client copies";
  start();
  create("a");
  create("b");
  Told told;
  const Engine client = engine(told);
  const Region removed = client.open_region(uri("a"), Rights::kAll).value();
  restart_elsewhere();
  ASSERT_TRUE(server_->remove_region("a", Removal::kNow));
  Told others;
  const Engine other = engine(others);
  {
    const MappedAccess copy{MappedAccess::kEveryGrant};  // by this thread
    restart_where_clients_are();
    ASSERT_TRUE(test::eventually([&] { return told.resumed == 1; }));
    const auto fence = other.fence_region(uri("b"), Rights::kAll);
    ASSERT_FALSE(fence);
    EXPECT_EQ(fence.error().code(), Code::kBusy);
  }
  EXPECT_TRUE(test::eventually([&] { return other.fence_region(uri("b"), Rights::kAll).ok(); }));
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

/// The configuration is the law for access, also over a restart.
TEST_P(WarmRestartTest, NarrowerRightsInTheConfigurationTakeEffect) {
  config::RegionConfig region;
  region.name = "a";
  region.size_bytes = kRegionBytes;
  region.atomics = "cpu";
  region.shm = shm();
  config_.regions = {region};
  start();
  Told told;
  const Engine client = engine(told);
  const Region writes = client.open_region(uri("a"), Rights::kAll).value();
  ASSERT_TRUE(write_word(writes, ByteOffset{0}, 1));
  restart();
  ASSERT_TRUE(write_word(writes, ByteOffset{0}, 2)) << "nothing has changed";
  const RegionInfo before = server_->regions().front();
  config_.regions.front().rights.write = false;
  restart();
  const Status late = write_word(writes, ByteOffset{0}, 3);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code(), Code::kAccessRefused);
  EXPECT_EQ(late.error().reason(), Reason::kFenced);
  EXPECT_EQ(client.open_region(uri("a"), Rights::kAll).error().code(), Code::kNoRight);
  const Region reads = client.open_region(uri("a"), Rights::kRead).value();
  EXPECT_EQ(read_word(reads, 0), 2U) << "the bytes stay";
  const RegionInfo now = server_->regions().front();
  EXPECT_EQ(now.incarnation, before.incarnation);
  EXPECT_GT(now.epoch, before.epoch);
  config_.regions.front().rights.write = true;
  restart();
  EXPECT_EQ(read_word(reads, 0), 2U) << "wider rights end no grant";
  EXPECT_TRUE(client.open_region(uri("a"), Rights::kAll));
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
  std::array<std::byte, 8> bytes{};
  ASSERT_TRUE(server_->view("a")->read(ByteOffset{0}, bytes));
  EXPECT_EQ(bytes, word(4));
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

/// One client must not be able to cost the others their memory.
TEST_P(WarmRestartTest, RegionThatTheStoreHasNoRoomForIsNotCreated) {
  if (!shm()) GTEST_SKIP() << "nothing more is stored";
  start();
  create("a");
  const std::uint64_t memory = memory_id();
  store_->fill();
  const auto refused =
      server_->create_region({.name = "b", .size_bytes = kRegionBytes, .shm = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kLimitExceeded);
  EXPECT_TRUE(status_has(R"("ready":true)"));
  restart();
  EXPECT_EQ(memory_id(), memory);
}

TEST_P(WarmRestartTest, ServerWithoutAStoreDoesNotStart) {
  const auto server = Server::start(config_);
  ASSERT_FALSE(server);
  EXPECT_EQ(server.error().code(), Code::kUnsupported);
  EXPECT_EQ(server.error().operation(), "pool.warm_restart");
}

INSTANTIATE_TEST_SUITE_P(Warm, WarmRestartTest, testing::Values("tcp", "shm"));

}  // namespace
}  // namespace remora::detail
