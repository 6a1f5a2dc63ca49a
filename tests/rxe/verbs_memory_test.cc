// Kinds of registration, windows, extended queues and what a device tells, on a real device.
#include <sstream>

#include "verbs_loopback.h"

namespace remora::test {
namespace {

using verbs::Access;
using verbs::Completion;

class VerbsMemory : public VerbsLoopback {
 protected:
  // One operation, to its completion.
  Completion run(verbs::Batch<verbs::Rc>& batch) {
    const Status posted = batch.post();
    EXPECT_TRUE(posted.ok()) << posted.error();
    return rig_->complete(1)[0];
  }
};

TEST_F(VerbsMemory, OwnedAndAllocatedRegionsWork) {
  std::vector<std::uint64_t> numbers(64, 0x1122334455667788);
  const auto owned =
      verbs::MemoryRegion::register_owned(rig_->domain, std::move(numbers), Access::kLocalWrite);
  ASSERT_OK(owned);
  const auto allocated =
      verbs::MemoryRegion::allocate(rig_->domain, 4096, Access::kLocalWrite | Access::kRemoteWrite);
  ASSERT_OK(allocated);
  auto batch = pair_->start();
  batch.write(1, owned->slice(0, 512), allocated->remote(1024, 512));
  const auto done = run(batch);
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_EQ(std::memcmp(owned->bytes().data(), allocated->bytes().data() + 1024, 512), 0);
}

TEST_F(VerbsMemory, SlicesOfAChosenAddressWork) {
  const auto in_page = reinterpret_cast<std::uintptr_t>(rig_->bytes.data()) % 4096;
  for (const std::uint64_t iova : {std::uint64_t{0}, std::uint64_t{0x7000'0000'0000}}) {
    const auto region = verbs::MemoryRegion::register_at(rig_->domain, rig_->bytes, iova + in_page,
                                                         Rig::kAllRights);
    ASSERT_OK(region);
    rig_->fill(0, 256, 1);
    std::memset(rig_->at(8192), 0, 256);
    auto batch = pair_->start();
    batch.write(1, region->slice(0, 256), region->remote(8192, 256));
    const auto done = run(batch);
    ASSERT_TRUE(done.ok()) << done;
    EXPECT_TRUE(same(0, 8192, 256));
  }
}

TEST_F(VerbsMemory, ZeroBasedRegionBeginsAtZero) {
  const auto region = verbs::MemoryRegion::allocate(
      rig_->domain, 8192,
      Access::kLocalWrite | Access::kRemoteWrite | Access::kRemoteRead | Access::kZeroBased);
  if (!region) GTEST_SKIP() << region.error();
  EXPECT_EQ(region->address(), 0U);
  const auto bytes = region->bytes();
  ASSERT_FALSE(bytes.empty() || bytes.data() == nullptr);
  bytes.front() = std::byte{9};
  auto batch = pair_->start();
  batch.write(1, region->slice(0, 1), region->remote(4096, 1));
  const auto done = run(batch);
  ASSERT_TRUE(done.ok()) << done;
  EXPECT_EQ(std::to_integer<int>(bytes[4096]), 9);
}

TEST_F(VerbsMemory, EveryFlagIsTakenOrNamed) {
  for (const Access flag : {Access::kRelaxedOrdering, Access::kOnDemand, Access::kHugePages}) {
    const auto region = rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | flag);
    if (region) continue;
    EXPECT_NE(region.error().system_errno(), 0) << flag;
    EXPECT_FALSE(region.error().remedy().empty()) << region.error();
  }
}

TEST_F(VerbsMemory, AdviceIsTakenOrUnsupported) {
  const std::array<verbs::LocalSlice, 1> ranges{local(0, 4096)};
  const auto advised = verbs::MemoryRegion::advise(rig_->domain, verbs::Advice::kPrefetch, ranges);
  if (advised.ok()) return;
  EXPECT_EQ(advised.error().code(), Code::kUnsupported) << advised.error();
}

TEST_F(VerbsMemory, WhatIsNoDmabufIsRefused) {
  const auto region =
      verbs::MemoryRegion::register_dmabuf(rig_->domain, 0, 0, 4096, 0, Access::kLocalWrite);
  ASSERT_FALSE(region.ok());
  EXPECT_FALSE(region.error().remedy().empty()) << region.error();
}

TEST_F(VerbsMemory, WindowIsBoundUsedAndTakenBack) {
  const auto region =
      rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind);
  ASSERT_OK(region);
  auto window = pair_->allocate_window();
  if (!window) GTEST_SKIP() << window.error();
  rig_->fill(0, 64, 4);
  auto batch = pair_->start();
  batch.bind_window(1, *window, *region, 8192, 4096, Access::kRemoteWrite | Access::kRemoteRead);
  ASSERT_TRUE(run(batch).ok());
  const auto granted = window->remote();
  batch.write(2, local(0, 64), granted.slice(0, 64));
  const auto written = run(batch);
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_TRUE(same(0, 8192, 64));
  batch.invalidate(3, *window);
  ASSERT_TRUE(run(batch).ok());
  batch.write(4, local(0, 64), granted.slice(0, 64));
  const auto refused = run(batch);
  EXPECT_EQ(refused.status(), CompletionStatus::kRemoteAccessError) << refused;
}

TEST_F(VerbsMemory, WindowWithoutTheRightRefuses) {
  const auto region =
      rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind);
  ASSERT_OK(region);
  auto window = pair_->allocate_window();
  if (!window) GTEST_SKIP() << window.error();
  auto batch = pair_->start();
  batch.bind_window(1, *window, *region, 8192, 4096, Access::kRemoteRead);
  ASSERT_TRUE(run(batch).ok());
  batch.write(2, local(0, 64), window->remote().slice(0, 64));
  EXPECT_EQ(run(batch).status(), CompletionStatus::kRemoteAccessError);
}

