/// Windows that a device does not free: their keys work for as long as the lane serves.

#include <array>
#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "transport/rdma/device_budgets.h"
#include "transport/rdma/server_endpoint.h"
#include "transport/rdma/window_grant.h"
#include "unit/engine/transport/rdma/endpoint_fixture.h"

namespace remora::transport::rdma {
namespace {

/// A device that refuses to move a queue pair to its error state.
struct StubbornNic {
  static inline verbs::Provider before{};
  static inline bool refuses = false;
  static int modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
    if (refuses && (mask & IBV_QP_STATE) != 0 && attributes->qp_state == IBV_QPS_ERR) return EIO;
    return before.modify_qp(pair, attributes, mask);
  }
};

class RdmaWindowsLeftTest : public test::RdmaEndpointFixture {
 protected:
  void SetUp() override {
    play("mlx5");
    reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
    StubbornNic::before = fake_.table;
    StubbornNic::refuses = false;
    fake_.table.modify_qp = &StubbornNic::modify_qp;
  }
  void TearDown() override {
    leased_.reset();
    RdmaEndpointFixture::TearDown();
  }
  void lease(const verbs::Device& device) {
    const std::array pieces{MemoryStretch{memory_.data(), memory_.size()}};
    leased_ = LeasedMemory::create(device, pieces, nullptr,
                                   {registrations_->of("fake0", 0), windows_.of("fake0", 0)})
                  .value();
  }
  /// A session whose grants are windows.
  std::unique_ptr<Endpoint> connect_with_windows() {
    auto connector = verbs::Connector::resolve(peer(), later(), {}, fake_.table).value();
    if (leased_ == nullptr) lease(connector.device());
    auto domain = connector.device().allocate_domain().value();
    auto buffers = ControlBuffers::create(domain).value();
    EXPECT_TRUE(connector.create_queue_pair(buffers.builder()));
    auto made = std::make_unique<Endpoint>(
        lanes_, reaper_, domains_, registrations_->of("fake0", 0), leased_, std::move(buffers),
        connector.connect(later()).value(), FdSet::create().value());
    EXPECT_NE(made->use_lane_keys(), nullptr);
    return made;
  }

  WindowBudgets windows_{100};
  std::shared_ptr<const LeasedMemory> leased_;
};

/// A grant with a window on one lane.
class RdmaWindowGrantLeftTest : public RdmaWindowsLeftTest {
 protected:
  void SetUp() override {
    RdmaWindowsLeftTest::SetUp();
    device_ = open();
    lease(device_);
    lane_ = WindowLane::create(device_).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{leased_->domain(), lane_->queue(), lane_->queue()};
    auto prepared = builder.send_depth(WindowLane::kBinds).build().value();
    const auto self = prepared.endpoint();
    pair_ =
        std::make_unique<verbs::QueuePair<verbs::Rc>>(std::move(prepared).connect(self).value());
    lane_->begin(*pair_);
    const std::array extents{MemoryStretch{memory_.data(), 64}};
    grant_ = WindowGrant::create(leased_, {.extents = extents, .rights = Rights::kAll}).value();
  }
  void TearDown() override {
    grant_.reset();
    destroy_lane();
    device_ = {};
    RdmaWindowsLeftTest::TearDown();
  }
  void destroy_lane() {
    if (lane_ != nullptr) lane_->end();
    pair_.reset();
    lane_.reset();
  }
  Status renew() { return grant_->renew({lane_}, extents_, keys_, later()); }
  [[nodiscard]] int broken() const {
    int count = 0;
    for (const auto& [attributes, mask] : fake_.modified)
      count += (mask & IBV_QP_STATE) != 0 && attributes.qp_state == IBV_QPS_ERR ? 1 : 0;
    return count;
  }

