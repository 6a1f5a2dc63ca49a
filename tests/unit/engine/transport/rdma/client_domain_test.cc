/// The client's memory on a device that goes and returns.

#include "transport/rdma/client_domain.h"

#include <array>
#include <cstddef>
#include <gtest/gtest.h>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

/// Of no account: the device is not iWARP.
const verbs::Address kServer = verbs::Address::parse("192.0.2.1", 7471).value();

class ClientDomainTest : public test::FakeTest {
 protected:
  std::array<std::byte, 4096> bytes_{};
  std::array<std::byte, 64> more_{};
};

TEST_F(ClientDomainTest, RegistrationsGoWithTheDeviceAndReturnWithIt) {
  std::shared_ptr<ClientDomain> domain;
  std::unique_ptr<Registration> memory;
  {
    const verbs::Device device = open();
    domain = ClientDomain::of(device, kServer).value();
    memory = domain->register_bytes(bytes_).value();
    EXPECT_FALSE(memory->lost());
    EXPECT_EQ(ClientDomain::of(device, kServer).value(), domain);
    device.mark_gone();
    domain->look();
  }
  EXPECT_TRUE(memory->lost());
  EXPECT_TRUE(domain->domain().empty());
  EXPECT_CODE(domain->register_bytes(more_), kConnectionLost);
  EXPECT_EQ(domain->make_cache({.bytes_max = 1 << 20}), nullptr);
  fake_.registered.clear();
  const verbs::Device returned = open();
  EXPECT_EQ(ClientDomain::of(returned, kServer).value(), domain) << "of the same name";
  EXPECT_FALSE(memory->lost());
  ASSERT_EQ(fake_.registered.size(), 1U);
  EXPECT_EQ(fake_.registered.front().iova, reinterpret_cast<std::uintptr_t>(bytes_.data()));
  ASSERT_OK(domain->register_bytes(more_));
}

TEST_F(ClientDomainTest, MemoryThatCannotBeRegisteredAgainIsLost) {
  verbs::Device device = open();
  const auto domain = ClientDomain::of(device, kServer).value();
  const auto first = domain->register_bytes(bytes_).value();
  const auto second = domain->register_bytes(more_).value();
  device.mark_gone();
  device = open();
  fake_.fail("reg_mr", 1, ENOMEM);
  EXPECT_EQ(ClientDomain::of(device, kServer).value(), domain) << "returned before it was missed";
  EXPECT_TRUE(first->lost());
  EXPECT_FALSE(second->lost());
}

TEST_F(ClientDomainTest, MemoryThatIsReleasedMeanwhileIsNotRegisteredAgain) {
  verbs::Device device = open();
  const auto domain = ClientDomain::of(device, kServer).value();
  auto memory = domain->register_bytes(bytes_).value();
  device.mark_gone();
  domain->look();
  memory.reset();
  fake_.registered.clear();
  device = open();
  ASSERT_OK(ClientDomain::of(device, kServer));
  EXPECT_TRUE(fake_.registered.empty());
}

}  // namespace
}  // namespace remora::transport::rdma
