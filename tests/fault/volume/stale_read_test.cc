/// A reader that cannot reach etcd, and the old primary that it can still reach, while the writer
/// removes that primary: it never reads what is not the newest. Without the wait of the writer it
/// does.

#include <chrono>
#include <memory>
#include <string>

#include "engine_member_opener.h"
#include "mirror_layout.h"
#include "mirror_reader.h"
#include "step_opener.h"
#include "volume_fault_test.h"

namespace remora::fault {
namespace {

using volume::detail::EngineMemberOpener;
using volume::detail::MirrorReader;
using volume::detail::MirrorTimes;
using volume::detail::MirrorWriter;

class MirrorStaleRead : public VolumeFaultTest {
 protected:
  static constexpr std::uint32_t kWriter = 1;
  static constexpr std::uint32_t kReader = 2;

  [[nodiscard]] std::shared_ptr<EngineMemberOpener> opener(const Engine& engine,
                                                           const volume::Cluster& with,
                                                           Rights rights) const {
    return std::make_shared<EngineMemberOpener>(engine, with, TransportKind::kTcp, rights,
                                                volume::detail::mirror_region_bytes(group_bytes()),
                                                std::chrono::seconds{3});
  }
  /// Adds 1 to each word, in the history.
  static void add_to_each(volume::detail::MirrorGroup& written, const MirrorRound& round) {
    for (std::size_t i = 0; i < kMirrorWords; ++i) {
      WordOperation operation;
      operation.expected = 1;
      AtomicRecord* const record =
          round.page->begin(kMirrorMemory, mirror_word(i), operation, kWriter);
      ASSERT_NE(record, nullptr);
      const auto found = written.fetch_add(
          mirror_word(i), 1, std::chrono::steady_clock::now() + std::chrono::minutes{2});
      ASSERT_TRUE(ok(found));
      LoadPage::end(*record, Effect::kDone, *found);
    }
  }

  /// The history of the words, in which the writer removes its primary.
  Linearizability run_history(const MirrorTimes& of_writer, const MirrorTimes& of_reader) {
    const MirrorRound round = begin_round();
    // The reader has a way of its own to etcd, and the writer one to the primary.
    TcpProxy reader_store{
        static_cast<std::uint16_t>(std::stoul(endpoints().substr(endpoints().rfind(':') + 1)))};
    const volume::GroupRecord before = group();
    const std::size_t primary = index_of(before.members.front().server);
    TcpProxy writer_primary{server(primary).port()};

    const Engine writing = mirror_engine();
    volume::detail::MirrorOptions options;
    options.transport = TransportKind::kTcp;
    options.member_limit = kMemberLimit;
    options.times = of_writer;
    StepOpener::Options ways;
    ways.data_offset = volume::detail::mirror_data_offset(group_bytes());
    ways.addresses[before.members.front().server] =
        "127.0.0.1:" + std::to_string(writer_primary.port());
    // A cluster without records of servers: members are where the opener says.
    auto writer = MirrorWriter::claim(
        std::make_shared<StepOpener>(opener(writing, unregistered(), Rights::kReadWrite), ways,
                                     std::make_shared<StepHook>("", 1, [] {})),
        cluster(), kMirrorName, options);
    EXPECT_TRUE(ok(writer));
    if (!writer) return {};
    volume::detail::MirrorGroup& written = (*writer)->group(0);

    const Engine reading = mirror_engine();
    const volume::Cluster through = mirror_cluster(
        "http://127.0.0.1:" + std::to_string(reader_store.port()), std::chrono::milliseconds{500});
    options.times = of_reader;
    MirrorReader mirror{through, cluster().layout(kMirrorName).value(),
                        opener(reading, through, Rights::kRead), options};
    {
      WordReader reader{[&mirror](std::uint64_t offset_bytes, const Target& into) {
                          return mirror.read(
                              0, offset_bytes, into,
                              std::chrono::steady_clock::now() + std::chrono::milliseconds{200});
                        },
                        *round.page, kReader, std::chrono::milliseconds{1}};
      add_to_each(written, round);
      const std::uint64_t good = reader.good();
      EXPECT_TRUE(test::eventually([&] { return reader.good() >= good + kMirrorWords; }));
      reader_store.cut_new_after(0);
      reader_store.cut_all();
      writer_primary.cut_new_after(0);
      writer_primary.cut_all();
      add_to_each(written, round);
      // It still tries to read: each of these has begun after the writes were acknowledged.
      const std::uint64_t ended = reader.ended();
      EXPECT_TRUE(test::eventually([&] { return reader.ended() >= ended + 2 * kMirrorWords; },
                                   std::chrono::minutes{2}));
      const volume::GroupRecord after = group();
      EXPECT_EQ(after.members.size(), copies() - 1);
      EXPECT_NE(after.members.front().server, before.members.front().server);
      reader_store.cut_no_more();
      const std::uint64_t again = reader.good();
      EXPECT_TRUE(test::eventually([&] { return reader.good() >= again + kMirrorWords; },
                                   std::chrono::minutes{2}))
          << "it does not read from the new primary";
    }
    EXPECT_TRUE(ok((*writer)->release()));
    const Linearizability found = check_words(*round.page);
    repair();
    return found;
  }

 private:
  [[nodiscard]] volume::Cluster unregistered() const {
    return volume::Cluster{cluster().shared_store(), "nothing", std::chrono::seconds{5}};
  }
};

TEST_F(MirrorStaleRead, NeverWhileTheReaderCannotConfirm) {
  const MirrorTimes times{.confirmed_for = std::chrono::milliseconds{700},
                          .drift_margin = std::chrono::milliseconds{100}};
  const Linearizability found = run_history(times, times);
  EXPECT_TRUE(found.ok()) << "V6: " << found.text;
}

/// The proof that the test above can fail.
TEST_F(MirrorStaleRead, IsFoundIfTheWriterDoesNotWait) {
  // The wait is the sum of both.
  const MirrorTimes none{.confirmed_for = std::chrono::seconds{2},
                         .drift_margin = -std::chrono::seconds{2}};
  const MirrorTimes long_time{.confirmed_for = std::chrono::minutes{10}};
  const Linearizability found = run_history(none, long_time);
  EXPECT_EQ(found.verdict, Linearizability::Verdict::kViolated)
      << "no stale read, though the writer did not wait for the reader";
}

}  // namespace
}  // namespace remora::fault