  verbs::Device device_;
  std::shared_ptr<WindowLane> lane_;
  std::unique_ptr<verbs::QueuePair<verbs::Rc>> pair_;
  std::unique_ptr<WindowGrant> grant_;
  std::vector<WireExtent> extents_;
  LaneKeys keys_;
};

TEST_F(RdmaWindowGrantLeftTest, WindowThatIsTakenBackNeedsNoEndOfItsLane) {
  ASSERT_OK(renew());
  StubbornNic::refuses = true;
  EXPECT_TRUE(grant_->revoke());
  EXPECT_EQ(broken(), 0);
}

TEST_F(RdmaWindowGrantLeftTest, LaneThatIsInItsErrorStateReachesNothingByAWindowThatIsLeft) {
  ASSERT_OK(renew());
  fake_.fail("dealloc_mw");
  EXPECT_TRUE(grant_->revoke());
  EXPECT_EQ(broken(), 1);
}

TEST_F(RdmaWindowGrantLeftTest, RevocationSaysThatTheLaneServesAWindowThatIsLeft) {
  ASSERT_OK(renew());
  StubbornNic::refuses = true;
  fake_.fail("dealloc_mw");
  const Status left = grant_->revoke();
  EXPECT_CODE(left, kProvider);
  EXPECT_EQ(left.error().system_errno(), EIO);
  EXPECT_CODE(grant_->revoke(), kProvider);  // as long as the lane serves
  StubbornNic::refuses = false;
  EXPECT_TRUE(grant_->revoke());
  EXPECT_EQ(broken(), 1);
}

TEST_F(RdmaWindowGrantLeftTest, WindowThatIsLeftReachesNothingWhenItsLaneIsDestroyed) {
  ASSERT_OK(renew());
  StubbornNic::refuses = true;
  fake_.fail("dealloc_mw");
  EXPECT_CODE(grant_->revoke(), kProvider);
  destroy_lane();
  EXPECT_TRUE(grant_->revoke());
}

TEST_F(RdmaWindowGrantLeftTest, WindowOfADeviceThatHasGoneReachesNothing) {
  ASSERT_OK(renew());
  StubbornNic::refuses = true;
  fake_.fail("dealloc_mw");
  device_.mark_gone();
  EXPECT_TRUE(grant_->revoke());
}

/// The lane has been ended and is not destroyed yet.
TEST_F(RdmaWindowGrantLeftTest, RevocationSaysWhatTheEndOfALaneHasLeft) {
  ASSERT_OK(renew());
  StubbornNic::refuses = true;
  fake_.fail("dealloc_mw");
  lane_->end();
  EXPECT_CODE(grant_->revoke(), kProvider);
  destroy_lane();
  EXPECT_TRUE(grant_->revoke());
}

TEST_F(RdmaWindowGrantLeftTest, LaneThatIsNotRenewedIsAskedAgainByTheRevocation) {
  ASSERT_OK(renew());
  StubbornNic::refuses = true;
  fake_.fail("dealloc_mw");
  ASSERT_OK(grant_->renew({}, extents_, keys_, later()));
  EXPECT_CODE(grant_->revoke(), kProvider);
}

/// It is not known whether the device has bound the window.
TEST_F(RdmaWindowGrantLeftTest, RevocationSaysWhatABindThatFailedHasLeft) {
  StubbornNic::refuses = true;
  fake_.refused_id = 1;
  fake_.refused_status = IBV_WC_MW_BIND_ERR;
  fake_.fail("dealloc_mw");
  EXPECT_CODE(renew(), kProvider);
  EXPECT_CODE(grant_->revoke(), kProvider);
}

TEST_F(RdmaWindowGrantLeftTest, WindowOfABindThatFailedIsTakenBack) {
  StubbornNic::refuses = true;
  fake_.refused_id = 1;
  fake_.refused_status = IBV_WC_MW_BIND_ERR;
  EXPECT_CODE(renew(), kProvider);
  EXPECT_TRUE(grant_->revoke());
}

/// As that of a region with `shm`: it may take long, so that the worker leaves it to other threads.
TEST_F(RdmaWindowsLeftTest, MemoryOutsideThePoolAloneIsRegisteredForAGrant) {
  auto endpoint = connect_with_windows();
  std::vector<std::byte> own(4096);
  const MemoryStretch pooled{memory_.data(), 4096};
  const std::array both{pooled, MemoryStretch{own.data(), own.size()}};
  EXPECT_FALSE(endpoint->registers({.extents = {&pooled, 1}, .rights = Rights::kAll}));
  const GrantRequest request{.extents = both, .rights = Rights::kAll};
  EXPECT_TRUE(endpoint->registers(request));
  const int before = registered();
  auto made = endpoint->grant(request);
  ASSERT_OK(made);
  EXPECT_EQ(registered(), before + 1);
  EXPECT_FALSE(endpoint->use_lane_keys()->registers_again(*made)) << "windows alone are missing";
  EXPECT_TRUE(made->handle->revoke());
  *made = {};
  endpoint.reset();
}

/// What a session does when a grant of it cannot be revoked.
TEST_F(RdmaWindowsLeftTest, SessionThatIsLockedOutLeavesNoLaneThatServes) {
  auto endpoint = connect_with_windows();
  auto listener = listen();
  {
    auto request = next_request(listener);
    ASSERT_OK(endpoint->add_lane(request, 0));
  }
  auto made = grant(*endpoint);
  ASSERT_OK(made);
  StubbornNic::refuses = true;
  fake_.fail("dealloc_mw");
  EXPECT_CODE(made->handle->revoke(), kProvider);
  endpoint->shutdown();
  EXPECT_TRUE(endpoint->lanes_may_serve());
  const int pairs = fake_.uses("destroy_qp");
  endpoint->destroy_lanes();
  endpoint->await_destroyed();
  EXPECT_EQ(fake_.uses("destroy_qp"), pairs + 1);
  EXPECT_TRUE(made->handle->revoke()) << "the key works on no other queue pair";
  *made = {};
  endpoint.reset();
  reaper_.reset();  // the lanes go before their listener
}

/// The session has no grant that could be revoked later.
TEST_F(RdmaWindowsLeftTest, GrantThatIsRefusedAndLeavesAWindowEndsTheLanes) {
  auto endpoint = connect_with_windows();
  auto listener = listen();
  {
    auto request = next_request(listener);
    ASSERT_OK(endpoint->add_lane(request, 0));
  }
  StubbornNic::refuses = true;
  fake_.refused_id = 1;
  fake_.refused_status = IBV_WC_MW_BIND_ERR;
  fake_.fail("dealloc_mw");
  const int pairs = fake_.uses("destroy_qp");
  EXPECT_CODE(grant(*endpoint), kProvider);
  EXPECT_EQ(fake_.uses("destroy_qp"), pairs + 1);
  {
    auto request = next_request(listener);
    EXPECT_CODE(endpoint->add_lane(request, 1), kConnectionLost);
  }
  auto next = connect_with_windows();
  EXPECT_CODE(next->take_over(*endpoint), kUnsupported);
  for (auto* const session : {&endpoint, &next}) session->reset();
  reaper_.reset();  // the lanes go before their listener
}

}  // namespace
}  // namespace remora::transport::rdma
