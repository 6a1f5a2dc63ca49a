// Shared receive queues, address handles, windows, extended queues and asynchronous events.
#include <optional>
#include <sstream>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;
using verbs::Access;

class ObjectsTest : public FakeTest {
 protected:
  void SetUp() override {
    rig_.emplace(open());
    bindable_.emplace(
        rig_->domain.register_bytes(rig_->bytes, Access::kLocalWrite | Access::kWindowBind)
            .value());
  }
  void TearDown() override {
    bindable_.reset();
    rig_.reset();
    EXPECT_EQ(fake_.open_polls, 0);
    EXPECT_EQ(fake_.unacknowledged_async, 0);
    FakeTest::TearDown();
  }
  [[nodiscard]] verbs::QueuePair<verbs::Ud> datagrams() const {
    return verbs::QueuePairBuilder<verbs::Ud>{rig_->domain, rig_->queue, rig_->queue}
        .inline_bytes(32)
        .create()
        .value();
  }
  std::optional<FakeRig> rig_;
  std::optional<verbs::MemoryRegion> bindable_;
};

class SharedReceiveQueue : public ObjectsTest {};

TEST_F(SharedReceiveQueue, TakesReceivesForItsPairs) {
  const auto shared = verbs::SharedReceiveQueue::create(rig_->domain, {.depth = 8}).value();
  auto prepared = rig_->builder().shared_receive_queue(shared).build();
  ASSERT_OK(prepared);
  EXPECT_TRUE(prepared->pair().shared_receive_queue() == shared);
  EXPECT_EQ(prepared->pair().raw()->srq, shared.raw());
  auto receives = shared.start_receives();
  receives.receive(4, rig_->memory.slice(0, 64)).receive(5);
  ASSERT_OK(receives.post());
  ASSERT_OK(shared.post_receive(6, rig_->memory.slice(0, 64)));
  EXPECT_EQ(fake_.received_ids, (std::vector<std::uint64_t>{4, 5, 6}));
  EXPECT_EQ(fake_.uses("post_srq_recv"), 2);
}

TEST_F(SharedReceiveQueue, PairKeepsIt) {
  auto shared = verbs::SharedReceiveQueue::create(rig_->domain).value();
  const auto pair = rig_->builder().shared_receive_queue(shared).create().value();
  shared = {};
  EXPECT_NE(fake_.live().find("srq*1"), std::string::npos);
}

TEST_F(SharedReceiveQueue, LimitsOfTheDeviceAreTold) {
  const auto deep = verbs::SharedReceiveQueue::create(rig_->domain, {.depth = 65});
  EXPECT_CODE(deep, kLimitExceeded);
  EXPECT_EQ(deep.error().allowed(), 64U);
  EXPECT_CODE(verbs::SharedReceiveQueue::create(rig_->domain, {.sge = 3}), kLimitExceeded);
  EXPECT_CODE(verbs::SharedReceiveQueue::create(rig_->domain, {.depth = 0}), kInvalidArgument);
  EXPECT_CODE(verbs::SharedReceiveQueue::create({}), kInvalidArgument);
  fake_.attributes.max_srq = 0;
  EXPECT_CODE(verbs::SharedReceiveQueue::create(open().allocate_domain().value()), kUnsupported);
}

TEST_F(SharedReceiveQueue, OfAnotherDomainIsInvalid) {
  const auto other = rig_->device.allocate_domain().value();
  const auto shared = verbs::SharedReceiveQueue::create(other).value();
  EXPECT_CODE(rig_->builder().shared_receive_queue(shared).build(), kInvalidArgument);
}

TEST_F(SharedReceiveQueue, LimitAndQueryAreTheDevices) {
  const auto shared = verbs::SharedReceiveQueue::create(rig_->domain, {.depth = 8}).value();
  ASSERT_OK(shared.set_limit(3));
  const auto attributes = shared.query();
  ASSERT_OK(attributes);
  EXPECT_EQ(attributes->depth, 8U);
  EXPECT_EQ(attributes->limit, 3U);
  fake_.fail("modify_srq");
  EXPECT_CODE(shared.set_limit(4), kProvider);
  fake_.fail("query_srq");
  EXPECT_CODE(shared.query(), kProvider);
  fake_.fail("post_srq_recv", 1, ENOMEM);
  const auto refused = shared.post_receive(1, rig_->memory.slice(0, 8));
  EXPECT_CODE(refused, kWouldBlock);
  EXPECT_EQ(refused.error().operation(), "ibv_post_srq_recv");
}

