// Volumes are created, grown and removed as a whole or not at all.

#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/volume/cluster.h>
#include <remora/volume/management.h>
#include <remora/volume/remedy.h>

#include "support/assert_ok.h"
#include "unit/volume/management_fixture.h"

namespace remora::volume::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using ::testing::HasSubstr;

/// A store whose answers are lost from a certain transaction on, which is still applied.
class StoreThatGoes final : public MetadataStore {
 public:
  StoreThatGoes(std::shared_ptr<MetadataStore> store, int answers)
      : store_{std::move(store)}, answers_{answers} {}

  Result<Snapshot> get(std::span<const std::string> keys, std::chrono::nanoseconds limit) override {
    if (answers_ < 0) return Error{Code::kUnreachable, "etcd"};
    return store_->get(keys, limit);
  }
  Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds limit) override {
    if (answers_ < 0) return Error{Code::kUnreachable, "etcd"};
    return store_->range(prefix, limit);
  }
  Result<Committed> commit(const Transaction& transaction,
                           std::chrono::nanoseconds limit) override {
    if (answers_ < 0) return Error{Code::kUnreachable, "etcd"};
    const auto committed = store_->commit(transaction, limit);
    if (--answers_ >= 0) return committed;
    return Committed{Outcome::kUnknown, 0, Error{Code::kTimedOut, "etcd"}};
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
  [[nodiscard]] std::string name() const override { return "a store that goes"; }

 private:
  std::shared_ptr<MetadataStore> store_;
  int answers_;
};

TEST_F(Management, CreatedVolumeHasAllItsGroups) {
  std::uint64_t told = 0;
  const auto made = create_volume(cluster(), engine(), spec(),
                                  [&](std::uint64_t done, std::uint64_t) { told = done; });
  ASSERT_TRUE(made) << made.error().error << made.error().detail;
  EXPECT_EQ(told, 6U);
  EXPECT_EQ(made->width, 3U);
  const auto layout = cluster().layout("disk");
  ASSERT_OK(layout);
  EXPECT_EQ(layout->volume, *made);
  ASSERT_EQ(layout->groups.size(), 6U);
  EXPECT_EQ(regions(), 6U);
  for (const GroupRecord& group : layout->groups) {
    const Member& member = group.members.at(0);
    EXPECT_EQ(layout->addresses_of(member), layout->find_server(member.server)->addresses);
    EXPECT_NE(member.incarnation, 0U);
  }
}

TEST_F(Management, SmallVolumeHasOneRow) {
  VolumeSpec small = spec(3_MiB);
  small.group_bytes = 0;
  const auto made = create_volume(cluster(), engine(), small);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->size_bytes, 3_MiB);
  EXPECT_EQ(made->group_bytes, 1_MiB);
  EXPECT_EQ(made->group_count(), 3U);
}

TEST_F(Management, VolumeThatDoesNotFitSaysWhatIsMissing) {
  const auto refused = create_volume(cluster(), engine(), spec(60_MiB));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kLimitExceeded);
  EXPECT_THAT(refused.error().detail, HasSubstr("s0: 16MiB free in whole groups, 4MiB missing"));
  EXPECT_EQ(regions(), 0U);
  expect_no_keys();
}

TEST_F(Management, NothingIsLeftWhenAServerHasLessThanItSaid) {
  register_server(1, 1_GiB);
  const auto refused = create_volume(cluster(), engine(), spec(60_MiB));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("server s1"));
  EXPECT_EQ(regions(), 0U);
  expect_no_keys();
}

TEST_F(Management, NothingIsLeftWhenAServerIsGone) {
  stop(2);
  const auto refused = create_volume(cluster(), engine(), spec());
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("server s2"));
  EXPECT_EQ(regions(), 0U);
  expect_no_keys();
}

