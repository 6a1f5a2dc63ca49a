/// The queue of a mirror: operations in flight, their order, failures, ends.

#include <algorithm>
#include <optional>
#include <poll.h>
#include <span>
#include <thread>
#include <vector>

#include <remora/volume/volume.h>

#include "mirror_rig.h"
#include "mirror_volume.h"
#include "stripe_map.h"
#include "volume_core.h"

namespace remora::volume::test {
namespace {

class MirrorQueueTest : public MirrorRig {
 protected:
  void SetUp() override {
    MirrorRig::SetUp();
    options_.on_event = {};  // threads of the queue would call it, too
    const VolumeLayout layout = cluster_->layout("v").value();
    auto mirror = std::make_unique<detail::MirrorVolume>(
        [this](Rights) {
          return std::shared_ptr<detail::MemberOpener>{&opener_, [](detail::MemberOpener*) {}};
        },
        *cluster_, layout, detail::StripeMap::of(layout.volume).value(), options_);
    VolumeOptions options;
    options.operation_deadline = kLong;
    volume_.emplace(
        std::make_shared<detail::VolumeCore>(layout.volume, std::move(mirror), options));
  }
  /// Claims the volume, and marks its zones: later operations of lanes are writes of data.
  void claim_and_mark() {
    ASSERT_OK(volume_->claim({.steal = true}));
    const auto zeroes = filled(8, 0);
    for (std::uint64_t at = 0; at < kGroupBytes; at += 1_MiB)
      ASSERT_OK(volume_->write(ByteOffset{at}, zeroes));
  }
  [[nodiscard]] VolumeQueue open_queue(std::size_t depth = 32) const {
    return volume_->queue({.depth = depth}).value();
  }
  /// Submits `count` writes of 4 KiB side by side: write i has the tag i, and bytes i + 1.
  void write_side_by_side(VolumeQueue& queue, std::size_t count) {
    written_.clear();
    for (std::size_t i = 0; i < count; ++i)
      written_.push_back(filled(4096, static_cast<int>(i + 1)));
    for (std::size_t i = 0; i < count; ++i)
      ASSERT_TRUE(queue.write(ByteOffset{i * 8_KiB}, written_[i], i));
    ASSERT_OK(queue.submit());
  }
  void expect_side_by_side(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i)
      EXPECT_EQ(data_of(1, i * 8_KiB, 4096), filled(4096, static_cast<int>(i + 1))) << i;
    expect_equal_members();
  }

  std::vector<std::vector<std::byte>> written_;  // outlives the queues
  std::optional<Volume> volume_;
};

TEST_F(MirrorQueueTest, DepthHasItsLimits) {
  EXPECT_CODE(volume_->queue({.depth = 0}), kInvalidArgument);
  EXPECT_CODE(volume_->queue({.depth = 1025}), kInvalidArgument);
  ASSERT_OK(volume_->queue({.depth = 1024}));
}

TEST_F(MirrorQueueTest, FullQueueTakesNothingAndEachTagComesBackOnce) {
  claim_and_mark();
  VolumeQueue queue = open_queue(3);
  std::vector<std::byte> bytes(64);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(queue.write(ByteOffset{i * 64}, bytes, i));
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.read(ByteOffset{0}, bytes));
  EXPECT_FALSE(queue.write(ByteOffset{0}, bytes));
  EXPECT_FALSE(queue.write_zeroes(ByteOffset{0}, 8));
  EXPECT_FALSE(queue.flush_visible());
  EXPECT_FALSE(queue.fetch_add(ByteOffset{0}, 1));
  EXPECT_FALSE(queue.compare_swap(ByteOffset{0}, 0, 1));
  EXPECT_TRUE(queue.poll().empty()) << "nothing was submitted";
  ASSERT_OK(queue.submit());
  std::vector<std::uint64_t> tags;
  for (const VolumeCompletion& each : queue.wait(100)) {
    EXPECT_TRUE(each.ok());
    tags.push_back(each.tag());
  }
  std::sort(tags.begin(), tags.end());
  EXPECT_EQ(tags, (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(queue.wait(1).empty());
}

TEST_F(MirrorQueueTest, WritesOfOneGroupAreInFlightTogether) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  const std::size_t backup = regions_[1]->posted();
  const std::size_t primary = regions_[0]->posted();
  regions_[1]->hold_answers();
  write_side_by_side(queue, 32);
  regions_[1]->await_posted(backup + 32);
  EXPECT_EQ(regions_[0]->posted(), primary) << "the backups first";
  EXPECT_TRUE(queue.poll().empty());
  regions_[1]->release_answers();
  const VolumeCompletions found = queue.wait(32);
  EXPECT_EQ(found.size(), 32U);
  EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](auto& each) { return each.ok(); }));
  EXPECT_EQ(regions_[0]->posted(), primary + 32);
  expect_side_by_side(32);
}

