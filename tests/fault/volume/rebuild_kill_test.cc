/// Rebuilds whose copier, source or target dies in each phase, while the zones are overwritten.

#include <array>
#include <string>
#include <vector>

#include "volume_fault_test.h"

namespace remora::fault {
namespace {

class MirrorRebuildKill : public VolumeFaultTest {
 protected:
  static constexpr std::uint64_t kZones = 8;

  [[nodiscard]] std::size_t server_count() const override { return 4; }
  [[nodiscard]] std::uint64_t group_bytes() const override { return kZones * 1_MiB; }

  enum class Victim { kCopier, kSource, kTarget };

  /// The server that has none of the members.
  [[nodiscard]] std::size_t spare() const {
    std::size_t index = 0;
    while (index + 1 < server_count() && has_member_on("s" + std::to_string(index))) ++index;
    return index;
  }

  /// `after`: zones that were copied before; 0: as soon as the member may be there; kZones: it may
  /// be in sync.
  void run_round(Victim victim, std::uint64_t after) {
    const MirrorRound round = begin_round();
    // The copy takes half a second. The load overwrites the first two of its zones meanwhile.
    MirrorWriterProcess writer{words_of(
        round, {"rebuild=" + std::to_string(16_MiB), "pause_us=300", "deadline_ms=60000"})};
    std::string why;
    ASSERT_TRUE(writer.claimed(&why)) << why;
    ASSERT_TRUE(soon_acknowledged(round, 50));
    const std::size_t target = spare();
    const std::size_t dead = index_of(server_of(2));
    kill_server(dead);
    ASSERT_TRUE(test::eventually([&] { return !has_member_on("s" + std::to_string(dead)); },
                                 std::chrono::minutes{2}));
    const std::size_t source = index_of(server_of(0));
    writer.repair();
    for (std::uint64_t zone = 1; zone <= after; ++zone)
      ASSERT_TRUE(writer.expect("zones " + std::to_string(zone), &why)) << why;
    if (after == 0) pause_for_a_while(std::chrono::milliseconds{20});
    std::vector<std::size_t> gone{dead};
    if (victim == Victim::kCopier) {
      writer.kill();
    } else {
      gone.push_back(victim == Victim::kSource ? source : target);
      kill_server(gone.back());
      ASSERT_TRUE(soon_acknowledged(round, 50)) << "the load does not go on";
      // A member is left in sync; the rebuild has ended, or says what it could not do.
      const auto report = writer.finish();
      ASSERT_TRUE(report.has_value());
      count(*report);
      EXPECT_EQ(report->indeterminate + report->without_effect, 0U) << report->text;
    }
    for (const std::size_t each : gone) restart_server(each);
    ASSERT_NO_FATAL_FAILURE(repair());
    expect_equal_members(copies());
    ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
  }
  void run(Victim victim) {
    constexpr std::array<std::uint64_t, 4> kPhases{0, 1, kZones - 1, kZones};
    const std::uint64_t all = rounds(2, 40);
    for (std::uint64_t i = 0; i < all; ++i) {
      // In the gate one of the first two, and one of the last two.
      const std::uint64_t phase = kPhases[i % 2 * 2 + random().below(2)];
      SCOPED_TRACE("after zone " + std::to_string(phase) +
                   ", REMORA_FAULT_SEED=" + std::to_string(seed()));
      ASSERT_NO_FATAL_FAILURE(run_round(victim, phase));
    }
  }
};

TEST_F(MirrorRebuildKill, OfTheCopier) { run(Victim::kCopier); }
TEST_F(MirrorRebuildKill, OfTheSource) { run(Victim::kSource); }
TEST_F(MirrorRebuildKill, OfTheTarget) { run(Victim::kTarget); }

/// The port that a dead server had is not its memory: the one that listens there is a new member.
TEST_F(MirrorRebuildKill, ServerWithOtherMemoryIsANewMember) {
  const MirrorRound round = begin_round();
  MirrorWriterProcess writer{words_of(round, {"pause_us=500", "deadline_ms=60000"})};
  std::string why;
  ASSERT_TRUE(writer.claimed(&why)) << why;
  ASSERT_TRUE(soon_acknowledged(round, 50));
  const volume::Member before = group().members.front();
  kill_server(index_of(before.server));
  restart_server(index_of(before.server));
  ASSERT_TRUE(soon_acknowledged(round, 100)) << "the load does not go on";
  ASSERT_TRUE(
      test::eventually([&] { return !has_member_on(before.server); }, std::chrono::minutes{2}));
  const auto report = writer.finish();
  ASSERT_TRUE(report.has_value());
  count(*report);
  EXPECT_EQ(report->indeterminate + report->without_effect, 0U) << report->text;
  ASSERT_NO_FATAL_FAILURE(expect_next_claim(round, false));
  ASSERT_NO_FATAL_FAILURE(repair());
  for (const volume::Member& each : group().members) {
    EXPECT_NE(each.region, before.region);
    EXPECT_NE(each.memory_id, before.memory_id);
  }
  ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
}

}  // namespace
}  // namespace remora::fault
