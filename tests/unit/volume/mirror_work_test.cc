// The order of the steps of a rebuild, a move and a repair, and what a crash after each step
// leaves.

#include "mirror_work.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "claimed_work.h"
#include "mirror_layout.h"
#include "unit/volume/fake_mirror.h"
#include "unit/volume/mirror/fake_store.h"

namespace remora::volume::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

using Work = std::function<Managed<void>(detail::MirrorWork&)>;

/// One command's work on the mirror, as with_claimed() does it.
Managed<MaintenanceReport> run_as_is(FakeMirror& mirror, const MaintenanceOptions& options,
                                     const Work& work) {
  const VolumeLayout layout = mirror.layout();
  detail::MirrorWork all{mirror, mirror, layout, options};
  all.remove_orphans();
  if (auto done = work(all); !done) return tl::unexpected<Failure>{done.error()};
  return all.report();
}

/// The same, one step after the other.
Managed<MaintenanceReport> run(FakeMirror& mirror, const MaintenanceOptions& options,
                               const Work& work) {
  MaintenanceOptions ordered = options;
  ordered.zones_at_once = 1;
  ordered.groups_at_once = 1;
  return run_as_is(mirror, ordered, work);
}

Managed<MaintenanceReport> repair(FakeMirror& mirror, const MaintenanceOptions& options = {}) {
  return run(mirror, options, [](detail::MirrorWork& work) { return work.restore_copies(); });
}

Managed<MaintenanceReport> drain(FakeMirror& mirror, const std::string& server) {
  return run(mirror, {}, [&](detail::MirrorWork& work) -> Managed<void> {
    if (auto restored = work.restore_copies(); !restored) return restored;
    return work.empty_server(server);
  });
}

void expect_whole(const FakeMirror& mirror) {
  for (std::uint32_t i = 0; i < mirror.group_count(); ++i) {
    EXPECT_EQ(mirror.in_sync(i), 2U) << i;
    EXPECT_FALSE(mirror.group(i).promoting) << i;
  }
  EXPECT_TRUE(mirror.members_equal());
  EXPECT_THAT(mirror.orphans(), IsEmpty());
}

TEST(MirrorWork, RebuildHasThisOrder) {
  FakeMirror mirror{3, 1, 2};
  mirror.lose_server("s0");
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  EXPECT_THAT(mirror.steps,
              ElementsAre("make on s2", "add 0 s2", "copy 0/0", "copy 0/1", "in sync 0"));
  EXPECT_EQ(report->members_added, 1U);
  EXPECT_THAT(report->left, IsEmpty());
  expect_whole(mirror);
}

TEST(MirrorWork, WholeMirrorIsLeftAlone) {
  FakeMirror mirror{3, 3, 2};
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  EXPECT_THAT(mirror.steps, IsEmpty());
  EXPECT_EQ(report->groups, 3U);
}

TEST(MirrorWork, MoveAddsBeforeItRemoves) {
  FakeMirror mirror{3, 1, 1};
  mirror.layout().draining = {"s0"};
  ASSERT_TRUE(drain(mirror, "s0"));
  EXPECT_THAT(mirror.steps, ElementsAre("make on s2", "add 0 s2", "copy 0/0", "in sync 0",
                                        "remove 0 s0", "promoted 0", "delete on s0"));
  expect_whole(mirror);
}

TEST(MirrorWork, CrashBeforeEachStepOfARebuildIsMended) {
  for (std::size_t at = 0;; ++at) {
    FakeMirror mirror{4, 2, 2};
    mirror.lose_server("s1");
    mirror.before_step = [&](std::string_view) -> Status {
      if (mirror.steps.size() == at) throw Crash{};
      return {};
    };
    bool crashed = false;
    try {
      ASSERT_TRUE(repair(mirror));
    } catch (const Crash&) {
      crashed = true;
    }
    if (!crashed) {
      EXPECT_EQ(at, 10U);  // the steps of two rebuilds
      return;
    }
    mirror.before_step = {};
    mirror.claim_again();
    const auto report = repair(mirror);
    ASSERT_TRUE(report) << at;
    EXPECT_THAT(report->left, IsEmpty()) << at;
    expect_whole(mirror);
  }
}

