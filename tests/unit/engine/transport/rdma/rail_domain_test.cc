/// The client's memory on two devices at once: one token, and a key on each.

#include "transport/rdma/rail_domain.h"

#include <array>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

/// Of no account: the devices are not iWARP.
const verbs::Address server_of_rails = verbs::Address::parse("192.0.2.1", 7471).value();

class RailDomainTest : public test::FakeTest {
 protected:
  void SetUp() override {
    fake_.play(*test::find_device_profile("mlx5"));  // each registration has a key of its own
    fake_.others.emplace_back("fake1");
    rails_ = RailDomain::of_process().value();
  }
  void TearDown() override {
    rails_.reset();
    FakeTest::TearDown();
  }
  verbs::Device open(std::size_t index) {
    const auto list = verbs::devices(fake_.provider()).value();
    return list[index].open().value();
  }
  std::shared_ptr<ClientDomain> domain_of(const verbs::Device& device) {
    return ClientDomain::of(device, server_of_rails).value();
  }
  [[nodiscard]] std::uint32_t key(const Registration& memory, std::size_t column) const {
    return RkeyTable::key_of(rails_->keys()->of_lane(column), memory.local_key());
  }

  std::shared_ptr<RailDomain> rails_;
  std::array<std::byte, 4096> bytes_{};
  std::array<std::byte, 64> more_{};
};

TEST_F(RailDomainTest, MemoryHasOneTokenAndAKeyOnEachDevice) {
  const auto first = domain_of(open(0));
  const auto second = domain_of(open(1));
  ASSERT_EQ(rails_->add(first).value(), 0U);
  ASSERT_EQ(rails_->add(second).value(), 1U);
  EXPECT_EQ(rails_->add(first).value(), 0U) << "once more";
  const auto memory = rails_->register_bytes(bytes_).value();
  EXPECT_NE(key(*memory, 0), RkeyTable::kNoKey);
  EXPECT_NE(key(*memory, 1), RkeyTable::kNoKey);
  EXPECT_NE(key(*memory, 0), key(*memory, 1));
  EXPECT_EQ(fake_.registered.size(), 2U);
  EXPECT_EQ(RailDomain::of_process().value(), rails_) << "one in the process";
}

TEST_F(RailDomainTest, DeviceThatComesLaterGetsWhatIsRegistered) {
  const auto first = domain_of(open(0));
  ASSERT_OK(rails_->add(first));
  const auto memory = rails_->register_bytes(bytes_).value();
  EXPECT_EQ(key(*memory, 1), RkeyTable::kNoKey);
  const auto second = domain_of(open(1));
  ASSERT_OK(rails_->add(second));
  EXPECT_NE(key(*memory, 1), RkeyTable::kNoKey);
}

TEST_F(RailDomainTest, DeviceThatGoesAndReturnsHasOtherKeysUnderTheSameTokens) {
  const auto first = domain_of(open(0));
  ASSERT_OK(rails_->add(first));
  std::shared_ptr<ClientDomain> second;
  {
    const verbs::Device device = open(1);
    second = domain_of(device);
    ASSERT_OK(rails_->add(second));
    device.mark_gone();
  }
  const auto before = rails_->register_bytes(bytes_).value();
  const std::uint32_t token = before->local_key();
  rails_->look();
  const auto meanwhile = rails_->register_bytes(more_).value();
  EXPECT_FALSE(before->lost());
  EXPECT_NE(key(*meanwhile, 0), RkeyTable::kNoKey) << "the other device is there";
  const verbs::Device returned = open(1);
  ASSERT_EQ(domain_of(returned), second);
  ASSERT_EQ(rails_->add(second).value(), 1U);
  EXPECT_EQ(before->local_key(), token);
  EXPECT_NE(key(*before, 1), RkeyTable::kNoKey);
  EXPECT_NE(key(*meanwhile, 1), RkeyTable::kNoKey);
}

TEST_F(RailDomainTest, DeviceThatDoesNotTakeTheMemoryIsNoRail) {
  const auto first = domain_of(open(0));
  ASSERT_OK(rails_->add(first));
  const auto memory = rails_->register_bytes(bytes_).value();
  const auto second = domain_of(open(1));
  fake_.fail("reg_mr", 1, ENOMEM);
  EXPECT_CODE(rails_->add(second), kOutOfMemory);
  EXPECT_EQ(key(*memory, 1), RkeyTable::kNoKey);
  ASSERT_OK(rails_->add(second));
  EXPECT_NE(key(*memory, 1), RkeyTable::kNoKey) << "it is tried again";
}

TEST_F(RailDomainTest, TokensGoBackWithTheMemory) {
  const auto first = domain_of(open(0));
  ASSERT_OK(rails_->add(first));
  const std::size_t used = rails_->keys()->used();
  auto memory = rails_->register_bytes(bytes_).value();
  EXPECT_EQ(rails_->keys()->used(), used + 1);
  memory.reset();
  EXPECT_EQ(rails_->keys()->used(), used);
}

}  // namespace
}  // namespace remora::transport::rdma
