/// Grants that are registrations, when their device goes and returns: the client must find each
/// extent at the address that it has, and no key of before may reach it.

#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <utility>
#include <vector>

#include "transport/rdma/server_endpoint.h"
#include "unit/engine/transport/rdma/endpoint_fixture.h"

namespace remora::transport::rdma {
namespace {

/// The device gives a registration the key that was freed last, also after it has returned.
class RdmaReturnedDeviceTest : public test::RdmaEndpointFixture {
 protected:
  struct Held {
    std::unique_ptr<RdmaServerEndpoint> endpoint;
    Grant grant;
    std::vector<WireExtent> before{};  ///< of the grant, when the device went
  };
  void SetUp() override {
    play("mlx5");
    reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
  }
  /// Of a session whose client renews its keys.
  std::unique_ptr<RdmaServerEndpoint> session(bool proves_key = true) {
    auto endpoint = proves_key ? join("cache", 1) : connect();
    EXPECT_NE(endpoint->use_lane_keys(), nullptr);
    return endpoint;
  }
  void open_and_close(RdmaServerEndpoint& endpoint, int times) {
    for (int i = 0; i < times; ++i) {
      auto made = grant(endpoint).value();
      given_up_.push_back(made.extents[0]);
      EXPECT_TRUE(made.handle->revoke());
    }
  }
  void device_goes(std::vector<Held*> sessions) {
    verbs::connection_manager_devices(fake_.provider()).value().front().mark_gone();
    fake_.device_count = 0;
    for (Held* const held : sessions) {
      held->before = held->grant.extents;
      given_up_.insert(given_up_.end(), held->before.begin(), held->before.end());
      held->grant.handle->leave_device();
      held->endpoint->leave_device();
    }
    fake_.device_count = 1;
  }
  /// As a client resumes its session, and asks for the keys of its grant.
  void resume(Held& held, bool proves_key = true) {
    auto next = session(proves_key);
    ASSERT_OK(next->take_over(*held.endpoint));
    held.endpoint = std::move(next);
    auto* const renewal = held.endpoint->use_lane_keys();
    EXPECT_TRUE(renewal->registers_again(held.grant));
    ASSERT_OK(renewal->renew(held.grant));
    EXPECT_FALSE(renewal->registers_again(held.grant));
    ASSERT_EQ(held.grant.extents.size(), held.before.size());
    for (std::size_t i = 0; i < held.before.size(); ++i) {
      const WireExtent& now = held.grant.extents[i];
      EXPECT_EQ(now.remote_address, held.before[i].remote_address) << "extent " << i;
      EXPECT_EQ(now.length_bytes, held.before[i].length_bytes) << "extent " << i;
      for (const WireExtent& each : given_up_) EXPECT_FALSE(reaches(each, now)) << "extent " << i;
    }
  }
  [[nodiscard]] int registrations_now() const { return registered() - fake_.uses("dereg_mr"); }
  [[nodiscard]] std::uint64_t plain_address() const {
    return reinterpret_cast<std::uintptr_t>(memory_.data());
  }
  void end(std::vector<Held*> sessions) {
    for (Held* const held : sessions) held->grant = {};
    EXPECT_EQ(registrations_->used(), 0U);
    for (Held* const held : sessions) held->endpoint.reset();
    reaper_.reset();
  }

