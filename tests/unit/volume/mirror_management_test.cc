// Mirrors are created as a whole or not at all; what a crash leaves is cleared.

#include <chrono>
#include <cstdint>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/volume/maintenance.h>

#include "mirror_layout.h"
#include "unit/volume/cluster_rig.h"
#include "unit/volume/fake_mirror.h"

namespace remora::volume::test {
namespace {

using ::testing::HasSubstr;

/// A store at whose transactions the process may end: before one is sent, and after it was applied.
class CrashingStore final : public MetadataStore {
 public:
  CrashingStore(std::shared_ptr<MetadataStore> store, std::function<void()> step)
      : store_{std::move(store)}, step_{std::move(step)} {}

  Result<Snapshot> get(std::span<const std::string> keys, std::chrono::nanoseconds limit) override {
    return store_->get(keys, limit);
  }
  Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds limit) override {
    return store_->range(prefix, limit);
  }
  Result<Committed> commit(const Transaction& transaction,
                           std::chrono::nanoseconds limit) override {
    step_();
    auto committed = store_->commit(transaction, limit);
    step_();
    return committed;
  }
  Result<LeaseId> grant_lease(std::chrono::seconds lifetime,
                              std::chrono::nanoseconds limit) override {
    return store_->grant_lease(lifetime, limit);
  }
  Status keep_alive(LeaseId lease, std::chrono::nanoseconds limit) override {
    return store_->keep_alive(lease, limit);
  }
  Status revoke(LeaseId lease, std::chrono::nanoseconds limit) override {
    return store_->revoke(lease, limit);
  }
  [[nodiscard]] std::string name() const override { return store_->name(); }

 private:
  std::shared_ptr<MetadataStore> store_;
  std::function<void()> step_;
};

class MirrorManagement : public ClusterRig {};

TEST_F(MirrorManagement, EachGroupHasItsCopiesOnDifferentServers) {
  const VolumeLayout made = make(3, 2);
  EXPECT_EQ(made.volume.kind, Kind::kMirror);
  EXPECT_EQ(made.volume.copies, 2U);
  EXPECT_EQ(made.volume.writer_epoch, 0U);
  ASSERT_EQ(made.groups.size(), 3U);
  for (const GroupRecord& group : made.groups) {
    ASSERT_EQ(group.members.size(), 2U);
    EXPECT_NE(group.members[0].server, group.members[1].server);
    EXPECT_EQ(group.adopted, 0U);
    EXPECT_FALSE(group.promoting);
    EXPECT_EQ(condition_of(made, group), GroupCondition::kOk);
  }
  expect_whole();
}

TEST_F(MirrorManagement, RegionsHoldHeaderAndBitmapOfZeroes) {
  const VolumeLayout made = make(1, 2);
  const Member& member = made.groups[0].members[0];
  const RegionInfo info = engine()
                              .connect("remora://" + member.addresses.front() + "?transport=tcp")
                              .value()
                              .stat(member.region)
                              .value();
  EXPECT_EQ(info.size_bytes, detail::mirror_region_bytes(kGroup));
  EXPECT_EQ(info.atomic_domain, "none");
}

TEST_F(MirrorManagement, LargeBlocksAreThoseOfTheVolumeOnly) {
  VolumeSpec large = spec(1);
  large.block_bytes = 64_KiB;
  const Engine creating = engine();
  const auto made = create_volume(cluster(), creating, large);
  ASSERT_TRUE(made) << made.error().error;
  EXPECT_EQ(made->block_bytes, 64_KiB);
}

TEST_F(MirrorManagement, WrongCopiesAreExplained) {
  const Engine creating = engine();
  for (const std::uint32_t copies : {1U, 9U}) {
    const auto refused = create_volume(cluster(), creating, spec(1, copies));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().error.code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.error().detail, HasSubstr("a mirror 2 to 8 copies"));
  }
  const auto refused = create_volume(cluster(), creating, spec(1, 5));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("needs 5 failure domains, and there are 4"));
  expect_no_keys();
}

/// After a crash at any step the volume is there as a whole, or repair_volume() clears it.
TEST_F(MirrorManagement, CrashAtEachStepOfACreationIsCleared) {
  ASSERT_OK(cluster().generation());
  const Engine creating = engine();
  bool whole = false;
  for (int at = 0; !whole; ++at) {
    ASSERT_LT(at, 40);
    int steps = 0;
    const auto step = [&] {
      if (steps++ == at) throw Crash{};
    };
    const Cluster crashing{std::make_shared<CrashingStore>(cluster().shared_store(), step),
                           std::string{kFileCluster}};
    try {
      whole = create_volume(crashing, creating, spec(), [&](std::uint64_t, std::uint64_t) {
                step();
              }).has_value();
    } catch (const Crash&) {
      const auto found = cluster().remains("disk");
      if (!found) {
        EXPECT_EQ(found.error().code(), Code::kNotFound) << at;
        EXPECT_EQ(regions(), 0U) << at;
        continue;
      }
      if (found->volume.state == VolumeState::kReady) break;  // the last transaction was applied
      const auto cleared = repair_volume(cluster(), creating, "disk");
      ASSERT_TRUE(cleared) << at << ' ' << cleared.error().error;
      EXPECT_TRUE(cleared->cleared) << at;
      EXPECT_EQ(regions(), 0U) << at;
      expect_no_keys();
    }
  }
  expect_whole();
}

