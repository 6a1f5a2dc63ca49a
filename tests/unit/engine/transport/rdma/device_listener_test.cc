/// The devices that a listener serves: which of a host's, and what happens when they go and return.

#include "transport/rdma/device_listener.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <memory>
#include <poll.h>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <remora/engine/log.h>
#include <remora/metrics/registry.h>

#include "transport/rdma/device_choice.h"
#include "transport/rdma/wire.h"
#include "unit/verbs/fake_verbs.h"

namespace remora::transport::rdma {
namespace {

class DeviceListenerTest : public test::FakeTest {
 protected:
  /// fake0 to fake7: two are well, three have no RC, two no active port, one no atomics.
  void add_seven() {
    for (int i = 1; i < 8; ++i) {
      auto& other = fake_.others.emplace_back("fake" + std::to_string(i));
      if (i >= 2 && i < 5) other.device.transport_type = IBV_TRANSPORT_UNSPECIFIED;
      if (i >= 5 && i < 7) other.port.state = IBV_PORT_DOWN;
      if (i == 7) other.attributes.atomic_cap = IBV_ATOMIC_NONE;
    }
  }
  [[nodiscard]] std::string choose(const std::vector<std::string>& wanted,
                                   const verbs::Device& bound = {}) const {
    const auto choice = choose_devices(wanted, bound, fake_.provider());
    if (!choice) return choice.error().message();
    std::string text;
    for (const verbs::Device& device : choice->devices) text += std::string{device.name()} + " ";
    for (const LeftOutDevice& each : choice->left_out)
      text += "- " + each.device + ": " + each.reason + " ";
    return text;
  }
  [[nodiscard]] verbs::Device first() const {
    return verbs::connection_manager_devices(fake_.provider()).value().front();
  }
  Result<std::unique_ptr<DeviceListener>> open(
      const std::vector<std::string>& wanted = {}, const config::RdmaSettings& settings = {},
      config::RdmaProtection protection = config::RdmaProtection::kRegistrations) {
    DeviceListener::Plan plan{.addresses = {verbs::Address::parse("10.0.0.1", 0).value()},
                              .wanted = wanted,
                              .protection = protection,
                              .registrations = std::make_shared<RegistrationBudgets>(0),
                              .windows = std::make_shared<WindowBudgets>(0),
                              .settings = settings,
                              .provider = &fake_.provider()};
    return DeviceListener::open(std::move(plan), states_, reaper_);
  }
  [[nodiscard]] std::string states() const {
    std::string text;
    for (const DeviceState& state : states_->list())
      text += state.device + " " + std::string{to_string(state.use)} + "; ";
    return text;
  }
  [[nodiscard]] std::int64_t serving(const std::string& device) const {
    const auto gauge =
        registry_->gauge("remora_server_rdma_device_serving", kServingHelp, {{"device", device}});
    return gauge ? registry_->value(*gauge) : -1;
  }

