/// Sessions that lose their connection.

#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "session_resume_fixture.h"

namespace remora::detail {
namespace {

TEST_F(SessionResumeTest, GrantsThatAreHeldAreSaidAndNoClosesAreSent) {
  start();
  std::vector<Region> regions;
  regions.reserve(20);
  for (int i = 0; i < 20; ++i) regions.push_back(open());
  set_reachable(false);
  hang_up();
  ASSERT_TRUE(told_soon("I"));
  regions.erase(regions.begin(), regions.begin() + 18);
  set_reachable(true);
  ASSERT_TRUE(told_soon("IR"));
  const auto hellos = asked(&Request::has_hello);
  ASSERT_EQ(hellos.size(), 2U);
  const auto& grants = hellos[1].request.hello().resume().grants();
  EXPECT_EQ(std::vector<std::uint64_t>(grants.begin(), grants.end()),
            (std::vector<std::uint64_t>{19, 20}));
  EXPECT_EQ(asked(&Request::has_close).size(), 0U);
}

TEST_F(SessionResumeTest, AttemptsGetLongerWhileTheServerIsReachedAndDoesNotAnswer) {
  using std::chrono::seconds;
  start();
  struct Attempt {
    Clock::time_point began;
    Deadline until;
  };
  std::vector<Attempt> attempts;
  {
    const std::lock_guard lock{script_->mutex};
    script_->not_connected = [&](Deadline until) -> std::optional<Error> {
      attempts.push_back({Clock::now(), until});
      const Error late{Code::kTimedOut, "connect"};
      switch (attempts.size()) {
        case 1:
        case 2:
        case 3:
        case 4: return late.with_reason(Reason::kSilent);
        case 5: return late.with_reason(Reason::kUnreachable);
        default: return std::nullopt;
      }
    };
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  const std::lock_guard lock{script_->mutex};
  ASSERT_EQ(attempts.size(), 6U);
  const std::array given{seconds{2}, seconds{4}, seconds{8}, seconds{8}, seconds{8}, seconds{2}};
  for (std::size_t i = 0; i < given.size(); ++i) {
    // Its time began between the attempt before and this one.
    EXPECT_LE(attempts[i].until - attempts[i].began, given[i]) << i;
    if (i > 0) {
      EXPECT_GE(attempts[i].until - attempts[i - 1].began, given[i]) << i;
    }
  }
}

TEST_F(SessionResumeTest, ProgressDoesNotWaitForADeviceThatIsSlowToDestroyTheLane) {
  start();
  const Region region = open();
  Queue queue = region.queue().value();
  ResumedLane* const lane = last_lane();
  lane->flush_when_broken = false;
  std::atomic<bool> returned{false};
  std::atomic<bool> returned_first{false};
  std::atomic<bool> closed{false};
  lane->before_close = [&] {
    returned_first = soon([&] { return returned.load(); });
    closed = true;
  };
  const std::array<std::byte, 64> bytes{};
  for (const std::uint64_t block : {1U, 5U}) EXPECT_TRUE(queue.write(Block{block}, Source{bytes}));
  ASSERT_TRUE(queue.submit());
  lane->fail(0);
  std::size_t ended = queue.progress().size();
  EXPECT_LE(ended, 1U) << "the device may still read the buffer of the second write";
  returned = true;
  ASSERT_TRUE(soon([&] {
    const Completions found = queue.progress();
    for (const Completion& each : found) EXPECT_EQ(each.error().code(), Code::kIndeterminate);
    ended += found.size();
    return ended == 2;
  }));
  EXPECT_TRUE(closed);
  EXPECT_TRUE(returned_first) << "progress() has waited for the device";
  EXPECT_TRUE(told_soon("IR"));
}

TEST_F(SessionResumeTest, ClosesThatAreNotWaitedForKeepWithinWhatMayBeUnanswered) {
  start();
  std::vector<Region> regions;
  regions.reserve(20);
  for (int i = 0; i < 20; ++i) regions.push_back(open());
  {
    const std::lock_guard lock{script_->mutex};
    script_->withheld = [](const Request& request) { return request.has_close(); };
  }
  // Like a handler that lets go of them.
  auto held = std::make_shared<std::vector<Region>>(std::move(regions));
  engine_->control_loop().value()->run_soon([held = std::move(held)] {});
  ASSERT_TRUE(soon([&] { return asked(&Request::has_close).size() >= 8; }));
  std::this_thread::sleep_for(milliseconds{20});
  const auto first = asked(&Request::has_close);
  ASSERT_EQ(first.size(), transport::kMaxControlRequests);
  {
    const auto to = endpoint();
    const std::lock_guard lock{script_->mutex};
    script_->withheld = [](const Request&) { return false; };
    for (const auto& each : first) to->answer(each.id, each.request);
  }
  EXPECT_TRUE(soon([&] { return asked(&Request::has_close).size() == 20; }));
  EXPECT_TRUE(session_->connected());
}

TEST_F(SessionResumeTest, EventOfAnOldConnectionIsNotAcknowledgedOnTheNext) {
  start();
  const Region region = open();
  const Region other = open();
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 4}).value();
  ASSERT_TRUE(queue.select(other));
  queue.read(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  // The client does not acknowledge the event while the queue's owner is in a call, and this call
  // outlasts the connection.
  std::thread owner{[&] {
    std::size_t found = 0;
    while (found == 0) found = queue.wait(1).size();  // refused while cancel() runs below
    EXPECT_EQ(found, 1U);
  }};
  // Until the owner is in the call.
  EXPECT_TRUE(soon([&] {
    const Status cancelled = queue.cancel(Ticket{});
    return !cancelled && cancelled.error().code() == Code::kBusy;
  }));
  say(revoking(1, 1));
  std::this_thread::sleep_for(milliseconds{30});
  EXPECT_EQ(asked(&Request::has_event_ack).size(), 0U);
  hang_up();
  EXPECT_TRUE(told_soon("IR"));
  last_lane()->finish(0);
  owner.join();
  std::this_thread::sleep_for(milliseconds{50});
  EXPECT_EQ(asked(&Request::has_event_ack).size(), 0U);
  say(revoking(1, 1));
  EXPECT_TRUE(soon([&] { return asked(&Request::has_event_ack).size() == 1; }));
}

/// Waiting operations of grants that were revoked meanwhile end, and are not posted.
TEST_F(SessionResumeTest, RevocationsAreReadBeforeTheSessionGoesOn) {
  start();
  constexpr std::size_t kGone = 3;
  std::vector<Region> gone;
  gone.reserve(kGone);
  for (std::size_t i = 0; i < kGone; ++i) gone.push_back(open());
  const Region stays = open();
  std::array<std::byte, 64> bytes{};
  Queue queue = stays.queue({.depth = 8}).value();
  set_reachable(false);
  hang_up();
  ASSERT_TRUE(told_soon("I"));
  for (const Region& region : gone) {
    ASSERT_TRUE(queue.select(region));
    queue.read(ByteOffset{0}, bytes);
  }
  ASSERT_TRUE(queue.select(stays));
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  {
    const std::lock_guard lock{script_->mutex};
    for (std::uint64_t i = 1; i <= kGone; ++i) script_->behind_welcome.push_back(revoking(i, i));
  }
  set_reachable(true);
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_event_ack).size(), kGone);
  ASSERT_TRUE(last_lane()->soon_posted(1));  // the session's handlers run first
  EXPECT_EQ(last_lane()->posted.size(), 1U);
  EXPECT_EQ(last_lane()->posted[0].request.remote_key, 4U);
  std::size_t refused = 0;
  for (const Completion& completion : queue.wait(kGone)) {
    EXPECT_EQ(completion.error().code(), Code::kAccessRefused);
    EXPECT_EQ(completion.error().reason(), Reason::kFenced);
    ++refused;
  }
  EXPECT_EQ(refused, kGone);
  session_->fail(Reason::kPeerGone);  // posted operations end
}