TEST_F(MirrorQueueTest, OverlappingWritesTakeEffectInTheOrderOfSubmit) {
  claim_and_mark();
  const auto first = filled(8192, 1);
  const auto second = filled(8192, 2);
  const auto other = filled(4096, 3);
  VolumeQueue queue = open_queue();
  const std::size_t before = regions_[1]->posted();
  regions_[1]->hold_answers();
  EXPECT_TRUE(queue.write(ByteOffset{0}, first, 1));
  EXPECT_TRUE(queue.write(ByteOffset{4096}, second, 2));
  EXPECT_TRUE(queue.write(ByteOffset{64_KiB}, other, 3));
  ASSERT_OK(queue.submit());
  regions_[1]->await_posted(before + 2);
  EXPECT_EQ(data_of(1, 4096, 8), filled(8, 1)) << "the second waits for the first";
  EXPECT_EQ(data_of(1, 64_KiB, 4096), other) << "the third for neither";
  regions_[1]->release_answers();
  for (const VolumeCompletion& each : queue.wait(3)) EXPECT_TRUE(each.ok());
  EXPECT_EQ(data_of(0, 0, 4096), filled(4096, 1));
  EXPECT_EQ(data_of(0, 4096, 8192), second);
  expect_equal_members();
}

TEST_F(MirrorQueueTest, AReadSeesTheWritesThatWereSubmittedBeforeIt) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  const auto written = filled(4096, 7);
  std::vector<std::byte> read(4096);
  std::vector<std::byte> later(4096);
  EXPECT_TRUE(queue.write(ByteOffset{0}, written));
  EXPECT_TRUE(queue.read(ByteOffset{0}, read));
  EXPECT_TRUE(queue.write_zeroes(ByteOffset{0}, 4096));
  EXPECT_TRUE(queue.read(ByteOffset{0}, later));
  EXPECT_TRUE(queue.flush_visible());
  ASSERT_OK(queue.submit());
  for (const VolumeCompletion& each : queue.wait(5)) EXPECT_TRUE(each.ok());
  EXPECT_EQ(read, written);
  EXPECT_EQ(later, filled(4096, 0));
}

TEST_F(MirrorQueueTest, AtomicsOfOneWordTakeEffectInTheirOrder) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  for (std::uint64_t i = 0; i < 10; ++i) EXPECT_TRUE(queue.fetch_add(ByteOffset{8}, 2, i));
  EXPECT_TRUE(queue.compare_swap(ByteOffset{8}, 20, 5, 10));
  EXPECT_TRUE(queue.fetch_add(ByteOffset{4}, 1, 11));
  ASSERT_OK(queue.submit());
  std::size_t ended = 0;
  while (ended < 12) {
    for (const VolumeCompletion& each : queue.wait(1)) {
      ++ended;
      if (each.tag() == 11) {
        EXPECT_CODE(each, kMisaligned);
        continue;
      }
      ASSERT_TRUE(each.ok()) << each.error();
      EXPECT_EQ(each.old_value(), each.tag() * 2);
    }
  }
  EXPECT_EQ(volume_->fetch_add(ByteOffset{8}, 0).value(), 5U);
}

