/// What a chain asks of the queue pair, seen by a provider that does nothing.

#include "transport/rdma/lane.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>
#include <optional>
#include <poll.h>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>

#include "transport/rdma/wire.h"
#include "transport/rkey_table.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport {
namespace {

constexpr std::uint32_t kDepth = 64;

std::vector<bool> g_signaled;             // of the chain posted last
std::vector<std::uint64_t> g_ready;       // completions to be polled
ibv_wc_status g_status = IBV_WC_SUCCESS;  // of them

int post_send(ibv_qp* /*pair*/, ibv_send_wr* chain, ibv_send_wr** /*bad*/) {
  g_signaled.clear();
  for (; chain != nullptr; chain = chain->next)
    g_signaled.push_back((chain->send_flags & IBV_SEND_SIGNALED) != 0);
  return 0;
}

int poll_cq(ibv_cq* /*queue*/, int count, ibv_wc* completions) {
  int found = 0;
  for (; found < count && !g_ready.empty(); ++found) {
    completions[found].wr_id = g_ready.front();
    completions[found].status = g_status;
    completions[found].vendor_err = g_status == IBV_WC_SUCCESS ? 0 : 7;
    g_ready.erase(g_ready.begin());
  }
  return found;
}

class RdmaLaneTest : public ::testing::Test {
 protected:
  void SetUp() override {
    g_status = IBV_WC_SUCCESS;
    fake_.table.post_send = &post_send;
    fake_.table.poll_cq = &poll_cq;
    rig_.emplace(verbs::devices(fake_.table).value().begin()->open().value());
    pair_.emplace(rig_->connected());
    lane_ = rdma::make_lane({.pair = &*pair_, .to_error = [] {}, .destroy = [] {}}, rig_->queue,
                            1U << 20U, kDepth)
                .value();
  }
  /// The places, in a chain of `count`, of the requests that are signaled.
  std::vector<std::size_t> post(std::size_t count) {
    std::vector<WorkRequest> requests(count);
    std::vector<const WorkRequest*> chain;
    chain.reserve(count);
    for (const WorkRequest& request : requests) chain.push_back(&request);
    EXPECT_EQ(lane_->post(chain, next_).taken, count);
    next_ += count;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < g_signaled.size(); ++i)
      if (g_signaled[i]) places.push_back(i);
    return places;
  }
  void complete_all() {
    g_ready = {next_ - 1};
    std::array<LaneCompletion, 4> found{};
    ASSERT_EQ(lane_->poll(found), 1U);
  }

  test::FakeVerbs fake_;
  std::optional<test::FakeRig> rig_;
  std::optional<verbs::QueuePair<verbs::Rc>> pair_;
  std::unique_ptr<Lane> lane_;
  std::uint64_t next_ = 0;
};

using Places = std::vector<std::size_t>;

/// What a provider says of a request that it refuses.
enum class Says { kNothing, kNull, kTheRequest };
Says g_says = Says::kNothing;
int refuse_send(ibv_qp* /*pair*/, ibv_send_wr* chain, ibv_send_wr** bad) {
  if (g_says != Says::kNothing) *bad = g_says == Says::kNull ? nullptr : chain;
  return ENOMEM;
}

TEST_F(RdmaLaneTest, RefusedRequestMayHaveGoneUnlessTheProviderNamesIt) {
  fake_.table.post_send = &refuse_send;
  pair_.emplace(rig_->connected());
  auto lane = rdma::make_lane({.pair = &*pair_, .to_error = [] {}, .destroy = [] {}}, rig_->queue,
                              1U << 20U, kDepth)
                  .value();
  const WorkRequest request{};
  for (const std::size_t length : {1U, 3U}) {
    const std::vector<const WorkRequest*> chain(length, &request);
    for (const auto& [says, taken] :
         {std::pair{Says::kNothing, length}, std::pair{Says::kNull, length},
          std::pair{Says::kTheRequest, std::size_t{0}}}) {
      g_says = says;
      const PostOutcome outcome = lane->post(chain, 0);
      EXPECT_EQ(outcome.taken, taken) << "of " << length;
      EXPECT_EQ(outcome.error, ENOMEM);
    }
  }
}

TEST_F(RdmaLaneTest, ShortChainOnAnEmptyQueueHasOneCompletion) { EXPECT_EQ(post(8), (Places{7})); }

TEST_F(RdmaLaneTest, LongChainIsSignaledEveryQuarterOfTheDepth) {
  EXPECT_EQ(post(40), (Places{15, 31, 39}));
}

