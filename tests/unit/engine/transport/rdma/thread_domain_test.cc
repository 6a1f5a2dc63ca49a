/// Lanes have a thread domain each, where the device has such domains.

#include "transport/rdma/thread_domain.h"

#include <gtest/gtest.h>
#include <optional>
#include <string_view>
#include <utility>

#include "transport/rdma/lane.h"
#include "transport/rdma/local_access.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class ThreadDomainTest : public test::FakeTest {
 protected:
  /// Two lanes with queue pairs in thread_domain() of one domain.
  void open_two(std::string_view profile) {
    fake_.play(*test::find_device_profile(profile));
    test::FakeRig rig{open()};
    std::optional<verbs::QueuePair<verbs::Rc>> first{pair_in(rig)};
    std::optional<verbs::QueuePair<verbs::Rc>> second{pair_in(rig)};
    own_ = !(first->domain() == second->domain());
    EXPECT_EQ(first->domain().base(), rig.domain);
    fake_.registered.clear();
    const auto lane =
        make_lane({.pair = &*first, .to_error = [] {}, .destroy = [] {}}, rig.queue, 1U << 20U, 16);
    ASSERT_OK(lane);
    EXPECT_FALSE(fake_.registered.empty()) << "with the domain that the thread domain is of";
  }
  static verbs::QueuePair<verbs::Rc> pair_in(const test::FakeRig& rig) {
    verbs::QueuePairBuilder<verbs::Rc> builder{thread_domain(rig.domain), rig.queue, rig.queue};
    auto prepared = builder.build().value();
    const auto self = prepared.endpoint();
    return std::move(prepared).connect(self).value();
  }
  bool own_ = false;
};

TEST_F(ThreadDomainTest, EachLaneHasOneOnADeviceThatHasThem) {
  open_two("mlx5");
  EXPECT_TRUE(own_);
  EXPECT_EQ(fake_.uses("alloc_td"), 2);
  EXPECT_EQ(fake_.uses("alloc_parent_domain"), 2);
  EXPECT_EQ(fake_.uses("dealloc_td"), 2);
}

TEST_F(ThreadDomainTest, ElseLanesShareTheDomain) {
  open_two("rxe");
  EXPECT_FALSE(own_);
  EXPECT_EQ(fake_.uses("alloc_parent_domain"), 0);
}

}  // namespace
}  // namespace remora::transport::rdma
