// Two clients change one volume at once: what is removed leaves nothing, and what is used stays.

#include <chrono>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <remora/volume/cluster.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/management.h>

#include "support/assert_ok.h"
#include "unit/volume/management_fixture.h"

namespace remora::volume::test {
namespace {

using ::testing::HasSubstr;

/// A store that calls `before(number)` before each transaction, which are counted from 0.
/// The answer of the transaction is lost if `before` returns false.
class StoreThatCalls final : public MetadataStore {
 public:
  StoreThatCalls(std::shared_ptr<MetadataStore> store, std::function<bool(int)> before)
      : store_{std::move(store)}, before_{std::move(before)} {}

  Result<Snapshot> get(std::span<const std::string> keys, std::chrono::nanoseconds limit) override {
    return store_->get(keys, limit);
  }
  Result<Snapshot> range(std::string_view prefix, std::chrono::nanoseconds limit) override {
    return store_->range(prefix, limit);
  }
  Result<Committed> commit(const Transaction& transaction,
                           std::chrono::nanoseconds limit) override {
    const bool answers = before_(count_++);
    auto committed = store_->commit(transaction, limit);
    if (answers) return committed;
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
  [[nodiscard]] std::string name() const override { return "a store that calls"; }

 private:
  std::shared_ptr<MetadataStore> store_;
  std::function<bool(int)> before_;
  int count_ = 0;
};

class ManagementRace : public Management {
 protected:
  /// The same cluster, over a store that calls `before`.
  [[nodiscard]] Cluster cluster_that_calls(std::function<bool(int)> before) const {
    return Cluster{std::make_shared<StoreThatCalls>(cluster().shared_store(), std::move(before)),
                   std::string{kFileCluster}};
  }
  /// Before the transaction `when`, another client grows the volume.
  [[nodiscard]] Cluster cluster_that_grows(int when, std::uint64_t size_bytes) const {
    return cluster_that_calls([this, when, size_bytes](int number) {
      if (number == when) {
        EXPECT_TRUE(resize_volume(cluster(), engine(), "disk", size_bytes));
      }
      return true;
    });
  }
  /// As a growth that has read the volume as it is now writes the key of a further group.
  void write_group_key() const {
    const VolumeLayout now = cluster().layout("disk").value();
    GroupRecord group = now.groups[0];
    group.index = now.groups.size();
    group.members[0].region = region_name(now.volume.id, group.index, 1);
    EXPECT_TRUE(cluster().store().commit(
        {{{cluster().keys().volume("disk"), now.volume_value}},
         {{cluster().keys().group("disk", group.index), to_json(group), kNoLease}}},
        kLimit));
  }
  // Of a growth: the volume is taken, the keys of its groups are written, its size is written.
  static constexpr int kWritesGroups = 1;
  static constexpr int kWritesSize = 2;
  // Of an accepted loss: the volume is taken, then each lost group is replaced.
  static constexpr int kReplacesGroup = 1;
};

/// A growth writes keys of groups between the removal's reading of the volume and its mark.
TEST_F(ManagementRace, RemovalDuringAGrowthLeavesNothing) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  const Cluster removing = cluster_that_calls([&](int number) {
    if (number == 0) write_group_key();
    return true;
  });
  const auto removed = remove_volume(removing, engine(), "disk");
  ASSERT_TRUE(removed) << removed.error().error << removed.error().detail;
  expect_no_keys();
  EXPECT_EQ(regions(), 0U);
}

TEST_F(ManagementRace, RemovalBeginsAgainAfterAGrowth) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  const auto removed = remove_volume(cluster_that_grows(0, 6_MiB), engine(), "disk");
  ASSERT_TRUE(removed) << removed.error().error << removed.error().detail;
  expect_no_keys();
  EXPECT_EQ(regions(), 0U);
}

TEST_F(ManagementRace, RemovalGivesUpAVolumeThatChangesEachTime) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  const Cluster removing = cluster_that_calls([&](int) {
    EXPECT_TRUE(resize_volume(cluster(), engine(), "disk", 3_MiB));  // another nonce
    return true;
  });
  const auto refused = remove_volume(removing, engine(), "disk");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kBusy);
  ASSERT_OK(cluster().layout("disk"));
  EXPECT_EQ(regions(), 3U);
}

