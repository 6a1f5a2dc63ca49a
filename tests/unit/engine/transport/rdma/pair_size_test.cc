/// Queue pairs of the size that a device gives, and connections that are asked for again.

#include "transport/rdma/pair_size.h"

#include <cerrno>
#include <gtest/gtest.h>
#include <string_view>

#include "transport/rdma/stale_connection.h"
#include "transport/rdma/wire.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class RdmaPairSizeTest : public test::FakeTest {
 protected:
  void play(std::string_view name) { fake_.play(*test::find_device_profile(name)); }
  /// The depth and inline room of what is made.
  std::pair<std::uint32_t, std::uint32_t> create(std::uint32_t depth) {
    const test::FakeRig rig{open()};
    auto builder = rig.builder();
    const auto fits = create_fitting_pair(builder, depth, [&](const auto& asked) {
      const auto pair = asked.create();
      return pair ? Status{} : Status{pair.error()};
    });
    if (!fits) return {0, 0};
    EXPECT_EQ(fake_.pairs.back().cap.max_send_wr, *fits);
    return {*fits, fake_.pairs.back().cap.max_inline_data};
  }
};

using Size = std::pair<std::uint32_t, std::uint32_t>;

TEST_F(RdmaPairSizeTest, DeviceThatGivesItIsAskedOnce) {
  play("mlx5");
  EXPECT_EQ(create(4096), (Size{4096, kInlineBytes}));
  EXPECT_EQ(fake_.uses("create_qp"), 1);
}

TEST_F(RdmaPairSizeTest, InlineRoomGoesBeforeDepth) {
  play("mlx5");
  EXPECT_EQ(create(8192), (Size{8192, 48}));
  play("bnxt_re");
  EXPECT_EQ(create(4096), (Size{4096, 96}));
  play("irdma");
  EXPECT_EQ(create(1024), (Size{1024, 96}));
}

TEST_F(RdmaPairSizeTest, DepthIsHalvedUntilTheDeviceGivesIt) {
  play("mlx5");
  EXPECT_EQ(create(32'768), (Size{8192, 0}));
}

TEST_F(RdmaPairSizeTest, AnotherRefusalIsNotAboutTheSize) {
  play("mlx5");
  fake_.fail("create_qp", 1, EACCES);
  EXPECT_EQ(create(64), (Size{0, 0}));
  EXPECT_EQ(fake_.uses("create_qp"), 1);
}

TEST_F(RdmaPairSizeTest, DeviceThatRefusesEverySizeIsReportedAsFirst) {
  play("efa");  // EOPNOTSUPP
  EXPECT_EQ(create(64), (Size{0, 0}));
  EXPECT_EQ(fake_.uses("create_qp"), 1);
}

/// A connector over the fake's connection manager.
class RdmaStaleConnectionTest : public test::FakeTest {
 protected:
  static Deadline later() { return Clock::now() + std::chrono::seconds{10}; }
  Status connect() {
    const test::FakeRig rig{verbs::Device::borrow(&fake_.cm_context, fake_.table).value()};
    return connect_past_stale(later(), [&](bool& stale) {
      ++attempts_;
      if (attempts_ == rejected_ + 1) fake_.answer = test::FakeVerbs::Answer::kAccept;
      auto connector = verbs::Connector::resolve(verbs::Address::parse("10.0.0.1", 1).value(),
                                                 later(), {}, fake_.table)
                           .value();
      EXPECT_TRUE(connector.create_queue_pair(rig.builder()));
      const auto made = connector.connect(later());
      stale = connector.answer() && connector.answer()->stale();
      return made ? Status{} : Status{made.error()};
    });
  }
  int attempts_ = 0;
  int rejected_ = 1;
};

TEST_F(RdmaStaleConnectionTest, IsAskedForAgain) {
  fake_.answer = test::FakeVerbs::Answer::kReject;
  fake_.reject_status = 10;
  EXPECT_TRUE(connect());
  EXPECT_EQ(attempts_, 2);
}

TEST_F(RdmaStaleConnectionTest, ButNotForEver) {
  fake_.answer = test::FakeVerbs::Answer::kReject;
  fake_.reject_status = 10;
  rejected_ = 100;
  EXPECT_CODE(connect(), kConnectionRefused);
  EXPECT_EQ(attempts_, 4);
}

TEST_F(RdmaStaleConnectionTest, AnotherRejectIsTheAnswer) {
  fake_.answer = test::FakeVerbs::Answer::kReject;
  EXPECT_CODE(connect(), kConnectionRefused);
  EXPECT_EQ(attempts_, 1);
}

}  // namespace
}  // namespace remora::transport::rdma
