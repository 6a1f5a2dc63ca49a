/// An etcd that loses its leader, its quorum, its connection or its history under a load:
/// operations pause or end within their deadlines, nothing is lost, and all goes on afterwards.

#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "volume_fault_test.h"

namespace remora::fault {
namespace {

class MirrorStoreFault : public VolumeFaultTest {
 protected:
  static constexpr std::size_t kMembers = 3;

  std::string start_store() override {
    std::array<std::uint16_t, kMembers> ports{};
    std::string members;
    for (std::size_t i = 0; i < kMembers; ++i) {
      ports[i] = volume::test::free_port();
      members += (i == 0 ? "" : ",") + name_of(i) + "=http://127.0.0.1:" + std::to_string(ports[i]);
    }
    std::string all;
    for (std::size_t i = 0; i < kMembers; ++i) {
      three_[i] = std::make_unique<volume::test::EtcdProcess>(name_of(i), members, ports[i]);
      all += (i == 0 ? "" : ",") + three_[i]->endpoint();
    }
    EXPECT_TRUE(test::eventually([&] { return leader() < kMembers; }, std::chrono::minutes{1}));
    return all;
  }
  void TearDown() override {
    VolumeFaultTest::TearDown();
    for (auto& each : three_) each.reset();
  }

  /// kMembers: none.
  [[nodiscard]] std::size_t leader() const {
    std::size_t index = 0;
    while (index < kMembers && !three_[index]->leads()) ++index;
    return index;
  }
  [[nodiscard]] volume::test::EtcdProcess& one_of_three(std::size_t index) {
    return *three_[index];
  }
  [[nodiscard]] std::string endpoint_of(std::size_t index) const {
    return three_[index]->endpoint();
  }
  [[nodiscard]] bool soon_without(const std::string& name) {
    return test::eventually([&] { return !has_member_on(name); }, std::chrono::minutes{2});
  }
  /// The end of a load of which no operation may have failed, and what it leaves.
  void finish(MirrorWriterProcess& writer, const MirrorRound& round) {
    const auto report = writer.finish();
    ASSERT_TRUE(report.has_value());
    count(*report);
    EXPECT_EQ(report->indeterminate + report->without_effect, 0U) << report->text;
    ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
  }

 private:
  [[nodiscard]] static std::string name_of(std::size_t index) {
    return "etcd" + std::to_string(index);
  }

