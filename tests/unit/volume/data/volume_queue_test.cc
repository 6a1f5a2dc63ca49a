/// The queue of a volume: depth, tags, long operations, its event descriptor.

#include <algorithm>
#include <map>
#include <poll.h>
#include <thread>

#include <remora/testing/fault_transport.h>

#include "support/pattern.h"
#include "volume_rig.h"

namespace remora::volume::test {
namespace {

using remora::test::noise;
using remora::test::same_bytes;

class VolumeQueueTest : public VolumeRig {
 protected:
  void configure_engine(EngineOptions& options) override { options.faults = faults_.hook(); }
  void SetUp() override {
    VolumeRig::SetUp();
    volume_.emplace(open(make()));
  }
  const remora::testing::FaultTransport faults_ = remora::testing::FaultTransport::create().value();
  std::optional<Volume> volume_;
};

TEST_F(VolumeQueueTest, FullQueueTakesNothing) {
  std::vector<std::byte> bytes(64);
  VolumeQueue queue = volume_->queue({.depth = 3}).value();
  EXPECT_EQ(queue.depth(), 3U);
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(queue.read(ByteOffset{i * 4_KiB}, bytes, i));
  EXPECT_TRUE(queue.full());
  EXPECT_FALSE(queue.read(ByteOffset{0}, bytes));
  EXPECT_FALSE(queue.write(ByteOffset{0}, bytes));
  EXPECT_FALSE(queue.write_zeroes(ByteOffset{0}, 8));
  EXPECT_FALSE(queue.flush_visible());
  EXPECT_FALSE(queue.fetch_add(ByteOffset{0}, 1));
  EXPECT_FALSE(queue.compare_swap(ByteOffset{0}, 0, 1));
  EXPECT_TRUE(queue.poll().empty()) << "nothing was submitted";
  EXPECT_EQ(queue.size(), 3U);
  ASSERT_OK(queue.submit());
  EXPECT_EQ(queue.wait(100).size(), 3U) << "all that were submitted";
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(queue.wait(1).empty());
}

TEST_F(VolumeQueueTest, EachOperationComesBackOnceWithItsTag) {
  std::vector<std::byte> bytes(64);
  VolumeQueue queue = volume_->queue({.depth = 32}).value();
  std::map<std::uint64_t, int> found;
  remora::test::Random random{3};
  std::uint64_t sent = 0;
  for (std::size_t done = 0; done < 2000;) {
    while (sent < 2000 && queue.read(ByteOffset{random.below(96) * 4_KiB}, bytes, sent)) ++sent;
    ASSERT_OK(queue.submit());
    for (const VolumeCompletion& completion : queue.wait(1 + random.below(32))) {
      EXPECT_TRUE(completion.ok());
      ++found[completion.tag()];
      ++done;
    }
  }
  EXPECT_EQ(found.size(), 2000U);
  EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](auto& each) { return each.second == 1; }));
}

TEST_F(VolumeQueueTest, AtomicsGiveTheValueBeforeInEachGroup) {
  VolumeQueue queue = volume_->queue({.depth = 8}).value();
  for (std::uint64_t i = 0; i < 6; ++i) {
    const ByteOffset at{(i / 3 * 48 + i % 3) * 4_KiB + 8 * i};  // one in each group
    EXPECT_EQ(volume_->fetch_add(at, 10 + i).value(), 0U);
    EXPECT_TRUE(queue.fetch_add(at, 1, i));
  }
  ASSERT_OK(queue.submit());
  for (const VolumeCompletion& completion : queue.wait(6)) {
    ASSERT_TRUE(completion.ok()) << completion.error();
    EXPECT_EQ(completion.old_value(), 10 + completion.tag());
  }
  EXPECT_TRUE(queue.compare_swap(ByteOffset{0}, 11, 5, 0));
  ASSERT_OK(queue.submit());
  EXPECT_EQ(queue.wait(1)[0].old_value(), 11U);
  EXPECT_EQ(volume_->compare_swap(ByteOffset{0}, 5, 6).value(), 5U);
  EXPECT_EQ(volume_->compare_swap(ByteOffset{0}, 5, 7).value(), 6U);
}

