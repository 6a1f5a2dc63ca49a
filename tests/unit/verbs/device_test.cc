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
}

TEST_F(DeviceTest, EntryOutlivesItsList) {
  const auto entry = verbs::devices(fake_.provider()).value().find("fake0");
  ASSERT_OK(entry);
  EXPECT_EQ(entry->name(), "fake0");
  EXPECT_EQ(entry->guid(), 0x1122334455667788U);
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
  EXPECT_CODE(gids, kProvider);
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

}  // namespace
}  // namespace remora::test
