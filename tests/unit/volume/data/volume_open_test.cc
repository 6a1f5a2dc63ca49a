/// What a volume is opened from, and what refuses to be opened.

#include <functional>
#include <mutex>

#include "support/pattern.h"
#include "volume_rig.h"

namespace remora::volume::test {
namespace {

using VolumeOpenTest = VolumeRig;

TEST_F(VolumeOpenTest, TellsItsGroups) {
  const VolumeLayout layout = make();
  const Volume volume = open(layout);
  EXPECT_EQ(volume.record(), layout.volume);
  EXPECT_EQ(volume.size_bytes(), 384_KiB);
  EXPECT_EQ(volume.block_count(), 96U);
  EXPECT_EQ(volume.rights(), Rights::kAll);
  const std::vector<GroupState> groups = volume.groups();
  ASSERT_EQ(groups.size(), 6U);
  for (std::uint32_t i = 0; i < groups.size(); ++i) {
    EXPECT_EQ(groups[i].index, i);
    EXPECT_EQ(groups[i].server, server_name(i % kServers));
    EXPECT_EQ(groups[i].region, layout.groups[i].members[0].region);
    EXPECT_EQ(groups[i].transport, TransportKind::kTcp);
    EXPECT_TRUE(groups[i].connected);
    EXPECT_EQ(groups[i].error, "");
  }
}

TEST_F(VolumeOpenTest, TriesTheAddressesOfAServerInOrder) {
  VolumeLayout layout = make();
  // No server listens on port 1.
  for (ServerRecord& server : layout.servers)
    server.addresses.insert(server.addresses.begin(), "127.0.0.1:1");
  EXPECT_TRUE(open(layout).groups()[0].connected);
}

/// The memory id tells which server it is, not the name.
TEST_F(VolumeOpenTest, FindsTheMemoryWhenAnotherServerHasTakenTheName) {
  VolumeLayout layout = make();
  layout.servers[0].addresses = {address(1)};
  layout.servers[2].addresses = {address(1), address(2)};
  const Volume volume = open(layout);
  for (const GroupState& group : volume.groups()) EXPECT_TRUE(group.connected) << group.index;
}

TEST_F(VolumeOpenTest, WithoutARecordOfItsServerAMemberHasItsOwnAddresses) {
  VolumeLayout layout = make();
  layout.servers.clear();
  EXPECT_TRUE(open(layout).groups()[5].connected);
}

TEST_F(VolumeOpenTest, RefusesAMirrorAndShm) {
  VolumeLayout layout = make();
  EXPECT_CODE(Volume::open(engine(), layout, {.transport = TransportKind::kShm}), kUnsupported);
  layout.volume.kind = Kind::kMirror;
  const auto mirror = Volume::open(engine(), layout);
  EXPECT_CODE(mirror, kUnsupported);
  EXPECT_NE(mirror.error().message().find("a mirror"), std::string::npos) << mirror.error();
}

TEST_F(VolumeOpenTest, RefusesRecordsThatDoNotFitEachOther) {
  VolumeLayout layout = make();
  layout.groups.pop_back();
  EXPECT_CODE(Volume::open(engine(), layout), kProtocol);
  layout = make();
  layout.volume.group_bytes *= 2;  // the regions are smaller
  layout.volume.size_bytes *= 2;
  EXPECT_CODE(Volume::open(engine(), layout), kProtocol);
}

/// Each of these is another memory than that of the record, whatever its name.
TEST_F(VolumeOpenTest, OtherMemoryIsStaleAndTheErrorNamesGroupAndMember) {
  const std::vector<std::function<void(GroupRecord&)>> spoilers{
      [](GroupRecord& group) { ++group.members[0].memory_id; },
      [](GroupRecord& group) { ++group.members[0].incarnation; },
      [](GroupRecord& group) { group.lost = true; }};
  for (const auto& spoil : spoilers) {
    VolumeLayout layout = make();
    spoil(layout.groups[4]);
    const auto opened = Volume::open(engine(), layout);
    EXPECT_CODE(opened, kStaleRegion);
    EXPECT_EQ(opened.error().reason(), Reason::kNewMemory);
    EXPECT_EQ(opened.error().subject(), "v, group 4, member s1");
  }
}

TEST_F(VolumeOpenTest, PartialOpensTheRestAndReportsEachAbsentGroupOnce) {
  VolumeLayout layout = make();
  ++layout.groups[1].members[0].memory_id;
  layout.groups[3].members[0].addresses = layout.servers[0].addresses = {"127.0.0.1:1"};
  std::vector<VolumeEvent> events;
  const Volume volume = open(layout, {.partial = true, .on_event = [&](const VolumeEvent& event) {
                                        events.push_back(event);
                                      }});
  // Groups 0 and 3 are on s0, which cannot be reached.
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].kind, VolumeEventKind::kGroupUnreachable);
  EXPECT_EQ(events[1].kind, VolumeEventKind::kGroupLost);
  EXPECT_EQ(events[1].group, 1U);
  EXPECT_EQ(events[1].server, "s1");
  EXPECT_EQ(events[2].group, 3U);
  EXPECT_NE(volume.groups()[1].error, "");
  EXPECT_FALSE(volume.groups()[1].connected);