TEST(MirrorWork, CrashBeforeEachStepOfADrainIsMended) {
  for (std::size_t at = 0;; ++at) {
    FakeMirror mirror{4, 2, 1};
    mirror.layout().draining = {"s1"};
    mirror.before_step = [&](std::string_view) -> Status {
      if (mirror.steps.size() == at) throw Crash{};
      return {};
    };
    bool crashed = false;
    try {
      ASSERT_TRUE(drain(mirror, "s1"));
    } catch (const Crash&) {
      crashed = true;
    }
    if (!crashed) {
      EXPECT_GT(at, 10U);
      return;
    }
    mirror.before_step = {};
    mirror.claim_again();
    ASSERT_TRUE(drain(mirror, "s1")) << at;
    expect_whole(mirror);
    for (std::uint32_t i = 0; i < mirror.group_count(); ++i)
      for (const Member& member : mirror.group(i).members) EXPECT_NE(member.server, "s1") << at;
  }
}

/// Each step fails once: the member is built on another server, or named as not done.
TEST(MirrorWork, FailureOfEachStepLeavesAUsableMirror) {
  for (std::size_t at = 0; at < 5; ++at) {
    FakeMirror mirror{5, 1, 2};
    mirror.lose_server("s1");
    std::size_t count = 0;
    mirror.before_step = [&](std::string_view) -> Status {
      if (count++ == at) return Error{Code::kTimedOut, "write"};
      return {};
    };
    const auto report = repair(mirror);
    ASSERT_TRUE(report) << at;
    EXPECT_THAT(report->left, IsEmpty()) << at;
    EXPECT_EQ(report->members_added, 1U) << at;
    expect_whole(mirror);
  }
}

TEST(MirrorWork, UnknownOutcomeOfTheEntryKeepsTheRegion) {
  FakeMirror mirror{3, 1, 1};
  mirror.lose_server("s0");
  mirror.before_step = [](std::string_view step) -> Status {
    if (step.starts_with("add")) return Error{Code::kIndeterminate, "transaction"};
    return {};
  };
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  EXPECT_THAT(report->left, SizeIs(1));
  EXPECT_THAT(mirror.orphans(), SizeIs(1));  // the transaction may name it later
  mirror.before_step = {};
  mirror.claim_again();
  ASSERT_TRUE(repair(mirror));
  expect_whole(mirror);
}

TEST(MirrorWork, StopLeavesNothingHalfMade) {
  FakeMirror mirror{4, 2, 3};
  mirror.lose_server("s1");
  MaintenanceOptions options;
  options.stop = [&] { return mirror.steps.size() >= 7; };  // in the second group
  const auto stopped = repair(mirror, options);
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().error.code(), Code::kCancelled);
  EXPECT_EQ(mirror.in_sync(0), 2U);
  EXPECT_EQ(mirror.in_sync(1), 1U);
  EXPECT_THAT(mirror.group(1).members, SizeIs(1));
  EXPECT_THAT(mirror.orphans(), IsEmpty());
  const auto resumed = repair(mirror);
  ASSERT_TRUE(resumed);
  EXPECT_EQ(resumed->members_added, 1U);
  expect_whole(mirror);
}

TEST(MirrorWork, GroupThatFailsIsNamedAndOthersGoOn) {
  FakeMirror mirror{4, 3, 1};
  mirror.lose_server("s1");
  mirror.close_group(0);
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  ASSERT_THAT(report->left, SizeIs(1));
  EXPECT_THAT(report->left[0], HasSubstr("group 0"));
  EXPECT_THAT(report->left[0], HasSubstr("accept-loss"));
  EXPECT_EQ(mirror.in_sync(1), 2U);
  mirror.close_group(0, Error{Code::kConnectionRefused, "hello"}
                            .with_reason(Reason::kVersion)
                            .with_subject("disk, group 0, member s0"));
  const auto refused = repair(mirror);
  ASSERT_TRUE(refused);
  EXPECT_THAT(refused->left, ElementsAre(::testing::AllOf(HasSubstr("group 0, member s0"),
                                                          HasSubstr("upgrade the older one"))));
}

