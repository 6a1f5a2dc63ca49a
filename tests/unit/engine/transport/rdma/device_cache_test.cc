/// Kept registrations behind the transport seam, on fake verbs and the kernel's own reports.

#include "transport/rdma/device_cache.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <utility>

#include <remora/metrics/registry.h>

#include "base/log.h"
#include "memory_monitor.h"
#include "support/eventually.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport {
namespace {

constexpr std::size_t kCachedBytes = std::size_t{64} << 10U;

class RdmaCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    rig_.emplace(verbs::devices(fake_.table).value().begin()->open().value());
    at_ = static_cast<std::byte*>(
        ::mmap(nullptr, kCachedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  }
  void TearDown() override {
    ::munmap(at_, kCachedBytes);
    rig_.reset();
  }
  std::shared_ptr<RegistrationCache> make() {
    return rdma::make_cache(rig_->domain, {.bytes_max = 1 << 20, .registry = registry_});
  }
  double value(const char* name, const metrics::Labels& labels = {}) {
    const auto sum = registry_->sum(name, labels);
    return sum ? *sum : -1;
  }
  double acquires(const char* result) {
    return value("remora_client_mr_cache_acquires_total", {{"result", result}});
  }
  static Deadline later() { return Clock::now() + std::chrono::seconds{10}; }

  test::FakeVerbs fake_;
  std::optional<test::FakeRig> rig_;
  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
  std::byte* at_ = nullptr;
};

TEST_F(RdmaCacheTest, SeriesTellWhatTheCacheDoes) {
  const auto cache = make();
  ASSERT_NE(cache, nullptr);
  EXPECT_EQ(value("remora_client_mr_cache_automatic"), 1);
  EXPECT_EQ(registry_->series_count(), 1U) << "a client that makes no transfer has no more";
  const std::span bytes{at_, kCachedBytes};
  EXPECT_FALSE(cache->find_lease(bytes));
  const MemoryLease first = cache->acquire_lease(bytes, later());
  ASSERT_TRUE(first);
  EXPECT_EQ(cache->key_of(first, bytes.subspan(4096)).length_bytes, kCachedBytes - 4096);
  MemoryLease second{};
  // A search that meets a change of the process's mappings, by any thread, finds nothing.
  int tries = 0;
  ASSERT_TRUE(test::eventually([&] {
    ++tries;
    second = cache->find_lease(bytes.first(100));
    return bool{second};
  }));
  EXPECT_EQ(acquires("miss"), 1);
  EXPECT_EQ(acquires("hit"), 1);
  EXPECT_EQ(acquires("failed"), tries);
  EXPECT_EQ(value("remora_client_mr_cache_pinned_bytes"), kCachedBytes);
  EXPECT_FALSE(cache->trim()) << "all of it is leased";
  cache->release_lease(first);
  cache->release_lease(second);
  EXPECT_TRUE(cache->trim());
  EXPECT_EQ(value("remora_client_mr_cache_ends_total", {{"cause", "evicted"}}), 1);
  EXPECT_EQ(value("remora_client_mr_cache_kept"), 0);
}

/// A NIC may write the bytes of a read in any order; an iWARP device writes them as if the peer
/// did.
TEST_F(RdmaCacheTest, RegistrationsAllowWhatTheKindOfDeviceNeeds) {
  for (const auto& [kind, access] :
       {std::pair{"rxe", int{IBV_ACCESS_LOCAL_WRITE}},
        std::pair{"mlx5", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING},
        std::pair{"irdma", IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_RELAXED_ORDERING}}) {
    fake_.play(*test::find_device_profile(kind));
    rig_.reset();
    rig_.emplace(verbs::devices(fake_.table).value().begin()->open().value());
    const auto cache = make();
    ASSERT_NE(cache, nullptr);
    const MemoryLease lease = cache->acquire_lease({at_, kCachedBytes}, later());
    ASSERT_TRUE(lease) << kind;
    EXPECT_EQ(fake_.registered.back().access, static_cast<unsigned>(access)) << kind;
    cache->release_lease(lease);
  }
}

TEST_F(RdmaCacheTest, TwoCachesOfOneRegistryShowTheirSum) {
  auto first = make();
  auto second = make();
  ASSERT_TRUE(first != nullptr && second != nullptr);
  const std::span bytes{at_, kCachedBytes};
  const MemoryLease one = first->acquire_lease(bytes, later());
  const MemoryLease other = second->acquire_lease(bytes.first(4096), later());
  const MemoryLease again = second->acquire_lease(bytes.first(4096), later());
  EXPECT_EQ(acquires("miss"), 2);
  EXPECT_EQ(acquires("hit"), 1);
  EXPECT_EQ(value("remora_client_mr_cache_pinned_bytes"), kCachedBytes + 4096);
  EXPECT_EQ(value("remora_client_mr_cache_kept"), 2);
  first->release_lease(one);
  first.reset();
  EXPECT_EQ(acquires("miss"), 2) << "a counter does not go back";
  EXPECT_EQ(value("remora_client_mr_cache_pinned_bytes"), 4096);
  second->release_lease(other);
  second->release_lease(again);
  second.reset();
  EXPECT_EQ(acquires("miss"), -1) << "no cache, no series";
  const auto third = make();
  EXPECT_FALSE(third->find_lease(bytes));
  EXPECT_EQ(acquires("miss"), 0);
}

TEST_F(RdmaCacheTest, CachesOfTwoRegistriesShowTheirOwn) {
  const auto first = make();
  const auto first_registry = std::exchange(registry_, metrics::Registry::create().value());
  const auto second = make();
  const MemoryLease lease = second->acquire_lease({at_, kCachedBytes}, later());
  EXPECT_FALSE(first->find_lease({at_, kCachedBytes}));
  EXPECT_EQ(acquires("miss"), 1);
  registry_ = first_registry;
  EXPECT_EQ(acquires("miss"), 0);
  second->release_lease(lease);
}

TEST_F(RdmaCacheTest, WhereTheKernelTellsNothingAWarningAndAGaugeSayWhy) {
  const auto lines = std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(16);
  log::logger().sinks().push_back(lines);
  verbs::detail::MemoryMonitor::refuse_errno = EPERM;
  EXPECT_EQ(make(), nullptr);
  log::logger().sinks().pop_back();
  EXPECT_EQ(value("remora_client_mr_cache_automatic"), 0);
  ASSERT_EQ(lines->last_formatted().size(), 1U);
  EXPECT_NE(lines->last_formatted()[0].find("userfaultfd"), std::string::npos)
      << lines->last_formatted()[0];
}

TEST_F(RdmaCacheTest, MemoryThatCannotBeKeptIsAskedForOnceASecond) {
  const auto cache = make();
  ASSERT_NE(cache, nullptr);
  void* const shared =
      ::mmap(nullptr, kCachedBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  const std::span bytes{static_cast<std::byte*>(shared), kCachedBytes};
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(cache->acquire_lease(bytes, later()));
  EXPECT_EQ(acquires("refused"), 3);
  EXPECT_EQ(fake_.uses("reg_mr"), 1) << "the rig's own";
  ::munmap(shared, kCachedBytes);
}

TEST_F(RdmaCacheTest, AfterMemlockIsReachedOnlyWhatIsThereIsUsed) {
  const auto cache = make();
  ASSERT_NE(cache, nullptr);
  const std::span bytes{at_, kCachedBytes};
  const MemoryLease held = cache->acquire_lease(bytes.first(kCachedBytes / 2), later());
  ASSERT_TRUE(held);
  fake_.fail("reg_mr", 1, ENOMEM);
  EXPECT_FALSE(cache->acquire_lease(bytes, later()));
  const int tried = fake_.uses("reg_mr");
  EXPECT_FALSE(cache->acquire_lease(bytes, later()));
  EXPECT_EQ(fake_.uses("reg_mr"), tried);
  const MemoryLease hit = cache->acquire_lease(bytes.first(4096), later());
  EXPECT_TRUE(hit);
  EXPECT_EQ(value("remora_client_mr_cache_failures_total", {{"errno", "ENOMEM"}}), 1);
  cache->release_lease(hit);
  cache->release_lease(held);
}

}  // namespace
}  // namespace remora::transport