/// An entry keeps nothing of the operation that had it before.
TEST_F(VolumeQueueTest, OneEntryServesEachKindOfOperationInTurn) {
  VolumeQueue queue = volume_->queue({.depth = 1}).value();
  const std::vector<std::byte> written = noise(12_KiB, 7);
  std::vector<std::byte> read(written.size());
  std::uint64_t sent = 0;
  const auto ended = [&](bool taken) {
    EXPECT_TRUE(taken);
    EXPECT_TRUE(queue.submit().ok());
    const VolumeCompletions found = queue.wait(1);
    EXPECT_EQ(found.size(), 1U);
    if (found.empty()) return VolumeCompletion{};
    EXPECT_EQ(found[0].tag(), sent);
    ++sent;
    return found[0];
  };
  for (std::uint64_t round = 0; round < 3; ++round) {
    EXPECT_EQ(ended(queue.fetch_add(ByteOffset{16_KiB}, 5, sent)).old_value(), 5 * round);
    const VolumeCompletion whole =
        ended(queue.read(ByteOffset{16_KiB}, std::span{read}.first(8), sent));
    EXPECT_TRUE(whole.ok());
    EXPECT_EQ(whole.old_value(), 0U);
    EXPECT_TRUE(ended(queue.write(ByteOffset{1_KiB}, written, sent)).ok()) << "in parts";
    const VolumeCompletion outside = ended(queue.read(ByteOffset{384_KiB}, read, sent));
    ASSERT_FALSE(outside.ok());
    EXPECT_EQ(outside.error().code(), Code::kOutOfRange);
    EXPECT_TRUE(ended(queue.read(ByteOffset{4_KiB}, std::span{read}.first(1_KiB), sent)).ok());
    EXPECT_TRUE(std::equal(read.begin(), read.begin() + 1024, written.begin() + 3072));
    EXPECT_TRUE(ended(queue.flush_visible(sent)).ok());
    EXPECT_TRUE(ended(queue.write_zeroes(ByteOffset{1_KiB}, 12_KiB, sent)).ok());
    EXPECT_TRUE(ended(queue.write_zeroes(ByteOffset{1_KiB}, 8, sent)).ok());
  }
}

/// More parts than all lanes have room for at once.
TEST_F(VolumeQueueTest, LongOperationsPassWithShortOnesBesides) {
  const Volume large = open(make({.rows = 1, .group_bytes = 1_MiB}));
  const std::vector<std::byte> written = noise(3_MiB, 5);
  std::vector<std::byte> read(written.size());
  std::vector<std::byte> small(8);  // outlives the queue, in which its last read may be left
  VolumeQueue queue = large.queue({.depth = 4}).value();
  EXPECT_TRUE(queue.write(ByteOffset{0}, written, 1));
  ASSERT_OK(queue.submit());
  EXPECT_EQ(queue.size(), 1U);
  ASSERT_EQ(queue.wait(1).size(), 1U);
  EXPECT_TRUE(queue.read(ByteOffset{0}, std::span{read}.first(2_MiB), 2));
  EXPECT_TRUE(queue.read(ByteOffset{2_MiB}, std::span{read}.subspan(2_MiB), 3));
  ASSERT_OK(queue.submit());
  std::size_t done = 0;
  // A short operation beside them, again and again: it never finds its lane full.
  for (std::uint64_t i = 0; done < 2; ++i) {
    EXPECT_TRUE(queue.read(ByteOffset{i % 768 * 4_KiB}, small, 100 + i));
    ASSERT_OK(queue.submit());
    for (const VolumeCompletion& completion : queue.wait(1)) {
      EXPECT_TRUE(completion.ok());
      if (completion.tag() < 100) ++done;
    }
  }
  EXPECT_TRUE(same_bytes(read, written));
}

/// wait() posts the parts of the long operation, and with them what was taken meanwhile.
TEST_F(VolumeQueueTest, OperationsTakenWhileALongOneIsInFlightEndOnceEach) {
  const Volume large = open(make({.rows = 1, .group_bytes = 1_MiB}));
  std::vector<std::byte> bytes(3_MiB);
  std::vector<std::byte> small(8);
  VolumeQueue queue = large.queue({.depth = 4}).value();
  EXPECT_TRUE(queue.read(ByteOffset{0}, bytes, 1));
  ASSERT_OK(queue.submit());
  EXPECT_TRUE(queue.read(ByteOffset{0}, small, 2));
  std::size_t done = 0;
  for (const VolumeCompletion& completion : queue.wait(1)) done += completion.ok() ? 1U : 0U;
  ASSERT_OK(queue.submit());
  EXPECT_EQ(queue.size(), 2 - done);
  for (const VolumeCompletion& completion : queue.wait(2)) done += completion.ok() ? 1U : 0U;
  EXPECT_EQ(done, 2U);
  EXPECT_EQ(queue.size(), 0U);
}

