/// Sessions that prove one key share a protection domain and its registrations.

#include <array>
#include <cerrno>
#include <gtest/gtest.h>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "transport/rdma/grant_domain.h"
#include "transport/rdma/grant_domains.h"
#include "transport/rdma/server_endpoint.h"
#include "unit/engine/transport/rdma/endpoint_fixture.h"

namespace remora::transport::rdma {
namespace {

class RdmaSharedRegistrationsTest : public test::RdmaEndpointFixture {
 protected:
  void SetUp() override { play("mlx5"); }
};

TEST_F(RdmaSharedRegistrationsTest, SessionsOfOneKeyShareOneRegistrationOfARegion) {
  auto first = join("cache", 1);
  auto second = join("cache", 1);
  EXPECT_EQ(domains_->count(), 1U);
  const int before = registered();
  auto one = grant(*first);
  ASSERT_OK(one);
  auto two = grant(*second);
  ASSERT_OK(two);
  EXPECT_EQ(registered(), before + 1);
  EXPECT_EQ(registrations_->used(), 1U);
  EXPECT_EQ(one->extents[0].remote_key, two->extents[0].remote_key);
  EXPECT_EQ(one->extents[0].remote_address, two->extents[0].remote_address);
  const int deregistered = fake_.uses("dereg_mr");
  EXPECT_TRUE(one->handle->revoke());
  *one = {};
  EXPECT_EQ(fake_.uses("dereg_mr"), deregistered) << "the other session holds it";
  EXPECT_EQ(registrations_->used(), 1U);
  EXPECT_TRUE(two->handle->revoke());
  *two = {};
  EXPECT_EQ(fake_.uses("dereg_mr"), deregistered + 1);
  EXPECT_EQ(registrations_->used(), 0U);
  first.reset();
  second.reset();
  EXPECT_EQ(domains_->count(), 0U);
}

TEST_F(RdmaSharedRegistrationsTest, StopOfTheServerEndsARegistrationBetweenTwoExtents) {
  static std::stop_source stop;
  static verbs::Provider before;
  stop = {};
  before = fake_.table;
  auto session = join("cache", 1);
  fake_.table.reg_mr = [](ibv_pd* domain, void* address, std::size_t length, unsigned access) {
    stop.request_stop();
    return before.reg_mr(domain, address, length, access);
  };
  const std::array extents{MemoryStretch{memory_.data(), 4096},
                           MemoryStretch{memory_.data() + 4096, 4096}};
  const int made = registered();
  const int deregistered = fake_.uses("dereg_mr");
  const auto stopped =
      session->grant({.extents = extents, .rights = Rights::kAll, .stop = stop.get_token()});
  EXPECT_CODE(stopped, kCancelled);
  EXPECT_EQ(registered(), made + 1);
  EXPECT_EQ(fake_.uses("dereg_mr"), deregistered + 1);
  EXPECT_EQ(registrations_->used(), 0U);
}

TEST_F(RdmaSharedRegistrationsTest, SessionsOfOtherKeysOrOfNoneShareNothing) {
  std::vector<std::unique_ptr<RdmaServerEndpoint>> sessions;
  sessions.push_back(join("cache", 1));
  sessions.push_back(join("cache", 2));   // the client's other key
  sessions.push_back(join("backup", 1));  // another client
  sessions.push_back(connect());
  sessions.push_back(connect());
  EXPECT_EQ(domains_->count(), 3U);
  const int before = registered();
  std::vector<Grant> grants;
  for (const auto& session : sessions) grants.push_back(grant(*session).value());
  EXPECT_EQ(registered(), before + 5);
  EXPECT_EQ(registrations_->used(), 5U);
  // Each grant of a session without a key has a registration of its own, as its keys are its own.
  grants.push_back(grant(*sessions.back()).value());
  EXPECT_EQ(registrations_->used(), 6U);
  grants.clear();
  EXPECT_EQ(registrations_->used(), 0U);
}

TEST_F(RdmaSharedRegistrationsTest, GrantsOfOtherRightsMemoryOrEpochShareNothing) {
  auto first = join("cache", 1);
  auto second = join("cache", 1);
  std::vector<Grant> grants;
  grants.push_back(grant(*first, 0, 4096, Rights::kRead).value());
  grants.push_back(grant(*second, 0, 4096, Rights::kRead).value());
  EXPECT_EQ(registrations_->used(), 1U);
  grants.push_back(grant(*second, 0, 4096, Rights::kAll).value());
  EXPECT_EQ(registrations_->used(), 2U);
  grants.push_back(grant(*second, 0, 8192, Rights::kRead).value());
  EXPECT_EQ(registrations_->used(), 3U);
  grants.push_back(grant(*second, 0, 4096, Rights::kRead, 1).value());
  EXPECT_EQ(registrations_->used(), 4U);
  grants.clear();
}

/// A fence ends the grants of all sessions. No key of them may name the memory again, whichever
/// session of the client gets the next grant.
TEST_F(RdmaSharedRegistrationsTest, NoKeyOfBeforeAFenceReachesAGrantOfAnySession) {
  auto first = join("cache", 1);
  auto second = join("cache", 1);
  std::vector<WireExtent> before;
  for (std::uint64_t epoch = 0; epoch < 20; ++epoch) {
    auto one = grant(*first, 0, 4096, Rights::kAll, epoch);
    ASSERT_OK(one);
    auto two = grant(*second, 0, 4096, Rights::kAll, epoch);
    ASSERT_OK(two);
    for (const WireExtent& each : before) {
      EXPECT_FALSE(reaches(each, one->extents[0])) << epoch;
      EXPECT_FALSE(reaches(each, two->extents[0])) << epoch;
    }
    before.push_back(one->extents[0]);
    EXPECT_TRUE(one->handle->revoke());
    EXPECT_TRUE(two->handle->revoke());
  }
}

TEST_F(RdmaSharedRegistrationsTest, SessionThatResumesGoesOnWithTheSharedRegistration) {
  auto first = join("cache", 1);
  auto other = join("cache", 1);
  auto one = grant(*first).value();
  auto two = grant(*other).value();
  first->shutdown();
  auto next = join("cache", 1);
  ASSERT_OK(next->take_over(*first));
  first.reset();
  auto again = grant(*next).value();
  EXPECT_EQ(registrations_->used(), 1U);
  EXPECT_EQ(again.extents[0].remote_key, one.extents[0].remote_key);
  one = {};
  two = {};
  again = {};
  EXPECT_EQ(registrations_->used(), 0U);
}

/// The client has changed its key meanwhile: the registrations stay where they are.
TEST_F(RdmaSharedRegistrationsTest, SessionThatResumesByAnotherKeyStaysInItsDomain) {
  auto first = join("cache", 1);
  auto one = grant(*first).value();
  first->shutdown();
  auto next = join("cache", 2);
  ASSERT_OK(next->take_over(*first));
  first.reset();
  auto again = grant(*next).value();
  EXPECT_EQ(registrations_->used(), 1U);
  one = {};
  again = {};
}

/// The key that the device keeps works on the lanes of each session in the domain.
TEST_F(RdmaSharedRegistrationsTest, KeyThatCannotBeTakenBackEndsAllSessionsOfItsDomain) {
  auto first = join("cache", 1);
  auto second = join("cache", 1);
  auto other = join("backup", 3);
  auto one = grant(*first).value();
  fake_.fail("dereg_mr");
  EXPECT_CODE(one.handle->revoke(), kProvider);
  one = {};
  EXPECT_EQ(registrations_->used(), 1U) << "the device keeps it";
  first->end_sharing_sessions();
  auto listener = listen();
  {
    auto request = next_request(listener);
    EXPECT_CODE(second->add_lane(request, 0), kConnectionLost);
    EXPECT_TRUE(other->add_lane(request, 0).ok()) << "it is in another domain";
  }
  // Neither a new session nor a resumed one gets lanes in that domain.
  auto third = join("cache", 1);
  EXPECT_CODE(third->take_over(*second), kUnsupported);
  auto grant_of_third = grant(*third);
  ASSERT_OK(grant_of_third);
  *grant_of_third = {};
  for (auto* const session : {&first, &second, &other, &third}) session->reset();
  reaper_.reset();  // the lanes go before their listener
}

/// No grant holds that key, so that none can be revoked later.
TEST_F(RdmaSharedRegistrationsTest, KeyThatARefusedGrantLeavesEndsAllSessionsOfItsDomain) {
  auto first = join("cache", 1);
  auto second = join("cache", 1);
  const std::array stretches{MemoryStretch{memory_.data(), 4096},
                             MemoryStretch{memory_.data() + 8192, 4096}};
  const GrantRequest request{.extents = stretches, .rights = Rights::kAll};
  fake_.fail("reg_mr", 2, ENOMEM);
  EXPECT_CODE(first->grant(request), kOutOfMemory);
  auto third = join("cache", 1);
  ASSERT_OK(third->take_over(*first));  // the device has taken back what was registered
  fake_.fail("reg_mr", 2, ENOMEM);
  fake_.fail("dereg_mr");
  EXPECT_CODE(first->grant(request), kOutOfMemory);
  EXPECT_EQ(registrations_->used(), 1U) << "the device keeps it";
  auto fourth = join("cache", 1);
  EXPECT_CODE(fourth->take_over(*second), kUnsupported);
  for (auto* const session : {&first, &second, &third, &fourth}) session->reset();
}

TEST_F(RdmaSharedRegistrationsTest, RegisteredBytesAreBoundedOverAllSessionsAndCountedOnce) {
  const auto bytes = registered_bytes_budget(12'288);
  domains_ = std::make_shared<GrantDomains>(registrations_, bytes);
  auto first = join("cache", 1);
  auto second = join("cache", 1);
  auto other = join("backup", 3);
  auto one = grant(*first, 0, 8192).value();
  auto two = grant(*second, 0, 8192).value();
  EXPECT_EQ(bytes->used(), 8192U);
  const int before = registered();
  const auto refused = grant(*other, 0, 8192);
  EXPECT_CODE(refused, kLimitExceeded);
  EXPECT_EQ(refused.error().subject(), "limits.registered_bytes_max");
  EXPECT_EQ(refused.error().asked(), 16'384U);
  EXPECT_EQ(refused.error().allowed(), 12'288U);
  EXPECT_EQ(registered(), before) << "the device is not asked";
  EXPECT_EQ(registrations_->used(), 1U) << "a refusal takes nothing";
  auto less = grant(*other, 0, 4096).value();
  EXPECT_EQ(bytes->used(), 12'288U);
  one = {};
  EXPECT_EQ(bytes->used(), 12'288U) << "the second session holds it";
  two = {};
  EXPECT_EQ(bytes->used(), 4096U);
  less = {};
  EXPECT_EQ(bytes->used(), 0U);
}

/// As the registration threads of a server do it: several register, the worker takes back.
TEST_F(RdmaSharedRegistrationsTest, ThreadsThatOpenAndCloseTheSameRegionsShareThemAndLeaveNothing) {
  constexpr std::size_t kThreads = 4;
  constexpr std::uint64_t kRounds = 200;
  std::vector<std::unique_ptr<RdmaServerEndpoint>> sessions;
  for (std::size_t i = 0; i < kThreads; ++i) sessions.push_back(join("cache", 1));
  const int registered_before = registered(), deregistered_before = fake_.uses("dereg_mr");
  std::vector<std::thread> threads;
  for (const auto& session : sessions)
    threads.emplace_back([this, &endpoint = *session] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        auto one = grant(endpoint, 0, 4096, Rights::kAll, round);
        ASSERT_OK(one);
        auto two = grant(endpoint, 4096 * (1 + round % 2), 4096);
        ASSERT_OK(two);
        EXPECT_NE(one->extents[0].remote_key, two->extents[0].remote_key);
        EXPECT_TRUE(one->handle->revoke());
        EXPECT_TRUE(two->handle->revoke());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(registrations_->used(), 0U);
  EXPECT_EQ(registered() - registered_before, fake_.uses("dereg_mr") - deregistered_before);
}

/// Costs: what the device has to do for a hundred sessions of one client with 64 regions each.
TEST_F(RdmaSharedRegistrationsTest, RegistrationsOfAClientDoNotGrowWithItsSessions) {
  constexpr int kSessions = 100;
  constexpr std::uint64_t kRegions = 64;
  constexpr std::uint64_t kRegionBytes = 256;
  reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
  std::vector<std::unique_ptr<RdmaServerEndpoint>> sessions;
  for (int i = 0; i < kSessions; ++i) sessions.push_back(join("cache", 1));
  const int before = registered();
  std::vector<Grant> grants;
  for (const auto& session : sessions)
    for (std::uint64_t region = 0; region < kRegions; ++region)
      grants.push_back(grant(*session, region * kRegionBytes, kRegionBytes).value());
  EXPECT_EQ(registered() - before, static_cast<int>(kRegions));
  EXPECT_EQ(registrations_->used(), kRegions);
  grants.clear();
  EXPECT_EQ(registrations_->used(), 0U);
}

/// Costs: opening is as much work of the device for the last client as for the first.
TEST_F(RdmaSharedRegistrationsTest, OpeningCostsTheLastOfManyClientsNoMoreThanTheFirst) {
  constexpr unsigned kClients = 100;
  constexpr unsigned kRegions = 16;
  constexpr std::uint64_t kRegionBytes = 1024;
  registrations_ = std::make_shared<RegistrationBudgets>(kClients * kRegions);
  domains_ = std::make_shared<GrantDomains>(registrations_, nullptr);
  reaper_ = std::make_shared<Reaper>(0);  // destroys on this thread
  std::vector<std::unique_ptr<RdmaServerEndpoint>> sessions;
  std::vector<Grant> grants;
  int commands_of_first = 0;
  for (unsigned client = 0; client < kClients; ++client) {
    sessions.push_back(join("client" + std::to_string(client), client));
    const int registered_before = registered(), commands_before = fake_.commands;
    for (unsigned region = 0; region < kRegions; ++region)
      grants.push_back(grant(*sessions.back(), region * kRegionBytes, kRegionBytes).value());
    EXPECT_EQ(registered() - registered_before, static_cast<int>(kRegions)) << client;
    if (client == 0) commands_of_first = fake_.commands - commands_before;
    EXPECT_EQ(fake_.commands - commands_before, commands_of_first) << client;
  }
  EXPECT_EQ(domains_->count(), kClients);
  EXPECT_EQ(registrations_->used(), kClients * kRegions) << "and nothing beside";
  grants.clear();
  EXPECT_EQ(registrations_->used(), 0U);
}

}  // namespace
}  // namespace remora::transport::rdma