class AddressHandle : public ObjectsTest {};

TEST_F(AddressHandle, DatagramGoesToItsPeer) {
  auto pair = datagrams();
  verbs::DatagramEndpoint endpoint;
  endpoint.qp_number = 9;
  endpoint.qkey = 0x55;
  endpoint.gid.bytes[0] = 0x20;
  const verbs::AddressVector source{.port = 1, .route = verbs::GlobalRoute{.source_index = 1}};
  const auto peer = verbs::DatagramPeer::create(rig_->domain, endpoint, source);
  ASSERT_OK(peer);
  ASSERT_EQ(fake_.paths.size(), 1U);
  EXPECT_EQ(fake_.paths[0].grh.sgid_index, 1);
  EXPECT_EQ(fake_.paths[0].grh.dgid.raw[0], 0x20);
  auto batch = pair.start();
  batch.send(1, rig_->memory.slice(0, 64), *peer);
  batch.send_with_immediate(2, rig_->memory.slice(0, 64), 77, *peer).unsignaled();
  const std::array<std::byte, 8> bytes{};
  batch.send_inline(3, bytes, *peer).solicited();
  ASSERT_OK(batch.post());
  ASSERT_EQ(fake_.sent[0].size(), 3U);
  for (const ibv_send_wr& wr : fake_.sent[0]) {
    EXPECT_EQ(wr.wr.ud.ah, peer->handle().raw());
    EXPECT_EQ(wr.wr.ud.remote_qpn, 9U);
    EXPECT_EQ(wr.wr.ud.remote_qkey, 0x55U);
  }
  EXPECT_EQ(ntohl(fake_.sent[0][1].imm_data), 77U);
}

TEST_F(AddressHandle, EveryPartOfThePathReachesTheDevice) {
  const verbs::AddressVector path{
      .port = 1,
      .lid = 0x1234,
      .service_level = 5,
      .source_path_bits = 3,
      .static_rate = IBV_RATE_25_GBPS,
      .route = verbs::GlobalRoute{
          .source_index = 1, .hop_limit = 7, .traffic_class = 0x68, .flow_label = 0xabcde}};
  const auto handle = verbs::AddressHandle::create(rig_->domain, path);
  ASSERT_OK(handle);
  EXPECT_EQ(handle->path(), path);
  ASSERT_EQ(fake_.paths.size(), 1U);
  const ibv_ah_attr& asked = fake_.paths[0];
  EXPECT_EQ(asked.port_num, 1);
  EXPECT_EQ(asked.dlid, 0x1234);
  EXPECT_EQ(asked.sl, 5);
  EXPECT_EQ(asked.src_path_bits, 3);
  EXPECT_EQ(asked.static_rate, IBV_RATE_25_GBPS);
  EXPECT_EQ(asked.is_global, 1);
  EXPECT_EQ(asked.grh.sgid_index, 1);
  EXPECT_EQ(asked.grh.hop_limit, 7);
  EXPECT_EQ(asked.grh.traffic_class, 0x68);
  EXPECT_EQ(asked.grh.flow_label, 0xabcdeU);
  EXPECT_EQ(verbs::AddressVector::from(asked), path);
}

TEST_F(AddressHandle, ReplyGoesBackToTheSender) {
  verbs::Completion completion;
  completion.raw().opcode = IBV_WC_RECV;
  completion.raw().wc_flags = IBV_WC_GRH;
  completion.raw().slid = 12;
  std::array<std::byte, 40> header{};
  header[8] = std::byte{0x20};  // the sender's GID
  const auto handle = verbs::AddressHandle::reply(rig_->domain, completion, header);
  ASSERT_OK(handle);
  EXPECT_EQ(handle->path().lid, 12);
  EXPECT_EQ(handle->path().route->destination.bytes[0], 0x20);
  EXPECT_TRUE(completion.has_route_header());
  EXPECT_CODE(verbs::AddressHandle::reply(rig_->domain, completion, std::span{header}.first(39)),
              kInvalidArgument);
  completion.raw().opcode = IBV_WC_SEND;
  EXPECT_CODE(verbs::AddressHandle::reply(rig_->domain, completion, header), kInvalidArgument);
}

