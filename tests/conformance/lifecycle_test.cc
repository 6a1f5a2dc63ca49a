/// Regions from creation to removal, and sessions from connecting to the end of the engine.

#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <thread>
#include <vector>

#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kPool = 4_MiB;

class LifecycleTest : public ConformanceTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = kPool, .piece_bytes = 256_KiB};
  }
  std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const RegionInfo& info : session().regions().value()) found.push_back(info.name);
    return found;
  }
};

TEST_P(LifecycleTest, CreateAnswersWhatStatAndOpenSayLater) {
  const RegionInfo made = create({.size_bytes = 128_KiB, .block_bytes = 512});
  EXPECT_EQ(made.size_bytes, 128_KiB);
  EXPECT_EQ(made.block_bytes, 512U);
  EXPECT_EQ(made.rights, Rights::kAll);
  EXPECT_EQ(made.open_count, 0U);
  EXPECT_EQ(made.shm, over_shm());
  EXPECT_EQ(made.atomic_domain, over_rdma() ? session().server().device : "cpu");
  const Region region = open(made.name);
  for (const RegionInfo& seen : {session().stat(made.name).value(), region.info()}) {
    EXPECT_EQ(seen.name, made.name);
    EXPECT_EQ(seen.size_bytes, made.size_bytes);
    EXPECT_EQ(seen.block_bytes, made.block_bytes);
    EXPECT_EQ(seen.rights, made.rights);
    EXPECT_EQ(seen.atomic_domain, made.atomic_domain);
    EXPECT_EQ(seen.shm, made.shm);
    EXPECT_EQ(seen.epoch, made.epoch);
    EXPECT_EQ(seen.extent_count, made.extent_count);
  }
  EXPECT_EQ(session().stat(made.name).value().open_count, 1U);
  EXPECT_EQ(region.block_count(), 256U);
  EXPECT_EQ(region.rights(), Rights::kAll);
  EXPECT_EQ(region.transport(), transport());
  EXPECT_FALSE(region.transport_reason().empty());
  EXPECT_TRUE(region.connected());
}

TEST_P(LifecycleTest, ServerInfoIdentifiesTheServer) {
  const ServerInfo& info = session().server();
  EXPECT_EQ(session().transport(), transport());
  EXPECT_NE(info.boot_id, 0U);
  EXPECT_NE(info.memory_id, 0U);
  EXPECT_EQ(info.device.empty(), !over_rdma());
  const Engine other = open_engine();
  EXPECT_EQ(other.connect(uri()).value().server().boot_id, info.boot_id);
  EXPECT_EQ(info.pool_bytes, external() ? info.pool_bytes : kPool);
}

TEST_P(LifecycleTest, ListIsSortedAndFollowsCreateAndRemove) {
  const std::size_t before = names().size();
  const RegionInfo one = create({.size_bytes = 4096});
  const RegionInfo two = create({.size_bytes = 4096});
  std::vector<std::string> found = names();
  EXPECT_EQ(found.size(), before + 2);
  EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
  EXPECT_THAT(found, testing::IsSupersetOf({one.name, two.name}));
  ASSERT_TRUE(ok(session().remove_region(one.name)));
  forget(one.name);
  found = names();
  EXPECT_THAT(found, testing::Not(testing::Contains(one.name)));
  EXPECT_THAT(found, testing::Contains(two.name));
}

TEST_P(LifecycleTest, ListOfManyRegionsIsComplete) {
  if (external()) GTEST_SKIP() << "its number of regions is unknown";
  std::vector<std::string> wanted;
  wanted.reserve(60);
  for (int i = 0; i < 60; ++i) wanted.push_back(create({.size_bytes = 4096}).name);
  std::sort(wanted.begin(), wanted.end());
  EXPECT_EQ(names(), wanted);
}

TEST_P(LifecycleTest, NewRegionIsZeroAlsoWhereAnotherOneWas) {
  const std::vector<std::byte> dirt = noise(3_MiB, 50);
  for (int round = 0; round < 3; ++round) {
    const RegionInfo made = create({.size_bytes = 3_MiB});
    {
      const Region region = open(made.name);
      EXPECT_EQ(read_all(region), std::vector<std::byte>(3_MiB)) << "round " << round;
      ASSERT_TRUE(ok(region.write(ByteOffset{0}, dirt)));
    }
    ASSERT_TRUE(ok(session().remove_region(made.name)));
    forget(made.name);
  }
}