  std::vector<std::byte> bytes(64);
  ASSERT_OK(volume.write(ByteOffset{2 * 4_KiB}, bytes));
  const Status gone = volume.read(ByteOffset{4_KiB}, bytes);
  EXPECT_CODE(gone, kStaleRegion);
  EXPECT_EQ(gone.error().subject(), "v, group 1, member s1");
  EXPECT_EQ(gone.error().offset_bytes(), 4_KiB);
  VolumeQueue queue = volume.queue({.depth = 4}).value();
  EXPECT_TRUE(queue.read(ByteOffset{4_KiB}, bytes, 1));
  EXPECT_TRUE(queue.read(ByteOffset{2 * 4_KiB}, bytes, 2));
  EXPECT_TRUE(queue.fetch_add(ByteOffset{0}, 1, 3));
  ASSERT_OK(queue.submit());
  for (const VolumeCompletion& completion : queue.wait(3)) {
    ASSERT_EQ(completion.ok(), completion.tag() == 2);
    if (completion.ok()) continue;
    const bool first = completion.tag() == 1;
    EXPECT_EQ(completion.error().subject(),
              first ? "v, group 1, member s1" : "v, group 0, member s0");
    if (first) {
      EXPECT_EQ(completion.error().code(), Code::kStaleRegion);
    }
  }
  EXPECT_EQ(events.size(), 3U);
}

TEST_F(VolumeOpenTest, AnswersClosedAfterAMove) {
  Volume volume = open(make());
  VolumeQueue queue = volume.queue().value();
  const Volume other = std::move(volume);
  const VolumeQueue taken = std::move(queue);
  std::vector<std::byte> bytes(8);
  // NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): the subject of this test
  EXPECT_CODE(volume.read(ByteOffset{0}, bytes), kClosed);
  EXPECT_CODE(volume.write(Block{0}, bytes), kClosed);
  EXPECT_CODE(volume.write_zeroes(ByteOffset{0}, 8), kClosed);
  EXPECT_CODE(volume.flush_visible(), kClosed);
  EXPECT_CODE(volume.settled(1s), kClosed);
  EXPECT_CODE(volume.fetch_add(ByteOffset{0}, 1), kClosed);
  EXPECT_CODE(volume.compare_swap(ByteOffset{0}, 0, 1), kClosed);
  EXPECT_CODE(volume.queue(), kClosed);
  EXPECT_EQ(volume.block_count(), 0U);
  EXPECT_EQ(volume.size_bytes(), 0U);
  EXPECT_TRUE(volume.groups().empty());
  EXPECT_FALSE(queue.read(ByteOffset{0}, bytes));
  EXPECT_CODE(queue.submit(), kClosed);
  EXPECT_CODE(queue.event_fd(), kClosed);
  EXPECT_TRUE(queue.wait(1).empty());
  EXPECT_EQ(queue.depth(), 0U);
  // NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
}

}  // namespace
}  // namespace remora::volume::test