TEST(MirrorWork, GroupThatIsBusyKeepsNoServerFromOthers) {
  FakeMirror mirror{3, 4, 1};
  mirror.lose_server("s1");  // s2 is the one place for copies of groups 0 and 3
  mirror.before_step = [](std::string_view step) -> Status {
    if (step.starts_with("add 0 ")) return Error{Code::kBusy, "configuration of a group"};
    return {};
  };
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  ASSERT_THAT(report->left, SizeIs(1));
  EXPECT_THAT(report->left[0], HasSubstr("group 0"));
  EXPECT_EQ(mirror.in_sync(1), 2U);
  EXPECT_EQ(mirror.in_sync(3), 2U);
}

TEST(MirrorWork, LostClaimEndsTheWork) {
  FakeMirror mirror{4, 2, 1};
  mirror.lose_server("s1");
  mirror.before_step = [&](std::string_view step) -> Status {
    if (!step.starts_with("copy")) return {};
    mirror.lose_claim();
    return Error{Code::kAccessRefused, "write"};
  };
  const auto report = repair(mirror);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().error.code(), Code::kStaleRegion);
  EXPECT_THAT(report.error().detail, HasSubstr("another client has claimed"));
}

TEST(MirrorWork, NoRoomIsSaidWithTheBytes) {
  FakeMirror mirror{2, 1, 1};
  mirror.lose_server("s1");
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  ASSERT_THAT(report->left, SizeIs(1));
  EXPECT_THAT(report->left[0], HasSubstr("1032KiB free outside the failure domains"));
  EXPECT_TRUE(mirror.members_equal());
}

TEST(MirrorWork, MoveThatWasInterruptedLeavesNoThirdCopy) {
  FakeMirror mirror{3, 1, 1};
  // As a crash leaves it after the third member is in sync.
  GroupRecord& group = mirror.layout().groups[0];
  RegionSpec spec{.name = region_name(mirror.record().id, 0, 99)};
  auto third = mirror.make(mirror.layout().servers[2], spec);
  ASSERT_TRUE(third);
  group.members.push_back(*third);
  ASSERT_TRUE(mirror.copy_zone(0, 0, {}).ok());
  mirror.layout().draining = {"s0"};
  ASSERT_TRUE(repair(mirror));
  expect_whole(mirror);
  EXPECT_EQ(mirror.group(0).members[0].server, "s1");
}

TEST(MirrorWork, OrphansOfClosedGroupsStay) {
  FakeMirror mirror{3, 2, 1};
  for (const std::uint64_t group : {0U, 1U})
    ASSERT_TRUE(mirror.make(mirror.layout().servers[2],
                            {.name = region_name(mirror.record().id, group, 99)}));
  mirror.close_group(1);
  ASSERT_TRUE(repair(mirror));
  EXPECT_THAT(mirror.orphans(), ElementsAre(region_name(mirror.record().id, 1, 99)));
}

TEST(MirrorWork, RegionsThatTheRecordsMayHaveForgottenStay) {
  FakeMirror mirror{3, 1, 1};
  GroupRecord& group = mirror.layout().groups[0];
  group.generation = 3;
  group.adopted = 5;
  group.epoch = 9;
  const auto region = [&](std::uint64_t of, std::uint64_t unique) {
    const std::string name = region_name(mirror.record().id, of, unique);
    EXPECT_TRUE(mirror.make(mirror.layout().servers[2], {.name = name}));
    return name;
  };
  detail::MemberHeader header{.generation = 3, .volume_id = mirror.record().id};
  region(0, 90);  // no writer has used it
  header.writer_epoch = 4;
  header.epoch = 7;
  mirror.set_header(region(0, 91), header);  // of a member that was removed
  header.writer_epoch = 5;
  header.epoch = 10;
  const std::string newer = region(0, 92);
  mirror.set_header(newer, header);
  region(1, 93);  // of a growth that was interrupted
  header.group = 1;
  const std::string grown = region(1, 94);
  mirror.set_header(grown, header);
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->regions_removed, 3U);
  EXPECT_THAT(mirror.orphans(), ElementsAre(newer, grown));
  ASSERT_THAT(report->left, SizeIs(2));
  EXPECT_THAT(report->left[0], HasSubstr("'remora rm remora://192.0.2.3:7471/" + newer + "'"));
  EXPECT_THAT(report->left[1], HasSubstr("behind the volume's end"));
}