TEST_F(VolumeQueueTest, ZeroesAndFlushesOfAllServersComplete) {
  const std::vector<std::byte> written = noise(384_KiB, 6);
  ASSERT_OK(volume_->write(ByteOffset{0}, written));
  VolumeQueue queue = volume_->queue({.depth = 4}).value();
  EXPECT_TRUE(queue.write_zeroes(ByteOffset{100}, 200_KiB, 1));
  EXPECT_TRUE(queue.flush_visible(2));
  ASSERT_OK(queue.submit());
  for (const VolumeCompletion& completion : queue.wait(2)) EXPECT_TRUE(completion.ok());
  std::vector<std::byte> expected = written;
  std::fill_n(expected.begin() + 100, 200_KiB, std::byte{0});
  std::vector<std::byte> read(written.size());
  ASSERT_OK(volume_->read(ByteOffset{0}, read));
  EXPECT_TRUE(same_bytes(read, expected));
  ASSERT_OK(volume_->flush_visible());
}

TEST_F(VolumeQueueTest, PiecesOfRegisteredMemoryAndSlotsAreUsedInParts) {
  std::vector<std::byte> bytes = noise(64_KiB, 7);
  const std::vector<std::byte> written = bytes;
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  ASSERT_OK(volume_->write(ByteOffset{1000}, Source{memory, 0, bytes.size()}));
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  ASSERT_OK(volume_->read(ByteOffset{1000}, Target{memory, 0, bytes.size()}));
  EXPECT_TRUE(same_bytes(bytes, written));
  SlotPool slots = engine().allocate_slots(1, 32_KiB).value();
  Slot slot = slots.take();
  ASSERT_OK(volume_->read(ByteOffset{1000}, slot));
  EXPECT_TRUE(same_bytes(slot.bytes(), std::span{written}.first(32_KiB)));
}

TEST_F(VolumeQueueTest, EventDescriptorTellsOfEachServerAndOfRefusals) {
  std::vector<std::byte> bytes(64);
  VolumeQueue queue = volume_->queue({.depth = 8}).value();
  const int fd = queue.event_fd().value();
  EXPECT_EQ(queue.event_fd().value(), fd);
  const auto next = [&] {
    for (;;) {
      if (const VolumeCompletions found = queue.progress(); !found.empty()) return found;
      pollfd wanted{fd, POLLIN, 0};
      if (::poll(&wanted, 1, 20'000) != 1) return VolumeCompletions{};
    }
  };
  EXPECT_TRUE(queue.progress().empty());
  EXPECT_EQ(queue.next_deadline(), std::chrono::steady_clock::time_point::max());
  for (std::uint64_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(queue.read(ByteOffset{i * 4_KiB}, bytes, i));
    ASSERT_OK(queue.submit());
    const VolumeCompletions found = next();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].tag(), i);
  }
  // Nothing of it goes to a server.
  EXPECT_TRUE(queue.read(ByteOffset{volume_->size_bytes()}, bytes, 9));
  pollfd wanted{fd, POLLIN, 0};
  EXPECT_EQ(::poll(&wanted, 1, 20'000), 1);
  const VolumeCompletions refused = queue.progress();
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].error().code(), Code::kOutOfRange);
}

/// A server's queue refuses them when it takes them, before submit().
TEST_F(VolumeQueueTest, OperationsWithoutARightEndAtOnceAndTheOthersAreStillCounted) {
  const Volume reader = open(make(), {.rights = Rights::kRead});
  std::vector<std::byte> bytes(64);
  VolumeQueue queue = reader.queue({.depth = 8}).value();
  EXPECT_TRUE(queue.write(ByteOffset{0}, bytes, 1));
  const VolumeCompletions alone = queue.progress();
  ASSERT_EQ(alone.size(), 1U);
  EXPECT_EQ(alone[0].tag(), 1U);
  EXPECT_CODE(Status{alone[0].error()}, kNoRight);
  EXPECT_TRUE(queue.wait(1).empty()) << "nothing is in flight";
  faults_.hold_completions();
  EXPECT_TRUE(queue.read(ByteOffset{0}, bytes, 2));
  ASSERT_OK(queue.submit());
  EXPECT_TRUE(queue.write(ByteOffset{0}, bytes, 3));
  const VolumeCompletions beside = queue.wait(1);
  ASSERT_EQ(beside.size(), 1U);
  EXPECT_EQ(beside[0].tag(), 3U);
  faults_.release_completions();
  const VolumeCompletions last = queue.wait(1);
  ASSERT_EQ(last.size(), 1U) << "the read is in flight";
  EXPECT_EQ(last[0].tag(), 2U);
  EXPECT_TRUE(last[0].ok());
  EXPECT_EQ(queue.size(), 0U);
}

