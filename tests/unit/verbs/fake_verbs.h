#pragma once

/// Verbs without a device: a Provider whose every call is a function of ours.
///
/// It keeps count of what lives, notes what a real library would answer with a dead-lock or a
/// use after free (a parent destroyed before its child, an event never acknowledged), and fails any
/// call at its nth use. One FakeVerbs at a time; objects are heap blocks, so that the sanitizers
/// see them too. For one thread, but registrations and windows: the MR cache and the sessions of a
/// server make several at a time.

#include <atomic>
#include <cerrno>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <remora/verbs/verbs.h>

#include "device_profiles.h"
#include "support/assert_ok.h"

namespace remora::test {

class FakeVerbs {
 public:
  FakeVerbs();
  ~FakeVerbs();
  FakeVerbs(const FakeVerbs&) = delete;
  FakeVerbs& operator=(const FakeVerbs&) = delete;
  static FakeVerbs& current();

  [[nodiscard]] const verbs::Provider& provider() const { return table; }

  /// Behaves as that kind of NIC from now on; before anything is made. A new fake does so with the
  /// profile that the environment variable REMORA_TEST_DEVICE names, else with plain_device().
  void play(const DeviceProfile& kind);
  [[nodiscard]] const DeviceProfile& profile() const { return *profile_; }

  /// The `nth` next use of `call` (from 1) fails with `number`.
  void fail(const std::string& call, int nth = 1, int number = EIO);
  [[nodiscard]] const std::map<std::string, int>& uses() const { return uses_; }
  [[nodiscard]] int uses(const std::string& call) const;
  /// Kinds of objects that live, with their number; a device list and acknowledgements too.
  [[nodiscard]] std::string live() const;

  // What the device is.
  std::string device_name = "fake0";
  int device_count = 1;
  /// Devices of the host beside the first, each with a context of the connection manager.
  struct Other {
    explicit Other(const std::string& name);
    ~Other();
    Other(const Other&) = delete;
    Other& operator=(const Other&) = delete;
    ibv_device device{};
    ibv_context cm_context{};
    ibv_device_attr attributes{};
    ibv_port_attr port{};
  };
  std::deque<Other> others;
  [[nodiscard]] Other* other(const ibv_device* wanted);
  bool listener_has_device = false;  ///< rdma_bind_addr() finds the first device
  int list_errno = 0;                ///< not 0: no list at all
  ibv_device_attr attributes{};
  ibv_port_attr port{};
  std::optional<ibv_port_attr> second_port;  ///< otherwise all ports are as `port`
  std::vector<ibv_gid_entry> gids;
  std::vector<std::uint16_t> pkeys{0xffff};
  verbs::MemlockState memlock;
  bool by_namespace = false;  ///< each network namespace has devices of its own
  std::uint32_t granted_inline = 0;
  bool on_demand_paging = true;

  // What was asked for, in the order of the calls that got it.
  struct Registered {
    std::uint64_t iova;  ///< or the address
    std::uint32_t access;
  };
  struct QueueAsked {
    std::uint32_t depth;
    std::uint32_t vector;
    std::uint64_t fields;  ///< of an extended queue
  };
  std::vector<Registered> registered;
  std::vector<QueueAsked> queues;
  std::vector<ibv_qp_init_attr> pairs;

  // What was posted, and how many requests of a chain are taken (-1: all).
  std::vector<std::vector<ibv_send_wr>> sent;
  std::vector<std::vector<ibv_sge>> sent_elements;  ///< of each request of the last chain
  std::vector<std::uint64_t> received_ids;
  int take = -1;
  std::deque<ibv_wc> completions;
  /// The peer refuses the request of this id: see DeviceProfile::reports_errors_at_oldest. Signaled
  /// requests before it have succeeded, and all behind it are flushed.
  std::optional<std::uint64_t> refused_id;
  ibv_wc_status refused_status = IBV_WC_REM_ACCESS_ERR;
  std::atomic<int> commands{0};  ///< of the firmware, as the profile counts them
  std::vector<std::pair<ibv_qp_attr, int>> modified;
  std::set<const ibv_cq*> extended;
  int open_polls = 0;
  ibv_srq_attr shared_attributes{};
  std::vector<ibv_ah_attr> paths;  ///< of address handles
  struct Advised {
    ibv_advise_mr_advice advice;
    std::uint32_t flags;
    std::uint32_t count;
  } advised{};
  std::deque<ibv_async_event> async_events;
  int unacknowledged_async = 0;
  /// An event of the device.
  void happen(const verbs::Device& where, const ibv_async_event& event);
  ibv_mr* make_region(ibv_pd* domain, void* address, std::size_t length);
  /// A row of the GID table, RoCE v2.
  static ibv_gid_entry gid(std::uint32_t index, std::uint32_t port, std::string_view text);
  /// An event on the channel of `queue`.
  void raise(ibv_cq* queue);