TEST_F(SessionResumeTest, AcknowledgementForWhichThereIsNoRoomComesLater) {
  start();
  {
    const std::lock_guard lock{script_->mutex};
    script_->withheld = [](const Request& request) {
      return request.has_list() || request.has_event_ack();
    };
  }
  std::vector<std::thread> callers;
  callers.reserve(transport::kMaxControlRequests);
  for (std::size_t i = 0; i < transport::kMaxControlRequests; ++i)
    callers.emplace_back([&] {
      Request request;
      request.mutable_list();
      (void)session_->call(std::move(request), "list", deadline());
    });
  ASSERT_TRUE(soon([&] { return asked(&Request::has_list).size() == 8; }));
  say(revoking(1, 77));
  ASSERT_TRUE(soon([&] { return asked(&Request::has_event_ack).size() == 1; }));
  say(revoking(2, 78));
  std::this_thread::sleep_for(milliseconds{30});
  EXPECT_EQ(asked(&Request::has_event_ack).size(), 1U) << "the tenth ends the session";
  {
    const auto first = asked(&Request::has_event_ack)[0];
    const auto to = endpoint();
    const std::lock_guard lock{script_->mutex};
    to->answer(first.id, first.request);
  }
  EXPECT_TRUE(soon([&] { return asked(&Request::has_event_ack).size() == 2; }));
  hang_up();
  for (std::thread& caller : callers) caller.join();
}

TEST_F(SessionResumeTest, OnePingAtATimeIsInFlight) {
  script_->withheld = [](const Request& request) { return request.has_ping(); };
  script_->lease_ms = 400;  // a ping every 100 ms
  start();
  EXPECT_TRUE(soon([&] { return !told().empty(); })) << "the silence was not noticed";
  ASSERT_FALSE(told().empty());
  ASSERT_FALSE(asked(&Request::has_ping).empty());
  EXPECT_EQ(asked(&Request::has_ping)[0].connection, 1);
  const auto pings = asked(&Request::has_ping);
  EXPECT_EQ(std::count_if(pings.begin(), pings.end(),
                          [](const auto& each) { return each.connection == 1; }),
            1);
  const std::lock_guard lock{told_mutex_};
  EXPECT_EQ(reasons_[0], Reason::kSilent);
}

