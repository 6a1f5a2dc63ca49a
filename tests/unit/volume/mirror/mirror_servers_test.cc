/// Mirrors over servers of this process and a store in a file.

#include <algorithm>
#include <arpa/inet.h>
#include <atomic>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <span>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/volume/cluster.h>
#include <remora/volume/open_store.h>
#include <remora/volume/volume.h>

#include "engine_member_opener.h"
#include "mirror_layout.h"
#include "support/assert_ok.h"
#include "support/pattern.h"
#include "support/server.h"
#include "support/transport.h"
#include "unit/volume/etcd_process.h"

namespace remora::volume::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using remora::test::noise;
using remora::test::same_bytes;

/// Servers "s0" to "s2", and a volume "v" of two groups: group i is on servers i and i + 1.
class MirrorServers : public ::testing::Test {
 protected:
  static constexpr std::uint64_t kGroup = 1_MiB;
  static constexpr std::uint32_t kServers = 3;

  void SetUp() override {
    for (std::uint32_t i = 0; i < kServers; ++i)
      servers_.emplace_back(
          Server::start(remora::test::server_config(TransportKind::kTcp, {.pool_bytes = 8_MiB}))
              .value());
    engine_.emplace(Engine::open({}).value());
    VolumeUri uri;
    uri.store = StoreKind::kFile;
    uri.path = folder_.path() + "/cluster.json";
    cluster_.emplace(open_store(uri).value(), std::string{kFileCluster});
    for (std::uint32_t i = 0; i < kServers; ++i)
      addresses_.push_back(remora::test::listen_address(TransportKind::kTcp) + ":" +
                           std::to_string(servers_[i]->port()));
    make_volume();
  }

  void make_volume() {
    VolumeRecord volume;
    volume.name = "v";
    volume.id = random_number();
    volume.block_bytes = 4_KiB;
    volume.stripe_bytes = 64_KiB;
    volume.group_bytes = kGroup;
    volume.width = 2;
    volume.size_bytes = volume.row_bytes();
    volume.kind = Kind::kMirror;
    volume.copies = 2;
    volume.nonce = random_number();
    Transaction transaction;
    const auto generation = cluster_->generation().value();
    transaction.changes.push_back({cluster_->keys().volume("v"), to_json(volume), kNoLease});
    for (std::uint32_t i = 0; i < 2; ++i) {
      GroupRecord group;
      group.index = i;
      group.generation = generation;
      group.nonce = random_number();
      for (const std::uint32_t server : {i, i + 1}) group.members.push_back(region_on(server, i));
      transaction.changes.push_back({cluster_->keys().group("v", i), to_json(group), kNoLease});
    }
    ASSERT_EQ(cluster_->store().commit(transaction, 5s).value().outcome, Outcome::kApplied);
  }
  Member region_on(std::uint32_t server, std::uint32_t group) {
    const Session session = engine_->connect("remora://" + addresses_[server]).value();
    RegionSpec spec;
    spec.name = region_name(1, group, random_number());
    spec.size_bytes = detail::mirror_region_bytes(kGroup);
    const RegionInfo info = session.create_region(spec).value();
    return {.server = "s" + std::to_string(server),
            .addresses = {addresses_[server]},
            .memory_id = info.memory_id,
            .region = info.name,
            .incarnation = info.incarnation};
  }
  Volume open(const VolumeOptions& options = {}) {
    return Volume::open(*engine_, *cluster_, "v", options).value();
  }
  [[nodiscard]] GroupRecord group(std::uint32_t index) {
    return cluster_->layout("v").value().groups[index];
  }
  /// All members of each group have the same data.
  void expect_equal_members() {
    for (std::uint32_t i = 0; i < 2; ++i) {
      std::vector<std::byte> first;
      for (const Member& member : group(i).members) {
        const Region region =
            engine_
                ->open_region("remora://" + member.addresses.front() + "/" + member.region,
                              Rights::kRead)
                .value();
        std::vector<std::byte> bytes(kGroup);
        ASSERT_OK(region.read(ByteOffset{detail::mirror_data_offset(kGroup)}, bytes));
        if (first.empty()) first = bytes;
        EXPECT_TRUE(same_bytes(bytes, first)) << "group " << i << ", " << member.server;
      }
    }
  }