TEST_F(MirrorManagement, GrowthUsesTheSetsOfServersThatAreThere) {
  const VolumeLayout before = make(2, 2);
  const Engine growing = engine();
  const auto grown = resize_volume(cluster(), growing, "disk", 4 * kGroup);
  ASSERT_TRUE(grown) << grown.error().error << ' ' << grown.error().detail;
  const VolumeLayout after = layout();
  ASSERT_EQ(after.groups.size(), 4U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(after.groups[i], before.groups[i]);
    std::set<std::string> above;
    std::set<std::string> below;
    for (const Member& member : after.groups[i].members) above.insert(member.server);
    for (const Member& member : after.groups[i + 2].members) below.insert(member.server);
    EXPECT_EQ(above, below);
  }
  expect_whole();
}

TEST_F(MirrorManagement, ClaimedVolumeDoesNotGrow) {
  make(1, 2);
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().writer("disk"), std::string{"nbd-1"}, kNoLease}}}, 5s));
  EXPECT_EQ(layout().live_writer, "nbd-1");
  const Engine growing = engine();
  const auto refused = resize_volume(cluster(), growing, "disk", 2 * kGroup);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kBusy);
  EXPECT_THAT(refused.error().detail, HasSubstr("nbd-1 has the claim"));
  EXPECT_EQ(regions(), 2U);
  for (const auto& more :
       {add_copy(cluster(), growing, "disk"), repair_volume(cluster(), growing, "disk")}) {
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().error.code(), Code::kBusy);
  }
  EXPECT_EQ(accept_loss(cluster(), growing, "disk").error().error.code(), Code::kBusy);
}

TEST_F(MirrorManagement, DrainingServerGetsNoMember) {
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().draining("s0"), std::string{"{}"}, kNoLease}}}, 5s));
  EXPECT_THAT(cluster().draining().value(), ::testing::ElementsAre("s0"));
  const VolumeLayout made = make(3, 3);
  for (const GroupRecord& group : made.groups)
    for (const Member& member : group.members) EXPECT_NE(member.server, "s0");
  ASSERT_TRUE(end_drain_server(cluster(), "s0"));
  EXPECT_TRUE(cluster().draining().value().empty());
}

TEST_F(MirrorManagement, MistypedServerIsNotDrained) {
  const Engine draining = engine();
  const auto refused = drain_server(cluster(), draining, "s9");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kNotFound);
  EXPECT_TRUE(cluster().draining().value().empty());
  EXPECT_EQ(drain_server(cluster(), draining, "a/b").error().error.code(), Code::kInvalidArgument);
}

TEST_F(MirrorManagement, DrainNamesStripedVolumes) {
  VolumeSpec striped = spec(1);
  striped.kind = Kind::kStriped;
  striped.copies = 1;
  striped.servers = {"s1"};
  const Engine draining = engine();
  ASSERT_TRUE(create_volume(cluster(), draining, striped));
  const auto report = drain_server(cluster(), draining, "s1");
  ASSERT_TRUE(report) << report.error().error;
  ASSERT_EQ(report->left.size(), 1U);
  EXPECT_THAT(report->left[0], HasSubstr("no other copy"));
}

TEST_F(MirrorManagement, HealthFollowsTheServers) {
  const VolumeLayout made = make(1, 2);
  const std::string backup = made.groups[0].members[1].server;
  const std::string primary = made.groups[0].members[0].server;
  const auto health = [&] {
    const VolumeLayout now = layout();
    return condition_of(now, now.groups[0]);
  };
  EXPECT_EQ(health(), GroupCondition::kOk);
  kill(backup[1] - '0');
  EXPECT_EQ(health(), GroupCondition::kDegraded);
  kill(primary[1] - '0');
  EXPECT_EQ(health(), GroupCondition::kUnreachable);
  start(backup[1] - '0');
  start(primary[1] - '0');
  EXPECT_EQ(health(), GroupCondition::kLost);
}