TEST_F(RdmaLaneTest, QueueThatFillsUpIsSignaledMoreOften) {
  EXPECT_EQ(post(48).back(), 47U);
  EXPECT_EQ(post(8), (Places{7})) << "half of 16";
  EXPECT_EQ(post(8), (Places{3, 7})) << "half of 8";
  complete_all();
  EXPECT_EQ(post(16), (Places{15})) << "there is room again";
}

TEST_F(RdmaLaneTest, SignaledRequestsAreTold) {
  const WorkRequest request{};
  for (const std::size_t length : {40U, 1U, 7U}) {
    const std::vector<const WorkRequest*> chain(length, &request);
    const PostOutcome outcome = lane_->post(chain, next_);
    ASSERT_EQ(outcome.taken, length);
    next_ += length;
    EXPECT_EQ((length > 1 ? lane_->signaled_within() : 0) + 1,
              static_cast<std::size_t>(std::count(g_signaled.begin(), g_signaled.end(), true)));
  }
}

TEST_F(RdmaLaneTest, InlineWritesAndNoticesAreCounted) {
  const auto registry = metrics::Registry::create().value();
  const metrics::Counter counter = registry->counter("test_inline_total", "Inline.").value();
  const metrics::OwnedCells cells = registry->own_cells();
  const std::uint32_t most = lane_->limits().inline_bytes_max;
  ASSERT_GE(most, 32U);
  std::vector<std::byte> bytes(most + 1);
  const auto post_write = [&](std::uint32_t length, Opcode opcode) {
    const WorkRequest request{.local = bytes.data(), .length_bytes = length, .opcode = opcode};
    const WorkRequest* const chain[] = {&request};
    ASSERT_EQ(lane_->post(chain, next_++).taken, 1U);
  };
  post_write(most, Opcode::kWrite);  // there is no counter yet
  lane_->count_inline(cells.recorder(), counter);
  post_write(most, Opcode::kWrite);
  post_write(most + 1, Opcode::kWrite);
  post_write(8, Opcode::kRead);
  EXPECT_EQ(registry->value(counter), 1U);
  const Notice notice{};
  const WorkRequest notify = WorkRequest::notify(notice);
  const WorkRequest* const chain[] = {&notify};
  ASSERT_EQ(lane_->post(chain, next_++).taken, 1U);
  EXPECT_EQ(registry->value(counter), 2U);
}

/// The memory of a device that has gone is deregistered at once, also under posted requests.
TEST_F(RdmaLaneTest, WantOfMemoryIsNoFaultOfTheRequestOnceTheDeviceHasGone) {
  const auto status_of = [&](ibv_wc_status status) {
    post(1);
    g_ready = {next_ - 1};
    g_status = status;
    std::array<LaneCompletion, 1> found{};
    EXPECT_EQ(lane_->poll(found), 1U);
    EXPECT_EQ(found[0].vendor_error, 7U);
    return found[0].status;
  };
  EXPECT_EQ(status_of(IBV_WC_LOC_PROT_ERR), CompletionStatus::kLocalProtectionError);
  rig_->device.mark_gone();
  EXPECT_EQ(status_of(IBV_WC_LOC_PROT_ERR), CompletionStatus::kFlushed);
  EXPECT_EQ(status_of(IBV_WC_LOC_ACCESS_ERR), CompletionStatus::kFlushed);
  EXPECT_EQ(status_of(IBV_WC_LOC_LEN_ERR), CompletionStatus::kLocalLengthError) << "its own fault";
  EXPECT_EQ(status_of(IBV_WC_REM_ACCESS_ERR), CompletionStatus::kRemoteAccessError);
}

TEST_F(RdmaLaneTest, LastPlaceIsSignaled) {
  post(63);
  EXPECT_EQ(post(1), (Places{0}));
}

/// Results of atomics and the byte of a flush are what a read brings.
TEST_F(RdmaLaneTest, ResultsMayBeWrittenByAnIwarpDevice) {
  fake_.play(*test::find_device_profile("irdma"));
  lane_.reset();
  pair_.reset();
  rig_.reset();
  rig_.emplace(verbs::devices(fake_.table).value().begin()->open().value());
  pair_.emplace(rig_->connected());
  fake_.registered.clear();
  lane_ = rdma::make_lane({.pair = &*pair_, .to_error = [] {}, .destroy = [] {}}, rig_->queue,
                          1U << 20U, kDepth)
              .value();
  ASSERT_FALSE(fake_.registered.empty());
  EXPECT_NE(fake_.registered.front().access & IBV_ACCESS_REMOTE_WRITE, 0U);
}

