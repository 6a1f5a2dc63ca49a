/// Handles that were moved from: every function answers kClosed, or an empty value.

#include <gmock/gmock.h>
#include <string>
#include <utility>
#include <vector>

#include <remora/testing/fault_transport.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::chrono::seconds kPatience{1};

/// The registry that closed engines and servers show is made once and stays: before the fixture
/// counts the mappings that there are.
void make_closed_registry() {
  Engine gone = Engine::open({}).value();
  const Engine taken{std::move(gone)};
  (void)gone.registry();  // NOLINT(bugprone-use-after-move)
}

class MovedFromTest : public ConformanceTest {
 protected:
  void SetUp() override {
    make_closed_registry();
    ConformanceTest::SetUp();
  }
  std::vector<std::byte> bytes_ = std::vector<std::byte>(4096);
};

/// Moves `handle` away and gives back what is left of it. The object that took its content is
/// destroyed first, so that nothing of it is reached by accident.
template <typename Handle>
Handle& moved_from(Handle& handle) {
  { const Handle taken{std::move(handle)}; }
  return handle;  // NOLINT(bugprone-use-after-move): the subject of these tests
}

/// The code of what was answered; kInternal where it is no error.
template <typename T>
Code code(const Result<T>& answer) {
  return answer ? Code::kInternal : answer.error().code();
}

TEST_P(MovedFromTest, EngineAnswersClosed) {
  Engine gone = open_engine();
  moved_from(gone);
  EXPECT_EQ(code(gone.open_region(uri("any"), Rights::kAll)), Code::kClosed);
  EXPECT_EQ(code(gone.fence_region(uri("any"), Rights::kAll)), Code::kClosed);
  EXPECT_EQ(code(gone.connect(uri())), Code::kClosed);
  const auto never = [](const auto&) { ADD_FAILURE(); };
  EXPECT_EQ(code(gone.async_open_region(uri("any"), Rights::kAll).then(never)), Code::kClosed);
  EXPECT_EQ(code(gone.async_fence_region(uri("any"), Rights::kAll).then(never)), Code::kClosed);
  EXPECT_EQ(code(gone.async_connect(uri()).then(never)), Code::kClosed);
  EXPECT_EQ(code(gone.async_control([] { return Status{}; }).then(never)), Code::kClosed);
  EXPECT_EQ(code(gone.allocate_slots(1, 64)), Code::kClosed);
  EXPECT_EQ(code(gone.register_memory(bytes_)), Code::kClosed);
  EXPECT_EQ(gone.status_json(), "{}");
  EXPECT_EQ(&gone.registry(), &gone.registry());
  gone = open_engine();
  EXPECT_TRUE(ok(gone.connect(uri())));
}

TEST_P(MovedFromTest, SessionAnswersClosed) {
  Session gone = engine().connect(uri()).value();
  moved_from(gone);
  EXPECT_EQ(gone.server().boot_id, 0U);
  EXPECT_EQ(gone.transport(), TransportKind::kAuto);
  EXPECT_FALSE(gone.connected());
  EXPECT_EQ(code(gone.settled(kPatience)), Code::kClosed);
  EXPECT_EQ(code(gone.async_settled(kPatience).then([](const Status&) { ADD_FAILURE(); })),
            Code::kClosed);
  EXPECT_EQ(code(gone.create_region(spec(unique_name()))), Code::kClosed);
  EXPECT_EQ(code(gone.regions()), Code::kClosed);
  EXPECT_EQ(code(gone.stat("any")), Code::kClosed);
  EXPECT_EQ(code(gone.remove_region("any")), Code::kClosed);
  EXPECT_EQ(code(gone.remove_region("any", Removal::kNow)), Code::kClosed);
  EXPECT_EQ(code(gone.resize_region("any", 4096)), Code::kClosed);
  EXPECT_EQ(code(gone.usage()), Code::kClosed);
  EXPECT_EQ(code(gone.ping()), Code::kClosed);
  EXPECT_EQ(code(gone.sessions()), Code::kClosed);
  EXPECT_EQ(code(gone.end_session(1)), Code::kClosed);
  EXPECT_EQ(code(gone.drain()), Code::kClosed);
  EXPECT_EQ(code(gone.end_drain()), Code::kClosed);
  EXPECT_EQ(code(gone.drain_state()), Code::kClosed);
}