TEST_F(AddressHandle, FailuresSayWhichWay) {
  verbs::AddressVector path{.port = 2};
  const auto port = verbs::AddressHandle::create(rig_->domain, path);
  EXPECT_CODE(port, kInvalidArgument);
  EXPECT_EQ(port.error().allowed(), 1U);
  path.port = 1;
  path.route = verbs::GlobalRoute{.source_index = 1};
  fake_.fail("create_ah", 1, ETIMEDOUT);
  const auto unset = verbs::AddressHandle::create(rig_->domain, path);
  EXPECT_CODE(unset, kUnreachable);
  EXPECT_EQ(unset.error().reason(), Reason::kGidUnset);
  fake_.fail("create_ah", 1, ENOMEM);
  EXPECT_CODE(verbs::AddressHandle::create(rig_->domain, path), kOutOfMemory);
  EXPECT_CODE(verbs::AddressHandle::create({}, path), kInvalidArgument);
}

class MemoryWindow : public ObjectsTest {};

TEST_F(MemoryWindow, BindChangesTheKeyAndNamesTheBytes) {
  auto pair = rig_->connected();
  auto window = pair.allocate_window().value();
  const auto before = window.rkey();
  auto batch = pair.start();
  batch.bind_window(1, window, *bindable_, 256, 512, Access::kRemoteRead);
  ASSERT_OK(batch.post());
  EXPECT_EQ(window.rkey(), before + 1);
  EXPECT_EQ(window.remote(), (verbs::RemoteSlice{bindable_->address() + 256, 512, window.rkey()}));
  const ibv_send_wr& wr = fake_.sent[0][0];
  EXPECT_EQ(wr.bind_mw.mw, window.raw());
  EXPECT_EQ(wr.bind_mw.rkey, window.rkey());
  EXPECT_EQ(wr.bind_mw.bind_info.length, 512U);
  EXPECT_EQ(wr.bind_mw.bind_info.mw_access_flags, unsigned{IBV_ACCESS_REMOTE_READ});
  batch.invalidate(2, window);
  batch.send_with_invalidate(3, verbs::LocalSlice{}, 99);
  ASSERT_OK(batch.post());
  EXPECT_EQ(fake_.sent[1][0].invalidate_rkey, window.rkey());
  EXPECT_EQ(fake_.sent[1][1].invalidate_rkey, 99U);
}

TEST_F(MemoryWindow, MisuseIsToldByPost) {
  auto pair = rig_->connected();
  auto other = rig_->connected();
  auto window = pair.allocate_window().value();
  auto batch = pair.start();
  batch.bind_window(1, window, *bindable_, 4000, 97, Access::kRemoteRead);
  EXPECT_CODE(batch.post(), kOutOfRange);
  batch.bind_window(1, window, rig_->memory, 0, 8, Access::kRemoteRead);  // without kWindowBind
  EXPECT_CODE(batch.post(), kInvalidArgument);
  auto wrong = other.start();
  wrong.bind_window(1, window, *bindable_, 0, 8, Access::kRemoteRead);
  EXPECT_CODE(wrong.post(), kInvalidArgument);
  wrong.invalidate(1, window);
  EXPECT_CODE(wrong.post(), kInvalidArgument);
  EXPECT_EQ(fake_.uses("post_send"), 0);
}

// The fake notes a queue pair or a registration that goes while a window is bound.
TEST_F(MemoryWindow, GoesBeforeItsPairAndItsRegion) {
  std::optional pair{rig_->connected()};
  auto window = pair->allocate_window().value();
  auto kept = pair->allocate_window().value();
  auto batch = pair->start();
  batch.bind_window(1, window, *bindable_, 0, 64, Access::kRemoteRead);
  ASSERT_OK(batch.post());
  bindable_.reset();
  EXPECT_TRUE(window.freed());
  EXPECT_FALSE(kept.freed());
  batch.invalidate(2, window);
  EXPECT_CODE(batch.post(), kClosed);
  pair.reset();
  EXPECT_TRUE(kept.freed());
  EXPECT_EQ(fake_.uses("dealloc_mw"), 2);
}