/// A thread that watches the descriptor of a broken lane would not sleep any more.
TEST_F(RdmaLaneTest, ClosedLaneLeavesNoEventBehind) {
  auto queue = rig_->device.create_completion_queue({.depth = 8, .events = true}).value();
  ibv_cq* const raw = queue.raw();
  auto lane =
      rdma::make_lane({.pair = &*pair_, .to_error = [] {}, .destroy = [&] { fake_.raise(raw); }},
                      std::move(queue), 1U << 20U, kDepth)
          .value();
  ASSERT_TRUE(lane->arm());
  lane->close();
  pollfd readable{.fd = lane->event_fd(), .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&readable, 1, 0), 0);
}

struct SentRequest {
  ibv_wr_opcode opcode;
  std::uint32_t rkey;
  std::uint64_t address;
  rdma::NoticeBytes notice;
  std::uint32_t local_key;
};
std::vector<SentRequest> g_sent;  // of the chain posted last

int keep_sent(ibv_qp* /*pair*/, ibv_send_wr* chain, ibv_send_wr** /*bad*/) {
  g_sent.clear();
  for (; chain != nullptr; chain = chain->next) {
    const bool atomic =
        chain->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || chain->opcode == IBV_WR_ATOMIC_CMP_AND_SWP;
    SentRequest sent{.opcode = chain->opcode,
                     .rkey = atomic ? chain->wr.atomic.rkey : chain->wr.rdma.rkey,
                     .address = atomic ? chain->wr.atomic.remote_addr : chain->wr.rdma.remote_addr,
                     .notice = {},
                     .local_key = chain->num_sge != 0 ? chain->sg_list->lkey : 0};
    if (chain->opcode == IBV_WR_SEND)
      // NOLINTNEXTLINE(performance-no-int-to-ptr): what a NIC does with an address
      std::memcpy(sent.notice.data(), reinterpret_cast<const void*>(chain->sg_list->addr),
                  sent.notice.size());
    g_sent.push_back(sent);
  }
  return 0;
}

/// What a lane makes of remote keys.
class RdmaLaneKeysTest : public RdmaLaneTest {
 protected:
  static constexpr std::size_t kNumber = 3;  ///< of the lane
  static constexpr std::array kReaching{Opcode::kRead, Opcode::kWrite, Opcode::kCompareSwap,
                                        Opcode::kFetchAdd, Opcode::kFlush};
  void SetUp() override {
    RdmaLaneTest::SetUp();
    fake_.table.post_send = &keep_sent;
    pair_.emplace(rig_->connected());
    tokens_ = table_->take(2).value();
    for (std::size_t lane = 0; lane < RkeyTable::kMaxLanes; ++lane) {
      table_->set(tokens_[0], lane, static_cast<std::uint32_t>(0x1000 + lane));
      table_->set(tokens_[1], lane, static_cast<std::uint32_t>(0x2000 + lane));
    }
    by_token_ = rdma::make_token_lane({.pair = &*pair_, .to_error = [] {}, .destroy = [] {}},
                                      rig_->queue, 1U << 20U, kDepth, table_, kNumber)
                    .value();
    by_key_ = rdma::make_lane({.pair = &*pair_, .to_error = [] {}, .destroy = [] {}}, rig_->queue,
                              1U << 20U, kDepth)
                  .value();
  }
  [[nodiscard]] WorkRequest request(Opcode opcode, std::uint32_t key) {
    return {.local = bytes_.data(),
            .length_bytes = 8,
            .remote_address = 0x7000,
            .remote_key = key,
            .opcode = opcode};
  }

  std::shared_ptr<RkeyTable> table_ = RkeyTable::create().value();
  std::vector<std::uint32_t> tokens_;
  std::array<std::byte, 8> bytes_{};
  std::unique_ptr<Lane> by_token_;
  std::unique_ptr<Lane> by_key_;
};

TEST_F(RdmaLaneKeysTest, TokensBecomeTheKeysOfTheLaneInEveryRequestThatReachesMemory) {
  for (const Opcode opcode : kReaching) {
    const WorkRequest alone = request(opcode, tokens_[1]);
    const WorkRequest* const one[] = {&alone};
    ASSERT_EQ(by_token_->post(one, next_++).taken, 1U);
    ASSERT_EQ(g_sent.size(), 1U);
    EXPECT_EQ(g_sent[0].rkey, 0x2000 + kNumber) << static_cast<int>(opcode);
    EXPECT_EQ(g_sent[0].address, 0x7000U);
  }
  std::vector<WorkRequest> requests;
  for (const Opcode opcode : kReaching)
    for (const std::uint32_t token : tokens_) requests.push_back(request(opcode, token));
  std::vector<const WorkRequest*> chain;
  chain.reserve(requests.size());
  for (const WorkRequest& each : requests) chain.push_back(&each);
  ASSERT_EQ(by_token_->post(chain, next_).taken, chain.size());
  ASSERT_EQ(g_sent.size(), chain.size());
  for (std::size_t i = 0; i < chain.size(); ++i)
    EXPECT_EQ(g_sent[i].rkey, (i % 2 == 0 ? 0x1000 : 0x2000) + kNumber) << i;
}