  std::vector<WireExtent> given_up_;  ///< extents that were a client's and no longer are
};

TEST_F(RdmaReturnedDeviceTest, GrantThatHadBeenMovedReturnsToTheAddressThatItHad) {
  for (const bool proves_key : {true, false}) {
    SCOPED_TRACE(proves_key);
    given_up_.clear();
    Held held{session(proves_key), {}};
    open_and_close(*held.endpoint, 1);
    held.grant = grant(*held.endpoint).value();
    ASSERT_NE(held.grant.extents[0].remote_address, plain_address()) << "its key had returned";
    for (int life = 0; life < 4; ++life) {
      device_goes({&held});
      resume(held, proves_key);
    }
    held.grant = {};
    held.endpoint.reset();
  }
  EXPECT_EQ(registrations_->used(), 0U);
  reaper_.reset();
}

TEST_F(RdmaReturnedDeviceTest, GrantWhoseKeyReturnsKeepsItsAddressAndGetsAnotherKey) {
  const int none = registrations_now();
  Held held{session(), {}};
  const int of_channel = registrations_now() - none;
  held.grant = grant(*held.endpoint).value();
  ASSERT_EQ(held.grant.extents[0].remote_address, plain_address());
  for (int life = 0; life < 8; ++life) {
    device_goes({&held});
    const int before = registrations_now();
    resume(held);
    EXPECT_EQ(registrations_now(), before + 1 + of_channel)
        << "a registration whose key had returned is not kept";
  }
  end({&held});
}

TEST_F(RdmaReturnedDeviceTest, SessionsOfOneClientReturnToOneRegistration) {
  Held first{session(), {}}, second{session(), {}};
  open_and_close(*first.endpoint, 1);
  first.grant = grant(*first.endpoint).value();
  second.grant = grant(*second.endpoint).value();
  ASSERT_NE(first.grant.extents[0].remote_address, plain_address());
  for (int life = 0; life < 3; ++life) {
    device_goes({&first, &second});
    resume(first);
    resume(second);
    EXPECT_EQ(first.grant.extents[0].remote_key, second.grant.extents[0].remote_key);
    EXPECT_EQ(registrations_->used(), 1U);
  }
  // A region that one session opens again meanwhile is the same registration, too.
  Grant again = grant(*second.endpoint).value();
  EXPECT_EQ(again.extents[0].remote_key, first.grant.extents[0].remote_key);
  EXPECT_EQ(registrations_->used(), 1U);
  again = {};
  end({&first, &second});
}

/// The keys that one session of the client has given up are those of all.
TEST_F(RdmaReturnedDeviceTest, KeysThatAnotherSessionGaveUpMoveNothing) {
  Held held{session(), {}};
  Held other{session(), {}};
  held.grant = grant(*held.endpoint).value();
  other.grant = grant(*other.endpoint, 0, 4096, Rights::kRead).value();
  for (int life = 0; life < 3; ++life) {
    for (int i = 0; i < 5; ++i) {
      auto made = grant(*other.endpoint, 0, 8192).value();
      given_up_.push_back(made.extents[0]);
      EXPECT_TRUE(made.handle->revoke());
    }
    device_goes({&held, &other});
    resume(other);
    resume(held);
  }
  EXPECT_EQ(registrations_->used(), 2U);
  end({&held, &other});
}

/// A session that opens the region anew on the returned device takes any address, which is not the
/// one of a session that comes back later.
TEST_F(RdmaReturnedDeviceTest, RegionOpenedAnewDoesNotMoveTheGrantsOfBefore) {
  Held first{session(), {}}, second{session(), {}};
  first.grant = grant(*first.endpoint).value();
  second.grant = grant(*second.endpoint).value();
  ASSERT_EQ(first.grant.extents[0].remote_address, plain_address());
  device_goes({&first, &second});
  auto newcomer = session();
  Grant anew = grant(*newcomer).value();
  for (const WireExtent& each : given_up_) EXPECT_FALSE(reaches(each, anew.extents[0]));
  EXPECT_NE(anew.extents[0].remote_address, plain_address()) << "the key has returned";
  resume(first);
  resume(second);
  EXPECT_EQ(first.grant.extents[0].remote_key, second.grant.extents[0].remote_key);
  EXPECT_NE(first.grant.extents[0].remote_key, anew.extents[0].remote_key);
  EXPECT_EQ(registrations_->used(), 2U);
  anew = {};
  newcomer.reset();
  end({&first, &second});
}

TEST_F(RdmaReturnedDeviceTest, EachExtentReturnsToItsAddress) {
  const std::vector<MemoryStretch> stretches{{memory_.data(), 4096}, {memory_.data() + 8192, 8192}};
  Held held{session(), {}};
  open_and_close(*held.endpoint, 1);
  held.grant = held.endpoint->grant({.extents = stretches, .rights = Rights::kAll}).value();
  ASSERT_NE(held.grant.extents[0].remote_address, plain_address());
  ASSERT_EQ(held.grant.extents[1].remote_address, plain_address() + 8192)
      << "that one has not moved";
  for (int life = 0; life < 3; ++life) {
    device_goes({&held});
    resume(held);
  }
  end({&held});
}

/// The grant alone ends then: its session goes on.
TEST_F(RdmaReturnedDeviceTest, GrantEndsWhenMoreKeysReturnThanTheServerKeepsAside) {
  constexpr std::size_t kGivenUp = GivenUpKeys::kMaxAside + 20;
  Held held{session(), {}};
  std::vector<Grant> many;
  for (std::size_t i = 0; i < kGivenUp; ++i)
    many.push_back(grant(*held.endpoint, 0, 4096, Rights::kAll, i + 1).value());
  held.grant = grant(*held.endpoint).value();
  Grant other = grant(*held.endpoint, 8192).value();
  // The device gives the keys of `many` before that of `other`.
  other.handle->leave_device();
  for (Grant& each : many) EXPECT_TRUE(each.handle->revoke());
  many.clear();
  device_goes({&held});
  auto next = session();
  ASSERT_OK(next->take_over(*held.endpoint));
  held.endpoint = std::move(next);
  const int before = registrations_now();
  EXPECT_CODE(held.endpoint->use_lane_keys()->renew(held.grant), kProvider);
  EXPECT_EQ(registrations_now(), before);
  EXPECT_EQ(held.grant.extents[0].remote_address, plain_address());
  ASSERT_OK(held.endpoint->use_lane_keys()->renew(other));
  EXPECT_EQ(other.extents[0].remote_address, plain_address() + 8192);
  other = {};
  end({&held});
}

}  // namespace
}  // namespace remora::transport::rdma
