/// Grants as registrations, and lanes, on devices with habits.

#include "transport/rdma/server_endpoint.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/rdma/completion_vector.h"
#include "unit/engine/transport/rdma/endpoint_fixture.h"

namespace remora::transport::rdma {
namespace {

class RdmaServerEndpointTest : public test::RdmaEndpointFixture {
 protected:
  /// Opens and gives up what `rounds` say, one after the other: no key of before reaches anything.
  void expect_no_return(RdmaServerEndpoint& endpoint, std::vector<WireExtent>& before,
                        std::uint64_t offset, std::uint64_t length) {
    auto made = grant(endpoint, offset, length);
    ASSERT_OK(made);
    for (const WireExtent& each : before) EXPECT_FALSE(reaches(each, made->extents[0]));
    before.push_back(made->extents[0]);
    EXPECT_TRUE(made->handle->revoke());
  }
};

/// A thread of the client that was stopped between its check and its post sends the old key when
/// the session has been fenced and has opened the region again.
TEST_F(RdmaServerEndpointTest, KeyOfAFencedGrantDoesNotReachTheNextOne) {
  play("mlx5");
  auto endpoint = connect();
  std::vector<WireExtent> before;
  for (int round = 0; round < 20; ++round) expect_no_return(*endpoint, before, 0, 4096);
  EXPECT_LE(fake_.uses("reg_mr") + fake_.uses("reg_mr_iova"), 2 * 20 + 1) << "one more each";
}

TEST_F(RdmaServerEndpointTest, NorDoesItReachOtherMemoryAtItsAddress) {
  play("mlx5");
  auto endpoint = connect();
  std::vector<WireExtent> before;
  for (const auto& [offset, length] : {std::pair{0U, 8192U}, std::pair{4096U, 8192U},
                                       std::pair{8192U, 4096U}, std::pair{0U, 16'384U}})
    expect_no_return(*endpoint, before, offset, length);
}

TEST_F(RdmaServerEndpointTest, SessionThatResumesRemembersItsKeys) {
  play("mlx5");
  auto first = connect();
  auto next = connect();
  std::vector<WireExtent> before;
  expect_no_return(*first, before, 0, 4096);
  first->shutdown();
  ASSERT_OK(next->take_over(*first));
  expect_no_return(*next, before, 0, 4096);
}

TEST_F(RdmaServerEndpointTest, ChannelsUseOneVectorAfterTheOther) {
  play("mlx5");
  std::vector<std::unique_ptr<RdmaServerEndpoint>> endpoints;
  for (int i = 0; i < 16; ++i) endpoints.push_back(connect());
  std::map<std::uint32_t, int> used;
  for (std::size_t i = 1; i < fake_.queues.size(); i += 2) ++used[fake_.queues[i].vector];
  ASSERT_EQ(used.size(), 8U) << "each of the device's vectors";
  for (const auto& [vector, count] : used) EXPECT_EQ(count, 2) << vector;
}

TEST(CompletionVector, ProcessorsOfAListAreCounted) {
  EXPECT_EQ(count_processors("0-3,8,10-11"), 7U);
  EXPECT_EQ(count_processors("5"), 1U);
  for (const char* const other : {"", "a", "3-1", "1,,2", "1-"})
    EXPECT_EQ(count_processors(other), 0U) << other;
}

TEST_F(RdmaServerEndpointTest, DeviceWithoutAtomicsServesLanesThatHaveNoRightToThem) {
  play("mlx5-no-atomics");
  auto endpoint = connect();
  auto made = grant(*endpoint);
  ASSERT_OK(made);
  EXPECT_EQ(fake_.registered.back().access & IBV_ACCESS_REMOTE_ATOMIC, 0U);
  auto listener = listen();
  auto request = next_request(listener);
  ASSERT_OK(endpoint->add_lane(request, 0));
  made->handle.reset();
  *made = {};
  endpoint.reset();
  reaper_.reset();  // the lanes go before their listener
}

/// Its session's grants may then count as ended only when it is destroyed.
TEST_F(RdmaServerEndpointTest, LaneThatCannotBeMovedToItsErrorStateMayServeUntilItIsDestroyed) {
  play("mlx5");
  auto endpoint = connect();
  auto listener = listen();
  auto request = next_request(listener);
  ASSERT_OK(endpoint->add_lane(request, 0));
  EXPECT_FALSE(endpoint->lanes_may_serve());
  fake_.fail("modify_qp");
  endpoint->shutdown();
  EXPECT_TRUE(endpoint->lanes_may_serve());
  endpoint->destroy_lanes();
  endpoint->await_destroyed();
  endpoint.reset();
  reaper_.reset();  // the lanes go before their listener
}

/// Control channels of all clients share a domain, so nothing in it may be reached remotely.
TEST_F(RdmaServerEndpointTest, ChannelsHaveNoRemoteRights) {
  play("mlx5");
  const auto endpoint = connect();
  ASSERT_EQ(fake_.registered.size(), 1U);
  EXPECT_EQ(fake_.registered[0].access, static_cast<std::uint32_t>(IBV_ACCESS_LOCAL_WRITE));
  int made = 0;
  for (const auto& [attributes, mask] : fake_.modified) {
    if (attributes.qp_state != IBV_QPS_INIT) continue;
    ++made;
    EXPECT_EQ(attributes.qp_access_flags, 0U) << mask;
  }
  EXPECT_EQ(made, 1);
}

/// Each session's first lane or grant allocates its domain, and the other one uses it.
TEST_F(RdmaServerEndpointTest, SessionsThatProveNothingHaveDomainsOfTheirOwn) {
  play("mlx5");
  reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
  auto listener = listen();
  std::vector<std::unique_ptr<RdmaServerEndpoint>> endpoints;
  for (int i = 0; i < 2; ++i) endpoints.push_back(connect());
  std::vector<Grant> grants;
  const int before = fake_.uses("alloc_pd");
  for (const bool lane_first : {true, false}) {
    RdmaServerEndpoint& endpoint = *endpoints[grants.size()];
    const auto add_lane = [&] {
      auto request = next_request(listener);
      EXPECT_TRUE(endpoint.add_lane(request, 0));
    };
    if (lane_first) add_lane();
    grants.push_back(grant(endpoint).value());
    if (!lane_first) add_lane();
  }
  EXPECT_EQ(fake_.uses("alloc_pd"), before + 2);
  grants.clear();
  endpoints.clear();
  reaper_.reset();  // the lanes go before their listener
}

TEST_F(RdmaServerEndpointTest, SessionThatResumesAllocatesNoDomain) {
  play("mlx5");
  reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
  for (const bool proves_key : {true, false}) {
    SCOPED_TRACE(proves_key);
    auto held = proves_key ? join("cache", 1) : connect();
    const int none = fake_.uses("alloc_pd");
    auto made = grant(*held).value();
    ASSERT_EQ(fake_.uses("alloc_pd"), none + 1);
    const int freed = fake_.uses("dealloc_pd");
    for (int i = 0; i < 3; ++i) {
      auto next = proves_key ? join("cache", 1) : connect();
      const int before = fake_.uses("alloc_pd");
      held->shutdown();
      ASSERT_OK(next->take_over(*held));
      held = std::move(next);
      ASSERT_OK(grant(*held, 4096));
      EXPECT_EQ(fake_.uses("alloc_pd"), before);
    }
    EXPECT_EQ(fake_.uses("dealloc_pd"), freed + 3) << "only those of the former channels";
  }
}

TEST_F(RdmaServerEndpointTest, DomainThatCannotBeAllocatedIsTriedAgain) {
  play("mlx5");
  reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
  auto endpoint = connect();
  auto listener = listen();
  auto refused = next_request(listener);
  fake_.fail("alloc_pd", 1, ENOMEM);
  EXPECT_CODE(endpoint->add_lane(refused, 0), kOutOfMemory);
  EXPECT_TRUE(std::move(refused).reject());
  fake_.fail("alloc_pd", 1, ENOMEM);
  EXPECT_CODE(grant(*endpoint), kOutOfMemory);
  EXPECT_EQ(registrations_->used(), 0U);
  auto request = next_request(listener);
  ASSERT_OK(endpoint->add_lane(request, 0));
  ASSERT_OK(grant(*endpoint));
  endpoint.reset();
  reaper_.reset();  // the lanes go before their listener
}

/// When all clients lose their connections at once, the control thread shuts each session down.
class RdmaShutdownTest : public test::RdmaEndpointFixture {
 protected:
  void SetUp() override {
    play("mlx5");
    reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
    listener_.emplace(listen());
    endpoint_ = connect();
    auto request = next_request(*listener_);
    device_ = request.device();
    ASSERT_OK(endpoint_->add_lane(request, 0));
  }
  void TearDown() override {
    endpoint_.reset();
    device_ = {};
    reaper_.reset();  // the lanes go before their listener
    listener_.reset();
    RdmaEndpointFixture::TearDown();
  }
  /// A receive of the lane has completed in that way.
  void complete(ibv_wc_status status, std::uint64_t id = 0) {
    ibv_wc completion{};
    completion.wr_id = id;
    completion.status = status;
    completion.opcode = IBV_WC_RECV;
    completion.byte_len = kNoticeWireBytes;
    fake_.completions.push_back(completion);
  }
  /// How often shutdown() asks for completions.
  [[nodiscard]] int polls_of_shutdown() {
    const int before = fake_.uses("poll_cq");
    endpoint_->shutdown();
    return fake_.uses("poll_cq") - before;
  }
  [[nodiscard]] std::size_t take_notices() {
    std::array<Notice, kNoticeReceives> notices;
    return endpoint_->take_notices(notices);
  }

  std::optional<verbs::ConnectionListener> listener_;
  std::unique_ptr<RdmaServerEndpoint> endpoint_;
  verbs::Device device_;
};

TEST_F(RdmaShutdownTest, WaitsForNothingWhenTheEndOfTheLaneIsKnown) {
  complete(IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(take_notices(), 0U);  // the control thread learns of the end
  EXPECT_EQ(polls_of_shutdown(), 0);
}

TEST_F(RdmaShutdownTest, TakesAllNoticesBeforeTheFirstReceiveThatFailed) {
  complete(IBV_WC_SUCCESS);
  complete(IBV_WC_SUCCESS);
  complete(IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(polls_of_shutdown(), 3);
  EXPECT_EQ(take_notices(), 2U);
}

TEST_F(RdmaShutdownTest, TakesNothingBehindAReceiveThatIsNotPosted) {
  complete(IBV_WC_SUCCESS);
  complete(IBV_WC_SUCCESS, UINT64_MAX);
  complete(IBV_WC_SUCCESS);
  EXPECT_EQ(polls_of_shutdown(), 2);
  fake_.completions.clear();
  EXPECT_EQ(take_notices(), 1U);
}

TEST_F(RdmaShutdownTest, NoticeOfAReceiveThatIsNotPostedEndsTheSession) {
  complete(IBV_WC_SUCCESS, kNoticeReceives);
  EXPECT_EQ(take_notices(), 0U);
  const auto received = endpoint_->receive();
  ASSERT_FALSE(received.ok());
  EXPECT_EQ(received.error().code(), Code::kProvider) << received.error();
  EXPECT_NE(received.error().subject().find("request 32, which is not posted"),
            std::string_view::npos)
      << received.error();
}

TEST_F(RdmaShutdownTest, TakesWhatADeviceThatHasGoneHasCompletedAndWaitsForNothing) {
  complete(IBV_WC_SUCCESS);
  device_.mark_gone();
  EXPECT_EQ(polls_of_shutdown(), 2);
  EXPECT_EQ(take_notices(), 1U);
}

}  // namespace
}  // namespace remora::transport::rdma
