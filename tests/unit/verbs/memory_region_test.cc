#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Access;

class RegisterBytes : public FakeTest {
 protected:
  void SetUp() override { domain_ = open().allocate_domain().value(); }
  void TearDown() override {
    domain_ = {};
    FakeTest::TearDown();
  }
  verbs::ProtectionDomain domain_;
  std::vector<std::byte> bytes_ = std::vector<std::byte>(8192);
};

TEST_F(RegisterBytes, EmptySpanIsInvalid) {
  EXPECT_CODE(domain_.register_bytes({}, Access::kLocalWrite), kInvalidArgument);
  EXPECT_EQ(fake_.uses("reg_mr"), 0);
}

TEST_F(RegisterBytes, WrappingRangeIsInvalid) {
  const std::span<std::byte> wrapping{bytes_.data(), SIZE_MAX - 1};
  EXPECT_CODE(domain_.register_bytes(wrapping, Access::kLocalWrite), kInvalidArgument);
}

TEST_F(RegisterBytes, RemoteWriteWithoutLocalWriteIsInvalid) {
  EXPECT_CODE(domain_.register_bytes(bytes_, Access::kRemoteWrite), kInvalidArgument);
  EXPECT_CODE(domain_.register_bytes(bytes_, Access::kRemoteAtomic), kInvalidArgument);
  ASSERT_OK(domain_.register_bytes(bytes_, Access::kRemoteRead));
}

TEST_F(RegisterBytes, EmptyDomainIsInvalid) {
  EXPECT_CODE(verbs::MemoryRegion::register_bytes({}, bytes_, Access::kNone), kInvalidArgument);
}

TEST_F(RegisterBytes, LongerThanTheDeviceAllowsIsTold) {
  fake_.attributes.max_mr_size = 4096;
  const auto domain = open().allocate_domain().value();
  const auto region = domain.register_bytes(bytes_, Access::kNone);
  EXPECT_CODE(region, kLimitExceeded);
  EXPECT_EQ(region.error().asked(), 8192U);
  EXPECT_EQ(region.error().allowed(), 4096U);
}

TEST_F(RegisterBytes, SmallMemlockLimitIsNamed) {
  fake_.memlock = {.limit_bytes = 10000, .pinned_bytes = 4000, .exempt = false};
  for (const int number : {ENOMEM, EPERM}) {
    fake_.fail("reg_mr", 1, number);
    const auto region = domain_.register_bytes(bytes_, Access::kNone);
    EXPECT_CODE(region, kOutOfMemory);
    EXPECT_EQ(region.error().reason(), Reason::kMemlock);
    EXPECT_EQ(region.error().asked(), 8192U);
    EXPECT_EQ(region.error().allowed(), 6000U);
    EXPECT_EQ(region.error().system_errno(), number);
  }
}

TEST_F(RegisterBytes, FullHostIsNotBlamedOnMemlock) {
  for (const verbs::MemlockState& state :
       {verbs::MemlockState{100, 0, true}, verbs::MemlockState{1 << 20, 0, false},
        verbs::MemlockState{UINT64_MAX, 0, false}}) {
    fake_.memlock = state;
    fake_.fail("reg_mr", 1, ENOMEM);
    const auto region = domain_.register_bytes(bytes_, Access::kNone);
    EXPECT_CODE(region, kOutOfMemory);
    EXPECT_EQ(region.error().reason(), Reason::kNone);
  }
}

TEST_F(RegisterBytes, OtherFailuresKeepTheirErrno) {
  fake_.fail("reg_mr", 1, EFAULT);
  const auto region = domain_.register_bytes(bytes_, Access::kNone);
  EXPECT_CODE(region, kProvider);
  EXPECT_EQ(region.error().system_errno(), EFAULT);
  EXPECT_EQ(region.error().operation(), "ibv_reg_mr");
}

TEST_F(RegisterBytes, SlicesHaveItsKeysAndBounds) {
  const auto region = domain_.register_bytes(bytes_, Access::kLocalWrite).value();
  const auto local = region.slice(100, 50);
  EXPECT_EQ(local.address(), region.address() + 100);
  EXPECT_EQ(local.lkey(), region.lkey());
  EXPECT_EQ(region.remote(100, 50).rkey(), region.rkey());
  EXPECT_FALSE(region.slice(8190, 3).valid());
  EXPECT_FALSE(region.remote(8190, 3).valid());
  const auto checked = region.checked_slice(8190, 3);
  EXPECT_CODE(checked, kOutOfRange);
  EXPECT_EQ(checked.error().asked(), 3U);
  EXPECT_EQ(checked.error().allowed(), 2U);
}

TEST_F(RegisterBytes, DeregisterTellsItsFailure) {
  auto region = domain_.register_bytes(bytes_, Access::kNone).value();
  fake_.fail("dereg_mr", 1, EBUSY);
  const Status done = std::move(region).deregister();
  EXPECT_CODE(done, kProvider);
  EXPECT_EQ(done.error().system_errno(), EBUSY);
  // NOLINTNEXTLINE(bugprone-use-after-move): what it answers then is the point.
  EXPECT_CODE(std::move(region).deregister(), kClosed);
}

TEST_F(RegisterBytes, AllocationOfTheDomainMayFail) {
  const auto device = open();
  fake_.fail("alloc_pd", 1, ENOMEM);
  EXPECT_CODE(device.allocate_domain(), kOutOfMemory);
  EXPECT_CODE(verbs::ProtectionDomain::allocate({}), kInvalidArgument);
}

}  // namespace
}  // namespace remora::test