TEST_F(MirrorQueueTest, LongOperationsAreCutAtZones) {
  claim_and_mark();
  VolumeQueue queue = open_queue(2);
  const auto written = filled(2_MiB + 100, 9);
  std::vector<std::byte> read(written.size());
  EXPECT_TRUE(queue.write(ByteOffset{1000}, written, 1));
  EXPECT_TRUE(queue.read(ByteOffset{1000}, read, 2));
  ASSERT_OK(queue.submit());
  const VolumeCompletions found = queue.wait(2);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(found[0].ok() && found[1].ok());
  EXPECT_EQ(found[0].tag(), 1U) << "it overlaps the second";
  EXPECT_TRUE(read == written);
  expect_equal_members();
}

TEST_F(MirrorQueueTest, AMemberThatFailsIsRemovedAndAllWritesGoOn) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  const std::size_t before = regions_[1]->posted();
  regions_[1]->hold_answers();
  regions_[2]->fail_writes({WriteFault::kNone, WriteFault::kNone, WriteFault::kRefused});
  write_side_by_side(queue, 16);
  regions_[1]->await_posted(before + 16);
  regions_[1]->release_answers();
  for (const VolumeCompletion& each : queue.wait(16)) EXPECT_TRUE(each.ok());
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1"}));
  expect_side_by_side(16);
}

TEST_F(MirrorQueueTest, NothingIsAcknowledgedWhileThePrimaryChanges) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  regions_[0]->die();
  write_side_by_side(queue, 16);
  while (!stored().promoting) std::this_thread::yield();
  EXPECT_TRUE(queue.poll().empty());
  // Again and again: the writer's wait may begin after the first time.
  std::size_t ended = 0;
  while (ended < 16) {
    clock_->advance(options_.times.readers_gone_after());
    for (const VolumeCompletion& each : queue.poll()) {
      ++ended;
      EXPECT_TRUE(each.ok());
    }
    std::this_thread::yield();
  }
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s1", "s2"}));
  expect_side_by_side(16);
}

TEST_F(MirrorQueueTest, TheMemoryOfOneOperationFailsNoOther) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  regions_[1]->fail_writes({WriteFault::kNone, WriteFault::kBadMemory});
  write_side_by_side(queue, 16);
  for (const VolumeCompletion& each : queue.wait(16)) EXPECT_TRUE(each.ok());
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1", "s2"}));
  ASSERT_OK(volume_->settled(kLong));
  expect_side_by_side(16);
}

TEST_F(MirrorQueueTest, AWriteThatIsRepeatedAloneStaysBeforeALaterOne) {
  claim_and_mark();
  VolumeQueue first = open_queue();
  VolumeQueue second = open_queue();
  const auto later = filled(4096, 99);
  const std::size_t before = regions_[1]->posted();
  regions_[1]->hold_answers();
  regions_[1]->fail_writes({WriteFault::kNone, WriteFault::kBadMemory});
  write_side_by_side(first, 16);
  regions_[1]->await_posted(before + 16);
  EXPECT_TRUE(second.write(ByteOffset{0}, later));
  ASSERT_OK(second.submit());
  regions_[1]->release_answers();
  for (const VolumeCompletion& each : first.wait(16)) EXPECT_TRUE(each.ok());
  for (const VolumeCompletion& each : second.wait(1)) EXPECT_TRUE(each.ok());
  ASSERT_OK(volume_->settled(kLong));
  EXPECT_EQ(data_of(0, 0, 4096), later) << "the later one waited for the range of the first";
  expect_equal_members();
}

/// Its range is in use until then, so that it cannot begin.
TEST_F(MirrorQueueTest, AnOperationThatCannotBeginEndsWithItsDeadline) {
  claim_and_mark();
  const auto bytes = filled(4096, 1);
  VolumeQueue first = open_queue();
  VolumeQueue second = volume_->queue({.depth = 4, .deadline = 1ms}).value();
  const std::size_t before = regions_[1]->posted();
  regions_[1]->hold_answers();
  EXPECT_TRUE(first.write(ByteOffset{0}, bytes));
  ASSERT_OK(first.submit());
  regions_[1]->await_posted(before + 1);
  EXPECT_TRUE(second.write(ByteOffset{2048}, bytes, 5));
  ASSERT_OK(second.submit());
  const VolumeCompletions found = second.wait(1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].tag(), 5U);
  EXPECT_CODE(found[0], kTimedOut);
  regions_[1]->release_answers();
  EXPECT_TRUE(first.wait(1)[0].ok());
}

