/// The series of open volumes, and how operations on them are counted.

#include <memory>
#include <string>
#include <vector>

#include <remora/metrics/registry.h>

#include "support/eventually.h"
#include "volume_core.h"
#include "volume_rig.h"

namespace remora::volume::test {
namespace {

using remora::test::eventually;

class VolumeMetricsTest : public VolumeRig {
 protected:
  [[nodiscard]] double value(std::string_view name, const metrics::Labels& labels = {}) const {
    return engine().registry().value(name, labels).value();
  }
  [[nodiscard]] double volumes() const { return value("remora_client_volumes"); }
  [[nodiscard]] double groups(GroupHealth health) const {
    return value("remora_client_volume_groups", {{"state", std::string{to_string(health)}}});
  }
  [[nodiscard]] double revision() const { return value("remora_client_volume_metadata_revision"); }

  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);
};

TEST_F(VolumeMetricsTest, ClientWithoutVolumesHasNoSeriesOfThem) {
  EXPECT_CODE(engine().registry().value("remora_client_volumes"), kNotFound);
}

TEST_F(VolumeMetricsTest, GroupsOfAllOpenVolumesAdd) {
  const VolumeLayout layout = make();
  {
    const Volume volume = open(layout);
    EXPECT_EQ(volumes(), 1);
    EXPECT_EQ(groups(GroupHealth::kOk), 6);
    const Volume copy = volume;  // NOLINT(performance-unnecessary-copy-initialization): a handle
    EXPECT_EQ(volumes(), 1);
    const Volume second = open(layout);
    EXPECT_EQ(volumes(), 2);
    EXPECT_EQ(groups(GroupHealth::kOk), 12);
  }
  EXPECT_EQ(volumes(), 0);
  EXPECT_EQ(groups(GroupHealth::kOk), 0);
  for (const GroupHealth health :
       {GroupHealth::kUnreachable, GroupHealth::kLost, GroupHealth::kRevoked})
    EXPECT_EQ(groups(health), 0);
}

TEST_F(VolumeMetricsTest, QueueKeepsTheVolumeOpen) {
  auto volume = std::make_unique<Volume>(open(make()));
  auto queue = std::make_unique<VolumeQueue>(volume->queue({.depth = 2}).value());
  volume.reset();
  EXPECT_EQ(volumes(), 1);
  queue.reset();
  EXPECT_EQ(volumes(), 0);
}

TEST_F(VolumeMetricsTest, ServerThatGoesMakesGroupsUnreachableThenLost) {
  const Volume volume = open(make());
  stop(1);
  EXPECT_TRUE(eventually([&] { return groups(GroupHealth::kUnreachable) == 2; }));
  EXPECT_EQ(groups(GroupHealth::kUnreachable), 2);
  EXPECT_EQ(groups(GroupHealth::kOk), 4);
  EXPECT_EQ(volume.groups()[1].health, GroupHealth::kUnreachable);
  start_again(1);
  // No handler of events is set: the failed operation counts all the same.
  EXPECT_CODE(volume.read(ByteOffset{4_KiB}, bytes_), kStaleRegion);
  EXPECT_EQ(groups(GroupHealth::kLost), 1);
  EXPECT_CODE(volume.read(ByteOffset{49 * 4_KiB}, bytes_), kStaleRegion);
  EXPECT_EQ(groups(GroupHealth::kLost), 2);
  EXPECT_EQ(groups(GroupHealth::kUnreachable), 0);
  EXPECT_EQ(groups(GroupHealth::kOk), 4);
  EXPECT_EQ(volume.groups()[1].health, GroupHealth::kLost);
  EXPECT_EQ(volume.groups()[0].health, GroupHealth::kOk);
}

TEST_F(VolumeMetricsTest, GroupThatCouldNotBeOpenedIsLostAtOnce) {
  const VolumeLayout layout = make();
  stop(1);
  start_again(1);
  const Volume partial = open(layout, {.partial = true});
  EXPECT_EQ(groups(GroupHealth::kLost), 2);
  EXPECT_EQ(groups(GroupHealth::kOk), 4);
}

TEST_F(VolumeMetricsTest, FencedGroupIsRevoked) {
  const VolumeLayout layout = make();
  const Volume volume = open(layout);
  const Member& member = layout.groups[2].members[0];
  ASSERT_OK(engine().fence_region("remora://" + address(2) + "/" + member.region, Rights::kAll));
  EXPECT_CODE(volume.write(ByteOffset{2 * 4_KiB}, bytes_), kAccessRefused);
  EXPECT_EQ(groups(GroupHealth::kRevoked), 1);
  EXPECT_EQ(groups(GroupHealth::kOk), 5);
}

TEST_F(VolumeMetricsTest, RevisionIsThatOfTheOldestRecords) {
  VolumeLayout layout = make();
  layout.revision = 70;
  const Volume newer = open(layout);
  EXPECT_EQ(revision(), 70);
  layout.revision = 5;
  auto older = std::make_unique<Volume>(open(layout));
  EXPECT_EQ(revision(), 5);
  older.reset();
  EXPECT_EQ(revision(), 70);
}

/// The sessions count the parts of a volume's operation. Nothing counts them a second time.
TEST_F(VolumeMetricsTest, EachPartOfAnOperationIsCountedOnce) {
  const Volume volume = open(make());
  const auto reads = [&] {
    return engine()
        .registry()
        .sum("remora_client_operations_total", {{"op", "read"}, {"status", "ok"}})
        .value();
  };
  const auto read_bytes = [&] {
    return engine().registry().sum("remora_client_read_bytes_total").value();
  };
  const double before = reads();
  const double bytes_before = read_bytes();
  ASSERT_OK(volume.read(ByteOffset{0}, bytes_));
  EXPECT_EQ(reads(), before + 1);
  std::vector<std::byte> three_units(3 * 4_KiB);
  ASSERT_OK(volume.read(ByteOffset{0}, three_units));
  EXPECT_EQ(reads(), before + 4);
  EXPECT_EQ(read_bytes(), bytes_before + static_cast<double>(64 + 3 * 4_KiB));
}

TEST_F(VolumeMetricsTest, EachRegistryHasItsOwnVolumes) {
  const VolumeLayout layout = make();
  const Volume volume = open(layout);
  const Engine other = Engine::open({}).value();
  const Volume elsewhere = Volume::open(other, layout).value();
  EXPECT_EQ(volumes(), 1);
  EXPECT_EQ(other.registry().value("remora_client_volumes").value(), 1);
}

/// A volume may outlive its engine and the registry that the engine made.
TEST_F(VolumeMetricsTest, VolumeMayBeTheLastThatIsLeft) {
  const VolumeLayout layout = make();
  for (int i = 0; i < 3; ++i) {
    auto other = std::make_unique<Engine>(Engine::open({}).value());
    const Volume volume = Volume::open(*other, layout).value();
    EXPECT_EQ(other->registry().value("remora_client_volumes").value(), 1);
    other.reset();
  }
}

TEST_F(VolumeMetricsTest, RegistryWithoutRoomChangesNoOpening) {
  const auto full = metrics::Registry::create({.series_max = 1}).value();
  const auto metrics = std::make_shared<detail::VolumeMetrics>(*full);
  EXPECT_EQ(full->series_count(), 1U);
  EXPECT_EQ(full->value("remora_client_volumes").value(), 0);
}

}  // namespace
}  // namespace remora::volume::test
