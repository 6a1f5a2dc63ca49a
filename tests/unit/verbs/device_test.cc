#include <cstring>
#include <net/if.h>
#include <sstream>

#include "fake_verbs.h"

namespace remora::test {
namespace {

class DeviceTest : public FakeTest {};

TEST_F(DeviceTest, EmptyListIsNotFoundWithARemedy) {
  fake_.device_count = 0;
  const auto list = verbs::devices(fake_.provider());
  EXPECT_CODE(list, kNotFound);
  EXPECT_NE(list.error().message().find("rdma link add"), std::string::npos);
}

TEST_F(DeviceTest, MissingKernelSupportIsNotFound) {
  for (const int number : {ENOSYS, ENOENT, ENODEV}) {
    fake_.list_errno = number;
    EXPECT_CODE(verbs::devices(fake_.provider()), kNotFound);
  }
}

TEST_F(DeviceTest, OtherListFailuresKeepTheirErrno) {
  fake_.list_errno = EPERM;
  EXPECT_CODE(verbs::devices(fake_.provider()), kPermissionDenied);
  fake_.list_errno = EMFILE;
  const auto list = verbs::devices(fake_.provider());
  EXPECT_CODE(list, kProvider);
  EXPECT_EQ(list.error().system_errno(), EMFILE);
}

TEST_F(DeviceTest, UnknownNameIsNotFound) {
  const auto entry = verbs::devices(fake_.provider()).value().find("mlx5_9");
  EXPECT_CODE(entry, kNotFound);
  EXPECT_EQ(entry.error().subject(), "mlx5_9");
  EXPECT_EQ(entry.error().remedy(), "'rdma link' lists the devices of this host");
  EXPECT_EQ(entry.error().message(),
            "DeviceList::find: mlx5_9: not found; 'rdma link' lists the devices of this host");
}

TEST_F(DeviceTest, EntryOutlivesItsList) {
  const auto entry = verbs::devices(fake_.provider()).value().find("fake0");
  ASSERT_OK(entry);
  EXPECT_EQ(entry->name(), "fake0");
  EXPECT_EQ(entry->guid(), verbs::Guid{0x1122334455667788U});
  EXPECT_EQ(entry->index(), 3);
}

TEST_F(DeviceTest, OpenFailureNamesTheDevice) {
  fake_.fail("open_device", 1, EACCES);
  const auto device = verbs::devices(fake_.provider()).value()[0].open();
  EXPECT_CODE(device, kPermissionDenied);
  EXPECT_EQ(device.error().subject(), "fake0");
}

TEST_F(DeviceTest, FailedQueryClosesIt) {
  fake_.fail("query_device", 1, EIO);
  EXPECT_CODE(verbs::devices(fake_.provider()).value()[0].open(), kProvider);
}

TEST_F(DeviceTest, AttributesAreTyped) {
  const auto device = open();
  EXPECT_EQ(device.attributes().max_qp_wr, 128U);
  EXPECT_EQ(device.attributes().max_sge, 4U);
  EXPECT_EQ(device.attributes().max_initiator_depth, 16);
  EXPECT_EQ(device.attributes().atomics, verbs::AtomicSupport::kDevice);
  EXPECT_TRUE(device.is_software());
  EXPECT_STREQ(device.attributes().firmware.data(), "20.31.1014");
  std::ostringstream out;
  out << device.attributes();
  EXPECT_TRUE(out.str().starts_with("firmware 20.31.1014\n")) << out.str();
}

TEST_F(DeviceTest, FirmwareWithoutAnEndIsCut) {
  std::memset(fake_.attributes.fw_ver, 'x', sizeof(fake_.attributes.fw_ver));
  EXPECT_EQ(std::string_view{open().attributes().firmware.data()}, std::string(63, 'x'));
}

TEST_F(DeviceTest, DepthsBeyondEightBitsAreCut) {
  fake_.attributes.max_qp_rd_atom = 4096;
  EXPECT_EQ(open().attributes().max_responder_depth, 255);
}

TEST_F(DeviceTest, PortOutsideIsInvalid) {
  EXPECT_CODE(open().query_port(0), kInvalidArgument);
  EXPECT_CODE(open().query_port(2), kInvalidArgument);
}

TEST_F(DeviceTest, PortAndGidFailuresAreKept) {
  const auto device = open();
  fake_.fail("query_port", 1, EIO);
  EXPECT_CODE(device.query_port(1), kProvider);
  fake_.fail("query_gid_table", 1, EOPNOTSUPP);
  const auto gids = device.query_gids();
  EXPECT_CODE(gids, kUnsupported);
  EXPECT_EQ(gids.error().system_errno(), EOPNOTSUPP);
  fake_.fail("query_gid_table", 1, EIO);
  EXPECT_CODE(device.choose_gid(), kProvider);
}

TEST_F(DeviceTest, BorrowedContextIsOneHandleAndNeverClosed) {
  const auto first = verbs::Device::borrow(&fake_.cm_context, fake_.provider());
  const auto second = verbs::Device::borrow(&fake_.cm_context, fake_.provider());
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_TRUE(*first == *second);
  EXPECT_EQ(fake_.uses("query_device"), 1);
  EXPECT_EQ(fake_.uses("close_device"), 0);
  EXPECT_CODE(verbs::Device::borrow(nullptr, fake_.provider()), kInvalidArgument);
}

TEST_F(DeviceTest, ConnectionManagerDevicesAreBorrowed) {
  const auto devices = verbs::connection_manager_devices(fake_.provider());
  ASSERT_OK(devices);
  ASSERT_EQ(devices->size(), 1U);
  EXPECT_EQ((*devices)[0].raw(), &fake_.cm_context);
}

TEST_F(DeviceTest, ConnectionManagerWithoutDevicesIsNotFound) {
  fake_.device_count = 0;
  EXPECT_CODE(verbs::connection_manager_devices(fake_.provider()), kNotFound);
  fake_.device_count = 1;
  fake_.fail("get_cm_devices", 1, ENODEV);
  EXPECT_CODE(verbs::connection_manager_devices(fake_.provider()), kNotFound);
  fake_.fail("get_cm_devices", 1, EIO);
  EXPECT_CODE(verbs::connection_manager_devices(fake_.provider()), kProvider);
}

TEST_F(DeviceTest, ForkSafetyFailureIsKept) {
  ASSERT_OK(verbs::initialize_fork_safety(fake_.provider()));
  fake_.fail("fork_init", 1, EINVAL);
  const Status made = verbs::initialize_fork_safety(fake_.provider());
  EXPECT_CODE(made, kProvider);
  EXPECT_EQ(made.error().system_errno(), EINVAL);
}

TEST_F(DeviceTest, GuidTellsItsVendor) {
  const auto guid = verbs::devices(fake_.provider()).value()[0].guid();
  EXPECT_EQ(guid.oui(), 0x112233U);
  EXPECT_EQ(guid.to_string(), "1122:3344:5566:7788");
  EXPECT_FALSE(guid.is_zero());
}

TEST_F(DeviceTest, EntryTellsTypeAndTransport) {
  fake_.device.node_type = IBV_NODE_CA;
  const auto list = verbs::devices(fake_.provider()).value();
  EXPECT_EQ(list[0].node_type(), verbs::NodeType::kChannelAdapter);
  EXPECT_EQ(list[0].transport(), verbs::TransportType::kInfiniBand);
  std::ostringstream out;
  out << list[0];
  EXPECT_EQ(out.str(), "fake0 (index 3, guid 1122:3344:5566:7788, InfiniBand)");
}

TEST_F(DeviceTest, PortTellsWidthAndSpeed) {
  const auto port = open().query_port(1);
  ASSERT_OK(port);
  EXPECT_EQ(port->width, 4);
  EXPECT_DOUBLE_EQ(port->gigabits_per_s(), 100.0);
  EXPECT_EQ(port->physical_state, verbs::PhysicalState::kLinkUp);
  std::ostringstream out;
  out << *port;
  EXPECT_EQ(out.str(), "active, Ethernet, 4x 25 = 100 Gb/s, MTU 4096 of 4096");
}

TEST_F(DeviceTest, PortsOutsideAreTold) {
  const auto device = open();
  for (const std::uint8_t port : {std::uint8_t{0}, std::uint8_t{2}}) {
    const auto queried = device.query_port(port);
    EXPECT_CODE(queried, kInvalidArgument);
    EXPECT_EQ(queried.error().asked(), port);
    EXPECT_EQ(queried.error().allowed(), 1U);
    EXPECT_CODE(device.query_gid(port, 0), kInvalidArgument);
    EXPECT_CODE(device.query_pkey(port, 0), kInvalidArgument);
  }
}

TEST_F(DeviceTest, OneGidIsFoundOrNot) {
  const auto device = open();
  const auto entry = device.query_gid(1, 1);
  ASSERT_OK(entry);
  EXPECT_TRUE(entry->gid.is_ipv4_mapped());
  EXPECT_EQ(entry->type, verbs::GidType::kRoceV2);
  EXPECT_EQ(entry->interface_name(), "");
  std::ostringstream out;
  out << *entry;
  EXPECT_EQ(out.str(), "port 1 gid 1 RoCE v2 ::ffff:10.0.0.1");
  const auto none = device.query_gid(1, 99);
  EXPECT_CODE(none, kNotFound);
  EXPECT_EQ(none.error().subject(), "gid index 99");
  fake_.fail("query_gid_ex", 1, EIO);
  EXPECT_CODE(device.query_gid(1, 1), kProvider);
}

TEST_F(DeviceTest, GidTellsItsInterface) {
  fake_.gids[1].ndev_ifindex = ::if_nametoindex("lo");
  ASSERT_NE(fake_.gids[1].ndev_ifindex, 0U);
  const auto device = open();
  EXPECT_EQ(device.query_gid(1, 1)->interface_name(), "lo");
  EXPECT_EQ(device.query_gids()->at(1).interface_name(), "lo");
  fake_.gids[1].ndev_ifindex = INT32_MAX;  // it is gone by now
  EXPECT_EQ(device.query_gid(1, 1)->interface_name(), "");
}

TEST_F(DeviceTest, PkeysAreInHostOrder) {
  const auto device = open();
  EXPECT_EQ(device.query_pkey(1, 0).value(), 0xffff);
  const auto beyond = device.query_pkey(1, 1);
  EXPECT_CODE(beyond, kInvalidArgument);
  EXPECT_EQ(beyond.error().allowed(), 1U);
  fake_.fail("query_pkey", 1, EIO);
  EXPECT_CODE(device.query_pkey(1, 0), kProvider);
}

TEST_F(DeviceTest, ExtendedAttributesAndClock) {
  const auto device = open();
  const auto extended = device.query_extended();
  ASSERT_OK(extended);
  EXPECT_EQ(extended->completion_timestamp_mask, 0xffffU);
  EXPECT_EQ(extended->clock_khz, 156'250U);
  EXPECT_TRUE(extended->on_demand_paging);
  EXPECT_FALSE(extended->on_demand_paging_implicit);
  EXPECT_EQ(extended->port_count, 1U);
  EXPECT_EQ(device.query_clock().value(), 2'000'000'007U);
  fake_.fail("query_rt_values_ex", 1, EOPNOTSUPP);
  EXPECT_CODE(device.query_clock(), kUnsupported);
  fake_.fail("query_device_ex", 1, EIO);
  EXPECT_CODE(device.query_extended(), kProvider);
}

}  // namespace
}  // namespace remora::test
