/// fork(2): a child has copies of its parent's handles and shares its sockets, queue pairs and
/// mappings. Every handle refuses to work in it, and its end touches nothing of the parent's.

#include <atomic>
#include <functional>
#include <gmock/gmock.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

#include <remora/sanitizers.h>
#include <remora/testing/fault_transport.h>

#include "conformance_test.h"
#include "support/forked.h"

namespace remora::test {
namespace {

constexpr std::chrono::seconds kSecond{1};

void fill(const Region& region, std::uint64_t seed) {
  const std::vector<std::byte> bytes = noise(region.size_bytes(), seed);
  region.write(ByteOffset{0}, bytes).value();
}

/// One of each handle of a client.
struct Handles {
  Handles(Engine opened, const std::string& uri, const std::string& name)
      : engine{std::move(opened)},
        session{engine.connect(uri).value()},
        region{engine.open_region(name, Rights::kAll).value()},
        queue{region.queue().value()},
        callbacks{region.callback_queue().value()},
        asynchronous{region.async_queue().value()},
        slots{engine.allocate_slots(4, 64).value()},
        slot{slots.take()},
        bytes(4096),
        memory{engine.register_memory(bytes).value()},
        lock{Lock::open(region, ByteOffset{0}).value()},
        held{lock.acquire(kSecond).value()},
        faults{remora::testing::FaultTransport::create().value()} {}