// ibv_destroy_qp with a bound window takes a minute and leaves a kernel trace; ibv_dereg_mr
// refuses.
TEST_F(VerbsMemory, BoundWindowsGoFirstInAnyOrder) {
  for (int order = 0; order < 3; ++order) {
    auto prepared = rig_->builder().build();
    ASSERT_OK(prepared);
    const auto self = prepared->endpoint();
    auto connected = std::move(*prepared).connect(self);
    ASSERT_OK(connected);
    std::optional pair{std::move(*connected)};
    auto registered =
        rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind);
    ASSERT_OK(registered);
    std::optional region{std::move(*registered)};
    auto allocated = pair->allocate_window();
    if (!allocated) GTEST_SKIP() << allocated.error();
    std::optional window{std::move(*allocated)};
    auto batch = pair->start();
    batch.bind_window(1, *window, *region, 0, 4096, Access::kRemoteRead);
    ASSERT_OK(batch.post());
    ASSERT_TRUE(rig_->complete(1)[0].ok());
    const auto started = std::chrono::steady_clock::now();
    if (order == 0) pair.reset();
    if (order == 1) region.reset();
    if (order == 2) {
      ASSERT_OK(pair->to_error());
      window.reset();
    }
    if (window) {
      EXPECT_TRUE(window->freed());
    }
    window.reset();
    region.reset();
    pair.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds{20});
  }
}

TEST_F(VerbsMemory, ExtendedQueueTellsItsFields) {
  using enum verbs::CompletionFields;
  auto extended = rig_->device.create_completion_queue(
      {.depth = 32, .events = true, .fields = kLength | kQueuePair | kImmediate});
  if (!extended) GTEST_SKIP() << extended.error();
  connect(verbs::QueuePairBuilder<verbs::Rc>{rig_->domain, *extended, *extended}
              .inline_bytes(32)
              .timeout(18));
  ASSERT_OK(pair_->post_receive(1, local(0, 64)));
  ASSERT_OK(extended->arm());
  auto batch = pair_->start();
  batch.send_inline(2, std::as_bytes(std::span{"seven.."}));
  ASSERT_OK(batch.post());
  int seen = 0;
  const auto give_up = soon();
  while (seen < 2 && std::chrono::steady_clock::now() < give_up) {
    auto poll = extended->start_poll();
    ASSERT_OK(poll);
    for (const verbs::ExtendedCompletion& done : *poll) {
      EXPECT_TRUE(done.ok()) << done;
      EXPECT_EQ(done.qp_number(), pair_->number());
      EXPECT_FALSE(done.timestamp().has_value());
      if (done.opcode() == verbs::Opcode::kReceive) {
        EXPECT_EQ(done.length_bytes(), 8U);
        EXPECT_FALSE(done.immediate().has_value());
      }
      ++seen;
    }
  }
  EXPECT_EQ(seen, 2);
}

TEST_F(VerbsMemory, TimestampsAreThereOrUnsupported) {
  const auto queue =
      rig_->device.create_completion_queue({.fields = verbs::CompletionFields::kTimestamp});
  const auto extended = rig_->device.query_extended();
  if (queue) {
    ASSERT_OK(extended);
    EXPECT_NE(extended->completion_timestamp_mask, 0U);
  } else {
    EXPECT_EQ(queue.error().code(), Code::kUnsupported) << queue.error();
  }
}

TEST_F(VerbsMemory, DeviceTellsItsTables) {
  const auto gids = rig_->device.query_gids();
  ASSERT_OK(gids);
  ASSERT_FALSE(gids->empty());
  for (const verbs::GidEntry& entry : *gids) {
    const auto one = rig_->device.query_gid(entry.port, entry.index);
    ASSERT_OK(one);
    EXPECT_EQ(one->gid, entry.gid);
    EXPECT_EQ(one->type, entry.type);
    EXPECT_EQ(one->interface_name().empty(), entry.interface_index == 0);
  }
  const auto beyond = rig_->device.query_gid(1, 100'000);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code(), Code::kNotFound) << beyond.error();
  EXPECT_EQ(rig_->device.query_pkey(1, 0).value() & 0x7fff, 0x7fff);
  const auto port = rig_->device.query_port(1).value();
  EXPECT_GT(port.width, 0);
  EXPECT_GT(port.gigabits_per_s(), 0.0);
  EXPECT_EQ(port.physical_state, verbs::PhysicalState::kLinkUp);
  const auto extended = rig_->device.query_extended();
  ASSERT_OK(extended);
  EXPECT_EQ(extended->port_count, rig_->device.attributes().port_count);
  const auto entry = verbs::devices().value().find(device_name_).value();
  EXPECT_EQ(entry.node_type(), verbs::NodeType::kChannelAdapter);
  EXPECT_EQ(entry.transport(), verbs::TransportType::kInfiniBand);
  EXPECT_FALSE(entry.guid().is_zero());
  EXPECT_EQ(rig_->device.attributes().system_guid.is_zero(), false);
  std::ostringstream out;
  out << entry << '\n' << rig_->device.attributes() << *extended << port;
  EXPECT_NE(out.str().find("Gb/s"), std::string::npos);
}

TEST_F(VerbsMemory, AsyncStreamIsQuietWhenNothingHappens) {
  auto events = verbs::AsyncEvents::open(rig_->device);
  ASSERT_OK(events);
  const auto none = events->next_event();
  ASSERT_OK(none);
  EXPECT_FALSE(none->has_value());
}

}  // namespace
}  // namespace remora::test