TEST_P(MovedFromTest, RegionAnswersClosed) {
  Region gone = make_region();
  moved_from(gone);
  EXPECT_EQ(gone.info().name, "");
  EXPECT_EQ(gone.size_bytes(), 0U);
  EXPECT_EQ(gone.block_bytes(), 0U);
  EXPECT_EQ(gone.block_count(), 0U);
  EXPECT_EQ(gone.rights(), Rights::kNone);
  EXPECT_EQ(gone.transport(), TransportKind::kAuto);
  EXPECT_EQ(gone.transport_reason(), "");
  EXPECT_FALSE(gone.connected());
  EXPECT_EQ(code(gone.settled(kPatience)), Code::kClosed);
  const auto never = [](const auto&) { ADD_FAILURE(); };
  EXPECT_EQ(code(gone.async_settled(kPatience).then(never)), Code::kClosed);
  EXPECT_EQ(code(gone.async_fence().then(never)), Code::kClosed);
  EXPECT_EQ(code(gone.async_reopen().then(never)), Code::kClosed);
  EXPECT_EQ(code(gone.reopen()), Code::kClosed);
  EXPECT_EQ(code(gone.fence()), Code::kClosed);
  EXPECT_EQ(code(gone.queue()), Code::kClosed);
  EXPECT_EQ(code(gone.callback_queue()), Code::kClosed);
  EXPECT_EQ(code(gone.async_queue()), Code::kClosed);
  EXPECT_EQ(code(gone.async_queue({}, Resume::on_arena())), Code::kClosed);
  const Region copied = gone;
  EXPECT_EQ(code(copied.queue()), Code::kClosed);
}

TEST_P(MovedFromTest, RegionOperationsAnswerClosed) {
  Region gone = make_region();
  moved_from(gone);
  const std::span<std::byte> into{bytes_};
  const std::vector<Target> targets{into};
  const std::vector<Source> sources{into};
  EXPECT_EQ(code(gone.read(ByteOffset{0}, into)), Code::kClosed);
  EXPECT_EQ(code(gone.read(Block{1}, into)), Code::kClosed);
  EXPECT_EQ(code(gone.write(ByteOffset{0}, into)), Code::kClosed);
  EXPECT_EQ(code(gone.write(Block{1}, into)), Code::kClosed);
  EXPECT_EQ(code(gone.read(ByteOffset{0}, targets)), Code::kClosed);
  EXPECT_EQ(code(gone.write(ByteOffset{0}, sources)), Code::kClosed);
  EXPECT_EQ(code(gone.write_notify(ByteOffset{0}, into, 1)), Code::kClosed);
  EXPECT_EQ(code(gone.write_zeroes(ByteOffset{0}, 8)), Code::kClosed);
  EXPECT_EQ(code(gone.flush_visible()), Code::kClosed);
  EXPECT_EQ(code(gone.compare_swap(ByteOffset{0}, 0, 1)), Code::kClosed);
  EXPECT_EQ(code(gone.fetch_add(ByteOffset{0}, 1)), Code::kClosed);
  EXPECT_EQ(code(write_consistent(gone, Block{0}, into, 1)), Code::kClosed);
  EXPECT_EQ(code(read_consistent(gone, Block{0}, into)), Code::kClosed);
}

TEST_P(MovedFromTest, ResumptionQueueDoesNothing) {
  ResumptionQueue gone = ResumptionQueue::create().value();
  moved_from(gone);
  EXPECT_EQ(gone.event_fd(), -1);
  EXPECT_EQ(gone.progress(), 0U);
  const Region region = make_region();
  EXPECT_TRUE(ok(region.async_queue({.depth = 1}, gone.resume()))) << "on a poller";
}