/// A region stays on a server that cannot be reached any more. By the volume's key it is found.
TEST_F(Management, VolumeStaysWhileAServerMayHaveARegionOfIt) {
  EngineOptions options;
  options.reconnect_for = std::chrono::seconds{0};
  const Engine creating = Engine::open(options).value();
  const auto refused = create_volume(cluster(), creating, spec(), [&](std::uint64_t done, auto) {
    if (done != 2) return;
    stop(0);  // it has a region
    stop(2);  // it has none yet, which ends the creation
  });
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("left behind: vol-"));
  const auto remains = cluster().remains("disk");
  ASSERT_OK(remains);
  EXPECT_EQ(remains->volume.state, VolumeState::kCreating);
  const auto kept = remove_volume(cluster(), creating, "disk");
  ASSERT_FALSE(kept);
  EXPECT_THAT(kept.error().detail, HasSubstr("server s0, which may have a part"));
  ASSERT_TRUE(remove_volume(cluster(), creating, "disk", {.forget_unreachable = true}));
  EXPECT_EQ(regions(), 0U);
  expect_no_keys();
}

/// The last transaction makes the volume use the regions. Without its answer they stay.
TEST_F(Management, RegionsStayWhenTheStoreDoesNotTellWhetherTheyAreUsed) {
  ASSERT_OK(cluster().generation());
  const auto cluster_that_goes = [&](int answers) {
    return Cluster{std::make_shared<StoreThatGoes>(cluster().shared_store(), answers),
                   std::string{kFileCluster}};
  };
  // "creating" and the groups' keys are answered, "ready" is not.
  const auto made = create_volume(cluster_that_goes(2), engine(), spec(3_MiB));
  ASSERT_FALSE(made);
  EXPECT_THAT(made.error().detail, HasSubstr("left behind: all regions"));
  EXPECT_EQ(cluster().layout("disk").value().groups.size(), 3U);
  EXPECT_EQ(regions(), 3U);
  // The same in a growth.
  const auto grown = resize_volume(cluster_that_goes(2), engine(), "disk", 6_MiB);
  ASSERT_FALSE(grown);
  EXPECT_EQ(cluster().layout("disk").value().groups.size(), 6U);
  EXPECT_EQ(regions(), 6U);
}

TEST_F(Management, NameIsTakenOnce) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  const auto again = create_volume(cluster(), engine(), spec());
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().error.code(), Code::kAlreadyExists);
  EXPECT_EQ(regions(), 6U);
  ASSERT_OK(cluster().layout("disk"));
}

TEST_F(Management, WrongSpecIsExplained) {
  const auto refused = [&](const VolumeSpec& spec, Code code, const char* text) {
    const auto made = create_volume(cluster(), engine(), spec);
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().error.code(), code) << text;
    EXPECT_THAT(made.error().detail, HasSubstr(text));
  };
  VolumeSpec wrong = spec(4097);
  refused(wrong, Code::kInvalidArgument, "multiple of the block");
  wrong = spec();
  wrong.stripe_bytes = 3_MiB;
  refused(wrong, Code::kInvalidArgument, "stripe unit is a power of two");
  wrong = spec();
  wrong.group_bytes = 1_MiB + 4096;
  refused(wrong, Code::kInvalidArgument, "multiple of the stripe unit");
  wrong = spec();
  wrong.copies = 2;
  refused(wrong, Code::kInvalidArgument, "a striped volume has 1 copy");
  wrong = spec(~std::uint64_t{0} - 4095);
  refused(wrong, Code::kLimitExceeded, "16 TiB at most");
  wrong = spec();
  wrong.servers = {"s0", "s7"};
  refused(wrong, Code::kNotFound, "cluster status");
  EXPECT_EQ(regions(), 0U);
  expect_no_keys();
}

TEST_F(Management, RemovedVolumeLeavesNothing) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  const auto removed = remove_volume(cluster(), engine(), "disk");
  ASSERT_TRUE(removed) << removed.error().error << removed.error().detail;
  EXPECT_EQ(regions(), 0U);
  expect_no_keys();
  EXPECT_EQ(remove_volume(cluster(), engine(), "disk").error().error.code(), Code::kNotFound);
}

TEST_F(Management, RemovalOfAnOpenVolumeChangesNothing) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  const auto layout = cluster().layout("disk").value();
  const Member& member = layout.groups.back().members.front();
  {
    const auto opened = engine().open_region(
        "remora://" + layout.addresses_of(member).front() + "/" + member.region, Rights::kAll);
    ASSERT_OK(opened);
    const auto refused = remove_volume(cluster(), engine(), "disk");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().error.code(), Code::kBusy);
    EXPECT_EQ(cluster().layout("disk").value().volume_value, layout.volume_value);
    EXPECT_EQ(regions(), 6U);
  }
  ASSERT_TRUE(remove_volume(cluster(), engine(), "disk", {.while_open = true}));
  EXPECT_EQ(regions(), 0U);
}

