/// The claimed writer: its claim, and what it leaves.

#include "mirror_writer.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "mirror_rig.h"
#include "support/eventually.h"

namespace remora::volume::test {
namespace {

using detail::MirrorWriter;
using remora::test::eventually;

/// A FakeOpener whose fences can be held.
class HeldOpener final : public detail::MemberOpener {
 public:
  explicit HeldOpener(detail::MemberOpener& opener) : opener_{opener} {}

  Result<std::shared_ptr<detail::MirrorMember>> open(const Member& member) override {
    return opener_.open(member);
  }
  Result<std::shared_ptr<detail::MirrorMember>> fence(const Member& member) override {
    std::unique_lock lock{mutex_};
    if (held_) {
      waiting_ = true;
      changed_.wait(lock, [&] { return !held_; });
    }
    return opener_.fence(member);
  }
  void hold() {
    const std::lock_guard lock{mutex_};
    held_ = true;
  }
  void release() {
    const std::lock_guard lock{mutex_};
    held_ = false;
    changed_.notify_all();
  }
  [[nodiscard]] bool waiting() {
    const std::lock_guard lock{mutex_};
    return waiting_;
  }

 private:
  detail::MemberOpener& opener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool waiting_ = false;
};

class MirrorWriterTest : public MirrorRig {
 protected:
  Result<std::shared_ptr<MirrorWriter>> try_to_claim() {
    return MirrorWriter::claim(held_, *cluster_, "v", options_);
  }
  std::shared_ptr<MirrorWriter> writer() { return try_to_claim().value(); }
  [[nodiscard]] bool stored_exclusive() {
    return parse_volume("v", store_->value(cluster_->keys().volume("v"))).value().exclusive;
  }
  std::shared_ptr<HeldOpener> held_ = std::make_shared<HeldOpener>(opener_);
};

TEST_F(MirrorWriterTest, AGroupThatWaitsForAMemberDoesNotCostTheLease) {
  const auto claimed = writer();
  held_->hold();
  // The old primary is connected: the thread that maintains the groups fences it.
  ASSERT_OK(claimed->group(0).remove_member("region-s0", soon()));
  EXPECT_TRUE(eventually([&] { return held_->waiting(); }));
  const int renewals = store_->renewals();
  clock_->advance(options_.lease);
  EXPECT_TRUE(eventually([&] { return store_->renewals() > renewals; }));
  held_->release();
  ASSERT_OK(claimed->release());
}

TEST_F(MirrorWriterTest, AStolenClaimIsToldOnce) {
  std::atomic<int> lost = 0;
  options_.on_event = [&](const VolumeEvent& event) {
    if (event.kind == VolumeEventKind::kWriterLost) ++lost;
  };
  const auto claimed = writer();
  static_cast<void>(claim());
  clock_->advance(options_.lease);
  EXPECT_TRUE(eventually([&] { return lost == 1; }));
  EXPECT_TRUE(claimed->lost());
  EXPECT_CODE(claimed->release(), kAccessRefused);
  EXPECT_EQ(lost, 1);
}

TEST_F(MirrorWriterTest, AnExclusiveClaimThatFailsLeavesTheVolumeReadable) {
  options_.exclusive = true;
  for (auto& region : regions_) region->die();
  EXPECT_FALSE(try_to_claim().ok());
  EXPECT_FALSE(stored_exclusive());
}

TEST_F(MirrorWriterTest, AnExclusiveWriterThatEndsLeavesItsVolumeReadableIfMembersAreEqual) {
  options_.exclusive = true;
  auto claimed = writer();
  EXPECT_TRUE(stored_exclusive());
  clock_->advance(options_.times.readers_gone_after());
  EXPECT_TRUE(eventually([&] { return claimed->group(0).is_exclusive(); }));
  ASSERT_OK(write_filled(claimed->group(0), 0, 1, soon()));
  claimed.reset();
  EXPECT_FALSE(stored_exclusive()) << "each write was on all members";
  expect_equal_members();
}

TEST_F(MirrorWriterTest, AReadThatStandsStillKeepsNoOtherReadWaiting) {
  options_.exclusive = true;
  options_.member_limit = 1h;
  const auto claimed = writer();
  detail::OperationGate& gate = claimed->group(0).control().read_gate();
  const auto is_closed = [&] {
    clock_->advance(options_.times.readers_gone_after());
    return !detail::GateEntry{gate, Time::clock::now()};
  };
  {
    const detail::GateEntry still{gate, soon()};
    ASSERT_TRUE(still);
    EXPECT_TRUE(eventually(is_closed)) << "the writer tries to become exclusive";
    EXPECT_TRUE(detail::GateEntry(gate, soon())) << "and gives up soon";
    EXPECT_FALSE(claimed->group(0).is_exclusive());
  }
  EXPECT_TRUE(eventually([&] {
    clock_->advance(1s);
    return claimed->group(0).is_exclusive();
  }));
  ASSERT_OK(claimed->release());
}

TEST_F(MirrorWriterTest, AnExclusiveVolumeThatCannotBeRepairedStaysSo) {
  options_.exclusive = true;
  static_cast<void>(claim());  // a writer that dies
  options_.exclusive = false;
  for (auto& region : regions_) region->die();
  EXPECT_FALSE(try_to_claim().ok());
  EXPECT_TRUE(stored_exclusive());
  for (auto& region : regions_) region->revive();
  ASSERT_OK(writer()->release());
  EXPECT_FALSE(stored_exclusive());
}

}  // namespace
}  // namespace remora::volume::test