TEST_P(MovedFromTest, QueueTakesNothingAndAnswersClosed) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, 64).value();
  Queue gone = region.queue().value();
  moved_from(gone);
  const std::span<std::byte> into{bytes_};
  const std::vector<Target> targets{into};
  const std::vector<Source> sources{into};
  Slot slot = slots.take();
  EXPECT_FALSE(gone.read(ByteOffset{0}, into));
  EXPECT_FALSE(gone.read(Block{1}, into));
  EXPECT_FALSE(gone.read(ByteOffset{0}, std::move(slot)));
  EXPECT_FALSE(gone.read(Block{1}, std::move(slot)));
  EXPECT_FALSE(gone.write(ByteOffset{0}, into));
  EXPECT_FALSE(gone.write(Block{1}, into));
  EXPECT_FALSE(gone.write(ByteOffset{0}, std::move(slot)));
  EXPECT_FALSE(gone.write(Block{1}, std::move(slot)));
  EXPECT_TRUE(slot) << "it stays with the caller";
  EXPECT_FALSE(gone.read(ByteOffset{0}, targets));
  EXPECT_FALSE(gone.write(ByteOffset{0}, sources));
  EXPECT_FALSE(gone.write_notify(ByteOffset{0}, into, 1));
  EXPECT_FALSE(gone.write_zeroes(ByteOffset{0}, 8));
  EXPECT_FALSE(gone.flush_visible());
  EXPECT_FALSE(gone.compare_swap(ByteOffset{0}, 0, 1));
  EXPECT_FALSE(gone.fetch_add(ByteOffset{0}, 1));
  gone.barrier();
  EXPECT_EQ(code(gone.select(region)), Code::kClosed);
  EXPECT_EQ(code(gone.submit()), Code::kClosed);
  EXPECT_EQ(code(gone.cancel(Ticket{0, 1})), Code::kClosed);
  EXPECT_EQ(code(gone.event_fd()), Code::kClosed);
  EXPECT_EQ(gone.next_deadline(), std::chrono::steady_clock::time_point::max());
  EXPECT_EQ(gone.depth(), 0U);
  EXPECT_EQ(gone.size(), 0U);
  EXPECT_TRUE(gone.full());
  const Completions waited = gone.wait(1);
  EXPECT_TRUE(waited.empty());
  EXPECT_EQ(code(waited.status()), Code::kClosed);
  EXPECT_EQ(code(gone.poll().status()), Code::kClosed);
  EXPECT_EQ(code(gone.progress().status()), Code::kClosed);
}

TEST_P(MovedFromTest, QueueDoesNotTakeAnEmptyRegion) {
  const Region region = make_region();
  Queue queue = region.queue().value();
  Region gone = region;
  moved_from(gone);
  EXPECT_EQ(code(queue.select(gone)), Code::kClosed);
  ASSERT_TRUE(queue.read(ByteOffset{0}, Target{bytes_}));
  ASSERT_TRUE(ok(queue.submit()));
  EXPECT_EQ(queue.wait(1).size(), 1U);
}

TEST_P(MovedFromTest, CallbackQueueAnswersClosedAndCallsNothing) {
  SlotPool slots = engine().allocate_slots(1, 64).value();
  CallbackQueue gone = make_region().callback_queue().value();
  moved_from(gone);
  const auto called = [](Completion&) { ADD_FAILURE() << "called"; };
  const std::span<std::byte> into{bytes_};
  Slot slot = slots.take();
  EXPECT_EQ(code(gone.read(ByteOffset{0}, into, called)), Code::kClosed);
  EXPECT_EQ(code(gone.read(Block{1}, into, called)), Code::kClosed);
  EXPECT_EQ(code(gone.read(ByteOffset{0}, std::move(slot), called)), Code::kClosed);
  EXPECT_EQ(code(gone.read(Block{1}, std::move(slot), called)), Code::kClosed);
  EXPECT_EQ(code(gone.write(ByteOffset{0}, into, called)), Code::kClosed);
  EXPECT_EQ(code(gone.write(Block{1}, into, called)), Code::kClosed);
  EXPECT_EQ(code(gone.write(ByteOffset{0}, std::move(slot), called)), Code::kClosed);
  EXPECT_EQ(code(gone.write(Block{1}, std::move(slot), called)), Code::kClosed);
  EXPECT_TRUE(slot) << "it stays with the caller";
  EXPECT_EQ(code(gone.write_zeroes(ByteOffset{0}, 8, called)), Code::kClosed);
  EXPECT_EQ(code(gone.compare_swap(ByteOffset{0}, 0, 1, called)), Code::kClosed);
  EXPECT_EQ(code(gone.fetch_add(ByteOffset{0}, 1, called)), Code::kClosed);
  EXPECT_EQ(gone.depth(), 0U);
  EXPECT_EQ(gone.size(), 0U);
}