TEST_F(Management, RemovalWithoutSightOfARegionChangesNothing) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  const auto layout = cluster().layout("disk").value();
  // As a server answers a client that has no right to the region.
  const Member& member = layout.groups[0].members[0];
  ASSERT_OK(server(member.server.back() - '0').remove_region(member.region));
  const auto refused = remove_volume(cluster(), engine(), "disk");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("no right to it"));
  EXPECT_EQ(regions(), 5U);
  ASSERT_OK(cluster().layout("disk"));
  ASSERT_TRUE(remove_volume(cluster(), engine(), "disk", {.forget_unreachable = true}));
  expect_no_keys();
}

TEST_F(Management, InterruptedCreationIsClearedByRemoval) {
  // As a client leaves it that dies while it makes regions.
  VolumeRecord creating;
  creating.name = "disk";
  creating.id = random_number();
  creating.state = VolumeState::kCreating;
  creating.size_bytes = 3_MiB;
  creating.block_bytes = 4096;
  creating.group_bytes = 1_MiB;
  creating.width = 3;
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().volume("disk"), to_json(creating), kNoLease}}}, 5s));
  RegionSpec region{.name = region_name(creating.id, 0, 1), .size_bytes = 1_MiB};
  ASSERT_OK(server(1).create_region(region));
  region.name = "other";
  ASSERT_OK(server(1).create_region(region));
  EXPECT_EQ(cluster().layout("disk").error().code(), Code::kBusy);
  ASSERT_TRUE(remove_volume(cluster(), engine(), "disk"));
  EXPECT_EQ(regions(), 1U);
  expect_no_keys();
}

TEST_F(Management, RemovalNeedsTheServersOfTheVolume) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  stop(0);
  const auto refused = remove_volume(cluster(), engine(), "disk");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("--forget-unreachable"));
  ASSERT_OK(cluster().layout("disk"));  // s0 is the first: nothing was removed
  ASSERT_TRUE(remove_volume(cluster(), engine(), "disk", {.forget_unreachable = true}));
  EXPECT_EQ(regions(), 0U);
  expect_no_keys();
}

TEST_F(Management, GrowthKeepsTheGroupsThatAreThere) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(2_MiB + 4096)));
  const auto before = cluster().layout("disk").value();
  ASSERT_EQ(before.groups.size(), 3U);
  // Within the row, then over its end.
  ASSERT_TRUE(resize_volume(cluster(), engine(), "disk", 3_MiB));
  EXPECT_EQ(regions(), 3U);
  const auto grown = resize_volume(cluster(), engine(), "disk", 3_MiB + 4096);
  ASSERT_TRUE(grown) << grown.error().error << grown.error().detail;
  const auto after = cluster().layout("disk").value();
  ASSERT_EQ(after.groups.size(), 6U);
  EXPECT_EQ(after.volume.size_bytes, 3_MiB + 4096);
  EXPECT_GT(after.revision, before.revision);
  EXPECT_GT(before.revision, 0U);
  EXPECT_EQ(std::vector(after.groups.begin(), after.groups.begin() + 3), before.groups);
}

TEST_F(Management, GrowthThatFailsChangesNothing) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  const auto smaller = resize_volume(cluster(), engine(), "disk", 2_MiB);
  ASSERT_FALSE(smaller);
  EXPECT_THAT(smaller.error().detail, HasSubstr("only grows"));
  const auto huge = resize_volume(cluster(), engine(), "disk", ~std::uint64_t{0} - 4095);
  ASSERT_FALSE(huge);
  EXPECT_EQ(huge.error().error.operation(), "groups of a volume");
  EXPECT_FALSE(resize_volume(cluster(), engine(), "disk", 90_MiB));
  register_server(1, 1_GiB);
  EXPECT_FALSE(resize_volume(cluster(), engine(), "disk", 90_MiB));
  EXPECT_EQ(regions(), 3U);
  const auto layout = cluster().layout("disk");
  ASSERT_OK(layout);
  EXPECT_EQ(layout->volume.size_bytes, 3_MiB);
  EXPECT_TRUE(layout->extra_groups.empty());
}