TEST_F(MirrorQueueTest, WithoutAClaimItReads) {
  regions_[0]->set_bytes(kData, filled(64_KiB, 4));
  VolumeQueue queue = open_queue();
  std::vector<std::byte> read(64_KiB);
  for (std::size_t i = 0; i < 16; ++i)
    EXPECT_TRUE(queue.read(ByteOffset{i * 4_KiB}, std::span{read}.subspan(i * 4_KiB, 4_KiB), i));
  EXPECT_TRUE(queue.write_zeroes(ByteOffset{1_MiB}, 8, 16));
  ASSERT_OK(queue.submit());
  std::size_t ended = 0;
  while (ended < 17) {
    for (const VolumeCompletion& each : queue.wait(1)) {
      ++ended;
      if (each.tag() == 16) {
        EXPECT_CODE(each, kNoRight);
        EXPECT_TRUE(each.error().subject().starts_with("v, group 0")) << each.error();
      } else {
        EXPECT_TRUE(each.ok());
      }
    }
  }
  EXPECT_EQ(read, filled(64_KiB, 4));
}

TEST_F(MirrorQueueTest, AReleaseLetsWritesInFlightEnd) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  const std::size_t before = regions_[1]->posted();
  regions_[1]->hold_answers();
  write_side_by_side(queue, 8);
  regions_[1]->await_posted(before + 8);
  std::thread releaser{[this] { EXPECT_TRUE(volume_->release().ok()); }};
  regions_[1]->release_answers();
  for (const VolumeCompletion& each : queue.wait(8)) EXPECT_TRUE(each.ok());
  releaser.join();
  expect_side_by_side(8);
  write_side_by_side(queue, 8);
  for (const VolumeCompletion& each : queue.wait(8)) EXPECT_CODE(each, kNoRight);
  ASSERT_OK(volume_->claim({.steal = true}));
  write_side_by_side(queue, 8);
  for (const VolumeCompletion& each : queue.wait(8)) EXPECT_TRUE(each.ok());
}

TEST_F(MirrorQueueTest, GroupsTellTheirCopiesAndTheTransportOfAllMembers) {
  EXPECT_EQ(volume_->groups()[0].transport, TransportKind::kAuto);  // not open
  EXPECT_EQ(volume_->groups()[0].copies, 3U);
  std::vector<std::byte> bytes(8);
  ASSERT_OK(volume_->read(ByteOffset{0}, bytes));
  EXPECT_EQ(volume_->groups()[0].transport, TransportKind::kTcp);
  ASSERT_OK(volume_->claim({.steal = true}));
  EXPECT_EQ(volume_->groups()[0].transport, TransportKind::kTcp);
  regions_[1]->be_over(TransportKind::kRdma);
  EXPECT_EQ(volume_->groups()[0].transport, TransportKind::kRdma);
  regions_[1]->die();
  ASSERT_OK(volume_->write(ByteOffset{0}, bytes));
  EXPECT_EQ(volume_->groups()[0].copies, 2U);
  EXPECT_EQ(volume_->groups()[0].transport, TransportKind::kTcp);
}

/// A handler of events asks so, inside of an operation that release() waits for.
TEST_F(MirrorQueueTest, AskingForTheClaimDoesNotWaitForARelease) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  const std::size_t before = regions_[1]->posted();
  regions_[1]->hold_answers();
  write_side_by_side(queue, 1);
  regions_[1]->await_posted(before + 1);
  std::thread releaser{[this] { EXPECT_TRUE(volume_->release().ok()); }};
  std::vector<std::byte> bytes(8);
  while (volume_->read(ByteOffset{1_MiB}, bytes, 1ms)) std::this_thread::yield();
  EXPECT_TRUE(volume_->claimed());
  EXPECT_EQ(volume_->groups().size(), 1U);
  regions_[1]->release_answers();
  EXPECT_TRUE(queue.wait(1)[0].ok());
  releaser.join();
  EXPECT_FALSE(volume_->claimed());
}

