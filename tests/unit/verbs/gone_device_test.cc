/// Devices that the host has no longer.

#include <chrono>

#include "fake_verbs.h"

namespace remora::test {
namespace {

class GoneDeviceTest : public FakeTest {
 protected:
  void SetUp() override { again_.device = &fake_.device; }
  [[nodiscard]] verbs::Device of_manager() const {
    return verbs::connection_manager_devices(fake_.provider()).value().front();
  }
  [[nodiscard]] verbs::Device of_context(ibv_context& context) const {
    return verbs::Device::borrow(&context, fake_.provider()).value();
  }
  /// librdmacm takes the first device for gone though it is there, and opens it again.
  void open_again() { fake_.opened_again = fake_.route = &again_; }

  ibv_context again_{};
};

TEST_F(GoneDeviceTest, ContextsOfTheConnectionManagerAreInUseWhileTheirDevicesAreThere) {
  fake_.others.emplace_back("fake1");
  {
    const auto device = of_manager();
    EXPECT_FALSE(device.gone());
    EXPECT_EQ(fake_.cm_device_uses, 2);
  }
  EXPECT_EQ(fake_.cm_device_uses, 2) << "they stay open";
  verbs::look_for_gone_devices(fake_.provider());
  EXPECT_EQ(fake_.cm_device_uses, 2);
}

TEST_F(GoneDeviceTest, ALookFindsTheOneThatHasGone) {
  fake_.others.emplace_back("fake1");
  auto first = of_manager();
  fake_.device_count = 0;
  verbs::look_for_gone_devices(fake_.provider());
  EXPECT_TRUE(first.gone());
  EXPECT_EQ(fake_.cm_device_uses, 2) << "a handle is left";
  first = {};
  EXPECT_EQ(fake_.cm_device_uses, 1);
  EXPECT_EQ(fake_.cm_devices_closed, 0) << "librdmacm sees that it has gone";
}

TEST_F(GoneDeviceTest, ObserverExpiresWithTheLastObjectAndKeepsNothingOpen) {
  auto device = of_manager();
  verbs::ProtectionDomain domain = device.allocate_domain().value();
  const auto observer = device.observe();
  device.mark_gone();
  device = {};
  EXPECT_FALSE(observer.expired()) << "the domain holds it";
  domain = {};
  EXPECT_TRUE(observer.expired());
  EXPECT_EQ(fake_.cm_device_uses, 0);
}

/// librdmacm looks for what has gone only while a device is there.
TEST_F(GoneDeviceTest, TheLastOneOfTheHostIsClosedForTheConnectionManager) {
  auto device = of_manager();
  verbs::ProtectionDomain domain = device.allocate_domain().value();
  device.mark_gone();
  fake_.device_count = 0;
  device = {};
  EXPECT_EQ(fake_.cm_devices_closed, 0) << "the domain holds it";
  domain = {};
  EXPECT_EQ(fake_.cm_devices_closed, 1);
  EXPECT_EQ(fake_.cm_device_uses, 0);
}

TEST_F(GoneDeviceTest, AnotherContextOfADeviceThatIsThereIsTheSameDevice) {
  const auto device = of_manager();
  open_again();
  EXPECT_EQ(of_context(again_), device);
  EXPECT_EQ(of_manager(), device);
  EXPECT_FALSE(device.gone());
  EXPECT_EQ(device.raw(), &fake_.cm_context) << "its objects are of that context";
}

TEST_F(GoneDeviceTest, AContextThatWasReplacedIsClosedWithItsLastUser) {
  auto device = of_manager();
  open_again();
  verbs::ProtectionDomain domain = of_context(again_).allocate_domain().value();
  EXPECT_EQ(fake_.cm_device_uses, 2) << "of both contexts";
  device = {};
  EXPECT_EQ(fake_.cm_device_uses, 2) << "the domain is of the first one";
  domain = {};
  EXPECT_EQ(fake_.cm_device_uses, 1);
  EXPECT_EQ(of_manager().raw(), &again_);
  EXPECT_EQ(fake_.cm_device_uses, 1);
}

/// No handle is left: the next one finds what has been replaced.
TEST_F(GoneDeviceTest, AContextThatWasReplacedUnusedIsClosedByTheNextLook) {
  static_cast<void>(of_manager());
  EXPECT_EQ(fake_.cm_device_uses, 1);
  open_again();
  const auto device = of_manager();
  EXPECT_EQ(device.raw(), &again_);
  EXPECT_EQ(fake_.cm_device_uses, 1) << "the first context is not used any more";
}

TEST_F(GoneDeviceTest, AContextThatWasReplacedIsStillMarkedWhenItsDeviceGoes) {
  const auto device = of_manager();
  open_again();
  EXPECT_EQ(of_context(again_), device);
  fake_.device_count = 0;
  verbs::look_for_gone_devices(fake_.provider());
  EXPECT_TRUE(device.gone());
}

TEST_F(GoneDeviceTest, AnotherContextOfADeviceThatHasFailedIsAnotherDevice) {
  const auto device = of_manager();
  device.mark_gone();
  open_again();
  const auto next = of_context(again_);
  EXPECT_FALSE(next == device);
  EXPECT_FALSE(next.gone());
}

/// The queue pair is of the first context, and the id of the second one.
TEST_F(GoneDeviceTest, AConnectionOverTheOtherContextTakesTheSameDomain) {
  const FakeRig rig{of_manager()};
  open_again();
  auto connector =
      verbs::Connector::resolve(verbs::Address::parse("10.0.0.1", 7).value(),
                                verbs::deadline_in(std::chrono::seconds{5}), {}, fake_.provider())
          .value();
  EXPECT_EQ(connector.device(), rig.device);
  ASSERT_OK(connector.create_queue_pair(rig.builder()));
}

TEST_F(GoneDeviceTest, EventsOfTheDeviceAndOfAConnectionTell) {
  auto device = of_manager();
  auto events = verbs::AsyncEvents::open(device).value();
  ibv_async_event fatal{};
  fatal.event_type = IBV_EVENT_DEVICE_FATAL;
  fake_.happen(device, fatal);
  ASSERT_OK(events.next_event());
  EXPECT_TRUE(device.gone());
}

TEST_F(GoneDeviceTest, AListenerTellsWhichDeviceHasItsAddress) {
  fake_.listener_has_device = true;
  const auto here = verbs::Address::parse("10.0.0.1", 0).value();
  auto listener = verbs::ConnectionListener::bind(here, 8, fake_.provider()).value();
  const verbs::Device device = listener.device();
  ASSERT_FALSE(device.empty());
  EXPECT_EQ(device.name(), "fake0");
  fake_.push(listener.raw(), RDMA_CM_EVENT_DEVICE_REMOVAL);
  EXPECT_CODE(listener.next_request(), kProvider);
  EXPECT_TRUE(device.gone());
}

}  // namespace
}  // namespace remora::test