TEST_F(MemoryWindow, MayBeMovedAndDroppedWhileBound) {
  auto pair = rig_->connected();
  auto first = pair.allocate_window().value();
  auto second = pair.allocate_window().value();
  auto batch = pair.start();
  batch.bind_window(1, first, *bindable_, 0, 64, Access::kRemoteRead);
  batch.bind_window(2, second, *bindable_, 64, 64, Access::kRemoteRead);
  ASSERT_OK(batch.post());
  first = std::move(second);
  EXPECT_EQ(fake_.uses("dealloc_mw"), 1);
  EXPECT_FALSE(first.freed());
}

// Those that are gone are forgotten now and then; those that are there never.
TEST_F(MemoryWindow, ManyOfOneRegionAllGoBeforeIt) {
  auto pair = rig_->connected();
  constexpr std::size_t kCount = 200;
  std::vector<verbs::MemoryWindow> windows;
  windows.reserve(kCount);
  const auto bind = [&](verbs::MemoryWindow& window) {
    auto batch = pair.start();
    batch.bind_window(1, window, *bindable_, 0, 64, Access::kRemoteRead);
    return batch.post();
  };
  for (std::size_t i = 0; i < kCount; ++i) {
    auto gone = pair.allocate_window().value();
    ASSERT_OK(bind(gone));
    windows.push_back(pair.allocate_window().value());
    for (int again = 0; again < 2; ++again) ASSERT_OK(bind(windows.back()));
  }
  bindable_.reset();
  for (const verbs::MemoryWindow& window : windows) EXPECT_TRUE(window.freed());
  EXPECT_EQ(fake_.uses("dealloc_mw"), 2 * static_cast<int>(kCount));
}

TEST_F(MemoryWindow, FailedFreeIsCounted) {
  const auto count = verbs::teardown_failure_count();
  {
    auto pair = rig_->connected();
    const auto window = pair.allocate_window().value();
    fake_.fail("dealloc_mw", 1, EBUSY);
  }
  EXPECT_EQ(verbs::teardown_failure_count(), count + 1);
}

TEST_F(MemoryWindow, DeviceWithoutThemSaysSo) {
  const auto pair = rig_->connected();
  fake_.fail("alloc_mw", 1, ENOMEM);
  EXPECT_CODE(pair.allocate_window(), kOutOfMemory);
  fake_.attributes.device_cap_flags = 0;
  const FakeRig without{open()};
  EXPECT_CODE(without.connected().allocate_window(), kUnsupported);
}

class ExtendedPoll : public ObjectsTest {};

ibv_wc completed(std::uint64_t id, ibv_wc_status status = IBV_WC_SUCCESS) {
  ibv_wc wc{};
  wc.wr_id = id;
  wc.status = status;
  wc.qp_num = 0x77;
  return wc;
}

TEST_F(ExtendedPoll, IsARangeWithTheFieldsAskedFor) {
  using enum verbs::CompletionFields;
  const auto queue =
      rig_->device.create_completion_queue({.fields = kTimestamp | kQueuePair}).value();
  EXPECT_TRUE(queue.start_poll()->empty());
  fake_.completions = {completed(1), completed(2, IBV_WC_REM_ACCESS_ERR), completed(3)};
  std::string seen;
  {
    auto poll = queue.start_poll();
    ASSERT_OK(poll);
    for (const verbs::ExtendedCompletion& done : *poll) {
      std::ostringstream out;
      out << done << '\n';
      seen += out.str();
      EXPECT_EQ(done.timestamp(), 4711U);
      EXPECT_EQ(done.qp_number(), 0x77U);
      EXPECT_FALSE(done.length_bytes().has_value());
      EXPECT_FALSE(done.wall_clock_ns().has_value());
      if (!done.ok()) {
        EXPECT_EQ(done.error().code(), Code::kAccessRefused);
      }
    }
    EXPECT_TRUE(poll->status().ok());
    EXPECT_EQ(fake_.open_polls, 1);
  }
  EXPECT_EQ(seen, "send id 1 ok\nid 2 remote access error (vendor 0)\nsend id 3 ok\n");
}