  // The connection manager.
  enum class Answer { kAccept, kReject, kSilence, kUnreachable };
  Answer answer = Answer::kAccept;
  std::string answer_data;
  int reject_status = 28;               ///< "consumer"
  int cm_device_uses = 0;               ///< of the context, beside those of lists
  int cm_devices_closed = 0;            ///< where no device was left
  ibv_context* opened_again = nullptr;  ///< listed instead of the first device's `cm_context`
  ibv_context* route = nullptr;  ///< over which peers are reached and knock; null: the first device
  bool resolve = true;           ///< false: address resolution gets no answer
  int address_time_outs = 0;     ///< so often the kernel reports no answer
  int route_time_outs = 0;
  int resolve_longest_ms = 0;  ///< the longest time-out that was asked for
  std::string last_rejected;   ///< private data of the last reject
  int rejects = 0;
  rdma_conn_param last_parameters{};
  std::uint8_t route_timeout = 5;         ///< that the manager derives from the route
  std::map<int, std::uint8_t> options{};  ///< RDMA_OPTION_ID_... that were set
  /// A client knocks at the only listener.
  void knock(const std::string& private_data, std::uint8_t initiator = 16,
             std::uint8_t responder = 16);
  void push(rdma_cm_id* id, rdma_cm_event_type type, int status = 0,
            const std::string& private_data = {});

  // For the fake functions.
  void push_held(rdma_cm_id* id, rdma_cm_event_type type, int status = 0,
                 const std::string& private_data = {});
  int use(const char* call);  ///< 0, or the errno to fail with
  void born(const std::string& kind, const void* object, std::vector<const void*> parents = {});
  void died(const std::string& kind, const void* object);
  /// A window is bound by a posted request, until it is freed.
  void bind(const ibv_mw* window, const ibv_qp* pair, const ibv_mr* region);
  void unbind(const ibv_mw* window);
  [[nodiscard]] bool has_window(const ibv_qp* pair);
  [[nodiscard]] bool has_window(const ibv_mr* region);
  void note_registered(std::uint64_t iova, std::uint32_t access);
  void violation(const std::string& what);
  /// A key by the profile's habit, or `fixed`.
  [[nodiscard]] std::uint32_t next_key(std::uint32_t fixed);
  void free_key(std::uint32_t key);
  /// 0, or the errno with which the device refuses such a queue pair.
  [[nodiscard]] int refusal_of(const ibv_qp_init_attr& asked) const;
  [[nodiscard]] int refusal_of(const ibv_qp* pair, const ibv_qp_attr& attributes, int mask);
  void forget(const ibv_qp* pair);
  /// Completes a request that was posted, as the device does.
  void complete(ibv_qp* pair, const ibv_send_wr& request);

  std::mutex events_mutex;  ///< of `extended`, `unacknowledged` and `channel_events`
  struct CmChannel;
  struct CmEvent;
  verbs::Provider table;
  rdma_cm_id* listener = nullptr;
  ibv_context cm_context{};
  ibv_device device{};
  std::map<const ibv_cq*, int> unacknowledged;
  std::map<const rdma_cm_id*, int> unacknowledged_ids;
  std::map<const ibv_comp_channel*, std::deque<ibv_cq*>> channel_events;
  std::map<const rdma_event_channel*, std::deque<rdma_cm_event*>> cm_events;

 private:
  struct Object {
    std::string kind;
    std::vector<const void*> parents;
  };
  mutable std::mutex mutex_;  // of all that registrations and windows touch
  std::map<std::string, int> uses_;
  std::map<std::string, std::pair<int, int>> failures_;  // call -> (uses left, errno)
  std::map<const void*, Object> objects_;
  std::map<const ibv_mw*, std::pair<const ibv_qp*, const ibv_mr*>> bound_;
  const DeviceProfile* profile_ = &plain_device();
  std::uint32_t next_key_ = 0x101;
  std::vector<std::uint32_t> freed_keys_;  ///< the last one is given out first
  std::map<const ibv_qp*, unsigned> access_;
  std::map<const ibv_qp*, std::deque<std::uint64_t>> outstanding_;  ///< ids, not known to be done
  std::set<const ibv_qp*> failed_;
};

/// Shared receive queues, address handles, windows, extended queues, events, queries.
void install_objects(verbs::Provider& table);
/// The connection manager's part of the table.
void install_connection_manager(verbs::Provider& table);

/// A test with a fake device; at its end nothing may live.
class FakeTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(fake_.live(), ""); }
  verbs::Device open();
  FakeVerbs fake_;
};

/// What a queue pair needs.
struct FakeRig {
  explicit FakeRig(verbs::Device opened);
  verbs::Device device;
  verbs::ProtectionDomain domain;
  verbs::CompletionQueue queue;
  std::vector<std::byte> bytes;
  verbs::MemoryRegion memory;
  [[nodiscard]] verbs::QueuePairBuilder<verbs::Rc> builder() const {
    return {domain, queue, queue};
  }
  [[nodiscard]] verbs::QueuePair<verbs::Rc> connected() const {
    auto prepared = builder().send_sge(2).receive_sge(2).inline_bytes(32).build().value();
    const auto self = prepared.endpoint();
    return std::move(prepared).connect(self).value();
  }
};

inline FakeVerbs& fake() { return FakeVerbs::current(); }

}  // namespace remora::test
