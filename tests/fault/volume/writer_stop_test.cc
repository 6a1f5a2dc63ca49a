/// Writers that stand still in the middle of a write, are replaced, and go on.

#include <array>
#include <string>
#include <vector>

#include "volume_fault_test.h"

namespace remora::fault {
namespace {

class MirrorWriterStop : public VolumeFaultTest {
 protected:
  [[nodiscard]] std::vector<std::vector<std::byte>> members() {
    const Engine engine = mirror_engine();
    std::vector<std::vector<std::byte>> all;
    for (const volume::Member& each : group().members) all.push_back(bytes_of(engine, each));
    return all;
  }
};

/// Before each of these steps the write cannot have been acknowledged.
constexpr std::array<const char*, 6> kHeldAt{"mark.primary.before", "data.backup.before",
                                             "data.backup.posted",  "data.backup.ended",
                                             "data.primary.before", "mark.backup.posted"};

TEST_F(MirrorWriterStop, ItsLateWriteIsRefusedAndNoByteChanges) {
  const std::uint64_t all = rounds(6, 120);
  for (std::uint64_t i = 0; i < all; ++i) {
    const char* const step = kHeldAt[i % kHeldAt.size()];
    const std::string step_text{step};
    const std::uint64_t nth = step_text.rfind("data", 0) == 0 ? 1 + random().below(20) : 1;
    SCOPED_TRACE(step_text + ", time " + std::to_string(nth) +
                 ", REMORA_FAULT_SEED=" + std::to_string(seed()));
    const MirrorRound round = begin_round();
    MirrorWriterProcess writer{words_of(
        round, {"threads=1", "step=" + step_text, "nth=" + std::to_string(nth), "action=hold"})};
    ASSERT_TRUE(writer.at_step()) << "it did not come to its step";
    writer.pause();
    const std::uint64_t told = acknowledged(round);

    const Engine engine = mirror_engine();
    const auto next = steal(engine);
    ASSERT_TRUE(ok(next));
    volume::detail::MirrorGroup& replaced = (*next)->group(0);
    ASSERT_NO_FATAL_FAILURE(judge(replaced, round));
    // Other bytes where the late write belongs, too.
    const std::vector<std::byte> own = test::noise(1_MiB, seed() + i);
    for (std::uint64_t at = 0; at < group_bytes(); at += 1_MiB)
      ASSERT_TRUE(
          ok(replaced.write(at, own, std::chrono::steady_clock::now() + std::chrono::minutes{1})));
    const auto before = members();

    writer.resume();
    writer.go();
    const auto report = writer.finish();
    ASSERT_TRUE(report.has_value());
    count(*report);
    EXPECT_GT(report->indeterminate + report->without_effect, 0U)
        << "the write that was held has succeeded";
    EXPECT_EQ(acknowledged(round), told) << "a write was acknowledged after another claim";
    EXPECT_TRUE(members() == before) << "a late write has changed bytes";
    clear_group(replaced);
    EXPECT_TRUE(ok((*next)->release()));
  }
}

}  // namespace
}  // namespace remora::fault