  Engine engine;
  Session session;
  Region region;
  Queue queue;
  CallbackQueue callbacks;
  AsyncQueue asynchronous;
  SlotPool slots;
  Slot slot;
  std::vector<std::byte> bytes;
  RegisteredMemory memory;
  Lock lock;
  Held held;
  remora::testing::FaultTransport faults;
};

std::string use_engine(const Handles& all, const std::string& uri, const RegionSpec& spec) {
  const Engine& engine = all.engine;
  const Session& session = all.session;
  std::string wrong;
  wrong += not_refused("open_region", engine.open_region(uri, Rights::kAll));
  wrong += not_refused("fence_region", engine.fence_region(uri, Rights::kAll));
  wrong += not_refused("connect", engine.connect(uri));
  wrong += not_refused("allocate_slots", engine.allocate_slots(1, 64));
  std::array<std::byte, 8> bytes{};
  wrong += not_refused("register_memory", engine.register_memory(bytes));
  if (engine.status_json() != "{}") wrong += "status_json\n";
  wrong += not_refused("settled", session.settled(kSecond));
  wrong += not_refused("create_region", session.create_region(spec));
  wrong += not_refused("regions", session.regions());
  wrong += not_refused("stat", session.stat(spec.name));
  wrong += not_refused("remove_region", session.remove_region(spec.name));
  wrong += not_refused("resize_region", session.resize_region(spec.name, 4096));
  wrong += not_refused("usage", session.usage());
  if (session.connected() || all.region.connected()) wrong += "connected\n";
  EngineOptions options;
  options.faults = all.faults.hook();
  if (options.faults != nullptr) wrong += "hook\n";
  wrong += not_refused("set_rates", all.faults.set_rates({}));
  all.faults.lose_connections();
  return wrong;
}

std::string use_region(const Region& region, Handles& all) {
  const std::span<std::byte> bytes{all.bytes};
  const std::vector<Target> targets{bytes};
  const std::vector<Source> sources{bytes};
  std::string wrong;
  wrong += not_refused("read", region.read(ByteOffset{0}, bytes));
  wrong += not_refused("read", region.read(Block{1}, bytes));
  wrong += not_refused("write", region.write(ByteOffset{0}, bytes));
  wrong += not_refused("write", region.write(Block{1}, bytes));
  wrong += not_refused("read pieces", region.read(ByteOffset{0}, targets));
  wrong += not_refused("write pieces", region.write(ByteOffset{0}, sources));
  wrong += not_refused("write_notify", region.write_notify(ByteOffset{0}, bytes, 1));
  wrong += not_refused("write_zeroes", region.write_zeroes(ByteOffset{0}, 8));
  wrong += not_refused("flush_visible", region.flush_visible());
  wrong += not_refused("compare_swap", region.compare_swap(ByteOffset{0}, 0, 1));
  wrong += not_refused("fetch_add", region.fetch_add(ByteOffset{0}, 1));
  wrong += not_refused("fence", region.fence());
  wrong += not_refused("queue", region.queue());
  wrong += not_refused("callback_queue", region.callback_queue());
  wrong += not_refused("async_queue", region.async_queue());
  wrong += not_refused("Lock::open", Lock::open(region, ByteOffset{0}));
  wrong += not_refused("acquire", all.lock.acquire(kSecond));
  wrong += not_refused("try_acquire", all.lock.try_acquire());
  wrong += not_refused("renew", all.held.renew());
  wrong += not_refused("release", all.held.release());
  if (all.slots.take() || Target{all.slot}.bytes().data() != nullptr) wrong += "slots\n";
  if (Target{all.memory, 0, 8}.bytes().data() != nullptr) wrong += "registered memory\n";
  return wrong;
}

Task<Status> await_read(AsyncRegion region, std::span<std::byte> bytes) {
  co_return co_await region.read(ByteOffset{0}, Target{bytes});
}

std::string use_queues(Handles& all) {
  const std::span<std::byte> bytes{all.bytes};
  std::string wrong;
  Queue& queue = all.queue;
  if (queue.read(ByteOffset{0}, bytes) || queue.write(ByteOffset{0}, bytes) ||
      queue.fetch_add(ByteOffset{0}, 1) || queue.flush_visible())
    wrong += "a queue takes an operation\n";
  queue.barrier();
  wrong += not_refused("select", queue.select(all.region));
  wrong += not_refused("submit", queue.submit());
  wrong += not_refused("cancel", queue.cancel(Ticket{0, 1}));
  wrong += not_refused("event_fd", queue.event_fd());
  wrong += not_refused("wait", queue.wait(1).status());
  wrong += not_refused("poll", queue.poll().status());
  wrong += not_refused("progress", queue.progress().status());
  std::atomic<bool> called{false};
  const auto note = [&called](Completion&) { called = true; };
  wrong += not_refused("callback read", all.callbacks.read(ByteOffset{0}, bytes, note));
  wrong += not_refused("callback write", all.callbacks.write(ByteOffset{0}, bytes, note));
  wrong += not_refused("callback add", all.callbacks.fetch_add(ByteOffset{0}, 1, note));
  if (called || all.callbacks.depth() != 0) wrong += "a callback queue works\n";
  wrong += not_refused("co_await", sync_wait(await_read(all.asynchronous.async(), bytes)));
  Executor executor;
  wrong += not_refused("executor", executor.run(await_read(all.region.async(), bytes)));
  return wrong;
}

constexpr const char* kNoChildren = "ThreadSanitizer reports the parent's threads in a child";

class ForkTest : public ConformanceTest {
 protected:
  void SetUp() override {
    if (!kChildrenOfFork) GTEST_SKIP() << kNoChildren;
    ConformanceTest::SetUp();
  }
  void configure_engine(EngineOptions& options) const override {
    options.handlers.on_interrupted = [this](const SessionEvent&) { ++interrupted_; };
    options.handlers.on_lost = options.handlers.on_interrupted;
  }
  /// Region `name` holds what only the parent writes, and the session was never interrupted.
  void expect_untouched(const Region& region, std::uint64_t seed) {
    EXPECT_EQ(read_all(region), noise(region.size_bytes(), seed));
    EXPECT_EQ(interrupted_, 0);
    EXPECT_TRUE(session().connected());
    EXPECT_TRUE(ok(session().usage()));
  }
  mutable std::atomic<int> interrupted_{0};
};

TEST_P(ForkTest, ChildIsRefusedByEveryHandleAndItsEndTouchesNothing) {
  const std::string name = create().name;
  std::optional<Handles> all{std::in_place, open_engine(), uri(), uri(name)};
  const Region region = make_region();
  fill(region, 5);
  const std::uint64_t word = all->region.fetch_add(ByteOffset{0}, 0).value();
  for (int i = 0; i < 2; ++i) {
    Forked child{[&] {
      std::string wrong = use_engine(*all, uri(name), spec(name));
      wrong += use_region(all->region, *all) + use_queues(*all);
      wrong += not_refused("the fixture's session", session().usage());
      all.reset();
      end_session();
      return wrong;
    }};
    expect_untouched(region, 5);
    EXPECT_EQ(child.found(), "");
    expect_untouched(region, 5);
  }
  EXPECT_EQ(all->region.fetch_add(ByteOffset{0}, 0).value(), word)
      << "the lock was released, or renewed";
  EXPECT_TRUE(ok(all->held.renew()));
  EXPECT_TRUE(ok(all->held.release()));
  EXPECT_TRUE(all->slot);
  all->queue.read(ByteOffset{0}, Target{all->memory, 0, 8});
  EXPECT_EQ(drain(all->queue).size(), 1U);
  EXPECT_TRUE(ok(sync_wait(await_read(all->asynchronous.async(), all->bytes))));
}

/// Two processes that read over one session at once, each its own bytes.
TEST_P(ForkTest, ParentReadsItsOwnBytesWhileChildrenTry) {
  const Region region = make_region();
  const std::vector<std::byte> theirs(256, std::byte{0xaa});
  const std::vector<std::byte> ours(256, std::byte{0xbb});
  region.write(ByteOffset{0}, theirs).value();
  region.write(ByteOffset{4096}, ours).value();
  auto* const ready = static_cast<std::atomic<int>*>(
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(ready, MAP_FAILED);
  std::vector<std::byte> got(256);
  for (std::size_t round = 0; round < steps(40); ++round) {
    ready->store(0);
    Forked child{[&] {
      ++*ready;
      while (*ready < 2) std::this_thread::yield();
      std::string wrong;
      for (int i = 0; i < 3; ++i) {
        wrong += not_refused("read", region.read(ByteOffset{0}, got, 300ms));
        wrong += not_refused("write", region.write(ByteOffset{8192}, got, 300ms));
      }
      return wrong;
    }};
    ++*ready;
    ASSERT_TRUE(eventually([&] { return *ready == 2; })) << child.found();
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(ok(region.read(ByteOffset{4096}, got)));
      EXPECT_EQ(got, ours);
      EXPECT_TRUE(ok(region.write(ByteOffset{4096}, ours)));
    }
    ASSERT_EQ(child.found(), "") << "round " << round;
    if (HasFailure()) break;
  }
  EXPECT_EQ(interrupted_, 0);
  ::munmap(ready, 4096);
}

/// Operations in flight when the process forks are the parent's.
TEST_P(ForkTest, OperationsInFlightStayWithTheParent) {
  const Region region = make_region();
  fill(region, 6);
  std::optional<Queue> queue{region.queue({.depth = 32}).value()};
  SlotPool slots = engine().allocate_slots(32, 4096).value();
  std::atomic<int> called{0};
  std::optional<CallbackQueue> callbacks{region.callback_queue().value()};
  std::vector<std::byte> bytes(4096);
  for (std::size_t round = 0; round < steps(10); ++round) {
    for (std::uint64_t i = 0; i < 32; ++i) ASSERT_TRUE(queue->read(Block{i}, slots.take(), i));
    ASSERT_TRUE(ok(queue->submit()));
    ASSERT_TRUE(ok(callbacks->read(Block{1}, bytes, [&](Completion& c) { called += c.ok(); })));
    Forked child{[&] {
      std::string wrong = not_refused("wait", queue->wait(32).status());
      queue.reset();
      callbacks.reset();
      return wrong;
    }};
    std::size_t seen = 0;
    while (seen < 32) {
      Completions found = queue->wait(1);
      ASSERT_FALSE(found.empty());
      for (Completion& each : found) {
        EXPECT_TRUE(ok(each.ok() ? Status{} : Status{each.error()}));
        ++seen;
      }
    }
    EXPECT_EQ(child.found(), "");
  }
  callbacks.reset();
  EXPECT_EQ(called, static_cast<int>(steps(10)));
  expect_untouched(region, 6);
}

Task<Status> fork_while_others_wait(AsyncRegion region, std::span<std::byte> bytes,
                                    std::optional<Forked>& child, std::string& wrong) {
  std::vector<std::byte> other(bytes.size());
  Scope scope{2};
  co_await scope.spawn(await_read(region, other));
  child.emplace([] { return std::string{}; });
  const Status after = co_await region.read(ByteOffset{0}, Target{bytes});
  const Status joined = co_await scope.join();
  if (!after) wrong += after.error().message();
  co_return joined;
}

TEST_P(ForkTest, ExecutorGoesOnInTheParentAfterATaskHasForked) {
  const Region region = make_region();
  std::vector<std::byte> bytes(4096);
  std::optional<Forked> child;
  std::string wrong;
  Executor executor;
  EXPECT_TRUE(ok(executor.run(fork_while_others_wait(region.async(), bytes, child, wrong))));
  EXPECT_EQ(wrong, "");
  EXPECT_EQ(child->found(), "");
}

/// In the child: what the task awaits ends, and the program goes on behind run().
Task<Status> fork_and_read(AsyncRegion region, std::span<std::byte> bytes, pid_t& pid) {
  std::vector<std::byte> other(bytes.size());
  Scope scope{2};
  co_await scope.spawn(await_read(region, other));
  pid = ::fork();
  if (pid == 0) ::alarm(120);
  const Status joined = co_await scope.join();
  const Status read = co_await region.read(ByteOffset{0}, Target{bytes});
  co_return joined ? read : joined;
}

TEST_P(ForkTest, TaskThatHasForkedIsAnsweredInTheChild) {
  const Region region = make_region();
  std::vector<std::byte> bytes(4096);
  pid_t pid = -1;
  Executor executor;
  const Status done = executor.run(fork_and_read(region.async(), bytes, pid));
  if (pid == 0) ::_exit(not_refused("run", done).empty() ? 0 : 1);
  EXPECT_TRUE(ok(done));
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
}

std::string use_own_engine(const std::string& uri, const std::string& name, bool over_rdma) {
  const Engine own = open_engine();
  auto opened = own.open_region(name, Rights::kAll);
  if (over_rdma) {
    const bool refused = !opened && opened.error().code() == Code::kUnsupported;
    return refused ? "" : "rdma is not refused: " + (opened ? "ok" : opened.error().message());
  }
  if (!opened) return opened.error().message();
  const Region region = *opened;
  std::vector<std::byte> bytes = noise(region.size_bytes(), 9);
  if (Status written = region.write(ByteOffset{0}, bytes); !written)
    return written.error().message();
  if (read_all(region) != bytes) return "other bytes";
  std::atomic<bool> called{false};
  {
    CallbackQueue callbacks = region.callback_queue().value();
    callbacks.read(Block{0}, Target{std::span{bytes}.first(8)}, [&](Completion&) { called = true; })
        .value();
  }
  if (!called) return "no callback";
  const auto on_arena = region.async_queue({}, Resume::on_arena());
  if (!on_arena) return on_arena.error().message();
  Lock lock = Lock::open(region, ByteOffset{0}).value();
  region.write_zeroes(ByteOffset{0}, 8).value();
  lock.acquire(kSecond).value().release().value();
  return own.connect(uri).value().usage() ? "" : "no session";
}

TEST_P(ForkTest, ChildOpensAnEngineOfItsOwn) {
  const RegionInfo theirs = create({.size_bytes = 2_MiB});
  const Region region = make_region();
  fill(region, 7);
  {
    const Region used = open(theirs.name);  // also what makes threads of oneTBB
    fill(used, 8);
  }
  Forked child{[&] {
    try {
      return use_own_engine(uri(), uri(theirs.name), over_rdma());
    } catch (const std::exception& thrown) {
      return std::string{thrown.what()};
    }
  }};
  expect_untouched(region, 7);
  EXPECT_EQ(child.found(), "");
  expect_untouched(region, 7);
}

/// A program that forks, and whose children end as programs do: by returning from main().
TEST_P(ForkTest, ChildrenThatReturnFromMainLeaveTheParentAlone) {
#if REMORA_ADDRESS_SANITIZER
  // fork() keeps the locks of AddressSanitizer (GCC 12, clang 14) as they are: where another thread
  // of the program allocates at that moment, the child waits for its allocator for ever.
  GTEST_SKIP() << "a child of a program with threads may not allocate under AddressSanitizer";
#endif
  const std::string name = create().name;
  Child program{"fork", {"uri=" + uri(name), "rounds=" + std::to_string(steps(20))}};
  EXPECT_EQ(program.read_line(100s), "ready");
  EXPECT_EQ(program.read_line(100s), "wrong 0 refused 0 interrupted 0");
  EXPECT_EQ(program.wait(100s), 0);
}

class ForkedServerTest : public ConformanceTest {
 protected:
  void SetUp() override {
    if (!kChildrenOfFork) GTEST_SKIP() << kNoChildren;
    ConformanceTest::SetUp();
  }
  [[nodiscard]] bool needs_own_server() const override { return true; }
};

TEST_P(ForkedServerTest, ChildIsRefusedByTheServerAndItsEndTouchesNothing) {
  const Region region = make_region();
  fill(region, 4);
  std::optional<RegionView> view{server().view(region.info().name).value()};
  const std::vector<std::byte> zeros(64);
  Forked child{[&] {
    std::string wrong;
    std::vector<std::byte> bytes(64);
    wrong += not_refused("view", server().view(region.info().name));
    wrong += not_refused("create_region", server().create_region(spec("any")));
    wrong += not_refused("remove_region", server().remove_region(region.info().name));
    wrong += not_refused("resize_region", server().resize_region(region.info().name, 4096));
    wrong += not_refused("on_notify", server().on_notify("any", {}));
    wrong += not_refused("set_clients", server().set_clients({}));
    wrong += not_refused("sessions", server().sessions());
    wrong += not_refused("end_session", server().end_session(1));
    wrong += not_refused("drain", server().drain());
    wrong += not_refused("end_drain", server().end_drain());
    wrong += not_refused("drain_state", server().drain_state());
    wrong += not_refused("view read", view->read(ByteOffset{0}, bytes));
    wrong += not_refused("view write", view->write(ByteOffset{0}, zeros));
    if (!view->extents().empty() || !server().regions().empty() || server().port() != 0 ||
        !server().listening().empty() || server().status().sessions != 0)
      wrong += "an answer is not empty\n";
    server().expedite_stop();
    server().stop();
    view.reset();
    const Server ended{std::move(server())};
    return wrong;
  }};
  EXPECT_EQ(child.found(), "");
  EXPECT_EQ(read_all(region), noise(region.size_bytes(), 4));
  EXPECT_TRUE(ok(region.write(ByteOffset{0}, zeros)));
  EXPECT_EQ(server().status().sessions, 1U);
  EXPECT_NE(server().port(), 0U);
  std::vector<std::byte> seen(64, std::byte{1});
  EXPECT_TRUE(ok(view->read(ByteOffset{0}, seen)));
  EXPECT_EQ(seen, zeros);
}

REMORA_CONFORMANCE(ForkTest);
REMORA_CONFORMANCE(ForkedServerTest);

}  // namespace
}  // namespace remora::test