TEST_P(LifecycleTest, NameCanBeUsedAgainByAnotherIncarnation) {
  const std::string name = unique_name();
  const RegionInfo first = session().create_region(spec(name)).value();
  ASSERT_TRUE(ok(session().remove_region(name)));
  const RegionInfo second =
      session().create_region(spec(name, {.size_bytes = 8192, .block_bytes = 64})).value();
  EXPECT_NE(second.epoch, first.epoch);
  EXPECT_NE(first.incarnation, 0U);
  EXPECT_NE(second.incarnation, first.incarnation);
  EXPECT_EQ(open(name).info().incarnation, second.incarnation);
  EXPECT_EQ(session().stat(name).value().incarnation, second.incarnation);
  EXPECT_EQ(open(name).size_bytes(), 8192U);
  EXPECT_TRUE(ok(session().remove_region(name)));
}

TEST_P(LifecycleTest, ExhaustedPoolSaysHowMuchIsLeft) {
  if (external()) GTEST_SKIP() << "its pool is not ours to exhaust";
  create({.size_bytes = 3_MiB});
  const auto refused = session().create_region(spec("too-large", {.size_bytes = 2_MiB}));
  ASSERT_TRUE(fails_with(refused, Code::kOutOfMemory));
  EXPECT_TRUE(refused.error().has_limit());
  EXPECT_EQ(refused.error().asked(), 2_MiB);
  EXPECT_EQ(refused.error().allowed(), 1_MiB);
  create({.size_bytes = 1_MiB});
  EXPECT_TRUE(fails_with(
      session().create_region(spec("one-byte-more", {.size_bytes = 64, .block_bytes = 64})),
      Code::kOutOfMemory));
}

TEST_P(LifecycleTest, RemovedMemoryIsUsedAgain) {
  if (external()) GTEST_SKIP() << "its pool is not ours to exhaust";
  for (int round = 0; round < 5; ++round) {
    const std::string name = unique_name();
    // The server answers a removal before it has zeroed the memory, and the next creation waits for
    // that memory.
    const auto made = session().create_region(spec(name, {.size_bytes = kPool}));
    ASSERT_TRUE(ok(made)) << "round " << round;
    ASSERT_TRUE(ok(session().remove_region(name)));
  }
  EXPECT_TRUE(eventually([&] { return server().status().pool_freeing_bytes == 0; }, 60s));
  const ServerStatus left = server().status();
  EXPECT_EQ(left.pool_freeing_bytes, 0U);
  EXPECT_EQ(left.pool_used_bytes, 0U);
  EXPECT_EQ(left.regions, 0U);
}

TEST_P(LifecycleTest, ManyThatWantTheWholePoolGetItOrHearThatItIsTaken) {
  if (external()) GTEST_SKIP() << "its pool is not ours to exhaust";
  std::atomic<int> made{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 3; ++client)
    clients.emplace_back([&, name = unique_name()] {
      const Engine other = open_engine();
      const Session own = other.connect(uri()).value();
      for (int round = 0; round < 10; ++round) {
        // A creation waits for the memory of removed regions, not for that of existing ones.
        const auto created = own.create_region(spec(name, {.size_bytes = kPool}));
        if (!created) {
          EXPECT_EQ(created.error().reason(), Reason::kPoolFull) << created.error().message();
          continue;
        }
        ++made;
        EXPECT_TRUE(ok(own.remove_region(name)));
      }
    });
  for (std::thread& client : clients) client.join();
  EXPECT_GE(made, 1);
  EXPECT_TRUE(eventually([&] { return server().status().pool_freeing_bytes == 0; }, 60s));
  EXPECT_EQ(server().status().pool_used_bytes, 0U);
  EXPECT_EQ(server().status().pool_freeing_bytes, 0U);
}

