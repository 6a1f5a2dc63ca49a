/// The bytes of a group: order of writes, failures, repair, reads.

#include "mirror_group_test.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>

#include "support/eventually.h"

namespace remora::volume::test {
namespace {

using detail::MirrorGroup;
using remora::test::eventually;

TEST_F(MirrorGroupTest, MarksAllMembersThenWritesBackupsThenThePrimary) {
  ASSERT_OK(write(1_MiB + 8_KiB, 7));
  const auto log = log_.take();
  ASSERT_EQ(log.size(), 6U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(log[i].offset_bytes, detail::word_offset(0));
  for (std::size_t i = 3; i < 6; ++i) EXPECT_EQ(log[i].offset_bytes, kData + 1_MiB + 8_KiB);
  EXPECT_EQ(log[5].region, "s0") << "the primary comes last";
  for (std::size_t server = 0; server < 3; ++server) EXPECT_EQ(word_of(server), 2U);
  expect_read(1_MiB + 8_KiB, 7);
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AMarkedZoneIsNotMarkedAgain) {
  ASSERT_OK(write(0, 1));
  log_.take();
  ASSERT_OK(write(8_KiB, 2));
  EXPECT_EQ(log_.take().size(), 3U);
}

/// Those that come after the deadline would each wait for a member that does not answer.
TEST_F(MirrorGroupTest, WritesOfABatchThatAreLateAskNoMember) {
  const auto bytes = filled(4096, 1);
  std::vector<detail::GroupOperation> late(3);
  for (std::size_t i = 0; i < late.size(); ++i)
    late[i] = {.offset_bytes = i * 1_MiB,
               .length_bytes = bytes.size(),
               .from = bytes,
               .until = Time::clock::now()};
  ASSERT_OK(write(0, 1));
  regions_[0]->fail_writes({WriteFault::kBadMemory});
  EXPECT_CODE(write(0, 2), kProvider);
  ASSERT_TRUE(group_->unresolved().has(0));  // the others are not marked
  log_.take();
  group_->write_together(late);
  for (const detail::GroupOperation& each : late) EXPECT_CODE(each.status, kTimedOut);
  EXPECT_TRUE(log_.take().empty());
}

TEST_F(MirrorGroupTest, ZeroesAreWrittenToAllMembers) {
  ASSERT_OK(write(0, 1, 12_KiB));
  ASSERT_OK(group_->write_zeroes(4_KiB, 4_KiB, soon()));
  expect_read(0, 1);
  expect_read(4_KiB, 0);
  expect_equal_members();
}

TEST_F(MirrorGroupTest, HeadersComeBeforeTheDataOfAConfiguration) {
  regions_[1]->die();
  ASSERT_OK(write(0, 1));
  const auto log = log_.take();
  const GroupRecord group = stored();
  ASSERT_EQ(servers_of(group), (std::vector<std::string>{"s0", "s2"}));
  // The mark and the data that were under way; then headers; then the primary's data.
  std::size_t headers = 0;
  for (const WriteLogEntry& entry : log)
    if (entry.offset_bytes == 0) ++headers;
  EXPECT_EQ(headers, 2U);
  EXPECT_EQ(log.back().region, "s0");
  EXPECT_EQ(log.back().offset_bytes, kData);
  for (const std::size_t server : {0U, 2U}) {
    detail::MemberHeader::Bytes bytes{};
    const auto found = regions_[server]->bytes(0, bytes.size());
    std::copy(found.begin(), found.end(), bytes.begin());
    const auto header = detail::MemberHeader::decode(bytes).value();
    EXPECT_EQ(header.epoch, group.epoch);
    EXPECT_EQ(header.writer_epoch, group.adopted);
    EXPECT_EQ(header.generation, group.generation);
    EXPECT_EQ(header.role,
              server == 0 ? detail::MemberRole::kPrimary : detail::MemberRole::kInSync);
  }
}

TEST_F(MirrorGroupTest, AFailedBackupIsRemovedBeforeTheAcknowledgement) {
  regions_[2]->die();
  ASSERT_OK(write(0, 3));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1"}));
  EXPECT_FALSE(stored().promoting);
  ASSERT_EQ(events_.size(), 1U);
  EXPECT_EQ(events_[0].kind, VolumeEventKind::kMemberRemoved);
  EXPECT_EQ(events_[0].server, "s2");
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AMemberThatAnswersErrorsIsRemovedOnce) {
  regions_[2]->die();
  ASSERT_OK(write(0, 3));
  const int commits = store_->commits();
  ASSERT_OK(write(4_KiB, 3));
  ASSERT_OK(write(1_MiB, 3));
  EXPECT_EQ(store_->commits(), commits);
}

TEST_F(MirrorGroupTest, WithoutItsPrimaryAWriteIsAcknowledgedWhenNoReaderCanReadIt) {
  ASSERT_OK(write(0, 1));
  regions_[0]->die();
  Status written = Error{Code::kInternal};
  std::atomic<bool> done = false;
  std::thread writes{[&] {
    written = write(0, 2);
    done = true;
  }};
  EXPECT_TRUE(eventually([&] { return stored().promoting; }));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s1", "s2"}));
  clock_->advance(options_.times.readers_gone_after() - 1ms);
  for (int i = 0; i < 3; ++i) group_->maintain(false);
  EXPECT_TRUE(stored().promoting);
  EXPECT_FALSE(done);
  EXPECT_TRUE(eventually([&] {
    clock_->advance(1ms);
    group_->maintain(false);
    return done.load();
  }));
  writes.join();
  ASSERT_OK(written);
  EXPECT_FALSE(stored().promoting);
  expect_read(0, 2);
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AFenceOfTheOldPrimaryReplacesTheWait) {
  regions_[0]->fail_writes({WriteFault::kNone, WriteFault::kRefused});
  std::atomic<bool> done = false;
  std::thread writes{[&] {
    EXPECT_TRUE(write(0, 2).ok());
    done = true;
  }};
  EXPECT_TRUE(eventually([&] {
    group_->maintain(false);
    return done.load();
  }));
  writes.join();
  EXPECT_FALSE(stored().promoting);
  EXPECT_EQ(stored().members.size(), 2U);
  EXPECT_EQ(regions_[0]->fences(), 2) << "the claim's, and that of the removed primary";
  expect_read(0, 2);
}

TEST_F(MirrorGroupTest, NewMemoryOfABackupDoesNotReplaceTheWaitForTheOldPrimary) {
  // Both fail in one fan-out, the mark: the primary is cut off from this writer only.
  regions_[0]->die();
  regions_[1]->die(Error{Code::kStaleRegion, "write"}.with_reason(Reason::kNewMemory));
  Status written = Error{Code::kInternal};
  std::atomic<bool> done = false;
  std::thread writes{[&] {
    written = write(0, 2);
    done = true;
  }};
  EXPECT_TRUE(eventually([&] { return stored().members.size() == 1; }));
  for (int i = 0; i < 3; ++i) group_->maintain(false);
  EXPECT_TRUE(stored().promoting) << "readers may still read the old primary";
  EXPECT_TRUE(eventually([&] {
    clock_->advance(options_.times.readers_gone_after());
    group_->maintain(false);
    return done.load();
  }));
  writes.join();
  ASSERT_OK(written);
  expect_read(0, 2);
  ASSERT_EQ(events_.size(), 2U);
  EXPECT_EQ(events_[0].server, "s0");
  EXPECT_EQ(events_[0].error.code(), Code::kConnectionLost);
  EXPECT_EQ(events_[1].error.reason(), Reason::kNewMemory);
}

TEST_F(MirrorGroupTest, NewMemoryOfTheOldPrimaryReplacesTheWait) {
  regions_[0]->die(Error{Code::kStaleRegion, "write"}.with_reason(Reason::kNewMemory));
  // The writer's thread maintains as long as it writes: the store may know of the end before this
  // group.
  std::atomic<bool> written{false};
  std::thread writes{[&] {
    EXPECT_TRUE(write(0, 2).ok());
    written = true;
  }};
  EXPECT_TRUE(eventually([&] {
    group_->maintain(false);
    return written.load();
  }));
  writes.join();
  EXPECT_FALSE(stored().promoting);
  EXPECT_EQ(stored().members.size(), 2U);
  expect_read(0, 2);
}

TEST_F(MirrorGroupTest, OnlyThePrimaryBeforeThePromotionIsFenced) {
  // The first old primary cannot be reached, the second one can.
  regions_[0]->die();
  ASSERT_OK(group_->remove_member("region-s0", soon()));
  ASSERT_TRUE(stored().promoting);
  ASSERT_OK(group_->remove_member("region-s1", soon()));
  for (int i = 0; i < 3; ++i) group_->maintain(false);
  EXPECT_TRUE(stored().promoting) << "a reader may still read the first one";
  wait_for_readers();
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s2"}));
}

TEST_F(MirrorGroupTest, TheLastMemberInSyncStays) {
  regions_[1]->die();
  regions_[2]->die();
  ASSERT_OK(write(0, 1));
  regions_[0]->die();
  EXPECT_FALSE(write_in_vain(*group_, 1_MiB, 2).ok());
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0"}));
  regions_[0]->revive();
  group_->maintain(false);
  ASSERT_OK(write(0, 3));
  expect_read(0, 3);
}

TEST_F(MirrorGroupTest, MembersThatFailAllAtOnceAllStay) {
  for (auto& region : regions_) region->die();
  EXPECT_FALSE(write_in_vain(*group_, 0, 2).ok());
  EXPECT_EQ(stored().members.size(), 3U) << "this process may have lost its network";
}

TEST_F(MirrorGroupTest, AnUnknownOutcomeThatIsSettledIsWrittenAgain) {
  regions_[1]->fail_writes({WriteFault::kNone, WriteFault::kLost});
  ASSERT_OK(write(0, 4));
  EXPECT_EQ(stored().members.size(), 3U);
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AMemberThatCannotTellIsRemoved) {
  regions_[1]->fail_writes({WriteFault::kNone, WriteFault::kLate});
  regions_[1]->set_settles(false);
  ASSERT_OK(write(0, 4));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s2"}));
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AnIndeterminateWriteLeavesItsZoneUnresolvedUntilAllOfItIsCopied) {
  ASSERT_OK(write(0, 1, 64_KiB));
  store_->set_down(true);  // so that the member cannot be removed
  regions_[1]->fail_writes({WriteFault::kApplied});
  regions_[1]->set_settles(false);
  EXPECT_CODE(write_in_vain(*group_, 4_KiB, 2), kIndeterminate);
  EXPECT_TRUE(group_->unresolved().has(0));
  EXPECT_NE(data_of(1, 4_KiB, 4096), data_of(0, 4_KiB, 4096));
  store_->set_down(false);
  regions_[1]->set_settles(true);
  group_->maintain(true);
  group_->maintain(true);
  EXPECT_FALSE(group_->unresolved().any());
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AWriteOverAnUnresolvedZoneResolvesItFirst) {
  ASSERT_OK(write(0, 1, 64_KiB));
  regions_[0]->fail_writes({WriteFault::kBadMemory});  // the backups have it, the primary does not
  EXPECT_CODE(write_filled(*group_, 4_KiB, 2, soon()), kProvider);
  EXPECT_TRUE(group_->unresolved().has(0));
  ASSERT_OK(write(16_KiB, 3));
  EXPECT_FALSE(group_->unresolved().has(0));
  expect_equal_members();
  expect_read(4_KiB, 1);
}

/// One thread maintains several groups.
TEST_F(MirrorGroupTest, MaintenanceWaitsForNoOperation) {
  ASSERT_OK(write(0, 1));
  const std::size_t before = regions_[0]->posted();
  regions_[0]->hold_answers();
  std::thread writes{[&] { EXPECT_TRUE(write(0, 2).ok()); }};
  regions_[0]->await_posted(before + 1);
  regions_[1]->fail_writes({WriteFault::kBadMemory});
  EXPECT_CODE(write_filled(*group_, 8_KiB, 3, soon()), kProvider);
  EXPECT_TRUE(group_->unresolved().has(0));
  options_.member_limit = 1h;
  group_->maintain(true);
  EXPECT_TRUE(group_->unresolved().has(0)) << "the first write has a range in it";
  regions_[0]->release_answers();
  writes.join();
  group_->maintain(true);
  EXPECT_FALSE(group_->unresolved().any());
  expect_equal_members();
}

TEST_F(MirrorGroupTest, ZonesAreLeftForLaterWhenTheirTimeIsOver) {
  ASSERT_OK(write(0, 1));
  ASSERT_OK(write(1_MiB, 1));
  regions_[0]->fail_writes({WriteFault::kBadMemory});
  EXPECT_CODE(write_filled(*group_, 0, 2, soon()), kProvider);
  group_->work_on_zones(true, soon());  // forgets which zones were written just now
  regions_[0]->fail_writes({WriteFault::kBadMemory});
  EXPECT_CODE(write_filled(*group_, 0, 2, soon()), kProvider);
  group_->steer();
  group_->work_on_zones(true, Time::clock::now());
  EXPECT_TRUE(group_->unresolved().has(0));
  EXPECT_TRUE(group_->marked().has(1));
  group_->work_on_zones(true, soon());
  EXPECT_FALSE(group_->unresolved().any());
  EXPECT_FALSE(group_->marked().has(1));
  expect_equal_members();
}

TEST_F(MirrorGroupTest, MaintenanceWaitsForNoThreadThatAsksTheStore) {
  std::promise<void> asked;
  std::promise<void> answer;
  store_->before_answer = [&] {
    asked.set_value();
    answer.get_future().wait();
  };
  std::thread removes{[&] { EXPECT_TRUE(group_->remove_member("region-s2", soon()).ok()); }};
  asked.get_future().wait();
  clock_->advance(options_.times.confirmed_for);
  group_->control().note_read();
  group_->maintain(true);
  answer.set_value();
  removes.join();
  store_->before_answer = {};
  const int reads = store_->reads();
  group_->maintain(true);
  EXPECT_EQ(store_->reads(), reads + 1) << "it is confirmed by the next call";
}

TEST_F(MirrorGroupTest, ABadBufferRemovesNoMember) {
  regions_[1]->fail_writes({WriteFault::kNone, WriteFault::kBadMemory});
  EXPECT_CODE(write_filled(*group_, 0, 2, soon()), kProvider);
  EXPECT_EQ(stored().members.size(), 3U);
}

TEST_F(MirrorGroupTest, ABitIsClearedWhenItsZoneIsIdleAndResolved) {
  ASSERT_OK(write(0, 1));
  group_->maintain(true);
  EXPECT_EQ(word_of(0), 1U) << "written since the last call";
  group_->maintain(true);
  for (std::size_t server = 0; server < 3; ++server) EXPECT_EQ(word_of(server), 0U);
  ASSERT_OK(write(0, 2));
  EXPECT_EQ(word_of(2), 1U);
}

TEST_F(MirrorGroupTest, AFrozenGroupAcknowledgesNothing) {
  store_->fail_next(StoreFault::kLate);
  regions_[2]->die();
  // The removal's answer is lost; the next transaction, with another nonce, decides.
  ASSERT_OK(write(0, 1));
  EXPECT_FALSE(store_->apply_late());
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0", "s1"}));
  store_->fail_next(StoreFault::kAnswerLost);
  regions_[1]->die();
  store_->set_down(false);
  ASSERT_OK(write(0, 2));
  EXPECT_EQ(servers_of(stored()), (std::vector<std::string>{"s0"}));
  ASSERT_EQ(events_.size(), 2U) << "of the removal whose answer was lost, too";
  EXPECT_EQ(events_[1].server, "s1");
}

/// The mutex of the group is free between two tries.
TEST_F(MirrorGroupTest, AnOperationThatWaitsForTheStoreKeepsNoOtherWaiting) {
  ASSERT_OK(write(0, 1));
  regions_[1]->die();
  store_->set_down(true);
  const int commits = store_->commits();
  Status written = Error{Code::kInternal};
  std::atomic<bool> done = false;
  std::thread writes{[&] {
    written = write(0, 2);
    done = true;
  }};
  EXPECT_TRUE(eventually([&] { return store_->commits() > commits; }));
  clock_->advance(options_.times.confirmed_for);
  EXPECT_FALSE(group_->control().confirm(at_once()).ok());
  EXPECT_FALSE(group_->control().converge(at_once()).ok());
  EXPECT_FALSE(done) << "they have ended at their own deadlines";
  store_->set_down(false);
  writes.join();
  ASSERT_OK(written);
  expect_equal_members();
}

TEST_F(MirrorGroupTest, WithoutAStoreWritesGoOnWhileNoMemberFails) {
  store_->set_down(true);
  ASSERT_OK(write(0, 1));
  regions_[1]->die();
  EXPECT_CODE(write_in_vain(*group_, 0, 2), kIndeterminate);
  store_->set_down(false);
  group_->maintain(false);
  ASSERT_OK(write(0, 3));
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AnotherClaimEndsWrites) {
  const auto other = adopt();
  ASSERT_NE(other, nullptr);
  const Status written = write_filled(*group_, 0, 2, soon());
  EXPECT_FALSE(written.ok());
  EXPECT_TRUE(group_->control().lost());
  EXPECT_CODE(write_filled(*group_, 0, 2, soon()), kAccessRefused);
  std::vector<std::byte> bytes(4096);
  EXPECT_CODE(group_->read(0, bytes, soon()), kAccessRefused);
  EXPECT_EQ(stored().members.size(), 3U) << "a writer that has lost its claim removes nothing";
  for (const auto& region : regions_) EXPECT_LE(region->fences(), 2) << "and fences nothing";
  ASSERT_OK(other->read(0, bytes, soon()));
  EXPECT_EQ(bytes, filled(4096, 0));
}

TEST_F(MirrorGroupTest, AReadConfirmsWhenTIsOver) {
  expect_read(0, 0);
  const int reads = store_->reads();
  expect_read(0, 0);
  EXPECT_EQ(store_->reads(), reads) << "confirmed by the adoption";
  clock_->advance(options_.times.confirmed_for);
  expect_read(0, 0);
  EXPECT_EQ(store_->reads(), reads + 1);
}

TEST_F(MirrorGroupTest, WithoutAStoreReadsPauseAfterT) {
  expect_read(0, 0);  // confirms
  store_->set_down(true);
  expect_read(0, 0);
  clock_->advance(options_.times.confirmed_for);
  std::vector<std::byte> bytes(4096);
  EXPECT_FALSE(group_->read(0, bytes, at_once()).ok());
  store_->set_down(false);
  expect_read(0, 0);
}

TEST_F(MirrorGroupTest, AGroupThatIsReadIsConfirmedBeforeTIsOver) {
  expect_read(0, 0);
  clock_->advance(options_.times.refreshed_after());
  const int reads = store_->reads();
  group_->maintain(false);
  EXPECT_EQ(store_->reads(), reads + 1);
  clock_->advance(options_.times.refreshed_after());
  group_->maintain(false);
  EXPECT_EQ(store_->reads(), reads + 1) << "not read since";
}

TEST_F(MirrorGroupTest, AtomicsAreThoseOfTheWriter) {
  EXPECT_EQ(group_->fetch_add(8, 5, soon()).value(), 0U);
  EXPECT_EQ(group_->fetch_add(8, 2, soon()).value(), 5U);
  EXPECT_EQ(group_->compare_swap(8, 7, 100, soon()).value(), 7U);
  EXPECT_EQ(group_->compare_swap(8, 7, 200, soon()).value(), 100U);
  EXPECT_EQ(group_->fetch_add(8, 0, soon()).value(), 100U);
  expect_equal_members();
}

TEST_F(MirrorGroupTest, AnExclusiveWriteGoesToAllMembersAtOnce) {
  ASSERT_TRUE(group_->set_exclusive(soon()));
  ASSERT_OK(write(0, 1));
  log_.take();
  ASSERT_OK(write(0, 2));
  const auto log = log_.take();
  ASSERT_EQ(log.size(), 3U);
  EXPECT_EQ(log[0].region, "s0");
  expect_read(0, 2);
}

TEST_F(MirrorGroupTest, ItBecomesExclusiveWhenReadsOfBeforeHaveEnded) {
  {
    const detail::GateEntry reads{group_->control().read_gate(), soon()};
    ASSERT_TRUE(reads);
    EXPECT_FALSE(group_->set_exclusive(at_once()));
    EXPECT_FALSE(group_->is_exclusive());
  }
  EXPECT_TRUE(group_->set_exclusive(soon()));
  expect_read(0, 0);
}

TEST_F(MirrorGroupTest, AnExclusiveReadResolvesTheZoneFirst) {
  ASSERT_TRUE(group_->set_exclusive(soon()));
  regions_[1]->fail_writes({WriteFault::kNone, WriteFault::kBadMemory});
  EXPECT_CODE(write_filled(*group_, 0, 2, soon()), kProvider);
  expect_read(0, 2);
  EXPECT_FALSE(group_->unresolved().any());
  expect_equal_members();
}

}  // namespace
}  // namespace remora::volume::test
