#include <sstream>

#include "rxe_fixture.h"

namespace remora::test {
namespace {

using verbs::Access;

class VerbsDevice : public RxeTest {
 protected:
  verbs::Device open() {
    return verbs::devices().value().find(device_name_).value().open().value();
  }
};

TEST_F(VerbsDevice, IsListedWithItsAttributes) {
  const auto list = verbs::devices();
  ASSERT_OK(list);
  const auto entry = list->find(device_name_);
  ASSERT_OK(entry);
  const auto device = entry->open();
  ASSERT_OK(device);
  EXPECT_EQ(device->name(), device_name_);
  EXPECT_EQ(device->attributes().node_guid, entry->guid());
  EXPECT_GE(entry->index(), 0);
  EXPECT_GT(device->attributes().max_qp_wr, 0U);
  EXPECT_GT(device->attributes().max_cqe, 0U);
  EXPECT_GT(device->attributes().max_mr_bytes, 1U << 20);
  EXPECT_GT(device->attributes().max_initiator_depth, 0);
  ibv_device_attr raw{};
  ASSERT_EQ(::ibv_query_device(device->raw(), &raw), 0);
  EXPECT_STREQ(device->attributes().firmware.data(), raw.fw_ver);
  std::ostringstream out;
  out << device->attributes();
  EXPECT_TRUE(out.str().starts_with("firmware " + std::string{raw.fw_ver} + '\n')) << out.str();
  EXPECT_FALSE(device->is_iwarp());
}

TEST_F(VerbsDevice, RxeIsSoftwareWithDeviceAtomics) {
  const auto device = open();
  if (!device_name_.starts_with("rxe")) GTEST_SKIP() << device_name_ << " is not rxe by its name";
  EXPECT_TRUE(device.is_software());
  EXPECT_EQ(device.attributes().atomics, verbs::AtomicSupport::kDevice);
  EXPECT_TRUE(device.attributes().memory_window_type_2);
}

TEST_F(VerbsDevice, PortIsActive) {
  const auto port = open().query_port(1);
  ASSERT_OK(port);
  EXPECT_TRUE(port->active()) << verbs::to_string(port->state);
  EXPECT_GE(verbs::mtu_bytes(port->active_mtu), 256U);
}

TEST_F(VerbsDevice, PortBeyondTheLastIsInvalid) {
  const auto device = open();
  const auto port =
      device.query_port(static_cast<std::uint8_t>(device.attributes().port_count + 1));
  ASSERT_FALSE(port.ok());
  EXPECT_EQ(port.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(port.error().allowed(), device.attributes().port_count);
}

TEST_F(VerbsDevice, GidChoiceIsRoutableAndSaysWhy) {
  const auto choice = open().choose_gid();
  ASSERT_OK(choice);
  const auto taken = choice->taken();
  ASSERT_OK(taken);
  if (taken->type == verbs::GidType::kRoceV2) {
    EXPECT_FALSE(taken->gid.is_link_local());
  }
  EXPECT_NE(choice->to_string().find("taken"), std::string::npos);
  for (const auto& candidate : choice->candidates()) {
    if (candidate.entry.type == verbs::GidType::kRoceV2 && candidate.entry.gid.is_link_local()) {
      EXPECT_EQ(candidate.verdict, verbs::GidVerdict::kLinkLocal);
    }
  }
}

TEST_F(VerbsDevice, ConnectionManagerDeviceIsOneHandle) {
  const auto first = verbs::connection_manager_devices();
  const auto second = verbs::connection_manager_devices();
  ASSERT_OK(first);
  ASSERT_OK(second);
  ASSERT_EQ(first->size(), second->size());
  for (std::size_t i = 0; i < first->size(); ++i) {
    EXPECT_TRUE((*first)[i] == (*second)[i]);
  }
}

TEST_F(VerbsDevice, ChildrenKeepTheirParents) {
  auto rig = Rig::create(open());
  ASSERT_OK(rig);
  auto pair = rig->builder().build();
  ASSERT_OK(pair);
  rig->memory.reset();
  rig->queue = {};
  rig->domain = {};
  rig->device = {};
  const auto state = pair->pair().query_state();  // everything it needs is still there
  ASSERT_OK(state);
  EXPECT_EQ(*state, verbs::QueuePairState::kInit);
}

TEST_F(VerbsDevice, DepthBeyondTheDeviceIsTold) {
  auto rig = Rig::create(open());
  ASSERT_OK(rig);
  const auto limit = rig->device.attributes().max_qp_wr;
  const auto pair = rig->builder().send_depth(limit + 1).build();
  ASSERT_FALSE(pair.ok());
  EXPECT_EQ(pair.error().code(), Code::kLimitExceeded);
  EXPECT_EQ(pair.error().asked(), limit + 1);
  EXPECT_EQ(pair.error().allowed(), limit);
  EXPECT_EQ(pair.error().remedy(), "ask for less: 'ibv_devinfo -v' shows the device's limits");
}

TEST_F(VerbsDevice, CompletionQueueDepthBeyondTheDeviceIsTold) {
  const auto device = open();
  const auto limit = device.attributes().max_cqe;
  const auto queue = device.create_completion_queue({.depth = limit + 1});
  ASSERT_FALSE(queue.ok());
  EXPECT_EQ(queue.error().code(), Code::kLimitExceeded) << queue.error();
  EXPECT_EQ(queue.error().asked(), limit + 1);
  EXPECT_EQ(queue.error().allowed(), limit);
  EXPECT_EQ(queue.error().remedy(), "ask for less: 'ibv_devinfo -v' shows the device's limits");
}

TEST_F(VerbsDevice, SharedReceivesBeyondTheDeviceAreTold) {
  const auto domain = open().allocate_domain();
  ASSERT_OK(domain);
  const verbs::DeviceAttributes& limits = domain->device().attributes();
  const auto deep = verbs::SharedReceiveQueue::create(*domain, {.depth = limits.max_srq_wr + 1});
  ASSERT_FALSE(deep.ok());
  if (limits.max_srq_count == 0) {
    EXPECT_EQ(deep.error().code(), Code::kUnsupported) << deep.error();
    GTEST_SKIP() << deep.error();
  }
  EXPECT_EQ(deep.error().code(), Code::kLimitExceeded) << deep.error();
  EXPECT_EQ(deep.error().subject(), "depth");
  EXPECT_EQ(deep.error().asked(), limits.max_srq_wr + 1);
  EXPECT_EQ(deep.error().allowed(), limits.max_srq_wr);
  EXPECT_EQ(deep.error().remedy(), "ask for less: 'ibv_devinfo -v' shows the device's limits");
  const auto wide = verbs::SharedReceiveQueue::create(*domain, {.sge = limits.max_srq_sge + 1});
  ASSERT_FALSE(wide.ok());
  EXPECT_EQ(wide.error().code(), Code::kLimitExceeded) << wide.error();
  EXPECT_EQ(wide.error().subject(), "sge");
  EXPECT_EQ(wide.error().allowed(), limits.max_srq_sge);
}

TEST_F(VerbsDevice, InlineBeyondTheDeviceNamesTheNumber) {
  auto rig = Rig::create(open());
  ASSERT_OK(rig);
  const auto pair = rig->builder().inline_bytes(1 << 20).build();
  ASSERT_FALSE(pair.ok());
  EXPECT_NE(pair.error().subject().find("1048576 inline bytes"), std::string::npos) << pair.error();
}

// The program of verbs/README.md.
TEST_F(VerbsDevice, ExampleOfTheReadmeRuns) {
  std::vector<std::byte> buffer(4096);
  auto device = verbs::devices().value().find(device_name_).value().open().value();
  auto domain = device.allocate_domain().value();
  auto memory = domain
                    .register_bytes(
                        buffer, Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteAtomic)
                    .value();
  auto queue = device.create_completion_queue({.depth = 128, .events = true}).value();
  auto prepared = verbs::QueuePairBuilder<verbs::Rc>{domain, queue, queue}
                      .send_depth(64)
                      .timeout(18)
                      .build()
                      .value();
  auto self = prepared.endpoint();
  auto pair = std::move(prepared).connect(self).value();
  auto batch = pair.start();
  batch.write(1, memory.slice(0, 64), memory.remote(1024, 64)).unsignaled();
  batch.fetch_add(2, memory.slice(64, 8), memory.remote(2048, 8), 1);
  batch.post().value();
  std::array<verbs::Completion, 16> storage;
  std::ostringstream out;
  for (const auto& done : queue.wait(storage, verbs::deadline_in(std::chrono::seconds{5})).value())
    out << done << '\n';
  EXPECT_EQ(out.str(), "fetch-add id 2 ok\n");
}

}  // namespace
}  // namespace remora::test