TEST(MirrorWork, WithoutTheClaimNoRegionIsRemoved) {
  FakeMirror mirror{3, 1, 1};
  ASSERT_TRUE(
      mirror.make(mirror.layout().servers[2], {.name = region_name(mirror.record().id, 0, 99)}));
  mirror.lose_claim();
  static_cast<void>(repair(mirror));
  EXPECT_THAT(mirror.orphans(), SizeIs(1));
}

/// After a lease that has ended the volume, as it is read again, may be another client's.
TEST(MirrorWork, LayoutOfAnotherClaimIsNotCleaned) {
  FakeMirror mirror{2, 1, 1};
  const auto store = std::make_shared<FakeStore>();
  const Cluster cluster{store, "lab"};
  mirror.layout().groups[0].generation = cluster.generation().value();
  mirror.layout().groups[0].nonce = 1;
  mirror.record().nonce = 1;
  mirror.layout().volume_value = to_json(mirror.record());
  VolumeRecord other = mirror.record();
  other.nonce = 2;
  store->put(cluster.keys().volume("disk"), to_json(other));
  store->put(cluster.keys().group("disk", 0), to_json(mirror.layout().groups[0]));
  ASSERT_TRUE(
      mirror.make(mirror.layout().servers[0], {.name = region_name(mirror.record().id, 0, 99)}));
  const auto work = [](detail::MirrorWork&) { return Managed<void>{}; };
  const auto refused = detail::with_claimed(cluster, mirror, mirror, {}, work);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kStaleRegion);
  EXPECT_THAT(mirror.orphans(), SizeIs(1));
  store->put(cluster.keys().volume("disk"), mirror.layout().volume_value);
  ASSERT_TRUE(detail::with_claimed(cluster, mirror, mirror, {}, work));
  EXPECT_THAT(mirror.orphans(), IsEmpty());
}

/// Each of them may wait for a server that does not answer.
TEST(MirrorWork, StopIsAskedBeforeEachServerToo) {
  FakeMirror mirror{2, 1, 1};
  const auto store = std::make_shared<FakeStore>();
  const Cluster cluster{store, "lab"};
  mirror.layout().groups[0].generation = cluster.generation().value();
  mirror.layout().groups[0].nonce = 1;
  mirror.record().nonce = 1;
  mirror.layout().volume_value = to_json(mirror.record());
  store->put(cluster.keys().volume("disk"), mirror.layout().volume_value);
  store->put(cluster.keys().group("disk", 0), to_json(mirror.layout().groups[0]));
  ASSERT_TRUE(
      mirror.make(mirror.layout().servers[0], {.name = region_name(mirror.record().id, 0, 99)}));
  int begun = 0;
  const auto work = [&](detail::MirrorWork&) {
    ++begun;
    return Managed<void>{};
  };
  int step = 0;
  bool done = false;
  while (!done && step < 100) {
    ++step;
    int asked = 0;
    MaintenanceOptions options;
    options.stop = [&] { return ++asked == step; };
    const auto ended = detail::with_claimed(cluster, mirror, mirror, options, work);
    done = ended.has_value();
    if (done) break;
    EXPECT_EQ(ended.error().error.code(), Code::kCancelled);
    EXPECT_EQ(asked, step) << "it was asked once more";
    EXPECT_EQ(begun, 0);
  }
  EXPECT_TRUE(done);
  EXPECT_GT(step, 4) << "each of two servers is a step";
  EXPECT_EQ(begun, 1);
  EXPECT_THAT(mirror.orphans(), IsEmpty());
}

TEST(MirrorWork, RebalanceMovesToAnEmptyServer) {
  FakeMirror mirror{4, 3, 1};
  for (ServerRecord& server : mirror.layout().servers) {
    server.pool_bytes = std::uint64_t{8} << 20U;
    server.pool_free_bytes = server.name == "s3" ? server.pool_bytes : std::uint64_t{2} << 20U;
  }
  const auto report = run(mirror, {}, [](detail::MirrorWork& work) { return work.rebalance(); });
  ASSERT_TRUE(report);
  EXPECT_GE(report->members_moved, 2U);
  expect_whole(mirror);
}

