/// The client's memory on a device that goes, and returns or is replaced by another one.

#include "transport/rdma/client_domain.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include <remora/engine/log.h>

#include "support/eventually.h"
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

TEST_F(ClientDomainTest, DeviceIsGivenBackWhenNothingOfItIsLeft) {
  std::atomic<int> told{0};
  set_log_sink([&](const LogLine& line) { told += line.event == "device.given_back" ? 1 : 0; },
               LogLevel::kInfo);
  verbs::Device device = open();
  const auto domain = ClientDomain::of(device, kServer).value();
  const auto memory = domain->register_bytes(bytes_).value();
  device.mark_gone();
  domain->look();
  domain->look();
  EXPECT_TRUE(flush_log_sink(std::chrono::seconds{30}));
  EXPECT_EQ(told.load(), 0) << "a handle is left";
  device = {};
  EXPECT_TRUE(test::eventually([&] {
    domain->look();
    return flush_log_sink(std::chrono::seconds{30}) && told.load() == 1;
  }));
  domain->look();
  EXPECT_TRUE(flush_log_sink(std::chrono::seconds{30}));
  EXPECT_EQ(told.load(), 1) << "once";
  set_log_sink({});
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

/// The second device of the host.
verbs::Device open_second(const test::FakeVerbs& fake) {
  return verbs::devices(fake.provider()).value()[1].open().value();
}

class ClientDomainMoveTest : public ClientDomainTest,
                             public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    fake_.play(*test::find_device_profile(GetParam()));
    fake_.others.emplace_back("fake1");
  }
};

TEST_P(ClientDomainMoveTest, RegistrationsFollowToAnotherDeviceOnceTheirsHasGone) {
  const verbs::Device first = open();
  const verbs::Device second = open_second(fake_);
  const auto domain = ClientDomain::of(first, kServer, ClientDomain::Moves::kYes).value();
  const auto memory = domain->register_bytes(bytes_).value();
  EXPECT_FALSE(domain->may_move_now());
  EXPECT_CODE(domain->move_to(second), kConnectionLost);  // its device is there
  EXPECT_FALSE(memory->lost());

  first.mark_gone();
  domain->look();
  EXPECT_TRUE(domain->may_move_now());
  EXPECT_TRUE(memory->lost());
  fake_.registered.clear();
  ASSERT_OK(domain->move_to(second));
  EXPECT_EQ(domain->device(), "fake1");
  EXPECT_TRUE(domain->domain().device() == second);
  EXPECT_FALSE(domain->may_move_now());
  EXPECT_FALSE(memory->lost());
  ASSERT_EQ(fake_.registered.size(), 1U);
  EXPECT_EQ(fake_.registered.front().iova, reinterpret_cast<std::uintptr_t>(bytes_.data()));
  ASSERT_OK(domain->register_bytes(more_));
  ASSERT_OK(domain->move_to(second));  // of the other sessions: nothing is registered again
  EXPECT_EQ(fake_.registered.size(), 2U);
}

/// Sessions that begin on the device that has returned must not get memory of the other one.
TEST_P(ClientDomainMoveTest, DeviceThatReturnsAfterTheMoveHasADomainOfItsOwn) {
  const verbs::Device first = open();
  const verbs::Device second = open_second(fake_);
  const auto domain = ClientDomain::of(first, kServer, ClientDomain::Moves::kYes).value();
  first.mark_gone();
  domain->look();
  ASSERT_OK(domain->move_to(second));
  EXPECT_EQ(ClientDomain::of(second, kServer, ClientDomain::Moves::kYes).value(), domain);
  const verbs::Device returned = open();
  const auto other = ClientDomain::of(returned, kServer, ClientDomain::Moves::kYes).value();
  EXPECT_NE(other, domain);
  EXPECT_EQ(other->device(), "fake0");
  EXPECT_EQ(domain->device(), "fake1");
}

/// A device was named for it, or it is one of several rails.
TEST_P(ClientDomainMoveTest, MemoryOfSessionsThatStayWaitsForItsDevice) {
  verbs::Device first = open();
  const verbs::Device second = open_second(fake_);
  const auto moving = ClientDomain::of(first, kServer, ClientDomain::Moves::kYes).value();
  const auto staying = ClientDomain::of(first, kServer).value();
  EXPECT_NE(staying, moving) << "the memory of the others may move";
  const auto memory = staying->register_bytes(bytes_).value();
  first.mark_gone();
  staying->look();
  EXPECT_FALSE(staying->may_move_now());
  EXPECT_CODE(staying->move_to(second), kUnsupported);
  EXPECT_TRUE(memory->lost());
  first = open();
  ASSERT_OK(staying->move_to(first));  // its own
  EXPECT_FALSE(memory->lost());
}

INSTANTIATE_TEST_SUITE_P(Profiles, ClientDomainMoveTest,
                         testing::Values("mlx5", "mlx5-no-atomics", "bnxt_re", "rxe"),
                         [](const auto& tested) {
                           std::string name{tested.param};
                           std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
                           return name;
                         });

/// Its registrations have another right, for one server.
TEST_F(ClientDomainTest, MemoryOfAnIwarpDeviceNeverMoves) {
  fake_.play(*test::find_device_profile("irdma"));
  fake_.others.emplace_back("fake1");
  const verbs::Device first = open();
  const auto domain = ClientDomain::of(first, kServer, ClientDomain::Moves::kYes).value();
  first.mark_gone();
  domain->look();
  EXPECT_FALSE(domain->may_move_now());
  EXPECT_CODE(domain->move_to(open_second(fake_)), kUnsupported);
}

}  // namespace
}  // namespace remora::transport::rdma
