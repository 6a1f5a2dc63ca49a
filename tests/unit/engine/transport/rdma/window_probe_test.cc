/// The questions that a device is asked about its windows, answered by one that is made up: right
/// in everything, or wrong in just one thing.

#include "transport/rdma/window_probe.h"

#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/timed.h"
#include "transport/rdma/client_isolation.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

/// Queue pairs that are connected to each other, windows and registrations, as a NIC has them. What
/// it does not check is a switch.
class PretendNic {
 public:
  explicit PretendNic(verbs::Provider& table);
  ~PretendNic() { current = nullptr; }
  PretendNic(const PretendNic&) = delete;
  PretendNic& operator=(const PretendNic&) = delete;

  bool checks_end = true;  ///< a window's, not just that of the registration under it
  bool checks_beginning = true;
  bool checks_rights = true;
  bool checks_pair = true;
  bool keeps_from_others = true;  ///< an invalidation by another queue pair is refused
  bool harms_what_it_refuses = false;
  bool refuses_all = false;
  bool silent = false;  ///< nothing ever completes
  int attempts = 0;
  int fetch_adds = 0;

 private:
  struct Window {
    const ibv_qp* pair;
    std::uint64_t address;
    std::uint64_t length;
    unsigned access;
    const ibv_mr* under;
  };
  static ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes);
  static int modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
  static ibv_mw* alloc_mw(ibv_pd* domain, ibv_mw_type type);
  static int dealloc_mw(ibv_mw* window);
  static ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t length, unsigned access);
  static int post_send(ibv_qp* pair, ibv_send_wr* chain, ibv_send_wr** bad);
  static int poll_cq(ibv_cq* queue, int count, ibv_wc* completions);
  ibv_wc_status serve(ibv_qp* pair, ibv_send_wr& wr);
  bool admits(const ibv_qp* target, std::uint32_t rkey, std::uint64_t address, unsigned right);
  static PretendNic* current;

  verbs::Provider before_;
  std::map<std::uint32_t, ibv_qp*> pairs_;
  std::map<const ibv_qp*, std::uint32_t> peers_;
  std::map<std::uint32_t, Window> windows_;
  std::map<const ibv_mw*, std::uint32_t> keys_;
  std::map<std::uint32_t, std::pair<const ibv_mr*, unsigned>> registered_;
  std::deque<ibv_wc> completions_;
  std::uint32_t next_pair_ = 1;
  std::uint32_t next_key_ = 1;
};

PretendNic* PretendNic::current = nullptr;

PretendNic::PretendNic(verbs::Provider& table) : before_{table} {
  current = this;
  table.create_qp = &create_qp;
  table.modify_qp = &modify_qp;
  table.alloc_mw = &alloc_mw;
  table.dealloc_mw = &dealloc_mw;
  table.reg_mr = &reg_mr;
  table.post_send = &post_send;
  table.poll_cq = &poll_cq;
}

ibv_qp* PretendNic::create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  ibv_qp* const pair = current->before_.create_qp(domain, attributes);
  if (pair == nullptr) return nullptr;
  pair->qp_num = current->next_pair_++;
  current->pairs_[pair->qp_num] = pair;
  return pair;
}
int PretendNic::modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  if ((mask & IBV_QP_DEST_QPN) != 0) current->peers_[pair] = attributes->dest_qp_num;
  return current->before_.modify_qp(pair, attributes, mask);
}
ibv_mw* PretendNic::alloc_mw(ibv_pd* domain, ibv_mw_type type) {
  ibv_mw* const window = current->before_.alloc_mw(domain, type);
  if (window != nullptr) window->rkey = current->next_key_++ << 8U;
  return window;
}
int PretendNic::dealloc_mw(ibv_mw* window) {
  current->windows_.erase(current->keys_[window]);
  return current->before_.dealloc_mw(window);
}
ibv_mr* PretendNic::reg_mr(ibv_pd* domain, void* address, std::size_t length, unsigned access) {
  ibv_mr* const region = current->before_.reg_mr(domain, address, length, access);
  if (region == nullptr) return nullptr;
  region->rkey = current->next_key_++ << 8U;
  current->registered_[region->rkey] = {region, access};
  return region;
}

