#pragma once

/// The fixture of faults of mirrors: an etcd, servers and writers in processes of their own, a
/// mirror "disk" of one group, and what is checked at the end of each test.

#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/volume/cluster.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/management.h>
#include <remora/volume/volume.h>

#include "fault/processes.h"
#include "fault/proxy.h"
#include "mirror_load.h"
#include "mirror_processes.h"
#include "mirror_writer.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/pattern.h"
#include "unit/volume/etcd_process.h"
#include "word_reader.h"

namespace remora::fault {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using test::fails_with;
using test::ok;

/// A load whose writer dies or is replaced, and a client that reads meanwhile.
struct MirrorRound {
  std::uint64_t session = 0;
  std::string path{};
  std::unique_ptr<LoadPage> page{};
};

/// After each test the members of the mirror have the same bytes, and each server that lives holds
/// what it held before the mirror was made (I8).
class VolumeFaultTest : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  [[nodiscard]] virtual std::size_t server_count() const { return 3; }
  [[nodiscard]] virtual std::uint32_t copies() const { return 3; }
  [[nodiscard]] virtual std::uint64_t group_bytes() const { return 2_MiB; }
  /// Whether clients reach the servers through proxies (tcp).
  [[nodiscard]] virtual bool proxied() const { return false; }
  /// Starts etcd; its endpoints, with commas between them.
  virtual std::string start_store();

  /// How often: the short count, or the long one with REMORA_FAULT_ROUNDS=long.
  std::uint64_t rounds(std::uint64_t few, std::uint64_t many);
  [[nodiscard]] test::Random& random() noexcept { return random_; }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  void pause_for_a_while(std::chrono::microseconds most);

  [[nodiscard]] static TransportKind transport();
  [[nodiscard]] const std::string& endpoints() const noexcept { return endpoints_; }
  [[nodiscard]] const volume::Cluster& cluster() const { return *cluster_; }
  [[nodiscard]] volume::test::EtcdProcess& etcd() { return *etcd_; }
  /// By the name of a server, "s0" for example.
  [[nodiscard]] static std::size_t index_of(const std::string& name);
  [[nodiscard]] FaultServer& server(std::size_t index) { return *nodes_[index].process; }
  [[nodiscard]] TcpProxy& proxy(std::size_t index) { return *nodes_[index].proxy; }
  /// Where the server listens, without its proxy.
  [[nodiscard]] std::string address_of(std::size_t index) const;
  void kill_server(std::size_t index);
  /// The same port, with other memory; also while clients try to reach it.
  void restart_server(std::size_t index);

  [[nodiscard]] volume::GroupRecord group() const;
  /// True also if the store does not tell.
  [[nodiscard]] bool has_member_on(const std::string& name) const;
  /// The server of the primary (0) or of the backup `index`.
  [[nodiscard]] std::string server_of(std::size_t index) const;

  MirrorRound begin_round();
  /// `key=value` of a writer of this round.
  [[nodiscard]] std::vector<std::string> words_of(const MirrorRound& round,
                                                  std::vector<std::string> more = {});
  /// The mirror as any client has it.
  [[nodiscard]] Result<volume::Volume> open_disk(const Engine& engine) const;
  /// A client that reads the mirror's words as any reader.
  [[nodiscard]] static std::unique_ptr<WordReader> read_words(const volume::Volume& disk,
                                                              const MirrorRound& round);
  /// Writes that were acknowledged so far.
  [[nodiscard]] static std::uint64_t acknowledged(const MirrorRound& round);
  /// Waits until `more` writes were acknowledged.
  [[nodiscard]] static bool soon_acknowledged(const MirrorRound& round, std::uint64_t more);

  /// Claims by force.
  [[nodiscard]] Result<std::shared_ptr<volume::detail::MirrorWriter>> steal(const Engine& engine);
  /// Every acknowledged write is there, and the history of each word is linearizable.
  static void judge(volume::detail::MirrorGroup& judged, const MirrorRound& round);
  /// The next claim: the members are equal before it has written anything; judge().
  /// `clear`: the group is zeros afterwards, for another round.
  void expect_next_claim(const MirrorRound& round, bool clear = true);
  /// For the next round, by its writer.
  void clear_group(volume::detail::MirrorGroup& cleared) const;
  /// The members of the group, `wanted` of them, all in sync, have the same bytes. While nothing
  /// writes.
  void expect_equal_members(std::size_t wanted);
  [[nodiscard]] std::vector<std::byte> bytes_of(const Engine& engine,
                                                const volume::Member& member) const;
  /// Makes the mirror whole again.
  void repair();
  void count(const MirrorLoadReport& report);

 private:
  struct Node {
    std::unique_ptr<FaultServer> process{};
    std::unique_ptr<TcpProxy> proxy{};
    std::uint16_t port = 0;
    std::string baseline{};
  };
  void start_server(std::size_t index, std::uint16_t port);
  void register_server(std::size_t index);
  void warm_up(std::size_t index);
  void make_mirror();
  void expect_servers_back();
  void print() const;

  std::uint64_t seed_ = 0;
  std::uint64_t rounds_ = 1;
  std::uint64_t sessions_ = 0;
  test::Random random_{0};
  bool ready_ = false;
  std::optional<volume::test::EtcdProcess> etcd_;
  std::string endpoints_;
  std::optional<volume::Cluster> cluster_;
  std::vector<Node> nodes_;
  MirrorLoadReport total_;
};

}  // namespace remora::fault