TEST_F(MirrorQueueTest, SettledTellsWhatAReleaseHasLeft) {
  claim_and_mark();
  store_->set_down(true);  // so that the member cannot be removed
  regions_[1]->fail_writes({WriteFault::kApplied});
  regions_[1]->set_settles(false);
  const auto bytes = filled(4096, 2);
  Status written = Error{Code::kTimedOut};
  while (!written && written.error().code() == Code::kTimedOut)  // nothing was posted yet
    written = volume_->write(ByteOffset{4_KiB}, bytes, 30ms);
  EXPECT_CODE(written, kIndeterminate);
  EXPECT_FALSE(volume_->release().ok());
  EXPECT_CODE(volume_->settled(kLong), kTimedOut);
  store_->set_down(false);
  regions_[1]->set_settles(true);
  ASSERT_OK(volume_->claim({.steal = true}));
  ASSERT_OK(volume_->settled(kLong));
  expect_equal_members();
  ASSERT_OK(volume_->release());
  ASSERT_OK(volume_->settled(kLong));
}

TEST_F(MirrorQueueTest, AWriterThatIsReplacedWritesNothingMore) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  const auto newer = adopt();
  ASSERT_NE(newer, nullptr);
  write_side_by_side(queue, 16);
  const VolumeCompletions found = queue.wait(16);
  ASSERT_EQ(found.size(), 16U);
  for (const VolumeCompletion& each : found) {
    ASSERT_FALSE(each.ok());
    EXPECT_EQ(each.error().reason(), Reason::kFenced) << each.error();
  }
  EXPECT_EQ(data_of(0, 0, 4096), filled(4096, 0));
}

TEST_F(MirrorQueueTest, EventDescriptorTellsOfCompletionsAndRefusals) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  const int fd = queue.event_fd().value();
  EXPECT_EQ(queue.event_fd().value(), fd);
  EXPECT_TRUE(queue.progress().empty());
  EXPECT_EQ(queue.next_deadline(), Time::max());
  const auto bytes = filled(64, 1);
  for (const std::uint64_t at : {std::uint64_t{0}, kGroupBytes}) {
    EXPECT_TRUE(queue.write(ByteOffset{at}, bytes, at));
    ASSERT_OK(queue.submit());
    VolumeCompletions found;
    while (found.empty()) {
      EXPECT_NE(queue.next_deadline(), Time::max()) << "until it is handed out";
      pollfd wanted{fd, POLLIN, 0};
      ASSERT_EQ(::poll(&wanted, 1, 20'000), 1);
      found = queue.progress();
    }
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].tag(), at);
    EXPECT_EQ(found[0].ok(), at == 0);
    EXPECT_EQ(queue.next_deadline(), Time::max());
  }
}

TEST_F(MirrorQueueTest, DestroyedWithOperationsInFlightItWaitsForThem) {
  claim_and_mark();
  {
    VolumeQueue queue = open_queue();
    write_side_by_side(queue, 32);
  }
  expect_side_by_side(32);
}

TEST_F(MirrorQueueTest, TheVolumeStaysOpenForItsQueue) {
  claim_and_mark();
  VolumeQueue queue = open_queue();
  volume_.reset();
  write_side_by_side(queue, 32);
  for (const VolumeCompletion& each : queue.wait(32)) EXPECT_TRUE(each.ok());
  VolumeQueue moved = std::move(queue);
  EXPECT_EQ(moved.depth(), 32U);
  EXPECT_EQ(queue.depth(), 0U);  // NOLINT(bugprone-use-after-move): documented
  EXPECT_CODE(queue.submit(), kClosed);
  EXPECT_FALSE(queue.flush_visible());
  expect_side_by_side(32);
}

}  // namespace
}  // namespace remora::volume::test
