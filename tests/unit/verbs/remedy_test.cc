// What a refused call says: what it was about, both numbers, and what to do.
#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Access;
using verbs::LocalSlice;

class RemedyTest : public FakeTest {
 protected:
  // `subject` whole, and `remedy` a part of the remedy.
  static void expect_told(const Error& error, std::string_view subject, std::string_view remedy) {
    EXPECT_EQ(error.subject(), subject) << error;
    EXPECT_NE(error.remedy().find(remedy), std::string_view::npos) << error;
  }
  static void expect_numbers(const Error& error, std::uint64_t asked, std::uint64_t allowed) {
    EXPECT_TRUE(error.has_limit()) << error;
    EXPECT_EQ(error.asked(), asked) << error;
    EXPECT_EQ(error.allowed(), allowed) << error;
  }
};

TEST_F(RemedyTest, QueueOptionsAreNamedWithTheirNumbers) {
  const auto device = open();
  const auto refused = [&](const verbs::CompletionQueueOptions& options) {
    const Error error = error_of(device.create_completion_queue(options));
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error;
    return error;
  };
  const Error depth = refused({.depth = 0});
  expect_told(depth, "depth", "at least one entry");
  expect_numbers(depth, 0, 1024);
  const Error vector = refused({.depth = 8, .vector = 2});
  expect_told(vector, "vector", "Device::completion_vector_count()");
  expect_numbers(vector, 2, 1);
  expect_told(refused({.depth = 8, .vector = -1}), "vector -1", "completion_vector_count()");
  const auto channel = device.create_completion_channel().value();
  const Error both = refused({.depth = 8, .events = true, .channel = channel});
  expect_told(both, "channels, own and shared", "events or channel, not both");
  expect_numbers(both, 2, 1);
  const auto other = open().create_completion_channel().value();
  expect_told(refused({.depth = 8, .channel = other}), "the channel belongs to another device",
              "of its own device");
  expect_told(error_of(verbs::CompletionQueue::create({}, {})), "no device", "completion queue");
}

TEST_F(RemedyTest, DeviceWithoutVectorsHasNoQueues) {
  const auto device = open();
  device.raw()->num_comp_vectors = 0;
  EXPECT_EQ(device.completion_vector_count(), 0U);
  EXPECT_CODE(device.create_completion_queue({.depth = 8}), kInvalidArgument);
}

TEST_F(RemedyTest, QueuesWithoutAChannelSayHowToGetOne) {
  const auto queue = open().create_completion_queue({.depth = 8}).value();
  std::array<verbs::Completion, 1> storage;
  expect_told(error_of(queue.arm()), "no channel", "CompletionQueueOptions::events");
  expect_told(error_of(queue.take_events()), "no channel of its own", "events");
  const auto soon = verbs::deadline_in(std::chrono::milliseconds{1});
  expect_told(error_of(queue.wait(storage, soon)), "no channel of its own", "events");
  expect_told(error_of(queue.wait({}, soon)), "an empty storage", "storage");
  expect_told(error_of(queue.start_poll()), "a queue without fields", "poll()");
}

TEST_F(RemedyTest, BadRangesHaveAddressAndLength) {
  const auto domain = open().allocate_domain().value();
  alignas(4096) static std::array<std::byte, 4096> page{};
  const auto bytes = std::span{page}.last(16);
  std::array<char, 32> hex{};
  std::snprintf(hex.data(), hex.size(), "%p", static_cast<void*>(bytes.data()));
  const std::string address{hex.data()};

  const auto none = domain.register_bytes({bytes.data(), 0}, Access::kNone);
  EXPECT_CODE(none, kInvalidArgument);
  expect_told(none.error(), "no bytes at " + address, "at least one byte");
  const std::span<std::byte> wrapping{bytes.data(), SIZE_MAX - 1};
  const auto wraps = domain.register_bytes(wrapping, Access::kNone);
  EXPECT_CODE(wraps, kInvalidArgument);
  expect_told(wraps.error(), "bytes at " + address + " wrap around", "same buffer");
  expect_numbers(wraps.error(), SIZE_MAX - 1,
                 UINTPTR_MAX - reinterpret_cast<std::uintptr_t>(bytes.data()));

  const auto beyond =
      verbs::MemoryRegion::register_at(domain, bytes, UINT64_MAX - 15, Access::kNone);
  EXPECT_CODE(beyond, kInvalidArgument);
  expect_told(beyond.error(), "bytes at iova 0xfffffffffffffff0 wrap around", "same buffer");
  expect_numbers(beyond.error(), 16, 15);
  const Error empty = error_of(verbs::MemoryRegion::allocate(domain, 0, Access::kNone));
  expect_told(empty, "no bytes", "at least one byte");
  expect_numbers(empty, 0, std::uint64_t{1} << 30);

  auto cache = verbs::MrCache::create(domain, {.invalidation = verbs::Invalidation::kExplicit});
  ASSERT_OK(cache);
  const auto cached = cache->acquire(wrapping, Access::kLocalWrite);
  EXPECT_CODE(cached, kInvalidArgument);
  expect_told(cached.error(), "bytes at " + address + " wrap around", "same buffer");
  expect_told(error_of(cache->acquire({}, Access::kLocalWrite)), "no bytes at 0x0", "at least");
}