TEST_F(RdmaLaneKeysTest, KeyIsThatOfTheMomentOfThePost) {
  const WorkRequest read = request(Opcode::kRead, tokens_[0]);
  const WorkRequest* const chain[] = {&read};
  table_->forget_keys();
  by_token_->post(chain, next_++);
  EXPECT_EQ(g_sent[0].rkey, RkeyTable::kNoKey);
  table_->set(tokens_[0], kNumber, 0x3003);
  by_token_->post(chain, next_++);
  EXPECT_EQ(g_sent[0].rkey, 0x3003U);
}

/// A lane of a session with several devices looks its device's key up, for memory that has one.
TEST_F(RdmaLaneKeysTest, LocalTokensBecomeTheKeysOfTheDevice) {
  constexpr std::size_t kColumn = 1;
  const auto local = RkeyTable::create().value();
  const std::uint32_t token = local->take(1).value().front();
  local->set(token, 0, 0x111);
  local->set(token, kColumn, 0x222);
  auto rail = std::make_shared<LaneRail>();
  rail->device = "fake1";
  auto lane =
      rdma::make_rail_lane(
          {.pair = &*pair_, .to_error = [] {}, .destroy = [] {}}, rig_->queue, 1U << 20U, kDepth,
          {.remote = table_, .lane = kNumber, .local = local, .column = kColumn}, rail)
          .value();
  EXPECT_EQ(lane->rail(), rail);
  EXPECT_EQ(by_token_->rail(), nullptr);
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite}) {
    WorkRequest alone = request(opcode, tokens_[0]);
    alone.local_key = token;
    alone.length_bytes = 4096;  // more than goes inline
    const WorkRequest* const chain[] = {&alone};
    ASSERT_EQ(lane->post(chain, next_++).taken, 1U);
    EXPECT_EQ(g_sent[0].local_key, 0x222U);
    EXPECT_EQ(g_sent[0].rkey, 0x1000 + kNumber);
  }
  WorkRequest atomic = request(Opcode::kFetchAdd, tokens_[0]);
  atomic.local_key = 0xffffffff;  // not used: what stands there must do no harm
  const WorkRequest* const chain[] = {&atomic};
  ASSERT_EQ(lane->post(chain, next_++).taken, 1U);
  EXPECT_NE(g_sent[0].local_key, 0U) << "that of the lane's own memory";
}

TEST_F(RdmaLaneKeysTest, NoticesAreSentWhole) {
  constexpr Notice kNotice{.grant_id = 0x1122334455667788,
                           .offset_bytes = 0x0123456789abcdef,
                           .length_bytes = 0xfedcba9876543210,
                           .tag = 0xfffffffe};
  for (Lane* const lane : {by_token_.get(), by_key_.get()}) {
    const WorkRequest notify = WorkRequest::notify(kNotice);
    const WorkRequest* const chain[] = {&notify};
    ASSERT_EQ(lane->post(chain, next_++).taken, 1U);
    ASSERT_EQ(g_sent[0].opcode, IBV_WR_SEND);
    const Notice sent = rdma::notice_from_wire(g_sent[0].notice);
    EXPECT_EQ(sent.grant_id, kNotice.grant_id);
    EXPECT_EQ(sent.offset_bytes, kNotice.offset_bytes);
    EXPECT_EQ(sent.length_bytes, kNotice.length_bytes);
    EXPECT_EQ(sent.tag, kNotice.tag);
  }
}

TEST_F(RdmaLaneKeysTest, LaneWithoutTokensSendsKeysAsTheyAre) {
  for (const Opcode opcode : kReaching) {
    const WorkRequest alone = request(opcode, tokens_[0]);
    const WorkRequest* const chain[] = {&alone};
    ASSERT_EQ(by_key_->post(chain, next_++).taken, 1U);
    EXPECT_EQ(g_sent[0].rkey, tokens_[0]);
  }
}

}  // namespace
}  // namespace remora::transport
