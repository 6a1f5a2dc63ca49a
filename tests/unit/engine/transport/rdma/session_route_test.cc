/// Over which device a session connects again.

#include "transport/rdma/session_route.h"

#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include <remora/engine/log.h>

#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

/// A host with two devices. Its route to the server leads over the second one from the moment when
/// the test says so.
class SessionRouteTest : public test::FakeTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    fake_.play(*test::find_device_profile(GetParam()));
    fake_.others.emplace_back("fake1");
    returned_.device = &fake_.device;
  }
  std::shared_ptr<ClientDomain> memory_of(ClientDomain::Moves moves) {
    const auto list = verbs::connection_manager_devices(fake_.provider()).value();
    return ClientDomain::of(list.front(), peer(), moves).value();
  }
  void lead_over_second() { fake_.route = &fake_.others.front().cm_context; }
  void first_goes(ClientDomain& memory) {
    memory.domain().device().mark_gone();
    fake_.device_count = 0;
    memory.look();
    lead_over_second();
  }
  Result<ClientRails::Route> route(ClientDomain& memory, std::vector<std::string> tried = {}) {
    return route_of_session(memory, peer(), tried, Clock::now() + std::chrono::seconds{10}, how());
  }
  [[nodiscard]] ClientRails::Options how() const {
    return {.port = 7471, .provider = &fake_.table};
  }
  static verbs::Address peer() { return verbs::Address::parse("10.0.0.9", 7471).value(); }

  ibv_context returned_{};  ///< of the first device, once it has returned
};

TEST_P(SessionRouteTest, LeadsOverItsDeviceWhileThatIsThere) {
  const auto memory = memory_of(ClientDomain::Moves::kYes);
  EXPECT_EQ(devices_to_try(*memory, how()), 1U);
  const auto own = route(*memory);
  ASSERT_OK(own);
  EXPECT_EQ(own->connector.device().name(), "fake0");
  lead_over_second();
  EXPECT_CODE(route(*memory), kUnreachable);  // the host's route leads elsewhere
}

TEST_P(SessionRouteTest, LeadsOverAnyOtherDeviceOnceItsOwnHasGone) {
  const auto memory = memory_of(ClientDomain::Moves::kYes);
  first_goes(*memory);
  EXPECT_EQ(devices_to_try(*memory, how()), 1U) << "one is left";
  {
    const auto other = route(*memory);
    ASSERT_OK(other);
    EXPECT_EQ(other->connector.device().name(), "fake1");
    EXPECT_CODE(route(*memory, {"fake1"}), kUnreachable);  // it was tried
    ASSERT_OK(memory->move_to(other->connector.device()));
  }
  const auto again = route(*memory);
  ASSERT_OK(again);  // it is the session's device from now on
  EXPECT_EQ(again->connector.device().name(), "fake1");
}

TEST_P(SessionRouteTest, OfASessionThatStaysWaitsForItsDevice) {
  const auto memory = memory_of(ClientDomain::Moves::kNo);
  // The reaper's thread does not close the device, for which it would look at the list of devices.
  const verbs::Device first = memory->domain().device();
  first_goes(*memory);
  EXPECT_EQ(devices_to_try(*memory, how()), 1U);
  EXPECT_CODE(route(*memory), kNotFound);  // though another device reaches the server
  fake_.device_count = 1;
  fake_.opened_again = fake_.route = &returned_;
  const auto returned = route(*memory);
  ASSERT_OK(returned);
  EXPECT_EQ(returned->connector.device().name(), "fake0");
  EXPECT_FALSE(returned->connector.device() == first);
}

/// An attempt over it would be in vain, and there may be no other attempt.
TEST_P(SessionRouteTest, HostsRouteOverADeviceThatTakesNoMemoryIsNotUsed) {
  fake_.others.emplace_back("fake2");
  fake_.others.front().device.transport_type = IBV_TRANSPORT_IWARP;
  const auto memory = memory_of(ClientDomain::Moves::kYes);
  first_goes(*memory);
  EXPECT_EQ(devices_to_try(*memory, how()), 1U);
  EXPECT_CODE(route(*memory), kUnreachable);  // the fake's routes are the same from each address
  fake_.route = &fake_.others.back().cm_context;
  const auto other = route(*memory);
  ASSERT_OK(other);
  EXPECT_EQ(other->connector.device().name(), "fake2");
}