TEST_F(ExtendedPoll, EveryFieldReachesTheDevice) {
  using enum verbs::CompletionFields;
  const std::array<std::pair<verbs::CompletionFields, std::uint64_t>, 9> fields{{
      {kLength, IBV_WC_EX_WITH_BYTE_LEN},
      {kImmediate, IBV_WC_EX_WITH_IMM},
      {kQueuePair, IBV_WC_EX_WITH_QP_NUM},
      {kSourceQueuePair, IBV_WC_EX_WITH_SRC_QP},
      {kSourceLid, IBV_WC_EX_WITH_SLID},
      {kServiceLevel, IBV_WC_EX_WITH_SL},
      {kPathBits, IBV_WC_EX_WITH_DLID_PATH_BITS},
      {kTimestamp, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP},
      {kWallClock, IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK},
  }};
  for (const auto& [field, flag] : fields) {
    ASSERT_OK(rig_->device.create_completion_queue({.depth = 9, .vector = 1, .fields = field}));
    EXPECT_EQ(fake_.queues.back().fields, flag);
    EXPECT_EQ(fake_.queues.back().vector, 1U);
    EXPECT_EQ(fake_.queues.back().depth, 9U);
  }
  ASSERT_OK(rig_->device.create_completion_queue({.fields = kStandard}));
  EXPECT_EQ(fake_.queues.back().fields, std::uint64_t{IBV_WC_STANDARD_FLAGS});
}

TEST_F(ExtendedPoll, WhatTheLoopLeavesStays) {
  const auto queue =
      rig_->device.create_completion_queue({.fields = verbs::CompletionFields::kStandard}).value();
  fake_.completions = {completed(1), completed(2)};
  for (const auto& done : queue.start_poll().value()) {
    EXPECT_EQ(done.id(), 1U);
    break;
  }
  EXPECT_EQ(fake_.completions.size(), 1U);
  std::array<verbs::Completion, 2> storage;
  EXPECT_EQ(queue.poll(storage)->size(), 1U);  // the plain poll works too
}

TEST_F(ExtendedPoll, KeepsItsQueueAndMoves) {
  std::optional queue{
      rig_->device.create_completion_queue({.fields = verbs::CompletionFields::kStandard}).value()};
  fake_.completions = {completed(1), completed(2)};
  auto first = queue->start_poll().value();
  queue.reset();
  auto second = std::move(first);
  EXPECT_TRUE(first.empty());  // NOLINT(bugprone-use-after-move)
  std::uint64_t ids = 0;
  for (const auto& done : second) ids += done.id();
  EXPECT_EQ(ids, 3U);
  EXPECT_EQ(fake_.open_polls, 1);
}

TEST_F(ExtendedPoll, FailuresAreTold) {
  EXPECT_CODE(rig_->queue.start_poll(), kInvalidArgument);
  fake_.fail("create_cq_ex", 1, EOPNOTSUPP);
  EXPECT_CODE(rig_->device.create_completion_queue({.fields = verbs::CompletionFields::kTimestamp}),
              kUnsupported);
  const auto queue =
      rig_->device.create_completion_queue({.fields = verbs::CompletionFields::kStandard}).value();
  fake_.fail("start_poll", 1, EIO);
  EXPECT_CODE(queue.start_poll(), kProvider);
  fake_.completions = {completed(1), completed(2)};
  fake_.fail("next_poll", 1, EIO);
  auto poll = queue.start_poll().value();
  int count = 0;
  for ([[maybe_unused]] const auto& done : poll) ++count;
  EXPECT_EQ(count, 1);
  EXPECT_CODE(poll.status(), kProvider);
}

class AsyncEvents : public ObjectsTest {};

