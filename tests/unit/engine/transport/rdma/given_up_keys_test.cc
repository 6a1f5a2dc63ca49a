/// Keys that were given up, on a device that gives a registration the key that was freed last.

#include "transport/rdma/given_up_keys.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <span>
#include <vector>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class RdmaGivenUpKeysTest : public test::FakeTest {
 protected:
  static constexpr verbs::Access kAccess =
      verbs::Access::kLocalWrite | verbs::Access::kRemoteRead | verbs::Access::kRemoteWrite;

  void SetUp() override { fake_.play(*test::find_device_profile("mlx5")); }
  void TearDown() override {
    aside_.clear();
    FakeTest::TearDown();
  }
  [[nodiscard]] std::span<std::byte> bytes() { return bytes_; }
  [[nodiscard]] std::uint64_t address() const {
    return reinterpret_cast<std::uintptr_t>(bytes_.data());
  }
  /// Gives up `count` keys of `bytes`, which differ.
  void give_up(const verbs::ProtectionDomain& domain, std::size_t count) {
    std::vector<verbs::MemoryRegion> held;
    for (std::size_t i = 0; i < count; ++i)
      held.push_back(domain.register_bytes(bytes(), kAccess).value());
    for (const verbs::MemoryRegion& each : held) keys_.add(each);
  }
  [[nodiscard]] int made() const { return static_cast<int>(fake_.registered.size()); }
  [[nodiscard]] int live() const { return made() - fake_.uses("dereg_mr"); }

  GivenUpKeys keys_;
  std::vector<verbs::MemoryRegion> aside_;  ///< whose keys had returned
  std::array<std::byte, 4096> bytes_{};
};

TEST_F(RdmaGivenUpKeysTest, KeysReturnUpToTheLimitWhileTheAddressStays) {
  const auto domain = open().allocate_domain().value();
  give_up(domain, GivenUpKeys::kMaxAside);
  const int before = made();
  {
    const auto again = keys_.register_again(domain, bytes(), address(), kAccess, aside_);
    ASSERT_OK(again);
    EXPECT_EQ(again->address(), address());
    EXPECT_FALSE(keys_.reaches(*again));
    EXPECT_EQ(made(), before + static_cast<int>(GivenUpKeys::kMaxAside) + 1);
    EXPECT_EQ(aside_.size(), GivenUpKeys::kMaxAside);
    aside_.clear();
    EXPECT_EQ(live(), 1) << "registrations whose keys had returned are not kept";
  }
  EXPECT_EQ(live(), 0);
}

TEST_F(RdmaGivenUpKeysTest, MoreKeysThanTheLimitAreAnError) {
  const auto domain = open().allocate_domain().value();
  give_up(domain, GivenUpKeys::kMaxAside + 1);
  const int before = made();
  EXPECT_CODE(keys_.register_again(domain, bytes(), address(), kAccess, aside_), kProvider);
  EXPECT_EQ(made(), before + static_cast<int>(GivenUpKeys::kMaxAside) + 1);
  aside_.clear();
  EXPECT_EQ(live(), 0);
}

TEST_F(RdmaGivenUpKeysTest, KeysOfAnotherAddressAreUsedAtOnce) {
  const auto domain = open().allocate_domain().value();
  give_up(domain, 3);
  const std::uint64_t moved = address() + (std::uint64_t{1} << 48U);
  const int before = made();
  const auto again = keys_.register_again(domain, bytes(), moved, kAccess, aside_);
  ASSERT_OK(again);
  EXPECT_EQ(again->address(), moved);
  EXPECT_EQ(made(), before + 1);
}

TEST_F(RdmaGivenUpKeysTest, RefusedRegistrationLeavesNoneBehind) {
  const auto domain = open().allocate_domain().value();
  give_up(domain, 3);
  fake_.fail("reg_mr", 3, ENOMEM);
  EXPECT_FALSE(keys_.register_again(domain, bytes(), address(), kAccess, aside_));
  aside_.clear();
  EXPECT_EQ(live(), 0);
}

}  // namespace
}  // namespace remora::transport::rdma