/// While no lane reports anything, a waiting thread sleeps for all lanes; the first completion of
/// any lane wakes it.
TEST_F(VolumeQueueTest, WaitForOneWakesForAnyServer) {
  std::vector<std::byte> bytes(64);
  VolumeQueue queue = volume_->queue({.depth = 8}).value();
  faults_.hold_completions();
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(queue.read(ByteOffset{i * 4_KiB}, bytes, i));
  ASSERT_OK(queue.submit());
  EXPECT_TRUE(queue.poll().empty());
  EXPECT_NE(queue.next_deadline(), std::chrono::steady_clock::time_point::max());
  std::thread releaser{[&] {
    std::this_thread::sleep_for(20ms);
    faults_.release_completions();
  }};
  std::size_t done = 0;
  while (done < 3) {
    const VolumeCompletions found = queue.wait(1);
    EXPECT_FALSE(found.empty());
    if (found.empty()) break;
    for (const VolumeCompletion& completion : found) EXPECT_TRUE(completion.ok());
    done += found.size();
  }
  releaser.join();
}

/// Parts that were not posted when one of them fails, or when the deadline passes, never are.
TEST_F(VolumeQueueTest, DeadlineEndsALongOperationWithPartsThatWerePosted) {
  const Volume large = open(make({.rows = 1, .group_bytes = 1_MiB}));
  std::vector<std::byte> bytes(3_MiB);
  faults_.hold_completions();
  const Status read = large.read(ByteOffset{0}, bytes, 50ms);
  EXPECT_CODE(read, kTimedOut);
  EXPECT_TRUE(read.error().subject().starts_with("v, group ")) << read.error();
  EXPECT_EQ(read.error().length_bytes(), bytes.size());
  faults_.release_completions();
  EXPECT_TRUE(large.read(ByteOffset{0}, bytes).ok());
}

/// A part that fails at once, and says that nothing happens any more, hides no other part.
TEST_F(VolumeQueueTest, UnknownEffectOfAPartIsTold) {
  VolumeLayout layout = make();
  ++layout.groups[1].members[0].memory_id;
  const Volume partial = open(layout, {.partial = true});
  std::vector<std::byte> bytes(8_KiB);
  faults_.hold_completions();
  const Status written = partial.write(ByteOffset{0}, bytes, 300ms);  // groups 0 and 1
  EXPECT_CODE(written, kIndeterminate);
  EXPECT_EQ(written.error().subject(), "v, group 0, member s0");
  faults_.release_completions();
  ASSERT_OK(partial.settled(20s));
}

TEST_F(VolumeQueueTest, SecondThreadInACallIsRefused) {
  std::vector<std::byte> bytes(64);
  VolumeQueue queue = volume_->queue({.depth = 8}).value();
  faults_.hold_completions();
  for (std::uint64_t i = 0; i < 3; ++i) EXPECT_TRUE(queue.read(ByteOffset{i * 4_KiB}, bytes, i));
  ASSERT_OK(queue.submit());
  std::thread waiter{[&] {
    // The other thread may be in a call when this one begins.
    for (std::size_t done = 0; done < 3;) done += queue.wait(3).size();
  }};
  Status refused;
  while (refused.ok()) refused = queue.submit();  // until the other thread is in its call
  EXPECT_CODE(refused, kBusy);
  EXPECT_TRUE(queue.poll().empty());
  faults_.release_completions();
  waiter.join();
}

TEST_F(VolumeQueueTest, DestroyedWithOperationsInFlightItWaitsForThem) {
  std::vector<std::byte> bytes = noise(256_KiB, 8);
  {
    VolumeQueue queue = volume_->queue({.depth = 8}).value();
    EXPECT_TRUE(queue.write(ByteOffset{0}, bytes, 1));
    EXPECT_TRUE(queue.write(ByteOffset{300_KiB}, std::span{bytes}.first(64), 2));
    ASSERT_OK(queue.submit());
  }
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  std::vector<std::byte> read(64);
  ASSERT_OK(volume_->read(ByteOffset{300_KiB}, read));
  const std::vector<std::byte> expected = noise(256_KiB, 8);
  EXPECT_TRUE(same_bytes(read, std::span{expected}.first(64)));
}

}  // namespace
}  // namespace remora::volume::test