TEST_F(AsyncEvents, AreTyped) {
  int tag = 0;
  const auto pair = rig_->builder().context(&tag).create().value();
  auto events = verbs::AsyncEvents::open(rig_->device).value();
  EXPECT_FALSE(events.next_event()->has_value());
  ibv_async_event raw{};
  raw.event_type = IBV_EVENT_PORT_ERR;
  raw.element.port_num = 1;
  fake_.happen(rig_->device, raw);
  raw.event_type = IBV_EVENT_QP_FATAL;
  raw.element.qp = pair.raw();
  fake_.happen(rig_->device, raw);
  const auto port = events.wait_event(verbs::deadline_in(milliseconds{10'000}));
  ASSERT_OK(port);
  EXPECT_EQ(port->kind, verbs::AsyncEvent::Kind::kPortError);
  EXPECT_EQ(port->port, 1);
  const auto fatal = events.next_event().value();
  ASSERT_TRUE(fatal.has_value());
  EXPECT_EQ(fatal->object, pair.raw());
  EXPECT_EQ(fatal->context, &tag);
  std::ostringstream out;
  out << *port << "; " << *fatal;
  EXPECT_EQ(out.str(), "port error port 1; queue pair fatal qp 119");
  EXPECT_CODE(events.wait_event(verbs::deadline_in(milliseconds{1})), kTimedOut);
}

TEST_F(AsyncEvents, FailuresAreTold) {
  EXPECT_CODE(verbs::AsyncEvents::open({}), kInvalidArgument);
  auto events = verbs::AsyncEvents::open(rig_->device).value();
  fake_.fail("get_async_event", 1, EIO);
  EXPECT_CODE(events.next_event(), kProvider);
}

class Formats : public ObjectsTest {};

TEST_F(Formats, AreForLogs) {
  std::ostringstream out;
  out << verbs::LocalSlice::unchecked(0x1000, 64, 5) << "; " << verbs::RemoteSlice{0x2000, 8, 6}
      << "; " << verbs::RemoteSlice::invalid() << "; " << verbs::LocalSlice::invalid() << "; "
      << (Access::kLocalWrite | Access::kRemoteRead) << "; "
      << verbs::QueuePairCapabilities{1, 2, 3, 4, 5};
  EXPECT_EQ(out.str(),
            "64 bytes at 0x1000 lkey 5; 8 bytes at 0x2000 rkey 6; invalid slice; invalid slice; "
            "local-write|remote-read; sends 1 receives 2 slices 3/4 inline 5");
  out.str("");
  out << rig_->memory;
  EXPECT_NE(out.str().find("4096 bytes at 0x"), std::string::npos);
  EXPECT_NE(out.str().find("rkey 22 lkey 11 local-write"), std::string::npos) << out.str();
  out.str("");
  out << rig_->device.attributes() << rig_->device.query_extended().value();
  EXPECT_NE(out.str().find("queue pairs 0 of 128 requests, 4 slices"), std::string::npos)
      << out.str();
}

/// A domain for one thread stands on the domain that it was made from, and goes before it.
TEST_F(FakeTest, ThreadDomainKeepsItsDomain) {
  fake_.play(*find_device_profile("mlx5"));
  std::optional<verbs::ProtectionDomain> domain = open().allocate_domain().value();
  std::optional<verbs::ProtectionDomain> thread = domain->for_one_thread().value();
  EXPECT_FALSE(*thread == *domain);
  EXPECT_EQ(thread->base(), *domain);
  EXPECT_EQ(domain->base(), *domain);
  domain.reset();
  EXPECT_EQ(fake_.uses("dealloc_pd"), 0);
  thread.reset();
  EXPECT_EQ(fake_.uses("dealloc_pd"), 2);
  EXPECT_EQ(fake_.uses("dealloc_td"), 1);
}

TEST_F(FakeTest, ThreadDomainThatCannotBeMadeLeavesNothing) {
  fake_.play(*find_device_profile("mlx5"));
  const auto domain = open().allocate_domain().value();
  fake_.fail("alloc_td", 1, ENOMEM);
  EXPECT_CODE(domain.for_one_thread(), kOutOfMemory);
  fake_.fail("alloc_parent_domain", 1, EOPNOTSUPP);
  EXPECT_CODE(domain.for_one_thread(), kUnsupported);
  EXPECT_EQ(fake_.uses("dealloc_td"), 1);
}

TEST_F(FakeTest, DeviceWithoutThreadDomainsSaysSo) {
  fake_.play(*find_device_profile("rxe"));
  const auto domain = open().allocate_domain().value();
  EXPECT_CODE(domain.for_one_thread(), kUnsupported);
}

}  // namespace
}  // namespace remora::test