TEST_F(Management, RemainsOfAGrowthAreReplaced) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  const auto layout = cluster().layout("disk").value();
  GroupRecord left = layout.groups[0];
  left.index = 4;
  left.members[0].region = region_name(layout.volume.id, 4, 1);
  ASSERT_OK(cluster().store().commit(
      {{}, {{cluster().keys().group("disk", 4), to_json(left), kNoLease}}}, 5s));
  EXPECT_EQ(cluster().layout("disk").value().extra_groups.size(), 1U);
  ASSERT_TRUE(resize_volume(cluster(), engine(), "disk", 6_MiB));
  const auto after = cluster().layout("disk").value();
  EXPECT_TRUE(after.extra_groups.empty());
  EXPECT_NE(after.groups[4].members[0].region, left.members[0].region);
}

TEST_F(Management, ExportedRecordsComeBackIntoAnEmptyStore) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  const auto before = cluster().layout("disk").value();
  const auto text = export_volume(cluster(), "disk");
  ASSERT_TRUE(text);
  EXPECT_EQ(import_volume(cluster(), *text).error().error.code(), Code::kAlreadyExists);
  Transaction loss;
  for (const Entry& entry : cluster().store().range(cluster().keys().volumes(), 5s).value().entries)
    loss.changes.push_back({entry.key, std::nullopt, kNoLease});
  ASSERT_OK(cluster().store().commit(loss, 5s));
  ASSERT_TRUE(import_volume(cluster(), *text));
  const auto after = cluster().layout("disk").value();
  ASSERT_EQ(after.groups.size(), before.groups.size());
  for (std::size_t i = 0; i < after.groups.size(); ++i)
    EXPECT_EQ(after.groups[i].members, before.groups[i].members);
}

TEST_F(Management, ImportRefusesAServerWithOtherMemory) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  std::string text = export_volume(cluster(), "disk").value();
  ASSERT_TRUE(remove_volume(cluster(), engine(), "disk"));
  const std::string own =
      to_json(ServerRecord{.memory_id = cluster().servers().value().at(0).memory_id});
  const std::string id = own.substr(own.find("\"memory_id\":\"") + 13, 16);
  const std::size_t at = text.find(id);
  ASSERT_NE(at, std::string::npos);
  text.replace(at, 16, "0000000000000001");
  const auto refused = import_volume(cluster(), text);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kStaleRegion);
  EXPECT_EQ(import_volume(cluster(), "{}").error().error.code(), Code::kProtocol);
  expect_no_keys();
}

/// What a client finds that names another cluster of the same store.
TEST_F(Management, ClustersOfOneStoreAreApart) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec()));
  const std::size_t made = regions();
  const Cluster other{cluster().shared_store(), std::string{kFileCluster} + "2"};
  EXPECT_TRUE(other.servers().value().empty());
  EXPECT_TRUE(other.volumes().value().empty());
  const auto missing = other.layout("disk");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_THAT(remedy(missing.error()), HasSubstr("'remora volume ls'"));
  EXPECT_FALSE(create_volume(other, engine(), spec()));
  EXPECT_FALSE(remove_volume(other, engine(), "disk"));
  EXPECT_NE(other.generation().value(), cluster().generation().value());
  EXPECT_EQ(regions(), made);
  ASSERT_OK(cluster().layout("disk"));
}

TEST_F(Management, VolumesOfSimilarNamesAreApart) {
  VolumeSpec first = spec(3_MiB);
  VolumeSpec second = spec(3_MiB);
  second.name = "disk2";
  ASSERT_TRUE(create_volume(cluster(), engine(), first));
  ASSERT_TRUE(create_volume(cluster(), engine(), second));
  EXPECT_EQ(cluster().volumes().value().size(), 2U);
  ASSERT_TRUE(remove_volume(cluster(), engine(), "disk"));
  ASSERT_OK(cluster().layout("disk2"));
  EXPECT_EQ(regions(), 3U);
}

}  // namespace
}  // namespace remora::volume::test
