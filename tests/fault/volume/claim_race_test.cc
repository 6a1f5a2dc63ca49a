/// Several claimants of one mirror: one writer at a time, whatever becomes of the others.

#include <memory>
#include <string>
#include <vector>

#include "volume_fault_test.h"

namespace remora::fault {
namespace {

class MirrorClaimRace : public VolumeFaultTest {};

/// All add to the same words: of two writers at once, one would undo what the other has added.
TEST_F(MirrorClaimRace, ThievesWriteOneAfterTheOther) {
  const std::uint64_t all = rounds(3, 60);
  std::size_t claimed = 0;
  for (std::uint64_t i = 0; i < all; ++i) {
    SCOPED_TRACE("round " + std::to_string(i) + ", REMORA_FAULT_SEED=" + std::to_string(seed()));
    const MirrorRound round = begin_round();
    std::vector<std::unique_ptr<MirrorWriterProcess>> thieves;
    for (std::uint32_t each = 0; each < 3; ++each)
      thieves.push_back(
          std::make_unique<MirrorWriterProcess>(words_of(round, {"words_only=1", "steal=1"})));
    // A claim may fail, since another one took it meanwhile: also the last one, if the fences of
    // an earlier one come behind its own.
    std::string why;
    std::vector<MirrorWriterProcess*> working;
    for (auto& each : thieves)
      if (each->claimed(&why)) {
        ++claimed;
        working.push_back(each.get());
      }
    pause_for_a_while(std::chrono::milliseconds{30});
    for (MirrorWriterProcess* each : working) {
      const auto report = each->finish();
      ASSERT_TRUE(report.has_value());
      count(*report);
    }
    ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
    ASSERT_NO_FATAL_FAILURE(repair());
  }
  EXPECT_GE(claimed, 1U) << "no thief has got the claim";
}

/// The claim is refused while a writer lives, and stays so after the claimant has tried.
TEST_F(MirrorClaimRace, WithoutForceTheSecondIsRefused) {
  const MirrorRound round = begin_round();
  MirrorWriterProcess writer{words_of(round, {})};
  std::string why;
  ASSERT_TRUE(writer.claimed(&why)) << why;
  MirrorWriterProcess second{words_of(round, {"words_only=1"})};
  EXPECT_FALSE(second.claimed(&why));
  EXPECT_EQ(why.rfind("refused", 0), 0U) << why;
  ASSERT_TRUE(soon_acknowledged(round, 50)) << "the writer was disturbed";
  const auto report = writer.finish();
  ASSERT_TRUE(report.has_value());
  count(*report);
  EXPECT_EQ(report->indeterminate + report->without_effect, 0U) << report->text;
  ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
}

/// Its transaction has ended the claim of the writer, which still has its grants.
TEST_F(MirrorClaimRace, ClaimantDiesBehindItsTransaction) {
  const std::uint64_t all = rounds(2, 60);
  for (std::uint64_t i = 0; i < all; ++i) {
    // Before the first fence, behind the first, behind the second.
    const std::string step = i % 2 == 0 ? "fence.before" : "fence.ended";
    const std::uint64_t nth = i % 2 == 0 ? 1 : 1 + random().below(2);
    SCOPED_TRACE(step + ", time " + std::to_string(nth) +
                 ", REMORA_FAULT_SEED=" + std::to_string(seed()));
    const MirrorRound round = begin_round();
    MirrorWriterProcess writer{words_of(round, {})};
    std::string why;
    ASSERT_TRUE(writer.claimed(&why)) << why;
    ASSERT_TRUE(soon_acknowledged(round, 20));
    MirrorWriterProcess claimant{
        words_of(round, {"steal=1", "step=" + step, "nth=" + std::to_string(nth), "action=kill"})};
    ASSERT_EQ(claimant.wait(), 128 + 9);
    ASSERT_NO_FATAL_FAILURE(expect_next_claim(round, false));
    // What it was told until then is what the claim has found.
    const auto report = writer.finish();
    ASSERT_TRUE(report.has_value());
    count(*report);
    ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
  }
}

/// It stands still there, and goes on when another client has claimed the mirror and writes.
TEST_F(MirrorClaimRace, ClaimantThatComesLateGetsNothing) {
  const std::uint64_t all = rounds(1, 40);
  for (std::uint64_t i = 0; i < all; ++i) {
    SCOPED_TRACE("REMORA_FAULT_SEED=" + std::to_string(seed()));
    const MirrorRound round = begin_round();
    MirrorWriterProcess late{
        words_of(round, {"words_only=1", "step=fence.before", "nth=1", "action=hold"})};
    std::string why;
    ASSERT_TRUE(late.at_step()) << "it did not come to its fences";
    MirrorWriterProcess writer{words_of(round, {"steal=1"})};
    ASSERT_TRUE(writer.claimed(&why)) << why;
    ASSERT_TRUE(soon_acknowledged(round, 50));
    // Its fences may end the grants of the writer; its transaction changes nothing.
    late.go();
    EXPECT_FALSE(late.claimed(&why)) << "two clients have claimed the mirror";
    const auto report = writer.finish();
    ASSERT_TRUE(report.has_value());
    count(*report);
    ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
    // The writer has opened its members again; one that did not answer in time was removed.
    ASSERT_NO_FATAL_FAILURE(repair());
  }
}

}  // namespace
}  // namespace remora::fault
