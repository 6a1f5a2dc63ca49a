/// Writers that are killed: the next claim finds equal members and each acknowledged write.

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "volume_fault_test.h"

namespace remora::fault {
namespace {

class MirrorWriterKill : public VolumeFaultTest {
 protected:
  /// A writer with `words`, which is killed or kills itself, and the claim after it.
  void run_round(const std::vector<std::string>& words, bool kills_itself) {
    const Engine engine = mirror_engine();
    const auto disk = open_disk(engine);
    ASSERT_TRUE(ok(disk));
    const MirrorRound round = begin_round();
    auto reader = read_words(*disk, round);
    MirrorWriterProcess writer{words_of(round, words)};
    if (kills_itself) {
      ASSERT_EQ(writer.wait(), 128 + 9) << "it did not come to its step";
    } else {
      std::string why;
      ASSERT_TRUE(writer.claimed(&why)) << why;
      pause_for_a_while(std::chrono::milliseconds{60});
      writer.kill();
    }
    const Engine claiming = mirror_engine();
    const auto next = steal(claiming);
    ASSERT_TRUE(ok(next));
    ASSERT_NO_FATAL_FAILURE(expect_equal_members(copies()));
    // Reads before the kill, in the repair and under the next claim are one history.
    const std::uint64_t before = reader->good();
    EXPECT_TRUE(test::eventually([&] { return reader->good() >= before + kMirrorWords; }));
    reader->stop();
    judge((*next)->group(0), round);
    clear_group((*next)->group(0));
    EXPECT_TRUE(ok((*next)->release()));
  }
};

struct KilledAt {
  const char* step;
  std::uint64_t nth_max;  ///< the writer comes to the step as often as that for certain
};

/// A zone is marked once, and the header written once: the next times may never come.
constexpr std::array<KilledAt, 16> kSteps{{{"fence.before", 3},
                                           {"fence.ended", 3},
                                           {"header.primary.before", 1},
                                           {"header.backup.posted", 2},
                                           {"mark.primary.before", 1},
                                           {"mark.backup.before", 2},
                                           {"mark.primary.posted", 1},
                                           {"mark.backup.posted", 2},
                                           {"mark.primary.ended", 1},
                                           {"mark.backup.ended", 2},
                                           {"data.backup.before", 60},
                                           {"data.backup.posted", 60},
                                           {"data.backup.ended", 60},
                                           {"data.primary.before", 30},
                                           {"data.primary.posted", 30},
                                           {"data.primary.ended", 30}}};

TEST_F(MirrorWriterKill, AtEachStepOfAWriteTheNextClaimIsWhole) {
  const std::uint64_t all = rounds(kSteps.size(), 600);
  for (std::uint64_t i = 0; i < all; ++i) {
    const KilledAt& at = kSteps[i % kSteps.size()];
    const std::uint64_t nth = 1 + random().below(at.nth_max);
    SCOPED_TRACE(std::string{at.step} + ", time " + std::to_string(nth) +
                 ", REMORA_FAULT_SEED=" + std::to_string(seed()));
    ASSERT_NO_FATAL_FAILURE(run_round(
        {std::string{"step="} + at.step, "nth=" + std::to_string(nth), "action=kill"}, true));
  }
}

TEST_F(MirrorWriterKill, AtAnyInstantTheNextClaimIsWhole) {
  const std::uint64_t all = rounds(9, 400);
  for (std::uint64_t i = 0; i < all; ++i) {
    SCOPED_TRACE("round " + std::to_string(i) + ", REMORA_FAULT_SEED=" + std::to_string(seed()));
    ASSERT_NO_FATAL_FAILURE(run_round({}, false));
  }
}

}  // namespace
}  // namespace remora::fault
