// Mirrors over servers that die, come and are drained: the bytes stay.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <span>
#include <string>
#include <vector>

#include <remora/volume/maintenance.h>

#include "member_header.h"
#include "mirror_writer.h"
#include "unit/volume/cluster_rig.h"

namespace remora::volume::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MirrorMaintenance : public ClusterRig {
 protected:
  /// Other bytes for each group and each `round`.
  static std::vector<std::byte> pattern(std::uint32_t group, std::uint32_t round) {
    std::vector<std::byte> bytes(kGroup);
    for (std::size_t i = 0; i < bytes.size(); ++i)
      bytes[i] = static_cast<std::byte>((i * 31 + i / 4096 + group * 7 + round * 13) & 0xFFU);
    return bytes;
  }
  /// A writer that claims the volume, writes all of it, and releases it.
  void write_all(std::uint32_t round) {
    const Engine writing = engine();
    const auto writer = detail::MirrorWriter::claim(writing, cluster(), "disk", {});
    ASSERT_TRUE(writer.ok()) << writer.error();
    for (std::uint32_t i = 0; i < (*writer)->group_count(); ++i) {
      const std::vector<std::byte> bytes = pattern(i, round);
      for (std::uint64_t at = 0; at < bytes.size(); at += 1_MiB)
        ASSERT_OK((*writer)->group(i).write(at, std::span{bytes}.subspan(at, 1_MiB),
                                            std::chrono::steady_clock::now() + 10s));
    }
    ASSERT_OK((*writer)->release());
  }
  /// The store is lost, and the volume's records are those that were exported.
  void restore_records(const std::string& old) {
    Transaction loss;
    for (const Entry& entry :
         cluster().store().range(cluster().keys().volumes(), 5s).value().entries)
      loss.changes.push_back({entry.key, std::nullopt, kNoLease});
    ASSERT_OK(cluster().store().commit(loss, 5s));
    ASSERT_TRUE(renew_generation(cluster()));
    const auto imported = import_volume(cluster(), old);
    ASSERT_TRUE(imported) << imported.error().error << ' ' << imported.error().detail;
  }
  void expect_bytes(std::uint32_t round) const {
    for (const GroupRecord& group : layout().groups)
      EXPECT_TRUE(data_of(group.members.front()) ==
                  pattern(static_cast<std::uint32_t>(group.index), round))
          << group.index;
  }
  [[nodiscard]] bool has_member_on(const std::string& server) const {
    for (const GroupRecord& group : layout().groups)
      for (const Member& member : group.members)
        if (member.server == server) return true;
    return false;
  }
};

TEST_F(MirrorMaintenance, DeadServerIsReplaced) {
  const VolumeLayout made = make(3, 2);
  write_all(1);
  const std::string dead = made.groups[0].members[0].server;
  kill(dead[1] - '0');
  const Engine repairing = engine();
  const auto report = repair_volume(cluster(), repairing, "disk");
  ASSERT_TRUE(report) << report.error().error << ' ' << report.error().detail;
  EXPECT_THAT(report->left, IsEmpty());
  EXPECT_GE(report->members_added, 1U);
  EXPECT_FALSE(has_member_on(dead));
  expect_whole();
  expect_bytes(1);
}

/// One loss after the other, with a repair between them: the copies that were made carry on.
TEST_F(MirrorMaintenance, RebuiltCopiesAreWorthAsMuchAsTheFirst) {
  make(2, 2);
  write_all(1);
  for (const int dead : {0, 1}) {
    kill(dead);
    const Engine repairing = engine();
    const auto report = repair_volume(cluster(), repairing, "disk");
    ASSERT_TRUE(report) << report.error().error << ' ' << report.error().detail;
    ASSERT_THAT(report->left, IsEmpty());
  }
  expect_whole();
  expect_bytes(1);
  write_all(2);
  expect_whole();
  expect_bytes(2);
}

