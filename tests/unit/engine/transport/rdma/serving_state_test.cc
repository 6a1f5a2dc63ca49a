/// Whether new clients can be served: what the server's own trial says, and when it is believed.

#include "transport/rdma/serving_state.h"

#include <array>
#include <gtest/gtest.h>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class ServingStateTest : public test::FakeTest {
 protected:
  const Error shortage_{Code::kProvider, "rdma_accept"};
};

TEST_F(ServingStateTest, ATrialThatFailsIsTold) {
  const std::array devices{open()};
  ServingState state;
  EXPECT_TRUE(state.check(devices)) << "no client has failed: nothing is tried";
  state.note(shortage_);
  fake_.fail("alloc_pd", 1, ENOMEM);
  EXPECT_FALSE(state.check(devices));
}

TEST_F(ServingStateTest, ErrorsThatClientsMakeAreNoShortage) {
  ServingState state;
  state.note(Error{Code::kProtocol, "connection request that is not ours"});
  EXPECT_TRUE(state.check({})) << "without devices a trial would fail";
}

TEST_F(ServingStateTest, BetweenTwoTrialsTheLastOneCounts) {
  const std::array devices{open()};
  ServingState state;
  state.note(shortage_);
  EXPECT_TRUE(state.check(devices));
  state.note(shortage_);
  EXPECT_TRUE(state.check(devices));
}

}  // namespace
}  // namespace remora::transport::rdma
