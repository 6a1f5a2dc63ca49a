#include "fake_verbs.h"

namespace remora::test {
namespace {

std::string g_reported;

void remember(const Error& error) noexcept { g_reported = error.operation(); }

class TeardownTest : public FakeTest {
 protected:
  void SetUp() override {
    g_reported.clear();
    before_ = verbs::set_teardown_failure_handler(&remember);
  }
  void TearDown() override {
    verbs::set_teardown_failure_handler(before_);
    FakeTest::TearDown();
  }
  verbs::TeardownFailureHandler before_ = nullptr;
};

TEST_F(TeardownTest, FailedDestructorIsCountedAndReported) {
  for (const auto& [call, name] :
       {std::pair{"destroy_qp", "ibv_destroy_qp"}, std::pair{"dereg_mr", "ibv_dereg_mr"},
        std::pair{"destroy_cq", "ibv_destroy_cq"}, std::pair{"dealloc_pd", "ibv_dealloc_pd"},
        std::pair{"destroy_comp_channel", "ibv_destroy_comp_channel"},
        std::pair{"close_device", "ibv_close_device"}}) {
    const auto count = verbs::teardown_failure_count();
    {
      const FakeRig rig{open()};
      const auto pair = rig.connected();
      fake_.fail(call, 1, EBUSY);
    }
    EXPECT_EQ(verbs::teardown_failure_count(), count + 1) << call;
    EXPECT_EQ(g_reported, name);
  }
}

TEST_F(TeardownTest, WithoutAHandlerItIsOnlyCounted) {
  verbs::set_teardown_failure_handler(nullptr);
  const auto count = verbs::teardown_failure_count();
  {
    const auto device = open();
    fake_.fail("close_device");
  }
  EXPECT_EQ(verbs::teardown_failure_count(), count + 1);
}

// The fake notes every parent destroyed before its child.
TEST_F(TeardownTest, ParentsMayGoFirst) {
  std::optional<FakeRig> rig{open()};
  const auto pair = rig->connected();
  auto device = std::move(rig->device);
  device = {};
  rig->domain = {};
  rig->queue = {};
  EXPECT_NE(fake_.live(), "");
  rig.reset();
}

TEST_F(TeardownTest, MoveAssignmentOfEveryChildIsSafe) {
  auto first = std::make_unique<FakeRig>(open());
  auto second = std::make_unique<FakeRig>(open());
  auto pair = first->connected();
  auto other_pair = second->connected();
  first->queue = {};
  first->domain = {};
  first->device = {};
  first->memory = std::move(second->memory);  // the old region is the last of its domain but one
  pair = std::move(other_pair);               // the old pair is the last of its domain and queue
  second.reset();
  EXPECT_TRUE(pair.query_state().ok());
}

TEST_F(TeardownTest, HandlesMayBeReassignedWhileChildrenLive) {
  FakeRig rig{open()};
  const auto pair = rig.connected();
  rig.device = open();
  rig.domain = rig.device.allocate_domain().value();
  rig.queue = rig.device.create_completion_queue({.depth = 8}).value();
  EXPECT_TRUE(pair.query_state().ok());
}

}  // namespace
}  // namespace remora::test