TEST_F(MirrorMaintenance, DrainedServerIsEmpty) {
  make(3, 2);
  write_all(1);
  const Engine draining = engine();
  const auto report = drain_server(cluster(), draining, "s1");
  ASSERT_TRUE(report) << report.error().error << ' ' << report.error().detail;
  EXPECT_THAT(report->left, IsEmpty());
  EXPECT_FALSE(has_member_on("s1"));
  EXPECT_TRUE(server(1).regions().empty());
  expect_whole();
  expect_bytes(1);
}

TEST_F(MirrorMaintenance, CopyIsAdded) {
  make(2, 2);
  write_all(1);
  const Engine adding = engine();
  const auto report = add_copy(cluster(), adding, "disk");
  ASSERT_TRUE(report) << report.error().error << ' ' << report.error().detail;
  EXPECT_EQ(report->members_added, 2U);
  EXPECT_EQ(layout().volume.copies, 3U);
  expect_whole(3);
  expect_bytes(1);
}

TEST_F(MirrorMaintenance, StopLeavesAVolumeThatTheNextRepairCompletes) {
  make(2, 2);
  write_all(1);
  kill(0);
  kill(3);
  std::atomic<bool> copied{false};
  MaintenanceOptions options;
  options.progress = [&](const MaintenanceProgress&) { copied = true; };
  options.stop = [&] { return copied.load(); };
  const Engine repairing = engine();
  const auto stopped = repair_volume(cluster(), repairing, "disk", options);
  start(0);
  start(3);
  if (!stopped) {
    EXPECT_EQ(stopped.error().error.code(), Code::kCancelled);
    EXPECT_THAT(stopped.error().detail, HasSubstr("goes on"));
  }
  const auto resumed = repair_volume(cluster(), engine(), "disk");
  ASSERT_TRUE(resumed) << resumed.error().error << ' ' << resumed.error().detail;
  expect_whole();
  expect_bytes(1);
}

TEST_F(MirrorMaintenance, LiveWriterKeepsItsClaim) {
  make(1, 2);
  const Engine writing = engine();
  const auto writer = detail::MirrorWriter::claim(writing, cluster(), "disk", {});
  ASSERT_TRUE(writer.ok()) << writer.error();
  const auto refused = repair_volume(cluster(), engine(), "disk");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kBusy);
  EXPECT_THAT(refused.error().detail, HasSubstr("--steal"));
  const auto stolen = repair_volume(cluster(), engine(), "disk", {.steal = true});
  ASSERT_TRUE(stolen) << stolen.error().error << ' ' << stolen.error().detail;
}

TEST_F(MirrorMaintenance, AcceptedLossIsUsedAgain) {
  make(1, 2);
  write_all(1);
  std::vector<int> dead;
  const VolumeLayout made = layout();
  for (const Member& member : made.groups[0].members) dead.push_back(member.server[1] - '0');
  for (const int each : dead) kill(each);
  for (const int each : dead) start(each);
  const auto lost = repair_volume(cluster(), engine(), "disk");
  ASSERT_TRUE(lost) << lost.error().error << ' ' << lost.error().detail;
  ASSERT_EQ(lost->left.size(), 1U);
  EXPECT_THAT(lost->left[0], HasSubstr("accept-loss"));
  ASSERT_TRUE(accept_loss(cluster(), engine(), "disk"));
  write_all(2);
  expect_whole();
  expect_bytes(2);
}

TEST_F(MirrorMaintenance, OldRecordsAreMadeNewFromHeaders) {
  make(1, 2);
  write_all(1);
  const std::string old = export_volume(cluster(), "disk").value();
  // The primary dies, a copy is made, and other bytes are written: the export does not know.
  kill(layout().groups[0].members[0].server[1] - '0');
  ASSERT_TRUE(repair_volume(cluster(), engine(), "disk"));
  write_all(2);
  restore_records(old);
  const auto refused = repair_volume(cluster(), engine(), "disk");
  ASSERT_TRUE(refused) << refused.error().error << ' ' << refused.error().detail;
  ASSERT_EQ(refused->left.size(), 1U);  // a member that the record names is gone
  EXPECT_THAT(refused->left[0], HasSubstr("--from-headers"));
  ASSERT_FALSE(restore_from_headers(cluster(), engine(), "disk"));
  const auto restored = restore_from_headers(cluster(), engine(), "disk", true);
  ASSERT_TRUE(restored) << restored.error().error << ' ' << restored.error().detail;
  const auto repaired = repair_volume(cluster(), engine(), "disk");
  ASSERT_TRUE(repaired) << repaired.error().error << ' ' << repaired.error().detail;
  EXPECT_THAT(repaired->left, IsEmpty());
  expect_whole();
  expect_bytes(2);
}