  std::shared_ptr<metrics::Registry> registry_ = metrics::Registry::create().value();
  std::shared_ptr<DeviceStates> states_ = std::make_shared<DeviceStates>(registry_);
  /// Destroys what it takes on the thread that calls it: the fake is for one thread.
  std::shared_ptr<Reaper> reaper_ = std::make_shared<Reaper>(0);
};

TEST_F(DeviceListenerTest, OnEveryAddressAllServeThatCan) {
  add_seven();
  EXPECT_EQ(choose({}),
            "fake0 fake1 fake7 "
            "- fake2: it has no reliable connections (RC) "
            "- fake3: it has no reliable connections (RC) "
            "- fake4: it has no reliable connections (RC) "
            "- fake5: it has no active port - fake6: it has no active port ");
  EXPECT_EQ(choose({"fake1"}).substr(0, 47), "fake1 - fake0: transports.rdma_device names oth");
}

TEST_F(DeviceListenerTest, OnEveryAddressClientsAreToldThoseOfTheDevices) {
  const auto listener = open();
  ASSERT_OK(listener);
  (*listener)->look();
  ASSERT_EQ(states_->list().size(), 1U);
  EXPECT_EQ(states_->list().front().addresses, (std::vector<std::string>{"10.0.0.1"}));
  states_->set({.device = "fake0", .atomics = true});
  EXPECT_EQ(states_->list().front().addresses.size(), 1U) << "while it serves";
}

TEST_F(DeviceListenerTest, OnOneAddressItsDeviceServes) {
  add_seven();
  EXPECT_EQ(choose({}, first()).substr(0, 62),
            "fake0 - fake1: listen.address is an address of fake0 - fake2: ");
  const std::string other = choose({"fake1"}, first());
  EXPECT_NE(other.find("transports.rdma_device"), other.npos) << other;
  EXPECT_NE(other.find("fake0: transports.rdma_device names others"), other.npos) << other;
  EXPECT_NE(choose({"fake0", "none"}, first()).find("- none: there is no such device"),
            std::string::npos);
}

TEST_F(DeviceListenerTest, AtomicDomainsAreTheServedDevicesWithAtomics) {
  add_seven();
  const auto listener = open();  // the fake finds no device for an address: all of them
  ASSERT_OK(listener);
  EXPECT_EQ((*listener)->names(), (std::vector<std::string>{"fake0", "fake1", "fake7"}));
  EXPECT_EQ((*listener)->atomic_domains(), (std::vector<std::string>{"fake0", "fake1"}));
  EXPECT_EQ(serving("fake0"), 1);
  EXPECT_EQ(serving("fake5"), 0);
}

TEST_F(DeviceListenerTest, DeviceWithoutASettingIsLeftOutUntilItHasIt) {
  fake_.pkeys = {0xffff, 0x8001};
  fake_.port.pkey_tbl_len = 2;
  auto& second = fake_.others.emplace_back("fake1");
  second.port.pkey_tbl_len = 1;
  auto listener = open({}, {.pkey = 0x8001});
  ASSERT_OK(listener);
  EXPECT_EQ((*listener)->names(), (std::vector<std::string>{"fake0"}));
  EXPECT_EQ(serving("fake1"), 0);
  second.port.pkey_tbl_len = 2;
  while (!(*listener)->must_restore()) std::this_thread::sleep_for(std::chrono::milliseconds{10});
  (*listener)->restore({});
  EXPECT_EQ(serving("fake1"), 1);
}

TEST_F(DeviceListenerTest, SettingThatNoDeviceHasIsAnErrorThatNamesItsKey) {
  const auto listener = open({}, {.gid_index = 7});
  ASSERT_FALSE(listener);
  EXPECT_EQ(listener.error().code(), Code::kNotFound);
  EXPECT_EQ(listener.error().subject(), "rdma.gid_index=7 on port 1 of fake0, which has 0-1");
  EXPECT_EQ(serving("fake0"), 0);
}

TEST_F(DeviceListenerTest, ADeviceThatHasGoneIsGivenBackAndTakenUpAgain) {
  fake_.listener_has_device = true;
  auto listener = open();
  ASSERT_OK(listener);
  EXPECT_FALSE((*listener)->must_restore());
  EXPECT_EQ(states(), "fake0 serving; ");
  fake_.push(fake_.listener, RDMA_CM_EVENT_DEVICE_REMOVAL);
  fake_.device_count = 0;
  const auto request = (*listener)->next_request();
  ASSERT_OK(request);
  EXPECT_FALSE(request->has_value());
  EXPECT_EQ(states(), "fake0 gone; ");
  EXPECT_EQ(serving("fake0"), 0);
  EXPECT_EQ(registry_->sum("remora_server_rdma_device_losses_total").value(), 1);
  const auto failures = (*listener)->take_failures();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures.front().device, "fake0");
  const auto restore = [&] {
    while (!(*listener)->must_restore()) std::this_thread::sleep_for(std::chrono::milliseconds{10});
    (*listener)->restore({});
  };
  restore();
  EXPECT_EQ(states(), "fake0 gone; ") << "it has not returned";
  fake_.device_count = 1;
  restore();
  EXPECT_EQ(states(), "fake0 serving; ");
  EXPECT_NE(fake_.listener, nullptr) << "bound again";
  EXPECT_EQ(serving("fake0"), 1);
}

TEST_F(DeviceListenerTest, DeviceThatReturnsWhileTheServerStopsIsNotServed) {
  fake_.listener_has_device = true;
  // It is not asked about its windows.
  fake_.attributes.device_cap_flags = 0;
  auto listener = open({}, {}, config::RdmaProtection::kWindowsUnchecked);
  ASSERT_OK(listener);
  std::vector<std::byte> memory(2 * 4096);
  const std::array pieces{MemoryStretch{memory.data(), 4096},
                          MemoryStretch{memory.data() + 4096, 4096}};
  ASSERT_OK((*listener)->register_pool(pieces, nullptr, {}));
  const auto leased = [&] {
    return std::count_if(fake_.registered.begin(), fake_.registered.end(), [](const auto& each) {
      return each.access == static_cast<std::uint32_t>(LeasedMemory::kAccess);
    });
  };
  EXPECT_EQ(leased(), 2);
  fake_.push(fake_.listener, RDMA_CM_EVENT_DEVICE_REMOVAL);
  fake_.device_count = 0;
  ASSERT_OK((*listener)->next_request());
  (*listener)->restore({});
  EXPECT_EQ(states(), "fake0 gone; ") << "it has not returned";
  fake_.device_count = 1;
  std::stop_source stop;
  stop.request_stop();
  (*listener)->restore(stop.get_token());
  EXPECT_EQ(leased(), 2) << "no more";
  EXPECT_EQ(states(), "fake0 gone; ");
  (*listener)->restore({});
  EXPECT_EQ(leased(), 4);
  EXPECT_EQ(states(), "fake0 serving; ");
}

TEST_F(DeviceListenerTest, ControlChannelsOfADeviceShareADomainWhileItServes) {
  fake_.others.emplace_back("fake1");
  const auto listener = open();
  ASSERT_OK(listener);
  const auto devices = (*listener)->devices();
  ASSERT_EQ(devices.size(), 2U);
  const auto one = (*listener)->control_domain(devices[0]);
  ASSERT_OK(one);
  EXPECT_EQ(*(*listener)->control_domain(devices[0]), *one);
  const auto other = (*listener)->control_domain(devices[1]);
  ASSERT_OK(other);
  EXPECT_FALSE(*other == *one);
  devices[0].mark_gone();
  (*listener)->look();
  EXPECT_CODE((*listener)->control_domain(devices[0]), kNotFound);
  EXPECT_EQ(*(*listener)->control_domain(devices[1]), *other);
}

/// Which request is served next, by the number that its client has sent; 0: none.
std::uint64_t next_of(DeviceListener& listener, WhichRequest which = WhichRequest::kAny) {
  const auto request = listener.next_request(which);
  if (!request || !request->has_value()) return 0;
  return Introduction::from_wire((*request)->private_data())->ticket.session_id;
}

bool is_readable(int fd) {
  pollfd asked{fd, POLLIN, 0};
  return ::poll(&asked, 1, 0) == 1;
}

class WaitingRequestsTest : public DeviceListenerTest {
 protected:
  void SetUp() override {
    DeviceListenerTest::SetUp();
    auto opened = open();
    ASSERT_OK(opened);
    listener_ = std::move(*opened);
  }
  void TearDown() override {
    listener_.reset();  // before the fake counts what is left
    DeviceListenerTest::TearDown();
  }
  void ask(Purpose purpose, std::uint64_t number) {
    const auto bytes = Introduction{.purpose = purpose, .ticket = {number, 0}}.to_wire();
    fake_.knock({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  std::unique_ptr<DeviceListener> listener_;
};

TEST_F(WaitingRequestsTest, LanesComeFirstAndOfEachKindTheNewest) {
  ask(Purpose::kControl, 1);
  ask(Purpose::kLane, 2);
  ask(Purpose::kControl, 3);
  ask(Purpose::kLane, 4);
  EXPECT_EQ(next_of(*listener_), 4U);
  EXPECT_EQ(next_of(*listener_), 2U);
  ask(Purpose::kControl, 5);
  EXPECT_EQ(next_of(*listener_), 5U);
  EXPECT_EQ(next_of(*listener_), 3U);
  EXPECT_EQ(next_of(*listener_), 1U);
  EXPECT_EQ(next_of(*listener_), 0U);
}

TEST_F(WaitingRequestsTest, OthersHaveTheirTurnAfterSoManyLanes) {
  ask(Purpose::kControl, 1);
  for (std::uint64_t i = 0; i < 2 * WaitingRequests::kMaxOvertaking; ++i) ask(Purpose::kLane, 2);
  for (std::uint64_t i = 0; i < WaitingRequests::kMaxOvertaking; ++i)
    EXPECT_EQ(next_of(*listener_), 2U) << i;
  EXPECT_EQ(next_of(*listener_), 1U);
  EXPECT_EQ(next_of(*listener_), 2U);
}

TEST_F(WaitingRequestsTest, WhileOnlyLanesAreServedOthersWait) {
  ask(Purpose::kLane, 1);
  ask(Purpose::kControl, 2);
  EXPECT_EQ(next_of(*listener_, WhichRequest::kLane), 1U);
  EXPECT_EQ(next_of(*listener_, WhichRequest::kLane), 0U);
  EXPECT_TRUE(listener_->any_waits());
  EXPECT_EQ(next_of(*listener_), 2U);
}

TEST_F(WaitingRequestsTest, DescriptorIsReadableWhileARequestWaits) {
  EXPECT_FALSE(is_readable(listener_->event_fd()));
  for (std::uint64_t i = 1; i <= 3; ++i) ask(Purpose::kControl, i);
  for (std::uint64_t i = 3; i >= 1; --i) {
    EXPECT_TRUE(is_readable(listener_->event_fd())) << i;
    EXPECT_EQ(next_of(*listener_), i);
  }
  EXPECT_FALSE(is_readable(listener_->event_fd()));
  EXPECT_FALSE(listener_->any_waits());
}

TEST_F(WaitingRequestsTest, ARequestThatItsClientHasWithdrawnCostsNoObjects) {
  ask(Purpose::kControl, 1);
  ask(Purpose::kControl, 2);
  fake_.fail("init_qp_attr", 1, EINVAL);  // of the newest, which is looked at first
  EXPECT_EQ(next_of(*listener_), 1U);
  EXPECT_FALSE(listener_->any_waits());
  EXPECT_EQ(fake_.rejects, 2) << "the withdrawn one, and the one that this test drops";
}

TEST_F(WaitingRequestsTest, RequestsOverADeviceGoWithIt) {
  ask(Purpose::kControl, 1);
  ask(Purpose::kControl, 2);
  EXPECT_EQ(next_of(*listener_), 2U);
  first().mark_gone();
  listener_->look();
  EXPECT_FALSE(listener_->any_waits());
  EXPECT_EQ(states(), "fake0 gone; ");
}

TEST_F(DeviceListenerTest, DeviceThatHasGoneIsGivenBackWithTheLastHandle) {
  const auto listener = open();
  ASSERT_OK(listener);
  std::vector<std::string> events;
  set_log_sink([&](const LogLine& line) { events.emplace_back(line.event); }, LogLevel::kInfo);
  const auto given_back = [&] {
    (*listener)->look();
    EXPECT_TRUE(flush_log_sink(std::chrono::seconds{30}));
    return std::count(events.begin(), events.end(), "device.given_back");
  };
  verbs::Device held = first();
  held.mark_gone();
  EXPECT_EQ(given_back(), 0) << "as that of a session";
  EXPECT_EQ(states(), "fake0 gone; ");
  held = {};
  EXPECT_EQ(given_back(), 1);
  EXPECT_EQ(given_back(), 1) << "told once";
  set_log_sink({});
}

TEST_F(DeviceListenerTest, AFailedQueuePairIsToldByItsNumber) {
  auto listener = open();
  ASSERT_OK(listener);
  ibv_qp pair{};
  pair.qp_num = 17;
  ibv_async_event event{};
  event.event_type = IBV_EVENT_QP_FATAL;
  event.element.qp = &pair;
  fake_.happen(first(), event);
  (*listener)->look();
  const auto failures = (*listener)->take_failures();
  ASSERT_EQ(failures.size(), 1U);
  EXPECT_EQ(failures.front().queue_pair, 17U);
  EXPECT_EQ(states(), "fake0 serving; ");
}

/// As when a switch is started again. The session's connections take their GIDs from the connection
/// manager, so a row that moves ends none of them.
TEST_F(DeviceListenerTest, PortThatReturnsWithItsGidsInAnotherOrderServesUnderItsAddresses) {
  using Addresses = std::vector<std::string>;
  fake_.gids = {fake_.gid(0, 1, "fe80::1"), fake_.gid(1, 1, "::ffff:10.0.0.1"),
                fake_.gid(2, 1, "::ffff:10.0.0.2")};
  const auto listener = open();
  ASSERT_OK(listener);
  const auto addresses = [&] {
    (*listener)->look();
    return states_->list().front().addresses;
  };
  const auto happens = [this](ibv_event_type type) {
    ibv_async_event event{};
    event.event_type = type;
    event.element.port_num = 1;
    fake_.happen(first(), event);
  };
  EXPECT_EQ(addresses(), (Addresses{"10.0.0.1", "10.0.0.2"}));
  fake_.port.state = IBV_PORT_DOWN;
  happens(IBV_EVENT_PORT_ERR);
  EXPECT_EQ(addresses(), Addresses{}) << "at once, not with the next list of devices";
  fake_.port.state = IBV_PORT_ACTIVE;
  fake_.gids = {fake_.gid(0, 1, "::ffff:10.0.0.2"), fake_.gid(1, 1, "fe80::1"),
                fake_.gid(2, 1, "::ffff:10.0.0.1")};
  happens(IBV_EVENT_PORT_ACTIVE);
  EXPECT_EQ(addresses(), (Addresses{"10.0.0.2", "10.0.0.1"}));
  fake_.gids.pop_back();
  happens(IBV_EVENT_GID_CHANGE);
  EXPECT_EQ(addresses(), Addresses{"10.0.0.2"});
  EXPECT_EQ(states(), "fake0 serving; ");
  EXPECT_TRUE((*listener)->take_failures().empty()) << "no session ends by it";
}

}  // namespace
}  // namespace remora::transport::rdma