TEST_F(MirrorManagement, LossIsAcceptedOnlyWhenAllServersSaySo) {
  const VolumeLayout made = make(2, 2);
  const Engine accepting = engine();
  EXPECT_EQ(accept_loss(cluster(), accepting, "disk").error().error.code(), Code::kNotFound);
  const GroupRecord& group = made.groups[0];
  for (const Member& member : group.members) kill(member.server[1] - '0');
  const auto unreachable = accept_loss(cluster(), engine(), "disk", {.groups = {0}});
  ASSERT_FALSE(unreachable);
  EXPECT_EQ(unreachable.error().error.code(), Code::kUnreachable);
  EXPECT_THAT(unreachable.error().detail, HasSubstr("--forget-unreachable"));
  for (const Member& member : group.members) start(member.server[1] - '0');
  const auto accepted = accept_loss(cluster(), engine(), "disk", {.groups = {0}});
  ASSERT_TRUE(accepted) << accepted.error().error << ' ' << accepted.error().detail;
  EXPECT_EQ(*accepted, std::vector<std::uint64_t>{0});
  const VolumeLayout after = layout();
  EXPECT_EQ(condition_of(after, after.groups[0]), GroupCondition::kOk) << "no reader has to wait";
  EXPECT_GT(after.groups[0].epoch, group.epoch);
  for (const Member& member : after.groups[0].members)
    EXPECT_TRUE(data_of(member) == std::vector<std::byte>(kGroup)) << member.server;
}

TEST_F(MirrorManagement, ImportMarksGroupsToBeCompared) {
  make(2, 2);
  const std::string text = export_volume(cluster(), "disk").value();
  Transaction loss;
  for (const Entry& entry : cluster().store().range(cluster().keys().volumes(), 5s).value().entries)
    loss.changes.push_back({entry.key, std::nullopt, kNoLease});
  ASSERT_OK(cluster().store().commit(loss, 5s));
  ASSERT_TRUE(import_volume(cluster(), text));
  for (const GroupRecord& group : layout().groups) EXPECT_TRUE(group.restored);
}

/// An import that was interrupted goes on; no command takes its regions for remains of a creation.
TEST_F(MirrorManagement, InterruptedImportKeepsTheRegions) {
  make(2, 2);
  const std::string text = export_volume(cluster(), "disk").value();
  VolumeRecord importing = layout().volume;
  importing.state = VolumeState::kImporting;
  Transaction loss;
  for (const Entry& entry : cluster().store().range(cluster().keys().volumes(), 5s).value().entries)
    loss.changes.push_back({entry.key, std::nullopt, kNoLease});
  ASSERT_OK(cluster().store().commit(loss, 5s));
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().volume("disk"), to_json(importing), kNoLease}}}, 5s));
  const Engine repairing = engine();
  EXPECT_EQ(repair_volume(cluster(), repairing, "disk").error().error.code(), Code::kBusy);
  EXPECT_EQ(regions(), 4U);
  ASSERT_TRUE(import_volume(cluster(), text));
  EXPECT_EQ(layout().groups.size(), 2U);
}

TEST_F(MirrorManagement, ImportLeavesOutLostCopiesOnlyIfToldTo) {
  const VolumeLayout made = make(1, 2);
  const std::string text = export_volume(cluster(), "disk").value();
  Transaction loss;
  for (const Entry& entry : cluster().store().range(cluster().keys().volumes(), 5s).value().entries)
    loss.changes.push_back({entry.key, std::nullopt, kNoLease});
  ASSERT_OK(cluster().store().commit(loss, 5s));
  const int primary = made.groups[0].members[0].server[1] - '0';
  kill(primary);
  start(primary);
  const auto refused = import_volume(cluster(), text);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kStaleRegion);
  EXPECT_THAT(refused.error().detail, HasSubstr("--drop-lost-members"));
  ASSERT_TRUE(import_volume(cluster(), text, {.drop_lost_members = true}));
  const GroupRecord group = layout().groups[0];
  ASSERT_EQ(group.members.size(), 1U);
  EXPECT_EQ(group.members[0].server, made.groups[0].members[1].server);
  EXPECT_TRUE(group.promoting);
}

TEST_F(MirrorManagement, NewGenerationIsAnother) {
  const std::uint64_t before = cluster().generation().value();
  const auto made = renew_generation(cluster());
  ASSERT_TRUE(made);
  EXPECT_NE(*made, before);
  EXPECT_EQ(cluster().generation().value(), *made);
}

TEST_F(MirrorManagement, RepairOfAStripedVolumeRemovesWhatNoGroupUses) {
  VolumeSpec striped = spec(1);
  striped.kind = Kind::kStriped;
  striped.copies = 1;
  const Engine repairing = engine();
  ASSERT_TRUE(create_volume(cluster(), repairing, striped));
  const std::uint64_t id = layout().volume.id;
  ASSERT_OK(server(2).create_region({.name = region_name(id, 0, 7), .size_bytes = 1_MiB}));
  ASSERT_OK(server(2).create_region({.name = "other", .size_bytes = 1_MiB}));
  const auto report = repair_volume(cluster(), repairing, "disk");
  ASSERT_TRUE(report) << report.error().error;
  EXPECT_EQ(report->regions_removed, 1U);
  EXPECT_EQ(regions(), 2U);
}

}  // namespace
}  // namespace remora::volume::test