TEST_F(MirrorMaintenance, DamagedHeaderStopsItsGroupOnly) {
  const VolumeLayout made = make(2, 2);
  write_all(1);
  restore_records(export_volume(cluster(), "disk").value());
  const std::string damaged = region_name(made.volume.id, 0, 77);
  ASSERT_OK(server(0).create_region({.name = damaged, .size_bytes = 4_KiB}));
  const std::vector<std::byte> bytes(detail::MemberHeader::kBytes, std::byte{1});
  const Engine writing = engine();
  ASSERT_OK(writing
                .open_region("remora://" + address(0) + "/" + damaged + "?transport=tcp",
                             Rights::kReadWrite)
                .value()
                .write(ByteOffset{0}, bytes));
  const auto restored = restore_from_headers(cluster(), engine(), "disk");
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().error.code(), Code::kProtocol);
  EXPECT_THAT(restored.error().detail, HasSubstr(damaged));
  EXPECT_THAT(restored.error().detail, HasSubstr("that were restored: 1"));
}

TEST_F(MirrorMaintenance, LossOfAnOldRecordIsNotAcceptedWhileNewerRegionsAreThere) {
  const VolumeLayout made = make(1, 2);
  write_all(1);
  const std::string old = export_volume(cluster(), "disk").value();
  std::vector<int> dead;
  for (const Member& member : made.groups[0].members) dead.push_back(member.server[1] - '0');
  for (const int each : dead) {
    kill(each);
    ASSERT_TRUE(repair_volume(cluster(), engine(), "disk"));
  }
  restore_records(old);
  EXPECT_EQ(accept_loss(cluster(), engine(), "disk").error().error.code(), Code::kUnreachable);
  const auto refused = accept_loss(cluster(), engine(), "disk", {.forget_unreachable = true});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().error.code(), Code::kBusy);
  EXPECT_THAT(refused.error().detail, HasSubstr("--from-headers"));
  ASSERT_TRUE(restore_from_headers(cluster(), engine(), "disk", true));
  ASSERT_TRUE(repair_volume(cluster(), engine(), "disk"));
  expect_whole();
  expect_bytes(1);
}

TEST_F(MirrorMaintenance, LossOfAnOldRecordIsAcceptedWhenNoRegionIsThere) {
  const VolumeLayout made = make(1, 2);
  write_all(1);
  const std::string old = export_volume(cluster(), "disk").value();
  std::vector<int> dead;
  for (const Member& member : made.groups[0].members) dead.push_back(member.server[1] - '0');
  for (const int each : dead) kill(each);
  restore_records(old);
  for (const int each : dead) start(each);
  const auto accepted = accept_loss(cluster(), engine(), "disk");
  ASSERT_TRUE(accepted) << accepted.error().error << ' ' << accepted.error().detail;
  write_all(2);
  expect_whole();
  expect_bytes(2);
}

TEST_F(MirrorMaintenance, ClaimIsHeldUntilTheStop) {
  make(1, 2);
  std::string writer;
  MaintenanceOptions options;
  options.stop = [&] { return !writer.empty(); };
  const auto held = hold_claim(cluster(), engine(), "disk", options,
                               [&](const VolumeRecord&) { writer = layout().live_writer; });
  ASSERT_TRUE(held) << held.error().error;
  EXPECT_FALSE(writer.empty());
  EXPECT_TRUE(layout().live_writer.empty());
}

}  // namespace
}  // namespace remora::volume::test
