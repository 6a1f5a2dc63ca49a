/// Control calls that do not block: how and where their ends are told, and that each ends once.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <poll.h>
#include <stop_token>
#include <thread>

#include "async_tasks.h"
#include "conformance_test.h"

namespace remora::test {
namespace {

/// Threads of this process that have that name.
std::size_t threads_named(std::string_view name) {
  std::size_t count = 0;
  for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task"}) {
    std::ifstream file{task.path() / "comm"};
    std::string comm;
    std::getline(file, comm);
    if (comm == name) ++count;
  }
  return count;
}

/// A blocking function that a test lets return.
class Gate {
 public:
  Gate() : future_{state_->opened.get_future().share()} {}
  ~Gate() { open(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  [[nodiscard]] auto blocking() const {
    return [state = state_, future = future_]() -> Status {
      ++state->entered;
      future.wait();
      ++state->left;
      return {};
    };
  }
  void open() {
    if (!std::exchange(open_, true)) state_->opened.set_value();
  }
  [[nodiscard]] int entered() const { return state_->entered; }
  [[nodiscard]] int left() const { return state_->left; }

 private:
  struct State {
    std::promise<void> opened;
    std::atomic<int> entered{0};
    std::atomic<int> left{0};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  std::shared_future<void> future_;
  bool open_ = false;
};

/// How calls ended, counted.
struct Ends {
  std::atomic<int> all{0};
  std::atomic<int> ok{0};
  std::atomic<Code> code{Code::kInternal};
  auto counter() {
    return [this](const Status& status) {
      if (status)
        ++ok;
      else
        code = status.error().code();
      ++all;
    };
  }
};

class ControlTest : public ConformanceTest {
 protected:
  void configure_engine(EngineOptions& options) const override { options.control_threads = 2; }

  /// Serves `ends` as an event loop would, until `done()` holds.
  template <typename Condition>
  static bool serve(ResumptionQueue& ends, Condition done) {
    for (Patience patience; !done();) {
      if (patience.over()) return false;
      pollfd event{.fd = ends.event_fd(), .events = POLLIN, .revents = 0};
      ::poll(&event, 1, 10);
      (void)ends.progress();
    }
    return true;
  }
};

TEST_P(ControlTest, EngineThatMakesNoSuchCallHasNoControlThread) {
  const Region region = make_region();
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  EXPECT_EQ(threads_named("remora-calls"), 0U);
}

TEST_P(ControlTest, CallbackGetsARegionThatWorks) {
  const RegionInfo made = create();
  std::promise<std::thread::id> told;
  std::optional<Region> opened;
  ASSERT_TRUE(
      ok(engine().async_open_region(uri(made.name), Rights::kAll).then([&](Result<Region> region) {
        EXPECT_TRUE(ok(region));
        if (region) opened = *region;
        told.set_value(std::this_thread::get_id());
      })));
  EXPECT_NE(told.get_future().get(), std::this_thread::get_id());
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->fetch_add(ByteOffset{0}, 2).value(), 0U);
  EXPECT_EQ(opened->transport(), transport());
}

TEST_P(ControlTest, EventLoopOfTheApplicationIsToldInItsOwnThread) {
  const RegionInfo made = create();
  ResumptionQueue ends = ResumptionQueue::create().value();
  const ControlOptions here{.resume = ends.resume()};
  int told = 0;
  std::optional<Session> connected;
  std::optional<Region> opened;
  const auto self = std::this_thread::get_id();
  ASSERT_TRUE(ok(engine().async_connect(uri(), here).then([&](Result<Session> made_now) {
    EXPECT_EQ(std::this_thread::get_id(), self);
    if (made_now) connected = *made_now;
    ++told;
  })));
  ASSERT_TRUE(ok(engine()
                     .async_open_region(uri(made.name), Rights::kReadWrite, here)
                     .then([&](Result<Region> region) {
                       EXPECT_EQ(std::this_thread::get_id(), self);
                       if (region) opened = *region;
                       ++told;
                     })));
  ASSERT_TRUE(serve(ends, [&] { return told == 2; }));
  ASSERT_TRUE(connected && opened);
  EXPECT_TRUE(connected->connected());
  // The next call in the loop, of what the first ones gave.
  ASSERT_TRUE(ok(opened->async_reopen(here).then([&](Result<ReopenedRegion> again) {
    ASSERT_TRUE(ok(again));
    EXPECT_TRUE(again->same_contents);
    ++told;
  })));
  ASSERT_TRUE(ok(opened->async_settled(5s, here).then([&](const Status& settled) {
    EXPECT_TRUE(ok(settled));
    ++told;
  })));
  ASSERT_TRUE(serve(ends, [&] { return told == 4; }));
}

/// The same coroutine in an executor, on the poller and on the arena.
Task<Status> use(Engine& engine, std::string uri, ControlOptions options) {
  auto region = co_await engine.async_open_region(uri, Rights::kAll, options);
  if (!region) co_return region.error();
  auto fenced = co_await region->async_fence(options);
  if (!fenced) co_return fenced.error();
  auto again = co_await fenced->async_reopen(options);
  if (!again) co_return again.error();
  if (!again->same_contents) co_return Error{Code::kInternal, "reopen"};
  if (auto settled = co_await again->region.async_settled(5s, options); !settled)
    co_return settled.error();
  auto session = co_await engine.async_connect(uri, options);
  if (!session) co_return session.error();
  // g++ 12 would destroy what it captures twice where it stands within the next expression.
  const auto stat = [session = *session, name = again->region.info().name] {
    return session.stat(name);
  };
  auto info = co_await engine.async_control(stat, options);
  if (!info) co_return info.error();
  co_return (co_await session->async_settled(5s, options));
}

TEST_P(ControlTest, CoroutineGoesOnInAnExecutorOnAPollerAndOnTheArena) {
  const RegionInfo made = create();
  Executor executor;
  EXPECT_TRUE(ok(executor.run(use(engine(), uri(made.name), {}))));
  EXPECT_TRUE(ok(sync_wait(use(engine(), uri(made.name), {}))));
  EXPECT_TRUE(ok(sync_wait(use(engine(), uri(made.name), {.resume = Resume::on_arena()}))));
}

/// Operations and control calls of one executor at once.
TEST_P(ControlTest, ExecutorWaitsForOperationsAndCallsTogether) {
  const RegionInfo made = create();
  const Region region = open(made.name);
  const auto count = [](AsyncRegion in, int times) -> Task<Status> {
    for (int i = 0; i < times; ++i)
      if (auto before = co_await in.fetch_add(ByteOffset{0}, 1); !before) co_return before.error();
    co_return Status{};
  };
  const auto reopen = [](Region of, int times) -> Task<Status> {
    for (int i = 0; i < times; ++i)
      if (auto again = co_await of.async_reopen(); !again) co_return again.error();
    co_return Status{};
  };
  const auto both = [&](Region of) -> Task<Status> {
    Scope scope{2};
    (void)co_await scope.spawn(count(of.async(), 200));
    (void)co_await scope.spawn(reopen(of, 5));
    co_return co_await scope.join();
  };
  EXPECT_TRUE(ok(Executor{}.run(both(region))));
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 200U);
}

TEST_P(ControlTest, ErrorsOfTheBlockingFunctionAndOfMisuseArrive) {
  std::promise<Code> told;
  ASSERT_TRUE(
      ok(engine()
             .async_open_region(uri("not-there"), Rights::kRead)
             .then([&](const Result<Region>& region) { told.set_value(region.error().code()); })));
  EXPECT_EQ(told.get_future().get(), Code::kUnknownRegion);
  // What is wrong at once is the error of then(), and nothing is called back.
  const auto never = [](const Result<Region>&) { ADD_FAILURE(); };
  EXPECT_TRUE(fails_with(engine().async_open_region("remora://", Rights::kRead).then(never),
                         Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(engine().async_open_region(uri(), Rights::kRead).then(never),
                         Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(sync_wait([](Engine& in, std::string at) -> Task<Status> {
                           auto opened = co_await in.async_open_region(at, Rights::kNone);
                           co_return opened ? Status{} : Status{opened.error()};
                         }(engine(), uri("any"))),
                         Code::kInvalidArgument));
}

TEST_P(ControlTest, ExceptionOfABlockingFunctionIsAnError) {
  std::promise<Code> told;
  ASSERT_TRUE(ok(engine()
                     .async_control([]() -> Status { throw std::runtime_error{"boom"}; })
                     .then([&](const Status& status) { told.set_value(status.error().code()); })));
  EXPECT_EQ(told.get_future().get(), Code::kSystem);
}

TEST_P(ControlTest, CallsEndAtTheirDeadlinesHoweverLongTheirThreadsTake) {
  Gate gate;
  Ends ends;
  const Timed timed;
  // Two have the threads, one more waits for one.
  for (int i = 0; i < 3; ++i)
    ASSERT_TRUE(
        ok(engine().async_control(gate.blocking(), {.deadline = 100ms}).then(ends.counter())));
  EXPECT_TRUE(eventually([&] { return ends.all == 3; }));
  EXPECT_TRUE(timed.took_at_most(100ms + kGrace));
  EXPECT_EQ(ends.ok, 0);
  EXPECT_EQ(ends.code, Code::kTimedOut);
  EXPECT_EQ(gate.entered(), 2) << "the third one is never begun";
  gate.open();
  // The threads are free again, and what they returned late is dropped.
  Ends after;
  ASSERT_TRUE(ok(engine().async_control(gate.blocking()).then(after.counter())));
  EXPECT_TRUE(eventually([&] { return after.all == 1 && gate.left() == 3; }));
  EXPECT_EQ(after.ok, 1);
  EXPECT_EQ(ends.all, 3);
}

TEST_P(ControlTest, CancelledCallEndsAtOnceAndOnce) {
  Gate gate;
  Ends running;
  Ends queued;
  Ends stopped;
  std::stop_source stop;
  const ControlCall first = engine().async_control(gate.blocking()).then(running.counter()).value();
  ASSERT_TRUE(ok(
      engine().async_control(gate.blocking()).with_stop(stop.get_token()).then(stopped.counter())));
  const ControlCall third = engine().async_control(gate.blocking()).then(queued.counter()).value();
  EXPECT_TRUE(eventually([&] { return gate.entered() == 2; }));
  EXPECT_TRUE(third.cancel());
  EXPECT_TRUE(first.cancel());
  EXPECT_FALSE(first.cancel());
  EXPECT_TRUE(stop.request_stop());
  EXPECT_TRUE(eventually([&] { return running.all == 1 && queued.all == 1 && stopped.all == 1; }));
  for (const Ends* const each : {&running, &queued, &stopped})
    EXPECT_EQ(each->code, Code::kCancelled);
  gate.open();
  EXPECT_TRUE(eventually([&] { return gate.left() == 2; }));
  // A stop that was requested before: nothing is begun.
  EXPECT_TRUE(fails_with(
      engine().async_control(gate.blocking()).with_stop(stop.get_token()).then(queued.counter()),
      Code::kCancelled));
  EXPECT_EQ(running.all + queued.all + stopped.all, 3);
  EXPECT_FALSE(ControlCall{}.cancel());
}

TEST_P(ControlTest, TaskThatIsDestroyedCancelsItsCall) {
  Gate gate;
  ResumptionQueue ends = ResumptionQueue::create().value();
  bool went_on = false;
  {
    const auto wait = [](Engine& in, auto blocking, Resume resume, bool& on) -> Task<Status> {
      const Status status = co_await in.async_control(blocking, {.resume = resume});
      on = true;
      co_return status;
    };
    const Task<Status> task = wait(engine(), gate.blocking(), ends.resume(), went_on);
    task.start();
    EXPECT_TRUE(eventually([&] { return gate.entered() == 1; }));
  }
  gate.open();
  EXPECT_TRUE(serve(ends, [&] { return gate.left() == 1; }));
  (void)ends.progress();
  EXPECT_FALSE(went_on);
}

TEST_P(ControlTest, MoreThanMayBeUnderWayAreRefused) {
  Gate gate;
  Ends ends;
  std::size_t taken = 0;
  for (; taken < kMaxControlCalls; ++taken)
    ASSERT_TRUE(ok(engine().async_control(gate.blocking()).then(ends.counter())));
  EXPECT_TRUE(
      fails_with(engine().async_control(gate.blocking()).then(ends.counter()), Code::kWouldBlock));
  gate.open();
  EXPECT_TRUE(eventually([&] { return ends.all == static_cast<int>(taken); }));
  EXPECT_EQ(ends.ok, static_cast<int>(taken));
}

TEST_P(ControlTest, EngineThatIsDestroyedEndsCallsWithClosed) {
  const RegionInfo made = create();
  Gate gate;
  Ends poller;
  Ends loop;
  ResumptionQueue ends = ResumptionQueue::create().value();
  std::optional<Region> region;
  {
    EngineOptions options = patient_options();
    options.control_threads = 1;
    Engine doomed = Engine::open(options).value();
    region = doomed.open_region(uri(made.name), Rights::kAll).value();
    ASSERT_TRUE(ok(doomed.async_control(gate.blocking()).then(poller.counter())));
    ASSERT_TRUE(
        ok(doomed.async_control(gate.blocking(), {.resume = ends.resume()}).then(loop.counter())));
    EXPECT_TRUE(eventually([&] { return gate.entered() == 1; }));
  }
  EXPECT_EQ(poller.all, 1) << "~Engine waits for callbacks on a poller";
  EXPECT_EQ(poller.code, Code::kClosed);
  EXPECT_EQ(loop.all, 0);
  EXPECT_TRUE(serve(ends, [&] { return loop.all == 1; }));
  EXPECT_EQ(loop.code, Code::kClosed);
  // Its regions work on, and begin no further call.
  EXPECT_EQ(region->fetch_add(ByteOffset{0}, 1).value(), 0U);
  EXPECT_TRUE(
      fails_with(region->async_reopen().then([](const Result<ReopenedRegion>&) { ADD_FAILURE(); }),
                 Code::kClosed));
  gate.open();
  EXPECT_TRUE(eventually([&] { return gate.left() == 1; }));
  EXPECT_EQ(poller.all + loop.all, 2);
}

TEST_P(ControlTest, WithoutPollersALoopIsToldAndNothingElse) {
  EngineOptions options = patient_options();
  options.pollers = 0;
  const Engine alone = Engine::open(options).value();
  Ends told;
  const auto nothing = [] { return Status{}; };
  EXPECT_TRUE(fails_with(alone.async_control(nothing).then(told.counter()), Code::kUnsupported));
  ResumptionQueue ends = ResumptionQueue::create().value();
  ASSERT_TRUE(ok(alone.async_control(nothing, {.resume = ends.resume()}).then(told.counter())));
  EXPECT_TRUE(serve(ends, [&] { return told.all == 1; }));
  options.control_threads = 0;
  const Engine without = Engine::open(options).value();
  EXPECT_TRUE(
      fails_with(without.async_control(nothing, {.resume = ends.resume()}).then(told.counter()),
                 Code::kInvalidArgument));
}

/// Operations of an AsyncQueue reach the same loop by the same descriptor.
TEST_P(ControlTest, ResumptionQueueTakesOperationsToo) {
  const Region region = make_region();
  ResumptionQueue ends = ResumptionQueue::create().value();
  {
    AsyncQueue queue = region.async_queue({.depth = 4}, ends.resume()).value();
    const auto count = [](AsyncRegion in) -> Task<Status> {
      for (int i = 0; i < 50; ++i)
        if (auto before = co_await in.fetch_add(ByteOffset{0}, 1); !before)
          co_return before.error();
      co_return Status{};
    };
    const Task<Status> task = count(queue.async());
    task.start();
    ASSERT_TRUE(serve(ends, [&] { return task.done(); }));
    EXPECT_TRUE(ok(task.result()));
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 50U);
}

/// An operation keeps its place until its coroutine goes on: the others are in line meanwhile.
TEST_P(ControlTest, StopEndsWhatIsInLineOfAQueueAndNothingThatWasSent) {
  const Region region = make_region();
  ResumptionQueue ends = ResumptionQueue::create().value();
  {
    AsyncQueue queue = region.async_queue({.depth = 1}, ends.resume()).value();
    std::stop_source stop;
    std::vector<Task<Status>> tasks;
    for (int i = 0; i < 4; ++i) {
      tasks.push_back(add_one(queue.async().with_stop(stop.get_token()), ByteOffset{0}));
      tasks.back().start();
    }
    stop.request_stop();
    ASSERT_TRUE(serve(ends, [&] {
      return std::all_of(tasks.begin(), tasks.end(), [](const auto& task) { return task.done(); });
    }));
    EXPECT_TRUE(ok(tasks.front().result()));
    for (std::size_t i = 1; i < tasks.size(); ++i)
      EXPECT_TRUE(fails_with(tasks[i].result(), Code::kCancelled));
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 0).value(), 1U);
}

REMORA_CONFORMANCE(ControlTest);

}  // namespace
}  // namespace remora::test