bool PretendNic::admits(const ibv_qp* target, std::uint32_t rkey, std::uint64_t address,
                        unsigned right) {
  if (refuses_all) return false;
  if (const auto found = registered_.find(rkey); found != registered_.end())
    return (found->second.second & right) != 0;
  const auto found = windows_.find(rkey);
  if (found == windows_.end()) return false;
  const Window& window = found->second;
  if (checks_rights && (window.access & right) == 0) return false;
  if (checks_pair && window.pair != target) return false;
  const auto begin = reinterpret_cast<std::uintptr_t>(window.under->addr);
  const std::uint64_t first = checks_beginning ? window.address : begin;
  const std::uint64_t last =
      checks_end ? window.address + window.length : begin + window.under->length;
  return address >= first && address + 8 <= last;
}

ibv_wc_status PretendNic::serve(ibv_qp* pair, ibv_send_wr& wr) {
  if (wr.opcode == IBV_WR_BIND_MW) {
    keys_[wr.bind_mw.mw] = wr.bind_mw.rkey;
    windows_[wr.bind_mw.rkey] = {pair, wr.bind_mw.bind_info.addr, wr.bind_mw.bind_info.length,
                                 wr.bind_mw.bind_info.mw_access_flags, wr.bind_mw.bind_info.mr};
    return IBV_WC_SUCCESS;
  }
  ++attempts;
  const ibv_qp* const target = pairs_[peers_[pair]];
  if (wr.opcode == IBV_WR_SEND_WITH_INV) {
    const auto found = windows_.find(wr.invalidate_rkey);
    if (found == windows_.end() || (keeps_from_others && found->second.pair != target))
      return IBV_WC_REM_ACCESS_ERR;
    windows_.erase(found);
    return IBV_WC_SUCCESS;
  }
  // NOLINTNEXTLINE(performance-no-int-to-ptr): what a NIC does with an address
  auto* const bytes = reinterpret_cast<std::byte*>(wr.wr.rdma.remote_addr);
  const bool writes = wr.opcode == IBV_WR_RDMA_WRITE;
  const unsigned right = writes                          ? IBV_ACCESS_REMOTE_WRITE
                         : wr.opcode == IBV_WR_RDMA_READ ? IBV_ACCESS_REMOTE_READ
                                                         : IBV_ACCESS_REMOTE_ATOMIC;
  fetch_adds += right == IBV_ACCESS_REMOTE_ATOMIC ? 1 : 0;
  const std::uint32_t rkey =
      right == IBV_ACCESS_REMOTE_ATOMIC ? wr.wr.atomic.rkey : wr.wr.rdma.rkey;
  const bool admitted = admits(target, rkey, wr.wr.rdma.remote_addr, right);
  if (writes && (admitted || harms_what_it_refuses)) std::memset(bytes, 1, 8);
  return admitted ? IBV_WC_SUCCESS : IBV_WC_REM_ACCESS_ERR;
}

int PretendNic::post_send(ibv_qp* pair, ibv_send_wr* chain, ibv_send_wr** /*bad*/) {
  if (current->silent) return 0;
  for (ibv_send_wr* wr = chain; wr != nullptr; wr = wr->next) {
    ibv_wc done{};
    done.wr_id = wr->wr_id;
    done.status = current->serve(pair, *wr);
    current->completions_.push_back(done);
  }
  return 0;
}
int PretendNic::poll_cq(ibv_cq* /*queue*/, int count, ibv_wc* completions) {
  int polled = 0;
  for (; polled < count && !current->completions_.empty(); ++polled) {
    completions[polled] = current->completions_.front();
    current->completions_.pop_front();
  }
  return polled;
}

