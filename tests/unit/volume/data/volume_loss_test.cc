/// Servers that go, and come back with other memory.

#include <atomic>
#include <mutex>
#include <poll.h>

#include "support/eventually.h"
#include "support/pattern.h"
#include "volume_rig.h"

namespace remora::volume::test {
namespace {

using remora::test::eventually;

class VolumeLossTest : public VolumeRig {
 protected:
  void SetUp() override {
    VolumeRig::SetUp();
    layout_ = make();
    VolumeOptions options;
    options.on_event = [this](const VolumeEvent& event) {
      const std::lock_guard lock{mutex_};
      events_.push_back(event);
    };
    volume_.emplace(open(layout_, options));
  }
  [[nodiscard]] bool connected(std::uint32_t group) const {
    return volume_->groups()[group].connected;
  }
  std::vector<VolumeEvent> events() {
    const std::lock_guard lock{mutex_};
    return events_;
  }

  VolumeLayout layout_;
  std::optional<Volume> volume_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(64);

 private:
  std::mutex mutex_;
  std::vector<VolumeEvent> events_;
};

TEST_F(VolumeLossTest, GroupsOfNewMemoryAreStaleAndTheOthersGoOn) {
  stop(1);
  ASSERT_TRUE(eventually([&] { return !connected(1); }));
  start_again(1);
  const Status read = volume_->read(ByteOffset{4_KiB}, bytes_);
  EXPECT_CODE(read, kStaleRegion);
  EXPECT_EQ(read.error().subject(), "v, group 1, member s1");
  EXPECT_EQ(read.error().server(), address(1));
  EXPECT_CODE(volume_->write(ByteOffset{49 * 4_KiB}, bytes_), kStaleRegion);  // group 4
  EXPECT_CODE(volume_->fetch_add(ByteOffset{4_KiB}, 1), kStaleRegion);
  for (const std::uint64_t unit : {0U, 2U, 48U, 50U})
    ASSERT_OK(volume_->write(ByteOffset{unit * 4_KiB}, bytes_));
  // One that needs all servers.
  std::vector<std::byte> all(volume_->size_bytes());
  EXPECT_CODE(volume_->read(ByteOffset{0}, all), kStaleRegion);

  const std::vector<VolumeEvent> found = events();
  ASSERT_EQ(found.size(), 2U) << "one for each group, whatever the number of operations";
  EXPECT_EQ(found[0].kind, VolumeEventKind::kGroupLost);
  EXPECT_EQ(found[0].group, 1U);
  EXPECT_EQ(found[0].server, "s1");
  EXPECT_EQ(found[1].group, 4U);
}

TEST_F(VolumeLossTest, QueueThatWasThereTellsOfTheGroup) {
  std::vector<std::byte> long_read(8 * 4_KiB);
  VolumeQueue queue = volume_->queue({.depth = 16}).value();
  stop(2);
  ASSERT_TRUE(eventually([&] { return !connected(2); }));
  for (std::uint64_t unit = 0; unit < 6; ++unit)
    EXPECT_TRUE(queue.read(ByteOffset{unit * 4_KiB}, bytes_, unit));
  EXPECT_TRUE(queue.read(ByteOffset{0}, long_read, 6));
  ASSERT_OK(queue.submit());
  start_again(2);
  std::size_t done = 0;
  while (done < 7) {
    const VolumeCompletions found = queue.wait(7 - done);
    ASSERT_FALSE(found.empty());
    done += found.size();
    for (const VolumeCompletion& completion : found) {
      const bool lost = completion.tag() % 3 == 2 || completion.tag() == 6;
      EXPECT_EQ(completion.ok(), !lost) << completion.tag();
      if (completion.ok()) continue;
      EXPECT_EQ(completion.error().code(), Code::kStaleRegion) << completion.error();
      EXPECT_EQ(completion.error().subject(), "v, group 2, member s2");
    }
  }
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0].kind, VolumeEventKind::kGroupLost);
}

