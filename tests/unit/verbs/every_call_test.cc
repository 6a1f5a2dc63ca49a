#include <cstdlib>
#include <memory>

#include "fake_verbs.h"

namespace remora::test {
namespace {

using std::chrono::milliseconds;

verbs::Deadline soon() { return verbs::deadline_in(milliseconds{10'000}); }

Status use_device(FakeVerbs& fake) {
  const auto list = verbs::devices(fake.provider());
  if (!list) return list.error();
  const auto device = (*list)[0].open();
  if (!device) return device.error();
  const auto domain = device->allocate_domain();
  if (!domain) return domain.error();
  const auto queue = device->create_completion_queue({.depth = 16, .events = true});
  if (!queue) return queue.error();
  std::vector<std::byte> bytes(4096);
  const auto memory = domain->register_bytes(bytes, verbs::Access::kLocalWrite);
  if (!memory) return memory.error();
  auto prepared = verbs::QueuePairBuilder<verbs::Rc>{*domain, *queue, *queue}.build();
  if (!prepared) return prepared.error();
  if (const Status posted = prepared->pair().post_receive(1, memory->slice(0, 64)); !posted)
    return posted;
  const auto self = prepared->endpoint();
  auto pair = std::move(*prepared).connect(self);
  if (!pair) return pair.error();
  auto batch = pair->start();
  batch.write(1, memory->slice(0, 64), memory->remote(64, 64));
  if (const Status posted = batch.post(); !posted) return posted;
  std::array<verbs::Completion, 4> storage;
  const auto some = queue->wait(storage, soon());
  if (!some) return some.error();
  fake.raise(queue->raw());
  if (const auto events = queue->take_events(); !events) return events.error();
  if (const Status armed = queue->arm(); !armed) return armed;
  if (const auto state = pair->query_state(); !state) return state.error();
  return pair->to_error();
}

Result<verbs::Device> open_first(FakeVerbs& fake) {
  const auto list = verbs::devices(fake.provider());
  if (!list) return list.error();
  return (*list)[0].open();
}

Status use_regions(FakeVerbs& fake) {
  const auto device = open_first(fake);
  if (!device) return device.error();
  const auto domain = device->allocate_domain();
  if (!domain) return domain.error();
  const auto owned = verbs::MemoryRegion::register_owned(*domain, std::vector<std::byte>(64),
                                                         verbs::Access::kLocalWrite);
  if (!owned) return owned.error();
  const auto allocated = verbs::MemoryRegion::allocate(
      *domain, 4096, verbs::Access::kLocalWrite | verbs::Access::kZeroBased);
  if (!allocated) return allocated.error();
  const auto moved = verbs::MemoryRegion::register_at(*domain, allocated->bytes(), 0x10000,
                                                      verbs::Access::kLocalWrite);
  if (!moved) return moved.error();
  const auto foreign =
      verbs::MemoryRegion::register_dmabuf(*domain, 3, 0, 64, 0, verbs::Access::kLocalWrite);
  if (!foreign) return foreign.error();
  const std::array<verbs::LocalSlice, 1> ranges{owned->slice(0, 8)};
  return verbs::MemoryRegion::advise(*domain, verbs::Advice::kPrefetch, ranges);
}

Status use_objects(FakeVerbs& fake) {
  const auto device = open_first(fake);
  if (!device) return device.error();
  if (const auto extended = device->query_extended(); !extended) return extended.error();
  if (const auto clock = device->query_clock(); !clock) return clock.error();
  if (const auto key = device->query_pkey(1, 0); !key) return key.error();
  if (const auto row = device->query_gid(1, 1); !row) return row.error();
  const auto domain = device->allocate_domain();
  if (!domain) return domain.error();
  const auto queue =
      device->create_completion_queue({.fields = verbs::CompletionFields::kStandard});
  if (!queue) return queue.error();
  std::vector<std::byte> bytes(4096);
  const auto memory = domain->register_bytes(bytes, verbs::Access::kWindowBind);
  if (!memory) return memory.error();
  const auto shared = verbs::SharedReceiveQueue::create(*domain);
  if (!shared) return shared.error();
  if (const Status set = shared->set_limit(1); !set) return set;
  if (const auto known = shared->query(); !known) return known.error();
  if (const Status posted = shared->post_receive(1, memory->slice(0, 64)); !posted) return posted;
  auto pair = verbs::QueuePairBuilder<verbs::Uc>{*domain, *queue, *queue}
                  .shared_receive_queue(*shared)
                  .create();
  if (!pair) return pair.error();
  auto window = pair->allocate_window();
  if (!window) return window.error();
  auto batch = pair->start();
  batch.bind_window(1, *window, *memory, 0, 64, verbs::Access::kRemoteRead);
  if (const Status posted = batch.post(); !posted) return posted;
  auto poll = queue->start_poll();
  if (!poll) return poll.error();
  for ([[maybe_unused]] const auto& done : *poll) continue;
  if (!poll->status()) return poll->status();
  auto datagrams = verbs::QueuePairBuilder<verbs::Ud>{*domain, *queue, *queue}.build();
  if (!datagrams) return datagrams.error();
  const auto peer =
      verbs::DatagramPeer::create(*domain, datagrams->endpoint(), datagrams->source());
  if (!peer) return peer.error();
  verbs::Completion received;
  received.raw().opcode = IBV_WC_RECV;
  const auto reply = verbs::AddressHandle::reply(*domain, received, std::span{bytes}.first(40));
  if (!reply) return reply.error();
  auto events = verbs::AsyncEvents::open(*device);
  if (!events) return events.error();
  ibv_async_event happened{};
  happened.event_type = IBV_EVENT_DEVICE_FATAL;
  fake.happen(*device, happened);
  if (const auto event = events->wait_event(soon()); !event) return event.error();
  auto ready = std::move(*datagrams).activate();
  if (!ready) return ready.error();
  auto sends = ready->start();
  sends.send(2, memory->slice(0, 8), *peer);
  return sends.post();
}

Status use_shared_channel(FakeVerbs& fake) {
  if (const Status safe = verbs::initialize_fork_safety(fake.provider()); !safe) return safe;
  const auto device = open_first(fake);
  if (!device) return device.error();
  const auto channel = device->create_completion_channel();
  if (!channel) return channel.error();
  const auto first = device->create_completion_queue({.depth = 8, .channel = *channel});
  if (!first) return first.error();
  const auto second = device->create_completion_queue(
      {.depth = 8, .channel = *channel, .fields = verbs::CompletionFields::kStandard});
  if (!second) return second.error();
  for (const auto& queue : {*first, *second}) {
    if (const Status armed = queue.arm(verbs::Notify::kSolicited); !armed) return armed;
    fake.raise(queue.raw());
    const auto event = channel->wait_event(soon());
    if (!event) return event.error();
    std::array<verbs::Completion, 4> storage;
    if (const auto some = queue.poll(storage); !some) return some.error();
  }
  return {};
}

Status use_adopted_region(FakeVerbs& fake) {
  const auto opened = verbs::connection_manager_devices(fake.provider());
  if (!opened) return opened.error();
  const auto domain = opened->front().allocate_domain();
  if (!domain) return domain.error();
  std::vector<std::byte> bytes(64);
  auto region = verbs::MemoryRegion::adopt(
      *domain, fake.make_region(domain->raw(), bytes.data(), bytes.size()),
      verbs::Access::kLocalWrite);
  if (!region) return region.error();
  return std::move(*region).deregister();
}

Status use_connector(FakeVerbs& fake) {
  auto connector = verbs::Connector::resolve(verbs::Address::parse("10.0.0.9", 1).value(), soon(),
                                             {.source = {}, .ack_timeout = 18}, fake.provider());
  if (!connector) return connector.error();
  const auto domain = connector->device().allocate_domain();
  if (!domain) return domain.error();
  const auto queue = connector->device().create_completion_queue({.depth = 16});
  if (!queue) return queue.error();
  const verbs::QueuePairBuilder<verbs::Rc> builder{*domain, *queue, *queue};
  if (const Status made = connector->create_queue_pair(builder); !made) return made;
  auto connection = connector->connect(soon());
  if (!connection) return connection.error();
  return connection->disconnect();
}

Status use_resolver(FakeVerbs& fake) {
  auto resolver = verbs::Resolver::start(verbs::Address::parse("10.0.0.9", 1).value(), soon(), {},
                                         fake.provider());
  if (!resolver) return resolver.error();
  for (;;) {
    auto connector = resolver->advance();
    if (!connector) return connector.error();
    if (!connector->has_value()) continue;
    const auto domain = (*connector)->device().allocate_domain();
    return domain ? Status{} : Status{domain.error()};
  }
}

Status use_listener(FakeVerbs& fake) {
  auto listener = verbs::ConnectionListener::bind(verbs::Address::any_ipv4(0), 4, fake.provider());
  if (!listener) return listener.error();
  fake.knock("one");
  auto request = listener->wait_request(soon());
  if (!request) return request.error();
  const auto domain = request->device().allocate_domain();
  if (!domain) return domain.error();
  const auto queue = request->device().create_completion_queue({.depth = 16});
  if (!queue) return queue.error();
  const verbs::QueuePairBuilder<verbs::Rc> builder{*domain, *queue, *queue};
  if (const Status made = request->create_queue_pair(builder); !made) return made;
  auto connection = std::move(*request).accept(soon());
  if (!connection) return connection.error();
  fake.knock("two");
  auto other = listener->wait_request(soon());
  if (!other) return other.error();
  return std::move(*other).reject();
}

Status use_cache(FakeVerbs& fake) {
  const auto device = open_first(fake);
  if (!device) return device.error();
  const auto domain = device->allocate_domain();
  if (!domain) return domain.error();
  constexpr std::size_t kPage = 4096;
  const std::unique_ptr<std::byte[], decltype(&std::free)> pages{
      // As a piece is, so that there are as many of them each time.
      static_cast<std::byte*>(std::aligned_alloc(2 * kPage, 6 * kPage)), &std::free};
  const std::span bytes{pages.get(), 6 * kPage};
  auto cache = verbs::MrCache::create(*domain, {.bytes_max = 4 * kPage,
                                                .piece_bytes = 2 * kPage,
                                                .invalidation = verbs::Invalidation::kExplicit});
  if (!cache) return cache.error();
  const auto acquire = [&](std::size_t first, std::size_t count) -> Status {
    const auto lease =
        cache->acquire(bytes.subspan(first * kPage, count * kPage), verbs::Access::kLocalWrite);
    return lease ? Status{} : Status{lease.error()};
  };
  if (const Status pieces = acquire(0, 4); !pieces) return pieces;
  if (const Status evicting = acquire(4, 2); !evicting) return evicting;
  if (const Status hit = acquire(4, 1); !hit) return hit;
  cache->invalidate(bytes.subspan(4 * kPage));
  return acquire(4, 2);
}

// What an error must call the entry `call` of the table.
std::string verb_of(const std::string& call) {
  static const std::set<std::string> connection_manager{"create_event_channel",
                                                        "create_id",
                                                        "destroy_id",
                                                        "bind_addr",
                                                        "listen",
                                                        "resolve_addr",
                                                        "connect",
                                                        "establish",
                                                        "accept",
                                                        "disconnect",
                                                        "resolve_route",
                                                        "get_cm_event",
                                                        "ack_cm_event",
                                                        "init_qp_attr",
                                                        "migrate_id",
                                                        "set_option"};
  if (call == "get_cm_devices") return "rdma_get_devices";
  return (connection_manager.contains(call) ? "rdma_" : "ibv_") + call;
}

// The operation of the last destructor that failed.
std::string g_failed_teardown;
void note_teardown(const Error& error) noexcept { g_failed_teardown = error.operation(); }

using Scenario = Status (*)(FakeVerbs&);

class EveryCall : public testing::TestWithParam<std::pair<const char*, Scenario>> {};

// Each call of the scenario fails once, at each of its uses. Nothing may be left, no parent may go
// before its child, and the failure is told with the name of its verb: by the scenario, or, in a
// destructor, by the count and the handler.
TEST_P(EveryCall, FailingOnceLeavesNothing) {
  const Scenario scenario = GetParam().second;
  std::map<std::string, int> uses;
  {
    FakeVerbs fake;
    ASSERT_OK(scenario(fake));
    EXPECT_EQ(fake.live(), "");
    uses = fake.uses();
  }
  int tried = 0;
  const auto handler = verbs::set_teardown_failure_handler(&note_teardown);
  for (const auto& [call, count] : uses) {
    for (int nth = 1; nth <= count; ++nth, ++tried) {
      SCOPED_TRACE(call + " fails at use " + std::to_string(nth));
      FakeVerbs fake;
      fake.fail(call, nth, EIO);
      g_failed_teardown.clear();
      const auto failures = verbs::teardown_failure_count();
      const Status status = scenario(fake);
      EXPECT_EQ(fake.live(), "");
      // Void; best effort.
      if (call == "ack_cq_events" || call == "ack_async_event" || call == "reject") continue;
      EXPECT_TRUE(!status.ok() || verbs::teardown_failure_count() > failures);
      const std::string told =
          status.ok() ? g_failed_teardown : std::string{status.error().operation()};
      EXPECT_EQ(told, verb_of(call));
      if (!status.ok() && status.error().code() == Code::kProvider) {
        EXPECT_FALSE(status.error().operation().empty());
        EXPECT_FALSE(status.error().remedy().empty()) << status.error();
        EXPECT_EQ(status.error().system_errno(), EIO) << status.error();
      }
    }
  }
  verbs::set_teardown_failure_handler(handler);
  EXPECT_GT(tried, 4);
}

INSTANTIATE_TEST_SUITE_P(
    Scenarios, EveryCall,
    testing::Values(std::pair{"Device", &use_device}, std::pair{"Regions", &use_regions},
                    std::pair{"Objects", &use_objects},
                    std::pair{"SharedChannel", &use_shared_channel},
                    std::pair{"AdoptedRegion", &use_adopted_region},
                    std::pair{"Connector", &use_connector}, std::pair{"Resolver", &use_resolver},
                    std::pair{"Listener", &use_listener}, std::pair{"Cache", &use_cache}),
    [](const auto& scenario) { return std::string{scenario.param.first}; });

}  // namespace
}  // namespace remora::test