/// The thread that connects again then has the last handle, and cannot end the session by itself.
TEST_F(SessionResumeTest, SessionIsKeptAliveWhileItsLanesAreConnected) {
  script_->lease_ms = 200;
  script_->lane_is_due = [this] { return asked(&Request::has_ping).size() >= 3; };
  start();
  EXPECT_TRUE(session_->connected());
}

TEST_F(SessionResumeTest, HandlerMayLetGoOfTheLastHandle) {
  std::atomic<char> when = 'I';
  on_event_ = [&](char what) {
    if (what == when) session_.reset();
  };
  for (const char each : {'I', 'R'}) {
    when = each;
    start();
    const std::weak_ptr<SessionCore> session = session_;
    hang_up();
    EXPECT_TRUE(soon([&] { return session.expired(); })) << each;
    engine_->handler_gate().close();  // returns once the handler has
  }
}

TEST_F(SessionResumeTest, LanesThatDoNotFitEndItAndNothingIsResumed) {
  start();
  script_->transfer_bytes_max = 512;
  hang_up();
  EXPECT_TRUE(told_soon("IL"));
  std::this_thread::sleep_for(milliseconds{20});
  EXPECT_EQ(told(), "IL");
  EXPECT_TRUE(session_->ended());
}

TEST_F(SessionResumeTest, EachInterruptionIsToldInOrder) {
  start();
  // The last event is told before its handler is called: the handler may outlive this function.
  on_event_ = [this, rounds = std::make_shared<std::atomic<int>>(0)](char what) {
    // While on_resumed is still running.
    if (what == 'R' && ++*rounds < 3) hang_up();
  };
  hang_up();
  EXPECT_TRUE(told_soon("IRIRIR")) << told();
}

TEST_F(SessionResumeTest, DrainIsToldOnceAndAcknowledgedEachTime) {
  start();
  for (const std::uint64_t id : {1U, 2U}) {
    control::Event event;
    event.set_id(id);
    event.mutable_draining()->set_remaining_ms(1000);
    say(std::move(event));
  }
  EXPECT_TRUE(soon([&] { return asked(&Request::has_event_ack).size() == 2; }));
  EXPECT_EQ(told(), "D");
  EXPECT_TRUE(session_->connected());
}

TEST_F(SessionResumeTest, ServerThatDoesNotSayItKnowsAdministratorsGetsNoRequestOfTheirs) {
  start();
  const Session session{session_};
  EXPECT_EQ(session.sessions().error().code(), Code::kUnsupported);
  EXPECT_EQ(session.end_session(1).error().code(), Code::kUnsupported);
  EXPECT_EQ(session.drain().error().code(), Code::kUnsupported);
  EXPECT_EQ(session.end_drain().error().code(), Code::kUnsupported);
  EXPECT_EQ(session.drain_state().error().code(), Code::kUnsupported);
  EXPECT_EQ(asked(&Request::has_sessions).size(), 0U);
  EXPECT_EQ(asked(&Request::has_end_session).size(), 0U);
  EXPECT_EQ(asked(&Request::has_drain).size(), 0U);
  EXPECT_TRUE(session.connected());
}

TEST_F(SessionResumeTest, ReasonOfTheServersEndIsRemembered) {
  start();
  set_reachable(false);
  control::Event event;
  event.set_id(1);
  event.mutable_ending()->set_code(static_cast<std::uint32_t>(Code::kConnectionLost));
  event.mutable_ending()->set_reason(static_cast<std::uint32_t>(Reason::kRevoked));
  say(std::move(event));
  hang_up();
  ASSERT_TRUE(told_soon("I"));
  EXPECT_EQ(session_->lost_reason(), Reason::kRevoked);
  EXPECT_EQ(asked(&Request::has_event_ack).size(), 0U);
}

TEST_F(SessionResumeTest, ReasonThatSettlesASessionIsIgnoredBeforeItsLanesAreGone) {
  start();
  set_reachable(false);
  for (const Reason reason : {Reason::kNewMemory, Reason::kLapsed, Reason::kTooOften}) {
    control::Event event;
    event.set_id(1);
    event.mutable_ending()->set_code(static_cast<std::uint32_t>(Code::kLimitExceeded));
    event.mutable_ending()->set_reason(static_cast<std::uint32_t>(reason));
    say(std::move(event));
  }
  hang_up();
  ASSERT_TRUE(told_soon("I"));
  EXPECT_EQ(session_->lost_reason(), Reason::kPeerGone);
  EXPECT_EQ(session_->settled(Clock::now() + std::chrono::milliseconds{50}).error().code(),
            Code::kTimedOut);
}

}  // namespace
}  // namespace remora::detail