  remora::volume::test::TemporaryFolder folder_;
  std::vector<std::optional<Server>> servers_;
  std::vector<std::string> addresses_;
  std::optional<Engine> engine_;
  std::optional<Cluster> cluster_;
};

TEST_F(MirrorServers, OnlyItsClaimedWriterWrites) {
  const Volume volume = open();
  std::vector<std::byte> bytes(300'000);
  ASSERT_OK(volume.read(ByteOffset{12'345}, bytes));
  EXPECT_EQ(bytes, std::vector<std::byte>(bytes.size()));
  EXPECT_CODE(volume.write(ByteOffset{0}, bytes), kNoRight);
  EXPECT_FALSE(volume.claimed());
  ASSERT_OK(volume.claim());
  EXPECT_TRUE(volume.claimed());
  const auto written = noise(bytes.size(), 1);
  ASSERT_OK(volume.write(ByteOffset{12'345}, written));
  ASSERT_OK(volume.read(ByteOffset{12'345}, bytes));
  EXPECT_TRUE(same_bytes(bytes, written));
  const Volume reader = open();
  std::vector<std::byte> read(bytes.size());
  ASSERT_OK(reader.read(ByteOffset{12'345}, read));
  EXPECT_TRUE(same_bytes(read, written));
  ASSERT_OK(volume.write_zeroes(ByteOffset{64_KiB}, 64_KiB));
  EXPECT_EQ(volume.fetch_add(ByteOffset{64_KiB}, 5).value(), 0U);
  EXPECT_EQ(volume.compare_swap(ByteOffset{64_KiB}, 5, 9).value(), 5U);
  ASSERT_OK(volume.flush_visible());
  ASSERT_OK(volume.settled(5s));
  expect_equal_members();
  ASSERT_OK(volume.release());
  EXPECT_CODE(volume.write(ByteOffset{0}, bytes), kNoRight);
  EXPECT_CODE(volume.release(), kNotFound);
  ASSERT_OK(reader.claim());
}

TEST_F(MirrorServers, MisuseIsSaidBeforeAnythingIsSent) {
  const Volume volume = open();
  ASSERT_OK(volume.claim());
  EXPECT_CODE(volume.claim(), kAlreadyExists);
  std::vector<std::byte> bytes(64);
  EXPECT_CODE(volume.write(ByteOffset{volume.size_bytes()}, bytes), kOutOfRange);
  EXPECT_CODE(volume.read(ByteOffset{volume.size_bytes() - 1}, bytes), kOutOfRange);
  EXPECT_CODE(volume.write(ByteOffset{0}, std::span<const std::byte>{}), kInvalidArgument);
  EXPECT_CODE(volume.fetch_add(ByteOffset{4}, 1), kMisaligned);
  EXPECT_CODE(volume.queue({.depth = 0}), kInvalidArgument);
  EXPECT_CODE(open({.rights = Rights::kRead}).claim(), kNoRight);
}

/// Writes of all lengths on all groups. Each has other bytes: where they overlap, the last counts.
TEST_F(MirrorServers, AQueueKeepsManyOperationsInFlight) {
  const Volume volume = open();
  ASSERT_OK(volume.claim());
  std::vector<std::byte> expected(volume.size_bytes());
  constexpr std::uint64_t kWrites = 300;
  const auto source = noise(expected.size() + kWrites, 3);
  remora::test::Random random{11};
  VolumeQueue queue = volume.queue({.depth = 32}).value();
  std::size_t failed = 0;
  const auto count = [&](const VolumeCompletions& found) {
    for (const VolumeCompletion& each : found)
      if (!each.ok()) ++failed;
  };
  for (std::uint64_t i = 0; i < kWrites; ++i) {
    const std::uint64_t length = 1 + random.below(random.below(4) == 0 ? 200'000 : 5'000);
    const std::uint64_t at = random.below(expected.size() - length);
    while (queue.full()) count(queue.wait(1));
    const auto bytes = std::span{source}.subspan(at + i, length);
    ASSERT_TRUE(queue.write(ByteOffset{at}, bytes));
    std::copy(bytes.begin(), bytes.end(), expected.begin() + static_cast<std::ptrdiff_t>(at));
    ASSERT_OK(queue.submit());
  }
  count(queue.wait(32));
  EXPECT_EQ(failed, 0U);
  std::vector<std::byte> read(expected.size());
  ASSERT_TRUE(queue.read(ByteOffset{0}, read));
  ASSERT_OK(queue.submit());
  count(queue.wait(1));
  EXPECT_EQ(failed, 0U);
  EXPECT_TRUE(same_bytes(read, expected));
  const Volume reader = open();
  VolumeQueue readers = reader.queue({.depth = 16}).value();
  std::fill(read.begin(), read.end(), std::byte{0});
  for (std::size_t i = 0; i < 16; ++i)
    ASSERT_TRUE(readers.read(ByteOffset{i * (read.size() / 16)},
                             std::span{read}.subspan(i * (read.size() / 16), read.size() / 16)));
  ASSERT_OK(readers.submit());
  count(readers.wait(16));
  EXPECT_EQ(failed, 0U);
  EXPECT_TRUE(same_bytes(read, expected));
  expect_equal_members();
}

TEST_F(MirrorServers, AHandleThatOnlyReadsIsNoWriter) {
  EXPECT_CODE(open({.rights = Rights::kRead}).claim(), kNoRight);
  ASSERT_OK(open({.rights = Rights::kRead | Rights::kWrite}).claim());
}

TEST_F(MirrorServers, AnotherVolumeOfTheNameIsNotClaimed) {
  const Volume before = open();
  make_volume();  // removed, and made again
  EXPECT_CODE(before.claim(), kStaleRegion);
  EXPECT_FALSE(before.claimed());
  ASSERT_OK(open().claim());
}

TEST_F(MirrorServers, GoesOnWithoutABackup) {
  const Volume volume = open();
  ASSERT_OK(volume.claim());
  const auto first = noise(volume.size_bytes(), 1);
  ASSERT_OK(volume.write(ByteOffset{0}, first));
  servers_[2].reset();  // the backup of group 1
  const auto second = noise(volume.size_bytes(), 2);
  ASSERT_OK(volume.write(ByteOffset{0}, second, 60s));
  EXPECT_EQ(group(1).members.size(), 1U);
  EXPECT_EQ(group(0).members.size(), 2U);
  std::vector<std::byte> bytes(volume.size_bytes());
  ASSERT_OK(open().read(ByteOffset{0}, bytes));
  EXPECT_TRUE(same_bytes(bytes, second));
  expect_equal_members();
}

TEST_F(MirrorServers, GoesOnWithoutThePrimaryAndReadersFollow) {
  const Volume volume = open();
  ASSERT_OK(volume.claim());
  const Volume reader = open();
  const auto first = noise(volume.size_bytes(), 1);
  ASSERT_OK(volume.write(ByteOffset{0}, first));
  std::vector<std::byte> bytes(volume.size_bytes());
  ASSERT_OK(reader.read(ByteOffset{0}, bytes));
  servers_[0].reset();  // the primary of group 0
  const auto second = noise(volume.size_bytes(), 2);
  ASSERT_OK(volume.write(ByteOffset{0}, second, 60s));
  ASSERT_OK(reader.read(ByteOffset{0}, bytes, 60s));
  EXPECT_TRUE(same_bytes(bytes, second));
  ASSERT_EQ(group(0).members.size(), 1U);
  EXPECT_EQ(group(0).members[0].server, "s1");
  expect_equal_members();
}

TEST_F(MirrorServers, AWriterThatIsReplacedWritesNothingMore) {
  const Volume first = open();
  ASSERT_OK(first.claim({.identity = "first"}));
  const Volume second = open();
  const Status refused = second.claim();
  EXPECT_CODE(refused, kBusy);
  EXPECT_EQ(refused.error().subject(), "first");
  ASSERT_OK(second.claim({.steal = true}));
  const auto written = noise(64_KiB, 1);
  ASSERT_OK(second.write(ByteOffset{0}, written));
  const auto other = noise(64_KiB, 2);
  const Status late = first.write(ByteOffset{0}, other);
  EXPECT_FALSE(late.ok());
  EXPECT_FALSE(first.claimed());
  std::vector<std::byte> bytes(64_KiB);
  ASSERT_OK(second.read(ByteOffset{0}, bytes));
  EXPECT_TRUE(same_bytes(bytes, written));
  expect_equal_members();
}

TEST_F(MirrorServers, AVolumeGoesOnWhenItsEngineIsMovedOrEnds) {
  std::optional<Volume> volume{open()};
  const Volume reader = open();
  const Engine moved{std::move(*engine_)};
  ASSERT_OK(volume->claim());
  const auto written = noise(volume->size_bytes(), 1);
  ASSERT_OK(volume->write(ByteOffset{0}, written));
  std::vector<std::byte> bytes(written.size());
  ASSERT_OK(reader.read(ByteOffset{0}, bytes));
  EXPECT_TRUE(same_bytes(bytes, written));
  {
    const std::optional<Engine> shorter{Engine::open({}).value()};
    volume.emplace(Volume::open(*shorter, *cluster_, "v", {}).value());
  }
  // Its members are opened, and fenced, after the end of the engine.
  ASSERT_OK(volume->claim({.steal = true}));
  ASSERT_OK(volume->write(ByteOffset{0}, written));
  ASSERT_OK(volume->read(ByteOffset{0}, bytes));
  volume.reset();
}

TEST_F(MirrorServers, AVolumeOfAnEngineThatWasMovedFromIsClosed) {
  const Engine moved{std::move(*engine_)};
  const Volume volume = open();
  EXPECT_CODE(volume.claim(), kClosed);
  engine_.reset();
}

/// A socket that takes connections and answers none.
class SilentServer {
 public:
  SilentServer() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(::listen(socket_, 8), 0);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  }
  ~SilentServer() { ::close(socket_); }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;

  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  void wait_for_a_client() const {
    pollfd poll{.fd = socket_, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&poll, 1, 30'000), 1);
  }

 private:
  const int socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string address_;
};

TEST_F(MirrorServers, AServerThatDoesNotAnswerKeepsNoOtherWaiting) {
  std::optional<SilentServer> silent{std::in_place};
  EngineOptions options;
  options.control_deadline = 60s;
  const Engine engine = Engine::open(options).value();
  detail::EngineMemberOpener opener{
      engine, *cluster_, TransportKind::kTcp, Rights::kAll, detail::mirror_region_bytes(kGroup),
      3s};
  const Member lost{.server = "silent",
                    .addresses = {silent->address()},
                    .memory_id = 1,
                    .region = "v",
                    .incarnation = 1};
  std::atomic<bool> over{false};
  std::thread waits{[&] {
    EXPECT_FALSE(opener.fence(lost).ok());
    over = true;
  }};
  silent->wait_for_a_client();
  const Member member = group(0).members.front();
  EXPECT_TRUE(opener.open(member).ok());
  EXPECT_TRUE(opener.fence(member).ok());
  EXPECT_FALSE(over) << "the others waited for it";
  silent.reset();  // the connection ends
  waits.join();
}

TEST_F(MirrorServers, AnExclusiveVolumeIsReadByItsWriterOnly) {
  const Volume volume = open();
  ASSERT_OK(volume.claim({.exclusive = true}));
  const auto written = noise(200'000, 1);
  ASSERT_OK(volume.write(ByteOffset{0}, written));
  std::vector<std::byte> bytes(written.size());
  ASSERT_OK(volume.read(ByteOffset{0}, bytes));
  EXPECT_TRUE(same_bytes(bytes, written));
  const Volume reader = open();
  EXPECT_CODE(reader.read(ByteOffset{0}, bytes), kBusy);
  ASSERT_OK(volume.release());
  ASSERT_OK(reader.read(ByteOffset{0}, bytes));
  EXPECT_TRUE(same_bytes(bytes, written));
}

}  // namespace
}  // namespace remora::volume::test