class WindowProbeTest : public test::FakeTest {
 protected:
  WindowFindings ask(std::chrono::milliseconds time = std::chrono::seconds{10}) {
    return probe_windows(open(), verbs::deadline_in(time));
  }
  [[nodiscard]] bool atomics() const { return fake_.attributes.atomic_cap != IBV_ATOMIC_NONE; }
  /// All kept, but this.
  static void expect_broken(const WindowFindings& found, const WindowCheck& broken,
                            const std::string& reason) {
    for (const WindowCheck* check : found.checks())
      EXPECT_EQ(check->verdict, check == &broken ? Verdict::kBroken : Verdict::kKept)
          << found.text();
    EXPECT_EQ(broken.reason, reason);
    EXPECT_FALSE(found.all_kept());
    EXPECT_TRUE(found.conclusive());
  }
  PretendNic nic_{fake_.table};
};

TEST_F(WindowProbeTest, RightDeviceKeepsAllAndNothingIsLeft) {
  const WindowFindings found = ask();
  EXPECT_TRUE(found.all_kept()) << found.text();
  EXPECT_TRUE(found.conclusive());
  // 6 transfers and 2 fetch-and-adds that pass; those that are refused; 4 about invalidation.
  EXPECT_EQ(nic_.attempts, atomics() ? 8 + 14 + 4 : 6 + 12 + 4);
  EXPECT_EQ(found.text(), "range kept; rights kept; binding kept; foreign invalidation kept");
}

TEST_F(WindowProbeTest, WindowWithoutAnEndIsFound) {
  nic_.checks_end = false;
  const WindowFindings found = ask();
  expect_broken(found, found.range, "a write of 8 bytes across its end was carried out");
}

TEST_F(WindowProbeTest, WindowWithoutABeginningIsFound) {
  nic_.checks_beginning = false;
  const WindowFindings found = ask();
  expect_broken(found, found.range, "a write of 8 bytes just before the window was carried out");
}

TEST_F(WindowProbeTest, RightsThatDoNotCountAreFound) {
  nic_.checks_rights = false;
  const WindowFindings found = ask();
  expect_broken(found, found.rights,
                "a write of 8 bytes through a window bound for reading was carried out");
}

TEST_F(WindowProbeTest, KeyForEveryQueuePairIsFound) {
  nic_.checks_pair = false;
  const WindowFindings found = ask();
  expect_broken(found, found.binding, "a write of 8 bytes on another queue pair was carried out");
}

TEST_F(WindowProbeTest, AnotherQueuePairThatTakesAWindowAwayIsFound) {
  nic_.keeps_from_others = false;
  const WindowFindings found = ask();
  expect_broken(found, found.invalidation,
                "another client's message took the key of a window away");
}

TEST_F(WindowProbeTest, RefusalThatWritesIsNone) {
  nic_.harms_what_it_refuses = true;
  const WindowFindings found = ask();
  EXPECT_EQ(found.range.verdict, Verdict::kBroken);
  EXPECT_EQ(found.range.reason,
            "a write of 8 bytes just before the window was refused, yet memory has changed");
}

TEST_F(WindowProbeTest, DeviceThatRefusesEverythingIsNotTrusted) {
  nic_.refuses_all = true;
  const WindowFindings found = ask();
  EXPECT_FALSE(found.all_kept());
  EXPECT_FALSE(found.conclusive());
  EXPECT_NE(found.range.reason.find("access within a window"), std::string::npos) << found.text();
}

TEST_F(WindowProbeTest, DeviceThatDoesNotAnswerIsUntestedByTheDeadline) {
  nic_.silent = true;
  const test::Timed timed;
  const WindowFindings found = ask(std::chrono::milliseconds{50});
  EXPECT_TRUE(timed.took_at_most(std::chrono::seconds{5}));
  for (const WindowCheck* check : found.checks()) {
    EXPECT_EQ(check->verdict, Verdict::kUntested);
    EXPECT_NE(check->reason.find("timed out"), std::string::npos) << check->reason;
  }
}

TEST_F(WindowProbeTest, DeviceWithoutAtomicsIsAskedWithoutThem) {
  fake_.play(*test::find_device_profile("mlx5-no-atomics"));
  const WindowFindings found = ask();
  EXPECT_TRUE(found.all_kept()) << found.text();
  EXPECT_EQ(nic_.fetch_adds, 0);
}