TEST_P(LifecycleTest, FragmentedPoolServesARegionFromManyHoles) {
  if (external()) GTEST_SKIP() << "its pool is not ours to exhaust";
  std::vector<RegionInfo> small;
  small.reserve(32);
  for (int i = 0; i < 32; ++i) small.push_back(create({.size_bytes = 128_KiB}));
  for (std::size_t i = 0; i < small.size(); i += 2) {
    ASSERT_TRUE(ok(session().remove_region(small[i].name)));
    forget(small[i].name);
  }
  const Region region = make_region({.size_bytes = 2_MiB});
  const std::vector<std::byte> model = noise(2_MiB, 51);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  EXPECT_TRUE(same_bytes(read_all(region), model));
  for (std::size_t i = 1; i < small.size(); i += 2)
    EXPECT_EQ(read_all(open(small[i].name)), std::vector<std::byte>(128_KiB)) << i;
}

TEST_P(LifecycleTest, StatusCountsSessionsGrantsAndBytes) {
  if (external()) GTEST_SKIP() << "needs a server in this process";
  const ServerStatus before = server().status();
  EXPECT_EQ(before.pool_bytes, kPool);
  EXPECT_EQ(before.sessions, 1U);
  const RegionInfo made = create({.size_bytes = 1_MiB});
  {
    const Region one = open(made.name);
    const Region same = open(made.name, Rights::kRead);
    const ServerStatus during = server().status();
    EXPECT_EQ(during.grants, 2U);
    EXPECT_EQ(during.regions, 1U);
    EXPECT_EQ(during.pool_used_bytes, 1_MiB);
  }
  EXPECT_TRUE(eventually([&] { return server().status().grants == 0; }, 60s));
  EXPECT_EQ(server().status().grants, 0U);
}

TEST_P(LifecycleTest, EndOfAnEngineEndsItsGrants) {
  const RegionInfo made = create();
  {
    const Engine other = open_engine();
    const Region region = other.open_region(uri(made.name), Rights::kAll).value();
    EXPECT_EQ(session().stat(made.name).value().open_count, 1U);
  }
  EXPECT_TRUE(eventually([&] { return session().stat(made.name).value().open_count == 0; }, 60s));
  EXPECT_EQ(session().stat(made.name).value().open_count, 0U);
}

TEST_P(LifecycleTest, RegionOutlivesTheEngineHandle) {
  const RegionInfo made = create();
  const auto open_by_another_engine = [&] {
    const Engine other = open_engine();
    return other.open_region(uri(made.name), Rights::kAll).value();
  };
  const Region region = open_by_another_engine();
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
}

/// The control thread of the engine may still handle a message of the session, and hold a reference
/// to it. The engine is gone only after that.
TEST_P(LifecycleTest, EngineThatIsDestroyedHasGone) {
  if (kThroughC) GTEST_SKIP() << "the C API has no registry that outlives its engine";
  const RegionInfo made = create();
  EngineOptions options = patient_options();
  for (std::size_t i = 0; i < steps(300); ++i) {
    options.registry = metrics::Registry::create().value();
    {
      const Engine other = Engine::open(options).value();
      const Region region = other.open_region(uri(made.name), Rights::kAll).value();
    }
    ASSERT_EQ(options.registry.use_count(), 1) << "round " << i;
  }
}

TEST_P(LifecycleTest, ManyShortSessionsLeaveNothing) {
  const RegionInfo made = create();
  for (std::size_t i = 0; i < steps(100); ++i) {
    const Engine other = open_engine();
    const Region region = other.open_region(uri(made.name), Rights::kAll).value();
    ASSERT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), i);
  }
}

TEST_P(LifecycleTest, ManyRegionsOfOneSessionAreOpenedAndClosed) {
  std::vector<RegionInfo> made;
  made.reserve(8);
  for (int i = 0; i < 8; ++i) made.push_back(create({.size_bytes = 64_KiB}));
  for (std::size_t round = 0; round < steps(100); ++round) {
    std::vector<Region> opened;
    opened.reserve(made.size());
    for (const RegionInfo& info : made) opened.push_back(open(info.name));
    for (const Region& region : opened)
      ASSERT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), round);
  }
}

REMORA_CONFORMANCE(LifecycleTest);

}  // namespace
}  // namespace remora::test
