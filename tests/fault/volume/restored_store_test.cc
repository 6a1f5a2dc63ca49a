/// An etcd that was restored from an old snapshot, under members that are ahead of it.

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include <remora/volume/remedy.h>

#include "volume_fault_test.h"

namespace remora::fault {
namespace {

class MirrorRestoredStore : public VolumeFaultTest {
 protected:
  [[nodiscard]] bool proxied() const override { return true; }
  /// Which of two generations is newer cannot be known: what repair() keeps is named, and removed
  /// by hand. `before`: the members of the snapshot.
  void remove_what_repair_keeps(const std::vector<volume::Member>& before) {
    volume::MaintenanceOptions options;
    options.steal = true;
    const Engine engine = mirror_engine();
    const auto repaired = repair_volume(cluster(), engine, kMirrorName, options);
    ASSERT_TRUE(repaired.has_value()) << repaired.error().error.message();
    ASSERT_EQ(repaired->left.size(), 1U);
    const auto kept = std::find_if(before.begin(), before.end(), [&](const volume::Member& each) {
      return repaired->left.front().find(each.region) != std::string::npos;
    });
    ASSERT_NE(kept, before.end()) << repaired->left.front();
    const Session session =
        engine.connect("remora://" + kept->addresses.front() + "?transport=tcp").value();
    ASSERT_TRUE(ok(session.remove_region(kept->region, Removal::kNow)));
  }
};

/// The snapshot names as primary a member that was removed since, and that can be reached again: it
/// has old bytes.
TEST_F(MirrorRestoredStore, IsRefusedUntilTheHeadersWereCompared) {
  if (transport() != TransportKind::kTcp) GTEST_SKIP() << "the proxies speak tcp";
  const volume::test::TemporaryFolder folder;
  const std::string snapshot = folder.path() + "/snapshot";
  const MirrorRound round = begin_round();
  {
    MirrorWriterProcess writer{words_of(round, {"pause_us=500", "deadline_ms=60000"})};
    std::string why;
    ASSERT_TRUE(writer.claimed(&why)) << why;
    ASSERT_TRUE(soon_acknowledged(round, 50));
    ASSERT_EQ(etcd().control({"snapshot", "save", snapshot}), 0);
    const std::string old_primary = server_of(0);
    TcpProxy& way = proxy(index_of(old_primary));
    way.cut_new_after(0);
    way.cut_all();
    ASSERT_TRUE(
        test::eventually([&] { return !has_member_on(old_primary); }, std::chrono::minutes{2}));
    ASSERT_TRUE(soon_acknowledged(round, 100));
    const auto report = writer.finish();
    ASSERT_TRUE(report.has_value());
    count(*report);
    EXPECT_EQ(report->indeterminate + report->without_effect, 0U) << report->text;
    way.cut_no_more();
  }
  const auto members_of_today = group().members;
  const auto read_members = [&] {
    const Engine engine = mirror_engine();
    std::vector<std::vector<std::byte>> all;
    for (const volume::Member& each : members_of_today) all.push_back(bytes_of(engine, each));
    return all;
  };
  const auto before = read_members();

  etcd().kill();
  ASSERT_NO_FATAL_FAILURE(etcd().restore(snapshot));
  ASSERT_TRUE(test::eventually([&] { return cluster().layout(kMirrorName).ok(); }));
  const auto members_before = group().members;
  ASSERT_EQ(members_before.size(), copies()) << "the snapshot is not older";
  ASSERT_TRUE(volume::renew_generation(cluster()).has_value());

  const Engine engine = mirror_engine();
  const auto disk = open_disk(engine);
  ASSERT_TRUE(ok(disk));
  std::vector<std::byte> block(kMirrorBlock);
  EXPECT_FALSE(disk->read(ByteOffset{0}, block, std::chrono::seconds{1}).ok())
      << "rule 29: a client reads under records that no claim has compared";
  const auto refused_claim = steal(engine);
  ASSERT_TRUE(fails_with(refused_claim, Code::kProtocol));
  EXPECT_NE(refused_claim.error().message().find("header is newer"), std::string::npos)
      << refused_claim.error().message();
  EXPECT_NE(volume::remedy(refused_claim.error()).find("--from-headers"), std::string_view::npos)
      << "V8: the message does not say what to do";
  EXPECT_TRUE(read_members() == before) << "the claim that was refused has changed bytes";

  const auto restored = restore_from_headers(cluster(), engine, kMirrorName);
  ASSERT_TRUE(restored.has_value()) << restored.error().error.message() << restored.error().detail;
  EXPECT_EQ(*restored, std::vector<std::uint64_t>{0});
  ASSERT_NO_FATAL_FAILURE(expect_next_claim(round, false));
  ASSERT_NO_FATAL_FAILURE(remove_what_repair_keeps(members_before));
  ASSERT_NO_FATAL_FAILURE(repair());
}

}  // namespace
}  // namespace remora::fault
