/// What FakeVerbs does under the profile of a NIC.

#include "device_profiles.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <vector>

#include "fake_verbs.h"

namespace remora::test {
namespace {

class DeviceProfileTest : public FakeTest {
 protected:
  void play(std::string_view name) { fake_.play(*find_device_profile(name)); }
  /// The error of a queue pair of that size; 0: it is made.
  static int refusal(const FakeRig& rig, std::uint32_t depth, std::uint32_t inline_bytes) {
    const auto pair = rig.builder().send_depth(depth).inline_bytes(inline_bytes).create();
    return pair.ok() ? 0 : pair.error().system_errno();
  }
  /// Registers the rig's bytes for a moment; its key.
  static std::uint32_t key_of_a_registration(FakeRig& rig) {
    return rig.domain.register_bytes(rig.bytes, verbs::Access::kRemoteRead).value().rkey();
  }
  /// Three writes, of which the last is signaled and the second refused; what completes.
  std::vector<std::pair<std::uint64_t, int>> reported() {
    FakeRig rig{open()};
    auto pair = rig.connected();
    fake_.refused_id = 2;
    auto batch = pair.start();
    for (const std::uint64_t id : {1U, 2U, 3U}) {
      auto request = batch.write(id, rig.memory.slice(0, 8), rig.memory.remote(64, 8));
      if (id != 3) request.unsignaled();
    }
    EXPECT_TRUE(batch.post());
    std::vector<std::pair<std::uint64_t, int>> all;
    for (const ibv_wc& each : fake_.completions) all.emplace_back(each.wr_id, each.status);
    fake_.completions.clear();
    return all;
  }
};

using Reported = std::vector<std::pair<std::uint64_t, int>>;

TEST_F(DeviceProfileTest, EachHasAName) {
  for (const DeviceProfile& each : device_profiles())
    EXPECT_EQ(find_device_profile(each.name), &each) << each.name;
  EXPECT_EQ(find_device_profile("fake0"), nullptr);
}

TEST_F(DeviceProfileTest, InlineRoomCostsDepthOnMlx5) {
  play("mlx5");
  const FakeRig rig{open()};
  EXPECT_EQ(refusal(rig, 4096, 220), 0);
  EXPECT_EQ(refusal(rig, 8192, 220), EINVAL);
  EXPECT_EQ(refusal(rig, 8192, 0), 0);
  EXPECT_EQ(refusal(rig, 16'384, 0), EINVAL) << "below max_qp_wr, which does not say so";
}

TEST_F(DeviceProfileTest, KeyThatWasFreedLastReturnsOnMlx5) {
  play("mlx5");
  FakeRig rig{open()};
  const std::uint32_t first = key_of_a_registration(rig);
  EXPECT_EQ(key_of_a_registration(rig), first);
  play("rxe");
  EXPECT_NE(key_of_a_registration(rig), first);
}

TEST_F(DeviceProfileTest, ErrorIsReportedOfItsRequestOrOfTheOldest) {
  play("mlx5");
  EXPECT_EQ(reported(), (Reported{{2, IBV_WC_REM_ACCESS_ERR}, {3, IBV_WC_WR_FLUSH_ERR}}));
  play("bnxt_re");
  EXPECT_EQ(
      reported(),
      (Reported{{1, IBV_WC_REM_ACCESS_ERR}, {2, IBV_WC_WR_FLUSH_ERR}, {3, IBV_WC_WR_FLUSH_ERR}}));
}

TEST_F(DeviceProfileTest, AtomicAccessEndsAtRtrWithoutAtomics) {
  play("mlx5-no-atomics");
  const FakeRig rig{open()};
  const auto up = [&](verbs::Access access) {
    auto prepared = rig.builder().access(access).build().value();
    const auto self = prepared.endpoint();
    const auto pair = std::move(prepared).connect(self);
    return pair.ok() ? 0 : pair.error().system_errno();
  };
  EXPECT_EQ(up(verbs::Access::kLocalWrite | verbs::Access::kRemoteAtomic), EOPNOTSUPP);
  EXPECT_EQ(up(verbs::Access::kLocalWrite | verbs::Access::kRemoteWrite), 0);
}

TEST_F(DeviceProfileTest, WindowsMayBeToldOfAndMissing) {
  play("bnxt_re-no-windows");
  FakeRig rig{open()};
  EXPECT_TRUE(rig.device.attributes().memory_window_type_2);
  const auto pair = rig.builder().create().value();
  const auto window = pair.allocate_window();
  ASSERT_FALSE(window.ok());
  EXPECT_EQ(window.error().system_errno(), EOPNOTSUPP);
}

TEST_F(DeviceProfileTest, EfaHasNoReliableConnections) {
  play("efa");
  const FakeRig rig{open()};
  EXPECT_EQ(refusal(rig, 16, 0), EOPNOTSUPP);
  EXPECT_FALSE(verbs::connection_manager_devices(fake_.table).ok());
}

TEST_F(DeviceProfileTest, IrdmaIsIwarp) {
  play("irdma");
  const verbs::Device device = open();
  EXPECT_TRUE(device.is_iwarp());
  EXPECT_EQ(device.attributes().atomics, verbs::AtomicSupport::kNone);
}

TEST_F(DeviceProfileTest, WindowsCostACommandEachOnMlx5) {
  play("mlx5");
  FakeRig rig{open()};
  const auto pair = rig.builder().create().value();
  fake_.commands = 0;
  const auto first = pair.allocate_window();
  const auto second = pair.allocate_window();
  EXPECT_EQ(fake_.commands.load(), 2);
}

}  // namespace
}  // namespace remora::test
