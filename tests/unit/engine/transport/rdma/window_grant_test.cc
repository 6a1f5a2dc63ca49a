/// Grants as windows, on a device that binds what it is told to.

#include "transport/rdma/window_grant.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sys/mman.h>
#include <vector>

#include "unit/engine/transport/rdma/windows_fixture.h"

namespace remora::transport::rdma {
namespace {

TEST_F(RdmaWindowsTest, GrantHasAKeyForEachExtentOnEachLane) {
  const auto leased = acquire_lease();
  const Connected first = connect(*leased);
  const Connected third = connect(*leased);
  const std::array extents{stretch(0, 128, 512), stretch(1, 0, 256)};
  auto grant =
      WindowGrant::create(leased, {.extents = extents, .rights = Rights::kRead | Rights::kAtomic})
          .value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  ASSERT_OK(grant->renew({first.lane, nullptr, third.lane}, wire, keys, later()));
  ASSERT_EQ(wire.size(), 2U);
  EXPECT_EQ(wire[0].remote_address, reinterpret_cast<std::uintptr_t>(piece(0).data()) + 128);
  EXPECT_EQ(wire[1].start_bytes, 512U);
  EXPECT_EQ(wire[1].length_bytes, 256U);
  ASSERT_EQ(keys.lanes, 3U);
  ASSERT_EQ(keys.keys.size(), 6U);
  EXPECT_EQ(keys.keys[1], 0U) << "there is no such lane";
  EXPECT_EQ(wire[1].remote_key, keys.keys[3]) << "that of the first lane";
  const std::set<std::uint32_t> distinct{keys.keys.begin(), keys.keys.end()};
  EXPECT_EQ(distinct.size(), 5U) << "four keys, and none";
  const bool atomics = fake_.attributes.atomic_cap != IBV_ATOMIC_NONE;
  EXPECT_EQ(fake_.sent.back().back().bind_mw.bind_info.mw_access_flags,
            IBV_ACCESS_REMOTE_READ | (atomics ? unsigned{IBV_ACCESS_REMOTE_ATOMIC} : 0U));
  EXPECT_EQ(windows_.used(), 4U);
  // A lane that comes later gets what it lacks; the others keep what they have.
  const Connected second = connect(*leased);
  const LaneKeys before = keys;
  const std::size_t posted = fake_.sent.size();
  ASSERT_OK(grant->renew({first.lane, second.lane, third.lane}, wire, keys, later()));
  EXPECT_EQ(fake_.sent.size(), posted + 1);
  EXPECT_EQ(keys.keys[0], before.keys[0]);
  EXPECT_NE(keys.keys[1], 0U);
  EXPECT_EQ(windows_.used(), 6U);
  grant.reset();
  EXPECT_EQ(windows_.used(), 0U);
  EXPECT_EQ(fake_.uses("dealloc_mw"), 6);
}

TEST_F(RdmaWindowsTest, GrantIsBoundAnewOnTheLanesThatFollow) {
  const auto leased = acquire_lease();
  const std::array extents{stretch(0, 0, 64)};
  auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kAll}).value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  std::uint32_t before = 0;
  {
    const Connected lane = connect(*leased);
    ASSERT_OK(grant->renew({lane.lane}, wire, keys, later()));
    before = keys.keys[0];
  }
  EXPECT_EQ(fake_.uses("dealloc_mw"), 1) << "they went with their lane";
  EXPECT_EQ(windows_.used(), 1U) << "and are its grant's to have again";
  // Others take all the rest meanwhile: a session that comes back gets what it had, and no more.
  EXPECT_CODE(BudgetShare::take(windows_.of("fake0", 0), 100), kLimitExceeded);
  const BudgetShare others = share(99);
  const Connected lane = connect(*leased);
  ASSERT_OK(grant->renew({lane.lane}, wire, keys, later()));
  EXPECT_NE(keys.keys[0], before);
  EXPECT_EQ(windows_.used(), 100U);
  const Connected more = connect(*leased);
  EXPECT_CODE(grant->renew({lane.lane, more.lane}, wire, keys, later()), kLimitExceeded);
  grant.reset();
}

TEST_F(RdmaWindowsTest, LanesThatAreNotItsSessionsAnyMoreKeepNothingOfAGrantNorItThem) {
  const auto leased = acquire_lease();
  const std::array extents{stretch(0, 0, 64)};
  auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kAll}).value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  const Connected after = connect(*leased);
  std::weak_ptr<WindowLane> gone;
  {
    const Connected before = connect(*leased);
    gone = before.lane;
    ASSERT_OK(grant->renew({before.lane}, wire, keys, later()));
    ASSERT_OK(grant->renew({after.lane}, wire, keys, later()));
    EXPECT_FALSE(before.lane->has(grant.get())) << "though it has not ended";
    EXPECT_EQ(windows_.used(), 1U);
    ASSERT_OK(grant->renew({before.lane}, wire, keys, later()));
  }
  EXPECT_TRUE(gone.expired()) << "with its completion queue";
  EXPECT_EQ(fake_.uses("dealloc_mw"), fake_.uses("alloc_mw"));
  grant.reset();
  EXPECT_EQ(windows_.used(), 0U);
}

TEST_F(RdmaWindowsTest, WindowsBeyondTheBudgetAreRefusedBeforeTheDeviceIsAsked) {
  const auto leased = acquire_lease();
  const Connected first = connect(*leased);
  const Connected second = connect(*leased);
  const BudgetShare others = share(97);
  const std::array extents{stretch(0, 0, 64), stretch(0, 64, 64)};
  auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kRead}).value();
  std::vector<WireExtent> wire;
  LaneKeys keys;
  const auto refused = grant->renew({first.lane, second.lane}, wire, keys, later());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kLimitExceeded);
  EXPECT_EQ(refused.error().subject(), "limits.windows_max");
  EXPECT_EQ(refused.error().asked(), 101U);
  EXPECT_EQ(fake_.uses("alloc_mw"), 0) << "not even those that there was room for";
  ASSERT_OK(grant->renew({first.lane}, wire, keys, later()));
  EXPECT_EQ(windows_.used(), 99U);
  grant.reset();
}

TEST_F(RdmaWindowsTest, OwnMemoryIsRegisteredForTheGrantAndCutIntoWindows) {
  constexpr std::uint64_t kOwnBytes = (std::uint64_t{2} << 30U) + 4096;
  fake_.attributes.max_mr_size = std::uint64_t{1} << 40U;
  device_ = {};
  device_ = open();
  void* const own =
      ::mmap(nullptr, kOwnBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(own, MAP_FAILED);
  {
    const auto leased = acquire_lease();
    const Connected lane = connect(*leased);
    const std::array extents{MemoryStretch{static_cast<std::byte*>(own), kOwnBytes}};
    auto grant = WindowGrant::create(leased, {.extents = extents, .rights = Rights::kAll}).value();
    EXPECT_EQ(registrations_.used(), 3U);
    std::vector<WireExtent> wire;
    LaneKeys keys;
    ASSERT_OK(grant->renew({lane.lane}, wire, keys, later()));
    ASSERT_EQ(wire.size(), 3U) << "no window is longer than 1 GiB";
    EXPECT_EQ(wire[2].start_bytes, std::uint64_t{2} << 30U);
    EXPECT_EQ(wire[2].length_bytes, 4096U);
    EXPECT_EQ(wire[2].remote_address, reinterpret_cast<std::uintptr_t>(own) + wire[2].start_bytes);
    grant.reset();
    EXPECT_EQ(registrations_.used(), 2U);
  }
  ::munmap(own, kOwnBytes);
}

}  // namespace
}  // namespace remora::transport::rdma