/// A queue that is made after the session has ended says the same.
TEST_F(VolumeLossTest, QueueThatIsMadeLaterTellsOfTheGroup) {
  stop(0);
  ASSERT_TRUE(eventually([&] { return !connected(0); }));
  start_again(0);
  EXPECT_CODE(volume_->read(ByteOffset{0}, bytes_), kStaleRegion);
  VolumeQueue queue = volume_->queue({.depth = 4}).value();
  EXPECT_TRUE(queue.read(ByteOffset{0}, bytes_, 0));
  EXPECT_TRUE(queue.read(ByteOffset{4_KiB}, bytes_, 1));
  EXPECT_TRUE(queue.flush_visible(2));
  ASSERT_OK(queue.submit());
  const VolumeCompletions found = queue.wait(3);
  ASSERT_EQ(found.size(), 3U);
  for (const VolumeCompletion& completion : found) {
    EXPECT_EQ(completion.ok(), completion.tag() != 0) << completion.tag();
    if (completion.ok()) continue;
    EXPECT_EQ(completion.error().code(), Code::kStaleRegion) << completion.error();
    EXPECT_EQ(completion.error().subject(), "v, group 0, member s0");
    EXPECT_EQ(completion.error().offset_bytes(), 0U);
  }
}

TEST_F(VolumeLossTest, OpenedAgainTheVolumeSaysThatTheGroupIsStale) {
  stop(1);
  start_again(1);
  const auto opened = Volume::open(engine(), layout_);
  EXPECT_CODE(opened, kStaleRegion);
  EXPECT_EQ(opened.error().subject(), "v, group 1, member s1");
  const Volume partial = open(layout_, {.partial = true});
  ASSERT_OK(partial.write(ByteOffset{0}, bytes_));
  EXPECT_CODE(partial.write(ByteOffset{4_KiB}, bytes_), kStaleRegion);
}

/// No part of it goes to a server, and the event descriptor tells of it.
TEST_F(VolumeLossTest, LongOperationOnAMissingGroupIsAnEvent) {
  stop(1);
  start_again(1);
  const Volume partial = open(layout_, {.partial = true});
  VolumeQueue queue = partial.queue({.depth = 4}).value();
  pollfd wanted{queue.event_fd().value(), POLLIN, 0};
  std::vector<std::byte> bytes(8_KiB);
  EXPECT_TRUE(queue.read(ByteOffset{4_KiB}, bytes, 7));  // its first part is in group 1
  ASSERT_OK(queue.submit());
  ASSERT_EQ(::poll(&wanted, 1, 20'000), 1);
  const VolumeCompletions found = queue.progress();
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tag(), 7U);
  EXPECT_EQ(found[0].error().code(), Code::kStaleRegion);
}

TEST_F(VolumeLossTest, ServerThatIsGoneEndsOperationsWithinTheirDeadline) {
  stop(1);
  ASSERT_TRUE(eventually([&] { return !connected(1); }));
  const Status read = volume_->read(ByteOffset{4_KiB}, bytes_, 20ms);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().subject(), "v, group 1, member s1");
  ASSERT_OK(volume_->read(ByteOffset{0}, bytes_, 10s));
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0].kind, VolumeEventKind::kGroupUnreachable);
}

TEST_F(VolumeLossTest, AFenceOfARegionEndsTheVolumesGrant) {
  const Member& member = layout_.groups[2].members[0];
  const auto fenced =
      engine().fence_region("remora://" + address(2) + "/" + member.region, Rights::kAll);
  ASSERT_OK(fenced);
  const Status written = volume_->write(ByteOffset{2 * 4_KiB}, bytes_);
  EXPECT_CODE(written, kAccessRefused);
  EXPECT_EQ(written.error().reason(), Reason::kFenced);
  EXPECT_EQ(written.error().subject(), "v, group 2, member s2");
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0].kind, VolumeEventKind::kGroupRevoked);
}

}  // namespace
}  // namespace remora::volume::test
