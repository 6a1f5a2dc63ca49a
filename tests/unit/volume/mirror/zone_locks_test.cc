/// Ranges of zones, gates, and the order of a write.

#include "zone_locks.h"

#include <atomic>
#include <gtest/gtest.h>
#include <new>
#include <thread>

#include "operation_gate.h"
#include "support/assert_ok.h"
#include "support/eventually.h"
#include "write_progress.h"

namespace remora::volume::test {
namespace {

using namespace std::chrono_literals;
using detail::GroupRoles;
using detail::MemberSet;
using detail::OperationGate;
using detail::Spread;
using detail::WriteProgress;
using detail::ZoneLocks;
using Time = std::chrono::steady_clock::time_point;

Time now() { return Time::clock::now(); }

class ZoneLocksTest : public ::testing::Test {
 protected:
  std::unique_ptr<ZoneLocks> locks_ = ZoneLocks::create(2).value();
};

TEST_F(ZoneLocksTest, RangesThatOverlapExcludeEachOther) {
  ZoneLocks::Hold first{*locks_};
  ZoneLocks::Hold second{*locks_};
  ASSERT_TRUE(first.lock(0, 0, 10, false, now()));
  EXPECT_FALSE(second.lock(0, 9, 20, false, now()));
  EXPECT_TRUE(second.lock(0, 10, 20, false, now()));
}

TEST_F(ZoneLocksTest, ZonesShareNothing) {
  ZoneLocks::Hold first{*locks_};
  ZoneLocks::Hold second{*locks_};
  ASSERT_TRUE(first.lock_zone(0, now()));
  EXPECT_TRUE(second.lock_zone(1, now()));
}

TEST_F(ZoneLocksTest, ReadsOverlapReadsAndNoWrite) {
  ZoneLocks::Hold first{*locks_};
  ZoneLocks::Hold second{*locks_};
  ZoneLocks::Hold write{*locks_};
  ASSERT_TRUE(first.lock(0, 0, 10, true, now()));
  EXPECT_TRUE(second.lock(0, 0, 10, true, now()));
  EXPECT_FALSE(write.lock(0, 0, 1, false, now()));
}

TEST_F(ZoneLocksTest, TheWholeZoneExcludesEveryRange) {
  ZoneLocks::Hold range{*locks_};
  ZoneLocks::Hold zone{*locks_};
  ASSERT_TRUE(range.lock(0, 500, 501, false, now()));
  EXPECT_FALSE(zone.lock_zone(0, now()));
  range.release();
  EXPECT_TRUE(zone.lock_zone(0, now()));
}

/// Else operations that come all the time would keep a repair waiting for ever.
TEST_F(ZoneLocksTest, ARangeWaitsBehindAnEarlierOneThatWaits) {
  ZoneLocks::Hold first{*locks_};
  ASSERT_TRUE(first.lock(0, 0, 10, false, now()));
  std::atomic<bool> locked = false;
  std::thread waits{[&] {
    ZoneLocks::Hold zone{*locks_};
    locked = zone.lock_zone(0, now() + 30s);
  }};
  // Another range is granted until the zone's lock waits.
  EXPECT_TRUE(remora::test::eventually([&] {
    ZoneLocks::Hold later{*locks_};
    return !later.lock(0, 100, 110, false, now());
  }));
  first.release();
  waits.join();
  EXPECT_TRUE(locked);
}

TEST(OperationGate, ClosedItLetsNoneInAndWaitsForThoseInside) {
  OperationGate gate;
  ASSERT_TRUE(gate.enter(now()));
  gate.close();
  EXPECT_FALSE(gate.enter(now()));
  EXPECT_FALSE(gate.wait_quiet(now()));
  std::thread leaves{[&] { gate.leave(); }};
  EXPECT_TRUE(gate.wait_quiet(now() + 30s));
  leaves.join();
  gate.open();
  EXPECT_TRUE(gate.enter(now()));
  gate.leave();
}

TEST(OperationGate, AParkedOperationIsQuiet) {
  OperationGate gate;
  ASSERT_TRUE(gate.enter(now()));
  gate.close();
  EXPECT_FALSE(gate.is_quiet());
  try {
    const OperationGate::Parking parked{gate};
    EXPECT_TRUE(gate.is_quiet());
    throw std::bad_alloc{};
  } catch (const std::bad_alloc&) {
    EXPECT_FALSE(gate.is_quiet()) << "it is inside, and waits for nothing any more";
  }
  gate.leave();
  gate.open();
}

TEST(OperationGate, OpensForAnOperationThatWaits) {
  OperationGate gate;
  gate.close();
  gate.close();
  std::atomic<bool> entered = false;
  std::thread waits{[&] { entered = gate.enter(now() + 30s); }};
  gate.open();
  EXPECT_FALSE(gate.enter(now())) << "closed twice";
  gate.open();
  waits.join();
  EXPECT_TRUE(entered);
  gate.leave();
  EXPECT_TRUE(gate.is_quiet());
}

GroupRoles three_members() {
  GroupRoles roles;
  roles.in_sync = MemberSet::of(0).with(MemberSet::of(1));
  roles.syncing = MemberSet::of(2);
  roles.primary = 0;
  return roles;
}

TEST(WriteProgress, WritesThePrimaryWhenAllOthersHaveIt) {
  WriteProgress progress{Spread::kBackupsFirst};
  const GroupRoles roles = three_members();
  EXPECT_EQ(progress.next(roles), MemberSet::of(1).with(MemberSet::of(2)));
  progress.done(1);
  EXPECT_EQ(progress.next(roles), MemberSet::of(2));
  progress.done(2);
  EXPECT_EQ(progress.next(roles), MemberSet::of(0));
  progress.done(0);
  EXPECT_TRUE(progress.next(roles).empty());
}

TEST(WriteProgress, AMemberThatIsRemovedNeedsNothing) {
  WriteProgress progress{Spread::kBackupsFirst};
  GroupRoles roles = three_members();
  roles.syncing = {};
  progress.done(1);
  roles.in_sync = MemberSet::of(1);  // the primary is gone: the backup has it already
  roles.primary = 1;
  EXPECT_TRUE(progress.next(roles).empty());
}

TEST(WriteProgress, SpreadsAtOnceToOthersAndToTheSyncingMember) {
  const GroupRoles roles = three_members();
  EXPECT_EQ(WriteProgress{Spread::kAtOnce}.next(roles).size(), 3U);
  EXPECT_EQ(WriteProgress{Spread::kNotPrimary}.next(roles).size(), 2U);
  EXPECT_EQ(WriteProgress{Spread::kSyncing}.next(roles), MemberSet::of(2));
}

}  // namespace
}  // namespace remora::volume::test
