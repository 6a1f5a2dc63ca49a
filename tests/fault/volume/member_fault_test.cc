/// Members that are killed, stand still, are cut off one way or answer errors only, under a load
/// that verifies: it goes on within its deadlines, and no acknowledged write is lost.

#include <cstdint>
#include <string>
#include <vector>

#include "volume_fault_test.h"

namespace remora::fault {
namespace {

enum class Loss { kKilled, kStopped, kAnswersHeld, kErrors };

class MirrorMemberLoss : public VolumeFaultTest {
 protected:
  [[nodiscard]] bool proxied() const override { return transport() == TransportKind::kTcp; }

  void begin(Loss loss, std::size_t index, const volume::Member& member) {
    switch (loss) {
      case Loss::kKilled: kill_server(index); break;
      case Loss::kStopped: server(index).pause(); break;
      case Loss::kAnswersHeld: proxy(index).hold_answers(true); break;
      case Loss::kErrors:
        // From now on each operation on it is answered by an error.
        ASSERT_EQ(server(index).ask("remove " + member.region), "ok");
        break;
    }
  }
  void end(Loss loss, std::size_t index) {
    switch (loss) {
      case Loss::kKilled: restart_server(index); break;
      case Loss::kStopped: server(index).resume(); break;
      case Loss::kAnswersHeld:
        proxy(index).hold_answers(false);
        proxy(index).cut_all();
        break;
      case Loss::kErrors: break;
    }
  }

  /// The primary is member 0.
  void lose(Loss loss, std::size_t member) {
    const std::uint64_t all = rounds(1, 20);
    for (std::uint64_t i = 0; i < all; ++i) {
      SCOPED_TRACE("round " + std::to_string(i) + ", REMORA_FAULT_SEED=" + std::to_string(seed()));
      ASSERT_NO_FATAL_FAILURE(lose_once(loss, member));
    }
  }

  void lose_once(Loss loss, std::size_t member) {
    const Engine engine = mirror_engine();
    const auto disk = open_disk(engine);
    ASSERT_TRUE(ok(disk));
    const MirrorRound round = begin_round();
    std::vector<std::string> words{"pause_us=300", "deadline_ms=60000"};
    // One that says nothing is lost after this time, however busy the machine; the others at once.
    if (loss == Loss::kStopped || loss == Loss::kAnswersHeld)
      words.emplace_back("member_limit_ms=3000");
    MirrorWriterProcess writer{words_of(round, words)};
    std::string why;
    ASSERT_TRUE(writer.claimed(&why)) << why;
    auto reader = read_words(*disk, round);
    ASSERT_TRUE(soon_acknowledged(round, 50));
    const volume::GroupRecord before = group();
    const volume::Member lost = before.members.at(member);
    const std::size_t index = index_of(lost.server);
    ASSERT_NO_FATAL_FAILURE(begin(loss, index, lost));

    ASSERT_TRUE(
        test::eventually([&] { return !has_member_on(lost.server); }, std::chrono::minutes{2}))
        << lost.server << " was not removed";
    ASSERT_TRUE(soon_acknowledged(round, 100)) << "the load does not go on";
    const std::uint64_t read = reader->good();
    EXPECT_TRUE(
        test::eventually([&] { return reader->good() >= read + 20; }, std::chrono::minutes{2}))
        << "readers do not go on";
    // Removed once: a promotion is one more change, and that is all.
    const volume::GroupRecord after = group();
    EXPECT_EQ(after.members.size(), before.members.size() - 1);
    EXPECT_LE(after.epoch, before.epoch + 2) << "the configuration changes again and again";
    ASSERT_TRUE(soon_acknowledged(round, 50));
    EXPECT_EQ(group().epoch, after.epoch);

    const auto report = writer.finish();
    ASSERT_TRUE(report.has_value());
    count(*report);
    EXPECT_EQ(report->indeterminate, 0U) << report->text;
    EXPECT_EQ(report->without_effect, 0U) << report->text;
    reader->stop();
    ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
    end(loss, index);
    ASSERT_NO_FATAL_FAILURE(repair());
    expect_equal_members(copies());
  }
};

TEST_F(MirrorMemberLoss, KilledPrimary) { lose(Loss::kKilled, 0); }
TEST_F(MirrorMemberLoss, KilledBackup) { lose(Loss::kKilled, 1); }
TEST_F(MirrorMemberLoss, StoppedPrimary) { lose(Loss::kStopped, 0); }
TEST_F(MirrorMemberLoss, StoppedBackup) { lose(Loss::kStopped, 2); }
TEST_F(MirrorMemberLoss, PrimaryWhoseAnswersAreHeld) { lose(Loss::kAnswersHeld, 0); }
TEST_F(MirrorMemberLoss, BackupWhoseAnswersAreHeld) { lose(Loss::kAnswersHeld, 1); }
TEST_F(MirrorMemberLoss, PrimaryThatAnswersErrors) { lose(Loss::kErrors, 0); }
TEST_F(MirrorMemberLoss, BackupThatAnswersErrors) { lose(Loss::kErrors, 2); }

}  // namespace
}  // namespace remora::fault