  std::array<std::unique_ptr<volume::test::EtcdProcess>, kMembers> three_{};
};

/// A member dies while etcd elects: its removal needs the new leader.
TEST_F(MirrorStoreFault, LeaderThatStandsStillIsReplaced) {
  const MirrorRound round = begin_round();
  MirrorWriterProcess writer{
      words_of(round, {"pause_us=500", "deadline_ms=90000", "store_limit_ms=3000"})};
  std::string why;
  ASSERT_TRUE(writer.claimed(&why)) << why;
  ASSERT_TRUE(soon_acknowledged(round, 50));
  const std::size_t stopped = leader();
  ASSERT_LT(stopped, kMembers);
  const std::string dead = server_of(1);
  one_of_three(stopped).pause();
  kill_server(index_of(dead));
  EXPECT_TRUE(soon_without(dead));
  EXPECT_TRUE(soon_acknowledged(round, 100)) << "the load does not go on with another leader";
  one_of_three(stopped).resume();
  ASSERT_NO_FATAL_FAILURE(finish(writer, round));
  restart_server(index_of(dead));
  repair();
}

/// Without a quorum writes go on until a member dies; then each ends within its deadline.
TEST_F(MirrorStoreFault, WithoutAQuorumOperationsEndWithinTheirDeadlines) {
  const MirrorRound round = begin_round();
  MirrorWriterProcess writer{words_of(
      round, {"pause_us=500", "deadline_ms=2000", "store_limit_ms=1000", "member_limit_ms=3000"})};
  std::string why;
  ASSERT_TRUE(writer.claimed(&why)) << why;
  ASSERT_TRUE(soon_acknowledged(round, 50));
  const std::string dead = server_of(1);
  one_of_three(0).pause();
  one_of_three(1).pause();
  kill_server(index_of(dead));
  const Engine engine = mirror_engine();
  const volume::Cluster alone = mirror_cluster(endpoint_of(2), std::chrono::milliseconds{500});
  EXPECT_FALSE(alone.layout(kMirrorName).ok()) << "a read without a quorum is not linearizable";
  one_of_three(0).resume();
  one_of_three(1).resume();
  EXPECT_TRUE(soon_without(dead));
  EXPECT_TRUE(soon_acknowledged(round, 100)) << "the load does not go on with the quorum";
  const auto report = writer.finish();
  ASSERT_TRUE(report.has_value());
  count(*report);
  // Its deadline, an operation on a member, a request to the store; and time for a busy machine.
  EXPECT_LT(report->longest_ms, 2000U + 3000U + 2000U + 20'000U);
  ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
  restart_server(index_of(dead));
  repair();
}

class MirrorStoreHistory : public VolumeFaultTest {
 protected:
  std::string start_store() override {
    VolumeFaultTest::start_store();
    way_ = std::make_unique<TcpProxy>(static_cast<std::uint16_t>(
        std::stoul(etcd().address().substr(etcd().address().rfind(':') + 1))));
    return "http://127.0.0.1:" + std::to_string(way_->port());
  }
  void TearDown() override {
    VolumeFaultTest::TearDown();
    way_.reset();
  }
  [[nodiscard]] TcpProxy& way() { return *way_; }

 private:
  std::unique_ptr<TcpProxy> way_;
};

/// All revisions that the clients know are compacted while they are cut off.
TEST_F(MirrorStoreHistory, CompactionWhileDisconnectedLosesNothing) {
  const MirrorRound round = begin_round();
  MirrorWriterProcess writer{
      words_of(round, {"pause_us=500", "deadline_ms=60000", "store_limit_ms=3000"})};
  std::string why;
  ASSERT_TRUE(writer.claimed(&why)) << why;
  ASSERT_TRUE(soon_acknowledged(round, 50));
  const std::string dead = server_of(1);
  way().cut_new_after(0);
  way().cut_all();
  ASSERT_EQ(etcd().control({"put", "/another", "value"}), 0);
  ASSERT_EQ(
      volume::test::run({"sh", "-c",
                         "export ETCDCTL_API=3; at=--endpoints=" + etcd().endpoint() +
                             "; etcdctl $at compact --physical $(etcdctl $at get / -w fields | "
                             "sed -n 's/^\"Revision\" : //p') && etcdctl $at defrag"}),
      0);
  kill_server(index_of(dead));
  way().cut_no_more();
  EXPECT_TRUE(test::eventually([&] { return !has_member_on(dead); }, std::chrono::minutes{2}));
  EXPECT_TRUE(soon_acknowledged(round, 100));
  const auto report = writer.finish();
  ASSERT_TRUE(report.has_value());
  count(*report);
  EXPECT_EQ(report->indeterminate + report->without_effect, 0U) << report->text;
  ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
  restart_server(index_of(dead));
  repair();
}

/// Each answer of etcd takes a part of T: a removal and reads wait, and none is wrong.
TEST_F(MirrorStoreHistory, SlowAnswersDelayAndDoNotMislead) {
  const Engine engine = mirror_engine();
  const auto disk = open_disk(engine);
  ASSERT_TRUE(ok(disk));
  const MirrorRound round = begin_round();
  MirrorWriterProcess writer{words_of(round, {"pause_us=500", "deadline_ms=120000"})};
  std::string why;
  ASSERT_TRUE(writer.claimed(&why)) << why;
  auto reader = read_words(*disk, round);
  ASSERT_TRUE(soon_acknowledged(round, 50));
  const std::string dead = server_of(0);
  way().slow_down(64);  // an answer has some hundred bytes
  kill_server(index_of(dead));
  EXPECT_TRUE(soon_acknowledged(round, 100)) << "the primary is not replaced";
  way().slow_down(0);
  const std::uint64_t good = reader->good();
  EXPECT_TRUE(test::eventually([&] { return reader->good() >= good + kMirrorWords; },
                               std::chrono::minutes{2}));
  const auto report = writer.finish();
  ASSERT_TRUE(report.has_value());
  count(*report);
  reader->stop();
  ASSERT_NO_FATAL_FAILURE(expect_next_claim(round));
  restart_server(index_of(dead));
  repair();
}

}  // namespace
}  // namespace remora::fault