/// A removal that cannot reach a server takes its mark back, and the volume is as it was.
TEST_F(ManagementRace, RemovalThatFailsLeavesTheVolumeOfTheGrowth) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  stop(0);
  const Cluster removing = cluster_that_calls([&](int number) {
    if (number == 0) write_group_key();
    return true;
  });
  const auto refused = remove_volume(removing, engine(), "disk");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().detail, HasSubstr("the volume is as it was"));
  const auto layout = cluster().layout("disk");
  ASSERT_OK(layout);
  EXPECT_EQ(layout->groups.size(), 3U);
  EXPECT_EQ(layout->extra_groups.size(), 1U);
}

/// The drain has found no member of the volume on the server, and says that it can be stopped.
TEST_F(ManagementRace, CreationPlacesNothingOnAServerThatIsDrainedMeanwhile) {
  ASSERT_OK(cluster().generation());
  const Cluster creating = cluster_that_calls([&](int number) {
    if (number == kWritesGroups) {
      const auto drained = drain_server(cluster(), engine(), "s1");
      EXPECT_TRUE(drained && drained->left.empty());
    }
    return true;
  });
  const auto refused = create_volume(creating, engine(), spec(3_MiB));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kBusy);
  EXPECT_EQ(refused.error().error.operation(), "server that is drained meanwhile");
  EXPECT_EQ(refused.error().error.subject(), "s1");
  expect_no_keys();
  EXPECT_EQ(regions(), 0U);
}

TEST_F(ManagementRace, AcceptedLossPlacesNothingOnAServerThatIsDrainedMeanwhile) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(1_MiB)));
  const GroupRecord before = cluster().layout("disk").value().groups[0];
  const int lost = before.members[0].server[1] - '0';
  server(lost) =
      Server::start(remora::test::server_config(TransportKind::kTcp, {.pool_bytes = kPool}))
          .value();
  register_server(lost);
  const std::size_t kept = regions();
  const Cluster accepting = cluster_that_calls([&](int number) {
    for (const char* const each : {"s0", "s1", "s2"})
      if (number == kReplacesGroup) {
        EXPECT_TRUE(drain_server(cluster(), engine(), each));
      }
    return true;
  });
  const auto refused = accept_loss(accepting, engine(), "disk");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kBusy);
  EXPECT_EQ(refused.error().error.operation(), "server that is drained meanwhile");
  EXPECT_EQ(cluster().layout("disk").value().groups[0], before);
  EXPECT_EQ(regions(), kept);
}

/// The growth makes more regions after the removal has looked for them.
TEST_F(ManagementRace, GrowthOfARemovedVolumeRemovesItsRegions) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  const auto grown = resize_volume(cluster(), engine(), "disk", 6_MiB,
                                   [&](std::uint64_t done, std::uint64_t /*all*/) {
                                     if (done == 1) {
                                       EXPECT_TRUE(remove_volume(cluster(), engine(), "disk"));
                                     }
                                   });
  ASSERT_FALSE(grown);
  EXPECT_EQ(grown.error().error.code(), Code::kBusy);
  EXPECT_EQ(grown.error().detail, "");
  expect_no_keys();
  EXPECT_EQ(regions(), 0U);
}

TEST_F(ManagementRace, GrowthAfterAnotherGrowthLeavesNothing) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  for (const int when : {kWritesGroups, kWritesSize}) {
    const std::uint64_t size = when == kWritesGroups ? 9_MiB : 12_MiB;
    const auto refused = resize_volume(cluster_that_grows(when, size), engine(), "disk", size);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().detail, "");
    const auto layout = cluster().layout("disk");
    ASSERT_OK(layout);
    EXPECT_EQ(layout->groups.size(), size / 1_MiB);
    EXPECT_TRUE(layout->extra_groups.empty());
    EXPECT_EQ(regions(), size / 1_MiB);
  }
}

/// No answer tells that the size was written, and the store answers again afterwards.
TEST_F(ManagementRace, RegionsOfAGrowthWithoutAnAnswerStay) {
  ASSERT_TRUE(create_volume(cluster(), engine(), spec(3_MiB)));
  const auto answers = [](int number) {
    constexpr int kRounds = 3;  // commit_decided()
    return number < kWritesSize || number >= kWritesSize + kRounds;
  };
  const auto grown = resize_volume(cluster_that_calls(answers), engine(), "disk", 6_MiB);
  ASSERT_FALSE(grown);
  EXPECT_THAT(grown.error().detail, HasSubstr("3 new regions stay, since the volume uses them"));
  EXPECT_EQ(cluster().layout("disk").value().groups.size(), 6U);
  EXPECT_EQ(regions(), 6U);
}

}  // namespace
}  // namespace remora::volume::test