Task<Status> use_everything(AsyncRegion region, Slot& slot, std::span<std::byte> bytes) {
  EXPECT_EQ(code(co_await region.read(ByteOffset{0}, Target{bytes})), Code::kClosed);
  EXPECT_EQ(code(co_await region.read(Block{1}, Target{bytes})), Code::kClosed);
  EXPECT_EQ(code(co_await region.write(ByteOffset{0}, Source{bytes})), Code::kClosed);
  EXPECT_EQ(code(co_await region.write(Block{1}, Source{bytes})), Code::kClosed);
  EXPECT_EQ(code(co_await region.write_zeroes(ByteOffset{0}, 8)), Code::kClosed);
  EXPECT_EQ(code(co_await region.compare_swap(ByteOffset{0}, 0, 1)), Code::kClosed);
  EXPECT_EQ(code(co_await region.fetch_add(ByteOffset{0}, 1)), Code::kClosed);
  EXPECT_EQ(code(co_await region.read(Block{1}, std::move(slot))), Code::kClosed);
  co_return Status{};
}

TEST_P(MovedFromTest, CoroutinesAreAnsweredClosed) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(1, 64).value();
  Executor executor;
  {
    Region gone = region;
    moved_from(gone);
    Slot slot = slots.take();
    EXPECT_TRUE(ok(executor.run(use_everything(gone.async(), slot, bytes_))));
  }
  {
    AsyncQueue gone = region.async_queue().value();
    moved_from(gone);
    EXPECT_EQ(gone.depth(), 0U);
    Slot slot = slots.take();
    EXPECT_TRUE(slot) << "the first one is back in its pool";
    EXPECT_TRUE(ok(sync_wait(use_everything(gone.async(), slot, bytes_))));
  }
  AsyncQueue queue = region.async_queue().value();
  AsyncRegion gone = queue.async();
  moved_from(gone);
  Slot slot = slots.take();
  EXPECT_TRUE(ok(sync_wait(use_everything(gone, slot, bytes_))));
}

Task<Status> ends_well() { co_return Status{}; }
Task<Status> waits_for(Task<Status> task) { co_return co_await std::move(task); }
Task<Status> spawns(Task<Status> task) {
  Scope scope{1};
  EXPECT_FALSE(co_await scope.spawn(std::move(task)));
  co_return co_await scope.join();
}

TEST_P(MovedFromTest, TaskAnswersClosed) {
  Task<Status> gone = ends_well();
  moved_from(gone);
  EXPECT_TRUE(gone.done());
  gone.start();
  gone.on_end({});
  EXPECT_EQ(code(sync_wait(Task<Status>{})), Code::kClosed);
  EXPECT_EQ(code(sync_wait(waits_for({}))), Code::kClosed);
  EXPECT_EQ(code(sync_wait(spawns({}))), Code::kClosed);
  Executor executor;
  EXPECT_EQ(code(executor.run(Task<Status>{})), Code::kClosed);
  EXPECT_EQ(code(executor.run(waits_for({}))), Code::kClosed);
}

TEST_P(MovedFromTest, LockAnswersClosed) {
  const Region region = make_region();
  Lock gone = Lock::open(region, ByteOffset{0}).value();
  Held held = gone.acquire(kPatience).value();
  moved_from(gone);
  EXPECT_EQ(code(gone.acquire(kPatience)), Code::kClosed);
  EXPECT_EQ(code(gone.try_acquire()), Code::kClosed);
  Held owner = std::move(held);
  EXPECT_EQ(held.token(), 0U);
  EXPECT_EQ(code(held.region().read(ByteOffset{0}, Target{bytes_})), Code::kClosed);
  EXPECT_EQ(code(held.renew()), Code::kClosed);
  EXPECT_EQ(code(held.release()), Code::kClosed);
  EXPECT_TRUE(ok(owner.release()));
  EXPECT_TRUE(ok(owner.release())) << "it has been released";
  Region gone_region = region;
  moved_from(gone_region);
  EXPECT_EQ(code(Lock::open(gone_region, ByteOffset{0})), Code::kClosed);
}