TEST(MirrorWork, ProgressEndsAtTheExpectedBytes) {
  FakeMirror mirror{4, 2, 2};
  mirror.lose_server("s1");
  std::vector<std::pair<std::uint64_t, std::uint64_t>> told;
  MaintenanceOptions options;
  options.progress = [&](const MaintenanceProgress& progress) {
    told.emplace_back(progress.done_bytes, progress.all_bytes);
  };
  ASSERT_TRUE(repair(mirror, options));
  ASSERT_THAT(told, SizeIs(4));
  EXPECT_EQ(told.back().first, std::uint64_t{4} << 20U);
  EXPECT_EQ(told.back().second, std::uint64_t{4} << 20U);
}

TEST(MirrorWork, GroupsAtOnceEndAsOneAfterTheOther) {
  FakeMirror mirror{6, 6, 3};
  mirror.lose_server("s1");  // groups 0 and 1 lose a member
  mirror.layout().draining = {"s4"};
  std::uint64_t told = 0;
  MaintenanceOptions options;
  options.progress = [&](const MaintenanceProgress& progress) {
    EXPECT_GT(progress.done_bytes, told);  // one call at a time, all groups together
    told = progress.done_bytes;
  };
  const auto report = run_as_is(mirror, options, [](detail::MirrorWork& work) -> Managed<void> {
    if (auto restored = work.restore_copies(); !restored) return restored;
    return work.empty_server("s4");
  });
  ASSERT_TRUE(report);
  EXPECT_THAT(report->left, IsEmpty());
  EXPECT_EQ(report->members_added, 2U);
  EXPECT_EQ(report->members_moved, 2U);
  EXPECT_EQ(report->bytes_copied, std::uint64_t{12} << 20U);
  EXPECT_EQ(told, report->bytes_copied);
  expect_whole(mirror);
}

TEST(MirrorWork, StopOfSeveralGroupsLeavesNothingHalfMade) {
  FakeMirror mirror{6, 5, 8};
  mirror.lose_server("s1");
  mirror.lose_server("s3");
  MaintenanceOptions options;
  options.stop = [&] { return mirror.step_count() >= 20; };
  const auto stopped =
      run_as_is(mirror, options, [](detail::MirrorWork& work) { return work.restore_copies(); });
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().error.code(), Code::kCancelled);
  EXPECT_THAT(mirror.orphans(), IsEmpty());
  for (std::uint32_t i = 0; i < mirror.group_count(); ++i)
    for (const Member& member : mirror.group(i).members)
      EXPECT_EQ(member.state, MemberState::kInSync) << i;
  ASSERT_TRUE(repair(mirror));
  expect_whole(mirror);
}

TEST(MirrorWork, GroupsAtOnceDoNotCountOnTheSameRoom) {
  FakeMirror mirror{4, 2, 1};
  mirror.lose_server("s1");  // group 0 stays on s0, group 1 on s2
  for (ServerRecord& server : mirror.layout().servers)
    server.pool_free_bytes = detail::mirror_region_bytes(mirror.record().group_bytes);
  const auto report =
      run_as_is(mirror, {}, [](detail::MirrorWork& work) { return work.restore_copies(); });
  ASSERT_TRUE(report);
  EXPECT_THAT(report->left, IsEmpty());
  for (const char* server : {"s0", "s2", "s3"})
    EXPECT_LE(
        std::count(mirror.steps.begin(), mirror.steps.end(), std::string{"make on "} + server), 1)
        << server;
  expect_whole(mirror);
}

TEST(MirrorWork, RoomThatALaterGroupLeavesIsUsed) {
  FakeMirror mirror{3, 2, 1};  // group 0 on s0 and s1, group 1 on s1 and s2
  mirror.layout().groups[0].members.pop_back();
  // An interrupted move of group 1: s2 leaves it.
  GroupRecord& group = mirror.layout().groups[1];
  const auto third =
      mirror.make(mirror.layout().servers[0], {.name = region_name(mirror.record().id, 1, 99)});
  ASSERT_TRUE(third);
  group.members.insert(group.members.begin() + 1, *third);
  ASSERT_TRUE(mirror.copy_zone(1, 0, {}).ok());
  for (ServerRecord& server : mirror.layout().servers) server.pool_free_bytes = 0;
  const auto report = repair(mirror);
  ASSERT_TRUE(report);
  EXPECT_THAT(report->left, IsEmpty());
  EXPECT_EQ(mirror.group(0).members.back().server, "s2");
  expect_whole(mirror);
}

}  // namespace
}  // namespace remora::volume::test