TEST_F(WindowProbeTest, AnyActivePortWillDo) {
  fake_.attributes.phys_port_cnt = 2;
  fake_.second_port = fake_.port;
  fake_.port.state = IBV_PORT_DOWN;
  fake_.gids = {test::FakeVerbs::gid(0, 2, "::ffff:10.0.0.2")};
  const WindowFindings found = ask();
  EXPECT_TRUE(found.all_kept()) << found.text();
}

TEST_F(WindowProbeTest, NoActivePortIsUntestedAndWorthAWarning) {
  fake_.port.state = IBV_PORT_DOWN;
  const WindowFindings found = ask();
  EXPECT_NE(found.text().find("no active port"), std::string::npos) << found.text();
  const DeviceProtection chosen =
      protection_of("fake0", config::RdmaProtection::kAuto, found).value();
  EXPECT_EQ(chosen.mechanism, kRegistrations);
  EXPECT_TRUE(chosen.worth_a_warning);
}

TEST_F(WindowProbeTest, FirstPartitionOfFullMembershipIsUsed) {
  fake_.port.pkey_tbl_len = 3;
  fake_.pkeys = {0, 0x7fff, 0xffff};
  EXPECT_TRUE(ask().all_kept());
  for (const auto& [attributes, mask] : fake_.modified) {
    if ((mask & IBV_QP_PKEY_INDEX) != 0) {
      EXPECT_EQ(attributes.pkey_index, 2);
    }
  }
}

TEST_F(WindowProbeTest, PathHasAGlobalHeaderWhereThePortRequiresIt) {
  fake_.port.lid = 5;
  fake_.port.flags = IBV_QPF_GRH_REQUIRED;
  fake_.port.link_layer = IBV_LINK_LAYER_INFINIBAND;
  EXPECT_TRUE(ask().all_kept());
  for (const auto& [attributes, mask] : fake_.modified) {
    if ((mask & IBV_QP_AV) != 0) {
      EXPECT_EQ(attributes.ah_attr.is_global, 1);
    }
  }
}

TEST_F(WindowProbeTest, GidOfAnotherNetworkNamespaceIsLeft) {
  // 127.0.0.1 is of every namespace, and no GID; so an address of this machine stands for it.
  const std::vector<verbs::GidEntry> table{
      {.gid = verbs::Gid::from(test::FakeVerbs::gid(0, 1, "::ffff:10.9.9.9").gid),
       .type = verbs::GidType::kRoceV2,
       .port = 1,
       .index = 3},
      {.gid = verbs::Gid::from(test::FakeVerbs::gid(0, 1, "::ffff:10.0.0.7").gid),
       .type = verbs::GidType::kRoceV2,
       .port = 1,
       .index = 5}};
  EXPECT_EQ(choose_own_gid(table, 1, {table[1].gid}), 5U);
  EXPECT_EQ(choose_own_gid(table, 1, {}), std::nullopt) << "the best one, then, by other rules";
  EXPECT_EQ(choose_own_gid(table, 2, {table[1].gid}), std::nullopt);
}

/// SPDK's issue 3926: a device tells of a capability that it has not.
TEST_F(WindowProbeTest, WindowsThatAreToldOfAndMissingLeaveRegistrations) {
  fake_.play(*test::find_device_profile("bnxt_re-no-windows"));
  const WindowFindings found = ask();
  EXPECT_NE(found.text().find("ibv_alloc_mw"), std::string::npos) << found.text();
  const DeviceProtection chosen =
      protection_of("fake0", config::RdmaProtection::kAuto, found).value();
  EXPECT_EQ(chosen.mechanism, kRegistrations);
  EXPECT_TRUE(chosen.worth_a_warning);
  EXPECT_NE(chosen.reason.find("ibv_alloc_mw"), std::string::npos) << chosen.reason;
}