TEST_P(MovedFromTest, LocalMemoryIsEmpty) {
  const Region region = make_region();
  SlotPool gone = engine().allocate_slots(1, 64).value();
  Slot slot = gone.take();
  moved_from(gone);
  EXPECT_FALSE(gone.take());
  EXPECT_EQ(gone.slot_bytes(), 0U);
  EXPECT_EQ(gone.slot_count(), 0U);
  moved_from(slot);
  EXPECT_FALSE(slot);
  EXPECT_TRUE(slot.bytes().empty());
  EXPECT_EQ(code(region.read(ByteOffset{0}, Target{slot})), Code::kInvalidArgument);
  RegisteredMemory memory = engine().register_memory(bytes_).value();
  RegisteredMemory other = memory;
  moved_from(other);
  EXPECT_TRUE(other.bytes().empty());
  EXPECT_EQ(code(region.read(ByteOffset{0}, Target{other, 0, 8})), Code::kInvalidArgument);
  RegisteredMemory assigned;
  assigned = std::move(memory);
  EXPECT_TRUE(memory.bytes().empty());  // NOLINT(bugprone-use-after-move)
  EXPECT_TRUE(ok(region.read(ByteOffset{0}, Target{assigned, 0, 8})));
}

TEST_P(MovedFromTest, FaultTransportAnswersClosed) {
  auto gone = remora::testing::FaultTransport::create().value();
  moved_from(gone);
  EXPECT_EQ(gone.hook(), nullptr);
  EXPECT_EQ(code(gone.set_rates({})), Code::kClosed);
  gone.lose_next_lane(remora::testing::Landing::kLost);
  gone.lose_next_connection(remora::testing::Landing::kLost);
  gone.lose_connections();
  gone.refuse_connects(1);
  gone.refuse_connects_for(kPatience);
  gone.delay_next(1, kPatience);
  gone.hold_completions();
  gone.release_completions();
  gone.hold_answers();
  gone.release_answers();
  EXPECT_EQ(gone.counts().connects, 0U);
}

class MovedFromServerTest : public ConformanceTest {
 protected:
  void SetUp() override {
    make_closed_registry();
    ConformanceTest::SetUp();
  }
  [[nodiscard]] bool needs_own_server() const override { return true; }
};

TEST_P(MovedFromServerTest, ServerAnswersClosed) {
  Server gone = Server::start(server_config(transport())).value();
  moved_from(gone);
  gone.stop();
  gone.expedite_stop();
  EXPECT_EQ(code(gone.on_notify("any", {})), Code::kClosed);
  EXPECT_EQ(code(gone.set_clients({})), Code::kClosed);
  EXPECT_EQ(code(gone.view("any")), Code::kClosed);
  EXPECT_EQ(code(gone.create_region(spec("any"))), Code::kClosed);
  EXPECT_EQ(code(gone.remove_region("any")), Code::kClosed);
  EXPECT_EQ(code(gone.remove_region("any", Removal::kNow)), Code::kClosed);
  EXPECT_EQ(code(gone.resize_region("any", 4096)), Code::kClosed);
  EXPECT_EQ(code(gone.sessions()), Code::kClosed);
  EXPECT_EQ(code(gone.end_session(1)), Code::kClosed);
  EXPECT_EQ(code(gone.drain()), Code::kClosed);
  EXPECT_EQ(code(gone.end_drain()), Code::kClosed);
  EXPECT_EQ(code(gone.drain_state()), Code::kClosed);
  EXPECT_TRUE(gone.regions().empty());
  EXPECT_EQ(gone.status().pool_bytes, 0U);
  EXPECT_EQ(gone.status_json(), "{}");
  EXPECT_EQ(gone.port(), 0U);
  EXPECT_EQ(gone.metrics_address(), "");
  EXPECT_TRUE(gone.listening().empty());
  EXPECT_EQ(&gone.registry(), &gone.registry());
}

TEST_P(MovedFromServerTest, ViewAnswersClosed) {
  RegionView gone = server().view(create().name).value();
  moved_from(gone);
  std::vector<std::byte> bytes(8);
  EXPECT_EQ(gone.size_bytes(), 0U);
  EXPECT_TRUE(gone.extents().empty());
  EXPECT_EQ(code(gone.read(ByteOffset{0}, bytes)), Code::kClosed);
  EXPECT_EQ(code(gone.write(ByteOffset{0}, bytes)), Code::kClosed);
}

REMORA_CONFORMANCE(MovedFromTest);
REMORA_CONFORMANCE(MovedFromServerTest);

}  // namespace
}  // namespace remora::test