TEST_F(RemedyTest, EmptyParentsAreNamed) {
  const auto device = open();
  const auto domain = device.allocate_domain().value();
  std::array<std::byte, 16> bytes{};
  const auto told = [](const auto& result, std::string_view subject) {
    const Error error = error_of(result);
    EXPECT_EQ(error.code(), Code::kInvalidArgument) << error;
    expect_told(error, subject, "empty or of another device");
  };
  told(verbs::ProtectionDomain::allocate({}), "no device");
  told(verbs::CompletionChannel::create({}), "no device");
  told(verbs::AsyncEvents::open({}), "no device");
  told(verbs::MemoryRegion::register_bytes({}, bytes, Access::kNone), "no protection domain");
  told(verbs::MemoryRegion::allocate({}, 16, Access::kNone), "no protection domain");
  told(verbs::MemoryRegion::register_dmabuf({}, 3, 0, 16, 0, Access::kNone),
       "no protection domain");
  told(verbs::MemoryRegion::register_dmabuf(domain, -1, 0, 16, 0, Access::kNone), "no descriptor");
  told(verbs::MemoryRegion::adopt(domain, nullptr, Access::kNone), "a registration of that domain");
  told(verbs::MemoryRegion::advise(domain, verbs::Advice::kPrefetch, {}), "no ranges");
  told(verbs::SharedReceiveQueue::create({}), "no protection domain");
  told(verbs::AddressHandle::create({}, {}), "no protection domain");
  told(verbs::QueuePairBuilder<verbs::Rc>({}, {}, {}).create(), "no protection domain");
  told(verbs::QueuePairBuilder<verbs::Rc>(domain, {}, {}).create(), "no completion queue");
  const auto shared = verbs::SharedReceiveQueue::create(domain, {.depth = 0});
  told(shared, "depth");
  expect_numbers(error_of(shared), 0, 64);
  told(verbs::SharedReceiveQueue::create(domain, {.sge = 0}), "sge");
}

TEST_F(RemedyTest, WrongPortIsNamedWithHowManyThereAre) {
  const auto port = open().query_port(7);
  EXPECT_CODE(port, kInvalidArgument);
  expect_told(port.error(), "port of fake0", "ports count from 1");
  expect_numbers(port.error(), 7, 1);
}

TEST_F(RemedyTest, OptionsOfAQueuePairPointToTheirRanges) {
  const FakeRig rig{open()};
  const Error timeout = error_of(rig.builder().timeout(32).build());
  expect_told(timeout, "timeout", "queue_pair.h");
  expect_numbers(timeout, 32, 31);
  fake_.port.state = IBV_PORT_DOWN;
  expect_told(error_of(rig.builder().build()), "fake0 port 1 is down", "ip link set");
  fake_.port.state = IBV_PORT_ACTIVE;
  auto prepared = rig.builder().build().value();
  auto peer = prepared.endpoint();
  peer.psn = 1U << 24;
  expect_told(error_of(std::move(prepared).connect(peer)),
              "queue pair number or psn beyond 24 bits", "from_wire");
  fake_.fail("create_qp", 1, EINVAL);
  expect_told(error_of(rig.builder().inline_bytes(4096).build()),
              "asked for 4096 inline bytes on fake0", "capabilities()");
}

TEST_F(RemedyTest, ChainsNameTheRequestAndWhatOfItWasTooMuch) {
  const FakeRig rig{open()};
  auto pair = rig.connected();
  const LocalSlice local = rig.memory.slice(0, 8);
  const verbs::RemoteSlice remote{1 << 20, 4096, 55};
  const auto refused = [](auto& batch, Code code) {
    const Error error = error_of(batch.post());
    EXPECT_EQ(error.code(), code) << error;
    return error;
  };
  auto batch = pair.start();
  const std::array<std::byte, 33> bytes{};
  batch.write(1, local, remote);
  batch.send_inline(2, bytes);
  const Error inlined = refused(batch, Code::kLimitExceeded);
  expect_told(inlined, "request 1: inline bytes", "QueuePairBuilder::inline_bytes");
  expect_numbers(inlined, 33, 32);
  batch.read(3, local, remote).inlined();
  const Error read = refused(batch, Code::kLimitExceeded);
  expect_told(read, "request 0: inline read", "only sends and writes");
  expect_numbers(read, 8, 0);
  const std::array<LocalSlice, 3> list{local, local, local};
  batch.send(4, list);
  expect_told(refused(batch, Code::kLimitExceeded), "request 0: slices", "send_sge");
  batch.send(5, LocalSlice::invalid());
  expect_told(refused(batch, Code::kOutOfRange), "request 0", "checked_slice");
  expect_told(error_of(rig.memory.checked_slice(4090, 8)), "", "checked_slice");
  for (int i = 0; i < 65; ++i) batch.write(6, local, remote);
  expect_told(refused(batch, Code::kLimitExceeded), "request 64", "batch_requests");
  batch.fetch_add(7, rig.memory.slice(0, 4), remote, 1);
  expect_told(refused(batch, Code::kInvalidArgument), "request 0", "8 local bytes");

  auto receives = pair.start_receives();
  receives.receive(1, list);
  expect_told(refused(receives, Code::kLimitExceeded), "request 0: slices", "receive_sge");
  receives.receive(2, LocalSlice::invalid());
  expect_told(refused(receives, Code::kOutOfRange), "request 0", "checked_slice");
  fake_.fail("post_recv", 1, ENOMEM);
  receives.receive(3);
  const Error full = refused(receives, Code::kWouldBlock);
  expect_told(full, "", "take completions first");
}

}  // namespace
}  // namespace remora::test
