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
    EXPECT_EQ(region.error().subject(), "fake0: 4000 bytes are pinned, the limit is 10000");
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

TEST_F(RegisterBytes, OnDemandPagingThatTheDeviceLacksIsUnsupported) {
  fake_.on_demand_paging = false;
  fake_.fail("reg_mr", 1, EINVAL);
  const auto region = domain_.register_bytes(bytes_, Access::kOnDemand);
  EXPECT_CODE(region, kUnsupported);
  EXPECT_EQ(region.error().subject(), "fake0");
  EXPECT_EQ(region.error().system_errno(), EINVAL);
  fake_.fail("reg_mr", 1, EINVAL);  // for another reason
  EXPECT_CODE(domain_.register_bytes(bytes_, Access::kLocalWrite), kProvider);
  fake_.on_demand_paging = true;
  fake_.fail("reg_mr", 1, EINVAL);
  EXPECT_CODE(domain_.register_bytes(bytes_, Access::kOnDemand), kProvider);
  fake_.fail("reg_mr", 1, EINVAL);
  fake_.fail("query_device_ex", 1, EIO);  // then it cannot be told
  EXPECT_CODE(domain_.register_bytes(bytes_, Access::kOnDemand), kProvider);
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

TEST_F(RegisterBytes, OwnedContainerLivesWithTheRegion) {
  std::vector<std::uint32_t> numbers(100, 7);
  const auto* const where = numbers.data();
  auto region =
      verbs::MemoryRegion::register_owned(domain_, std::move(numbers), Access::kLocalWrite);
  ASSERT_OK(region);
  EXPECT_EQ(region->length_bytes(), 400U);
  EXPECT_EQ(static_cast<const void*>(region->bytes().data()), where);
  EXPECT_EQ(std::to_integer<int>(region->bytes()[0]), 7);
}

TEST_F(RegisterBytes, OwnedBytesAreKeptWhenTheyCannotBeReleased) {
  auto region =
      verbs::MemoryRegion::register_owned(domain_, std::vector<std::byte>(64), Access::kLocalWrite)
          .value();
  const auto bytes = region.bytes();
  fake_.fail("dereg_mr", 1, EIO);
  EXPECT_CODE(std::move(region).deregister(), kProvider);
  bytes[0] = std::byte{1};  // still ours: a sanitizer would tell
  EXPECT_EQ(bytes[0], std::byte{1});
}

TEST_F(RegisterBytes, AllocatedBytesAreZeroAndAligned) {
  const auto region = verbs::MemoryRegion::allocate(domain_, 5000, Access::kLocalWrite);
  ASSERT_OK(region);
  EXPECT_EQ(region->length_bytes(), 5000U);
  EXPECT_EQ(region->address() % 4096, 0U);
  for (const std::byte byte : region->bytes()) ASSERT_EQ(byte, std::byte{0});
  EXPECT_CODE(verbs::MemoryRegion::allocate(domain_, 0, Access::kNone), kInvalidArgument);
  EXPECT_CODE(verbs::MemoryRegion::allocate(domain_, std::size_t{2} << 30, Access::kNone),
              kLimitExceeded);
}

TEST_F(RegisterBytes, EveryRightReachesTheDevice) {
  const std::array<std::pair<Access, std::uint32_t>, 9> rights{{
      {Access::kLocalWrite, IBV_ACCESS_LOCAL_WRITE},
      {Access::kRemoteWrite, IBV_ACCESS_REMOTE_WRITE},
      {Access::kRemoteRead, IBV_ACCESS_REMOTE_READ},
      {Access::kRemoteAtomic, IBV_ACCESS_REMOTE_ATOMIC},
      {Access::kWindowBind, IBV_ACCESS_MW_BIND},
      {Access::kZeroBased, IBV_ACCESS_ZERO_BASED},
      {Access::kOnDemand, IBV_ACCESS_ON_DEMAND},
      {Access::kHugePages, IBV_ACCESS_HUGETLB},
      {Access::kRelaxedOrdering, IBV_ACCESS_RELAXED_ORDERING},
  }};
  alignas(4096) static std::array<std::byte, 4096> page{};
  const auto address = reinterpret_cast<std::uintptr_t>(page.data());
  const auto expect_last = [&](std::uint64_t iova, std::uint32_t access) {
    ASSERT_FALSE(fake_.registered.empty());
    EXPECT_EQ(fake_.registered.back().iova, iova);
    EXPECT_EQ(fake_.registered.back().access, access);
  };
  for (const auto& [right, flag] : rights) {
    SCOPED_TRACE(to_string(right));
    const Access asked = Access::kLocalWrite | right;
    const std::uint32_t expected = flag | IBV_ACCESS_LOCAL_WRITE;
    const auto region = domain_.register_bytes(page, asked);
    ASSERT_OK(region);
    EXPECT_EQ(region->access(), asked);
    expect_last(right == Access::kZeroBased ? 0 : address, expected);
    ASSERT_OK(verbs::MemoryRegion::register_at(domain_, page, 0x4000'0000, asked));
    expect_last(0x4000'0000, expected);
    ASSERT_OK(verbs::MemoryRegion::register_dmabuf(domain_, 3, 0, 4096, 0x8000, asked));
    expect_last(0x8000, expected);
    ASSERT_OK(verbs::MemoryRegion::allocate(domain_, 4096, asked));
    EXPECT_EQ(fake_.registered.back().access, expected);
  }
  ASSERT_OK(domain_.register_bytes(page, Access::kNone));
  expect_last(address, 0);
}

TEST_F(RegisterBytes, SlicesBeginAtTheChosenAddress) {
  const auto in_page = reinterpret_cast<std::uintptr_t>(bytes_.data()) % 4096;
  const std::uint64_t iova = 0x10'0000 + in_page;
  const auto region = verbs::MemoryRegion::register_at(domain_, bytes_, iova, Access::kLocalWrite);
  ASSERT_OK(region);
  EXPECT_EQ(region->slice(8, 8).address(), iova + 8);
  EXPECT_EQ(region->remote(16, 8).address(), iova + 16);
  EXPECT_EQ(region->bytes().data(), bytes_.data());
  EXPECT_CODE(verbs::MemoryRegion::register_at(domain_, bytes_, iova + 1, Access::kNone),
              kInvalidArgument);
  EXPECT_CODE(verbs::MemoryRegion::register_at(domain_, bytes_, UINT64_MAX - 4096, Access::kNone),
              kInvalidArgument);
}

TEST_F(RegisterBytes, ZeroBasedBytesBeginAtAPage) {
  alignas(4096) static std::array<std::byte, 4096> page{};
  const auto region = domain_.register_bytes(page, Access::kLocalWrite | Access::kZeroBased);
  ASSERT_OK(region);
  EXPECT_EQ(region->address(), 0U);
  EXPECT_EQ(region->slice(64, 8).address(), 64U);
  EXPECT_CODE(domain_.register_bytes(std::span{page}.subspan(8), Access::kZeroBased),
              kInvalidArgument);
}

TEST_F(RegisterBytes, DmabufHasNoBytesOfOurs) {
  const auto region =
      verbs::MemoryRegion::register_dmabuf(domain_, 3, 4096, 8192, 0, Access::kLocalWrite);
  ASSERT_OK(region);
  EXPECT_TRUE(region->bytes().empty());
  EXPECT_EQ(region->length_bytes(), 8192U);
  EXPECT_CODE(verbs::MemoryRegion::register_dmabuf(domain_, -1, 0, 1, 0, Access::kNone),
              kInvalidArgument);
  EXPECT_CODE(verbs::MemoryRegion::register_dmabuf(domain_, 3, 0, 0, 0, Access::kNone),
              kInvalidArgument);
  fake_.fail("reg_dmabuf_mr", 1, EOPNOTSUPP);
  EXPECT_CODE(verbs::MemoryRegion::register_dmabuf(domain_, 3, 0, 1, 0, Access::kNone),
              kUnsupported);
  fake_.fail("reg_dmabuf_mr", 1, EINVAL);  // of something else
  const auto other = verbs::MemoryRegion::register_dmabuf(domain_, 3, 0, 1, 0, Access::kNone);
  EXPECT_CODE(other, kProvider);
  EXPECT_EQ(other.error().system_errno(), EINVAL);
}

TEST_F(RegisterBytes, AdoptedRegionIsDeregistered) {
  ibv_mr* const raw = fake_.make_region(domain_.raw(), bytes_.data(), bytes_.size());
  {
    const auto region = verbs::MemoryRegion::adopt(domain_, raw, Access::kNone);
    ASSERT_OK(region);
    EXPECT_EQ(region->raw(), raw);
  }
  EXPECT_EQ(fake_.uses("dereg_mr"), 1);
  EXPECT_CODE(verbs::MemoryRegion::adopt(domain_, nullptr, Access::kNone), kInvalidArgument);
}

TEST_F(RegisterBytes, AdviceReachesTheDevice) {
  const auto region = domain_.register_bytes(bytes_, Access::kLocalWrite).value();
  const std::array<verbs::LocalSlice, 2> ranges{region.slice(0, 64), region.slice(64, 64)};
  ASSERT_OK(verbs::MemoryRegion::advise(domain_, verbs::Advice::kPrefetchWrite, ranges, true));
  EXPECT_EQ(fake_.advised.advice, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE);
  EXPECT_EQ(fake_.advised.flags, IBV_ADVISE_MR_FLAG_FLUSH);
  EXPECT_EQ(fake_.advised.count, 2U);
  EXPECT_CODE(verbs::MemoryRegion::advise(domain_, verbs::Advice::kPrefetch, {}), kInvalidArgument);
  const std::array<verbs::LocalSlice, 1> bad{region.slice(0, 1 << 20)};
  EXPECT_CODE(verbs::MemoryRegion::advise(domain_, verbs::Advice::kPrefetch, bad),
              kInvalidArgument);
  fake_.fail("advise_mr", 1, EOPNOTSUPP);
  EXPECT_CODE(verbs::MemoryRegion::advise(domain_, verbs::Advice::kPrefetch, ranges), kUnsupported);
}

}  // namespace
}  // namespace remora::test