TEST_F(WindowProbeTest, WhatTheDeviceLacksIsSaid) {
  fake_.attributes.device_cap_flags = 0;
  const WindowFindings none = ask();
  EXPECT_EQ(none.rights.reason, "the device has no type-2 windows");
  EXPECT_FALSE(protection_of("fake0", config::RdmaProtection::kAuto, none).value().worth_a_warning);
  fake_.attributes.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  fake_.gids.clear();
  const WindowFindings found = ask();
  EXPECT_FALSE(found.conclusive());
  EXPECT_NE(found.range.reason.find("GID"), std::string::npos) << found.range.reason;
}

// Every call that the probe makes, failed once: never an error, never a verdict without a trial.
TEST_F(WindowProbeTest, FailingCallsLeaveChecksUntested) {
  for (const char* call : {"create_cq", "alloc_pd", "reg_mr", "create_qp", "modify_qp", "alloc_mw"})
    for (int nth = 1; nth <= 2; ++nth) {
      fake_.fail(call, nth);
      const WindowFindings found = ask();
      if (std::string{call} == "create_cq" && nth == 2) continue;  // there is one
      EXPECT_FALSE(found.all_kept()) << call << " " << nth;
      EXPECT_NE(found.text().find("untested: "), std::string::npos) << found.text();
    }
}

TEST_F(WindowProbeTest, ChoiceSaysWhatWasFound) {
  nic_.checks_end = false;
  const WindowFindings found = ask();
  const DeviceProtection chosen =
      protection_of("fake0", config::RdmaProtection::kAuto, found).value();
  EXPECT_EQ(chosen.device, "fake0");
  EXPECT_EQ(chosen.mechanism, "registrations");
  EXPECT_NE(chosen.reason.find("range broken: a write"), std::string::npos) << chosen.reason;
  EXPECT_FALSE(chosen.worth_a_warning) << "the device has answered";
  ASSERT_EQ(chosen.checks.size(), 4U);
  EXPECT_EQ(chosen.checks[0].verdict, "broken");
  EXPECT_EQ(chosen.checks[1].verdict, "kept");
  const DeviceProtection told =
      protection_of("fake0", config::RdmaProtection::kRegistrations, WindowFindings{}).value();
  EXPECT_EQ(told.mechanism, "registrations");
  EXPECT_EQ(told.reason, "as configured");
  EXPECT_TRUE(told.checks.empty());
}

TEST_F(WindowProbeTest, WindowsAreTakenWhereTheyKeepClientsApart) {
  const WindowFindings found = ask();
  for (const auto& [wanted, mechanism] :
       {std::pair{config::RdmaProtection::kAuto, kWindows},
        std::pair{config::RdmaProtection::kWindows, kWindows},
        std::pair{config::RdmaProtection::kWindowsUnchecked, kWindows},
        std::pair{config::RdmaProtection::kRegistrations, kRegistrations}}) {
    const DeviceProtection chosen = protection_of("fake0", wanted, found).value();
    EXPECT_EQ(chosen.mechanism, mechanism) << config::to_string(wanted);
    EXPECT_FALSE(chosen.reason.empty());
  }
}

TEST_F(WindowProbeTest, WindowsThatDoNotAreAnErrorWhichSaysWhatToWrite) {
  nic_.keeps_from_others = false;
  const WindowFindings found = ask();
  const auto refused = protection_of("mlx5_17", config::RdmaProtection::kWindows, found);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kUnsupported);
  EXPECT_EQ(refused.error().subject(),
            "transports.rdma_protection on mlx5_17: foreign invalidation broken: write auto");
  // A check that was not made counts as little.
  const auto untested =
      protection_of("mlx5_17", config::RdmaProtection::kWindows, WindowFindings{});
  ASSERT_FALSE(untested);
  EXPECT_EQ(untested.error().subject(),
            "transports.rdma_protection on mlx5_17: range untested: write auto");
  const DeviceProtection unchecked =
      protection_of("mlx5_17", config::RdmaProtection::kWindowsUnchecked, found).value();
  EXPECT_EQ(unchecked.mechanism, kWindows);
  EXPECT_NE(unchecked.reason.find("unchecked"), std::string::npos) << unchecked.reason;
  EXPECT_NE(unchecked.reason.find("foreign invalidation broken"), std::string::npos);
}

}  // namespace
}  // namespace remora::transport::rdma