/// The device may return at any time, and only an attempt that begins after that finds it.
TEST_P(SessionRouteTest, SilenceOverAnotherDeviceDoesNotMakeTheNextAttemptsLonger) {
  const auto memory = memory_of(ClientDomain::Moves::kYes);
  const Error silent = Error{Code::kTimedOut, "connect"}.with_reason(Reason::kSilent);
  const Error refused{Code::kConnectionRefused, "connect"};
  SessionDomain session;
  session.set(memory, memory->device());
  const auto told = [&](const Error& error) {
    return error_of_attempt(*memory, session, peer(), error);
  };
  EXPECT_EQ(told(silent).reason(), Reason::kSilent);
  first_goes(*memory);
  EXPECT_EQ(told(silent).reason(), Reason::kUnreachable);
  EXPECT_EQ(told(refused).code(), Code::kConnectionRefused);
  EXPECT_EQ(told(refused).reason(), Reason::kNone);
}

/// Two sessions with different servers. The first to connect again decides where the memory is.
TEST_P(SessionRouteTest, SessionWhoseServerIsNotReachedFromTheNewDeviceIsLeftBehind) {
  fake_.others.emplace_back("fake2");
  const auto memory = memory_of(ClientDomain::Moves::kYes);
  SessionDomain follows;
  SessionDomain left;
  follows.set(memory, memory->device());
  left.set(memory, memory->device());
  first_goes(*memory);
  {
    const auto other = route(*memory);
    ASSERT_OK(other);
    ASSERT_OK(memory->move_to(other->connector.device()));
  }
  ASSERT_EQ(memory->device(), "fake1");
  follows.set(memory, memory->device());
  // The other server is reached over the third device only.
  fake_.route = &fake_.others.back().cm_context;
  EXPECT_EQ(devices_to_try(*memory, how()), 1U);
  const auto none = route(*memory);
  EXPECT_CODE(none, kUnreachable);
  std::vector<std::string> events;
  set_log_sink([&](const LogLine& line) { events.emplace_back(line.event); });
  const Error refused{Code::kConnectionRefused, "connect"};
  EXPECT_EQ(error_of_attempt(*memory, left, peer(), refused).code(), Code::kConnectionRefused);
  EXPECT_TRUE(flush_log_sink(std::chrono::seconds{30}));
  EXPECT_TRUE(events.empty()) << "a server that refuses is reached";
  for (SessionDomain* const session : {&follows, &left, &left})
    EXPECT_EQ(error_of_attempt(*memory, *session, peer(), none.error()).code(), Code::kUnreachable);
  EXPECT_TRUE(flush_log_sink(std::chrono::seconds{30}));
  set_log_sink({});
  EXPECT_EQ(events, std::vector<std::string>{"device.not_reached"}) << "once";
  // A session that begins now has memory of its own, where the host's route leads.
  const auto list = verbs::connection_manager_devices(fake_.provider()).value();
  ASSERT_EQ(list.back().name(), "fake2");
  const auto fresh = ClientDomain::of(list.back(), peer(), ClientDomain::Moves::kYes).value();
  EXPECT_NE(fresh, memory);
  EXPECT_EQ(fresh->device(), "fake2");
  EXPECT_EQ(memory->device(), "fake1");
}

TEST_P(SessionRouteTest, AllUsableDevicesMayBeTried) {
  fake_.others.emplace_back("fake2");
  const auto memory = memory_of(ClientDomain::Moves::kYes);
  first_goes(*memory);
  EXPECT_EQ(devices_to_try(*memory, how()), 2U);
}

INSTANTIATE_TEST_SUITE_P(Profiles, SessionRouteTest,
                         testing::Values("mlx5", "mlx5-no-atomics", "bnxt_re", "rxe"),
                         [](const auto& tested) {
                           std::string name{tested.param};
                           std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
                           return name;
                         });

}  // namespace
}  // namespace remora::transport::rdma
