/// Sessions that lose their connection. The test scripts each message of the server.

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <sys/eventfd.h>
#include <thread>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/testing/fault_transport.h>

#include "base/unique_fd.h"
#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "protocol/messages.h"
#include "support/eventually.h"
#include "transport/fault/core.h"
#include "transport/rkey_table.h"
#include "unit/engine/fake_lane.h"

namespace remora::detail {
namespace {

using control::Request;
using std::chrono::milliseconds;
using transport::ControlMessage;

/// A lane with a descriptor that can be added to an epoll set; for several threads.
class ResumedLane final : public transport::FakeLane {
 public:
  using FakeLane::FakeLane;
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  transport::PostOutcome post(transport::Chain chain,
                              std::uint64_t first_sequence) noexcept override {
    const std::lock_guard lock{mutex_};
    return FakeLane::post(chain, first_sequence);
  }
  std::size_t poll(std::span<transport::LaneCompletion> found) noexcept override {
    const std::lock_guard lock{mutex_};
    return FakeLane::poll(found);
  }
  void move_to_error() noexcept override {
    const std::lock_guard lock{mutex_};
    FakeLane::move_to_error();
  }
  void finish(std::uint64_t sequence) {
    const std::lock_guard lock{mutex_};
    complete(sequence);
  }
  /// Also while operations go on in another thread.
  bool soon_posted(std::size_t count) {
    const auto posted_so_many = [&] {
      const std::lock_guard lock{mutex_};
      return posted.size() >= count;
    };
    return test::eventually(posted_so_many);
  }

 private:
  std::mutex mutex_;
  UniqueFd event_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

/// State that all connections to the scripted server share.
struct Script {
  struct Asked {
    int connection;
    std::uint64_t id;
    Request request;
  };
  std::mutex mutex;  // guards the members below
  std::vector<Asked> asked;
  std::vector<ResumedLane*> lanes;
  int connections = 0;
  std::uint64_t lease_ms = 60'000;
  std::uint64_t next_grant = 1;
  std::uint32_t transfer_bytes_max = 1024;  ///< of the next lane
  /// A lane is connected once this is true, or a deadline later.
  std::function<bool()> lane_is_due = [] { return true; };
  /// True: the request is not answered.
  std::function<bool(const Request&)> withheld = [](const Request&) { return false; };
  bool by_lane = false;                                       ///< a key for each lane
  int keyless_lanes = 0;                                      ///< of the eight there might be
  std::uint64_t keyless_grant = 0;                            ///< gets none a second time,
  int keyless_times = std::numeric_limits<int>::max();        ///< so often
  int strange_pages = 0;                                      ///< so many are of another grant
  std::vector<std::shared_ptr<transport::RkeyTable>> tables;  ///< of each connection
  /// Events right behind the Welcome of a resumed session, each sent after the one before is seen.
  std::deque<control::Event> behind_welcome;
};

class ScriptedEndpoint final : public transport::ClientEndpoint {
 public:
  ScriptedEndpoint(std::shared_ptr<Script> script, int connection)
      : script_{std::move(script)}, connection_{connection} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kTcp; }
  [[nodiscard]] const std::string& device() const noexcept override { return device_; }
  [[nodiscard]] int event_fd() const noexcept override { return event_.get(); }
  [[nodiscard]] std::shared_ptr<transport::MemoryDomain> memory_domain() const noexcept override {
    return nullptr;
  }
  Status send(ControlMessage message, Deadline /*deadline*/) noexcept override {
    const std::lock_guard lock{script_->mutex};
    if (gone_) return Error{Code::kConnectionLost, "send"};
    const auto asked = control::decode(message.bytes);
    if (!asked) return asked.error();
    script_->asked.push_back({connection_, asked->id(), asked->request()});
    if (script_->withheld(asked->request())) return {};
    answer(asked->id(), asked->request());
    return {};
  }
  Result<std::optional<ControlMessage>> receive() noexcept override {
    const std::lock_guard lock{script_->mutex};
    if (!said_.empty()) {
      std::optional<ControlMessage> first{std::move(said_.front())};
      said_.pop_front();
      return first;
    }
    if (gone_) return Error{Code::kConnectionLost, "receive"};
    eventfd_t count = 0;
    (void)::eventfd_read(event_.get(), &count);
    return std::optional<ControlMessage>{};
  }
  Result<std::unique_ptr<transport::Lane>> open_lane(const transport::LaneTicket&, std::uint32_t,
                                                     Deadline deadline) noexcept override {
    while (!script_->lane_is_due())
      if (Clock::now() >= deadline)
        return Error{Code::kTimedOut, "lane"};
      else
        std::this_thread::sleep_for(milliseconds{1});
    const std::lock_guard lock{script_->mutex};
    auto lane = std::make_unique<ResumedLane>(8, script_->transfer_bytes_max);
    script_->lanes.push_back(lane.get());
    return std::unique_ptr<transport::Lane>{std::move(lane)};
  }
  Status use_lane_keys(std::shared_ptr<transport::RkeyTable> keys) noexcept override {
    const std::lock_guard lock{script_->mutex};
    script_->tables.push_back(std::move(keys));
    return {};
  }
  Result<transport::AttachedGrant> attach(std::vector<transport::WireExtent> extents,
                                          std::vector<UniqueFd>, Rights) noexcept override {
    return transport::AttachedGrant{.extents = std::move(extents), .hold = nullptr};
  }
  void shutdown() noexcept override {
    const std::lock_guard lock{script_->mutex};
    gone_ = true;
    (void)::eventfd_write(event_.get(), 1);
  }
  /// With the script's mutex.
  void say(control::Event event) {
    control::Envelope envelope;
    envelope.set_id(event.id());
    *envelope.mutable_event() = std::move(event);
    put(envelope);
  }
  /// With the script's mutex.
  void answer(std::uint64_t id, const Request& request) {
    control::Envelope envelope;
    envelope.set_id(id);
    *envelope.mutable_reply() = reply_to(request);
    put(envelope);
    const bool next = (request.has_hello() || request.has_event_ack()) && connection_ > 1;
    if (next && !script_->behind_welcome.empty()) {
      say(script_->behind_welcome.front());
      script_->behind_welcome.pop_front();
    }
  }

 private:
  void put(control::Envelope& envelope) {
    envelope.set_magic(control::kMagic);
    said_.push_back({.bytes = control::encode(envelope).value(), .descriptors = {}});
    (void)::eventfd_write(event_.get(), 1);
  }
  control::Reply reply_to(const Request& request) {
    control::Reply reply;
    if (request.has_hello()) {
      control::Welcome& welcome = *reply.mutable_hello();
      welcome.set_version(control::kVersionNewest);
      welcome.set_session_id(7);
      welcome.set_memory_id(1);
      welcome.set_keep_ms(10'000);
      welcome.set_lease_ms(script_->lease_ms);
      welcome.set_resumed(request.hello().has_resume());
      welcome.set_lane_keys(script_->by_lane);
    } else if (request.has_open()) {
      control::OpenReply& opened = *reply.mutable_open();
      *opened.mutable_region() = control::to_message({.name = request.open().name(),
                                                      .size_bytes = 4096,
                                                      .block_bytes = 64,
                                                      .rights = Rights::kAll,
                                                      .atomic_domain = "cpu",
                                                      .epoch = 1,
                                                      .extent_count = 1});
      opened.set_grant_id(script_->next_grant);
      fill(*opened.add_extents(), script_->next_grant++);
    } else if (request.has_extents()) {
      const std::uint64_t grant_id = request.extents().grant_id();
      if (grant_id == script_->keyless_grant && script_->keyless_times > 0) {
        --script_->keyless_times;
        *reply.mutable_failure() = control::to_failure(Error{Code::kLimitExceeded, "windows"});
        return reply;
      }
      fill(*reply.mutable_extents()->add_extents(), grant_id);
      if (script_->strange_pages > 0) {
        --script_->strange_pages;
        reply.mutable_extents()->mutable_extents(0)->set_length_bytes(8192);
      }
    } else if (request.has_event_ack()) {
      reply.mutable_event_ack();
    } else if (request.has_ping()) {
      reply.mutable_ping();
    } else if (request.has_goodbye()) {
      reply.mutable_goodbye();
    } else {
      reply.mutable_close();
    }
    return reply;
  }

  /// The key of grant g is g, or, by lane, connection * 10000 + g * 100 + lane.
  void fill(control::Extent& extent, std::uint64_t grant_id) const {
    extent.set_length_bytes(4096);
    extent.set_key(static_cast<std::uint32_t>(grant_id));
    if (!script_->by_lane) return;
    for (int lane = 0; lane < 8 - script_->keyless_lanes; ++lane)
      extent.add_lane_keys(static_cast<std::uint32_t>(connection_ * 10'000 + lane) +
                           static_cast<std::uint32_t>(grant_id) * 100);
  }

  std::shared_ptr<Script> script_;
  const int connection_;
  const std::string device_;
  UniqueFd event_{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  bool gone_ = false;
  std::deque<ControlMessage> said_;
};

/// Keeps the endpoint of each connection, also when its session has let go of it.
class SharedEndpoint final : public transport::ClientEndpoint {
 public:
  explicit SharedEndpoint(std::shared_ptr<ScriptedEndpoint> real) : real_{std::move(real)} {}
  [[nodiscard]] TransportKind kind() const noexcept override { return real_->kind(); }
  [[nodiscard]] const std::string& device() const noexcept override { return real_->device(); }
  [[nodiscard]] int event_fd() const noexcept override { return real_->event_fd(); }
  [[nodiscard]] std::shared_ptr<transport::MemoryDomain> memory_domain() const noexcept override {
    return nullptr;
  }
  Status send(ControlMessage message, Deadline deadline) noexcept override {
    return real_->send(std::move(message), deadline);
  }
  Result<std::optional<ControlMessage>> receive() noexcept override { return real_->receive(); }
  Result<std::unique_ptr<transport::Lane>> open_lane(const transport::LaneTicket& ticket,
                                                     std::uint32_t depth,
                                                     Deadline deadline) noexcept override {
    return real_->open_lane(ticket, depth, deadline);
  }
  Status use_lane_keys(std::shared_ptr<transport::RkeyTable> keys) noexcept override {
    return real_->use_lane_keys(std::move(keys));
  }
  Result<transport::AttachedGrant> attach(std::vector<transport::WireExtent> extents,
                                          std::vector<UniqueFd> descriptors,
                                          Rights rights) noexcept override {
    return real_->attach(std::move(extents), std::move(descriptors), rights);
  }
  void shutdown() noexcept override { real_->shutdown(); }

 private:
  std::shared_ptr<ScriptedEndpoint> real_;
};

class SessionResumeTest : public ::testing::Test {
 protected:
  void start() {
    EngineOptions options;
    options.spin = std::chrono::nanoseconds{0};
    options.handlers.on_interrupted = [this](const SessionEvent& event) { note('I', event); };
    options.handlers.on_resumed = [this](const SessionEvent& event) { note('R', event); };
    options.handlers.on_lost = [this](const SessionEvent& event) { note('L', event); };
    options.handlers.on_drain = [this](const SessionEvent& event) { note('D', event); };
    engine_ = EngineCore::create(options).value();
    Dial dial{.server = "script:1",
              .connect = transport::with_faults(faults_.hook(), TransportKind::kTcp,
                                                [this](Deadline) { return connect(); })};
    session_ = SessionCore::start(engine_, std::move(dial), deadline()).value();
  }
  void TearDown() override {
    engine_->handler_gate().close();
    session_.reset();
  }
  static Deadline deadline() { return deadline_after(std::chrono::seconds{30}); }
  Result<std::unique_ptr<transport::ClientEndpoint>> connect() {
    const std::lock_guard lock{script_->mutex};
    endpoints_.push_back(std::make_shared<ScriptedEndpoint>(script_, ++script_->connections));
    return std::unique_ptr<transport::ClientEndpoint>{
        std::make_unique<SharedEndpoint>(endpoints_.back())};
  }
  Region open() {
    return Region{RegionGrant::open(session_, "r", Rights::kAll, "test", deadline()).value()};
  }
  void set_reachable(bool reachable) {
    faults_.refuse_connects_for(reachable ? milliseconds{0} : std::chrono::hours{1});
  }
  void hang_up() { faults_.lose_connections(); }
  std::shared_ptr<ScriptedEndpoint> endpoint() {
    const std::lock_guard lock{script_->mutex};
    return endpoints_.back();
  }
  void say(control::Event event) {
    const auto to = endpoint();
    const std::lock_guard lock{script_->mutex};
    to->say(std::move(event));
  }
  static control::Event revoking(std::uint64_t id, std::uint64_t grant_id) {
    control::Event event;
    event.set_id(id);
    event.mutable_revoking()->set_grant_id(grant_id);
    event.mutable_revoking()->set_reason(static_cast<std::uint32_t>(Reason::kFenced));
    return event;
  }
  std::vector<Script::Asked> asked(bool (Request::*what)() const) {
    const std::lock_guard lock{script_->mutex};
    std::vector<Script::Asked> found;
    for (const auto& each : script_->asked)
      if ((each.request.*what)()) found.push_back(each);
    return found;
  }
  ResumedLane* last_lane() {
    const std::lock_guard lock{script_->mutex};
    return script_->lanes.back();
  }
  std::string told() {
    const std::lock_guard lock{told_mutex_};
    return told_;
  }
  template <typename Condition>
  static bool soon(Condition condition) {
    return test::eventually(condition);
  }
  bool told_soon(const std::string& what) {
    return soon([&] { return told() == what; });
  }
  /// The key of a token on a lane, in the table of connection `connection`, which counts from 1.
  std::uint32_t key_of(std::size_t connection, std::uint32_t token, std::size_t lane) {
    const std::lock_guard lock{script_->mutex};
    return transport::RkeyTable::key_of(script_->tables.at(connection - 1)->of_lane(lane), token);
  }
  void note(char what, const SessionEvent& event) {
    {
      const std::lock_guard lock{told_mutex_};
      told_ += what;
      reasons_.push_back(event.reason);
    }
    if (on_event_) on_event_(what);
  }

  remora::testing::FaultTransport faults_ = remora::testing::FaultTransport::create().value();
  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::vector<std::shared_ptr<ScriptedEndpoint>> endpoints_;  ///< under the script's mutex
  std::mutex told_mutex_;
  std::string told_;
  std::vector<Reason> reasons_;
  std::function<void(char)> on_event_;
  std::shared_ptr<EngineCore> engine_;
  std::shared_ptr<SessionCore> session_;
};

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
  ASSERT_EQ(first.size(), transport::kControlRequestsMax);
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
  callers.reserve(transport::kControlRequestsMax);
  for (std::size_t i = 0; i < transport::kControlRequestsMax; ++i)
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
  std::atomic<int> rounds = 0;
  on_event_ = [&](char what) {
    // While on_resumed is still running.
    if (what == 'R' && ++rounds < 3) hang_up();
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

TEST_F(SessionResumeTest, WaitingOperationsGoOnWithNewKeysOfLanes) {
  script_->by_lane = true;
  start();
  const Region first = open();
  const Region second = open();
  std::array<std::byte, 64> bytes{};
  Queue queue = second.queue({.depth = 4}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  ASSERT_TRUE(last_lane()->soon_posted(1));
  const std::uint32_t token = last_lane()->posted[0].request.remote_key;
  EXPECT_EQ(key_of(1, token, 0), 10'200U) << "of the first connection, grant and lane";
  EXPECT_EQ(script_->tables.at(0)->used(), 2U);
  set_reachable(false);
  hang_up();
  ASSERT_TRUE(told_soon("I"));
  EXPECT_EQ(queue.wait(1).size(), 1U) << "what was posted is lost";
  queue.read(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  set_reachable(true);
  ASSERT_TRUE(told_soon("IR"));
  const auto pages = asked(&Request::has_extents);
  ASSERT_EQ(pages.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pages[i].connection, 2);
    EXPECT_EQ(pages[i].request.extents().grant_id(), i + 1);
    EXPECT_EQ(pages[i].request.extents().first(), 0U);
  }
  ASSERT_EQ(script_->tables.size(), 2U);
  EXPECT_EQ(script_->tables[0], script_->tables[1]) << "the tokens stay";
  EXPECT_EQ(key_of(2, token, 0), 20'200U);
  ASSERT_TRUE(last_lane()->soon_posted(1));
  EXPECT_EQ(last_lane()->posted[0].request.remote_key, token);
  last_lane()->finish(0);
}

TEST_F(SessionResumeTest, TokensGoBackWithTheirRegion) {
  script_->by_lane = true;
  start();
  {
    const Region region = open();
    EXPECT_EQ(script_->tables.at(0)->used(), 1U);
  }
  EXPECT_TRUE(soon([&] { return script_->tables.at(0)->used() == 0; }));
}

TEST_F(SessionResumeTest, GrantThatGetsNoKeysIsRevokedAndOthersGoOn) {
  script_->by_lane = true;
  start();
  const Region loses = open();
  const Region stays = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->keyless_grant = 1;
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  std::array<std::byte, 64> bytes{};
  const Status refused = loses.write(ByteOffset{0}, bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kAccessRefused);
  EXPECT_EQ(refused.error().reason(), Reason::kRevoked);
  EXPECT_EQ(key_of(2, 1, 0), transport::RkeyTable::kNoKey) << "it had one of a lane that is gone";
  EXPECT_NE(key_of(2, 2, 0), transport::RkeyTable::kNoKey);
  Queue queue = stays.queue({.depth = 4}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  EXPECT_TRUE(last_lane()->soon_posted(1));
  session_->fail(Reason::kPeerGone);
}

/// Other sessions may free their keys of the device a moment later.
TEST_F(SessionResumeTest, GrantThatGetsItsKeysAMomentLaterGoesOn) {
  script_->by_lane = true;
  start();
  const Region region = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->keyless_grant = 1;
    script_->keyless_times = 2;
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 2U) << "on one connection";
  EXPECT_EQ(asked(&Request::has_extents).size(), 3U);
  EXPECT_NE(key_of(2, 1, 0), transport::RkeyTable::kNoKey);
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 4}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  EXPECT_TRUE(last_lane()->soon_posted(1));
  session_->fail(Reason::kPeerGone);
}

TEST_F(SessionResumeTest, KeysOfAnotherGrantAreNotTaken) {
  script_->by_lane = true;
  start();
  const Region region = open();
  script_->strange_pages = 1;
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 3U) << "the second connection was of no use";
  EXPECT_EQ(asked(&Request::has_extents).size(), 2U);
}

TEST_F(SessionResumeTest, GrantWithoutAKeyForEachLaneIsNotOpened) {
  script_->by_lane = true;
  script_->keyless_lanes = 8;
  start();
  const auto opened = RegionGrant::open(session_, "r", Rights::kAll, "test", deadline());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kProtocol);
  EXPECT_EQ(script_->tables.at(0)->used(), 0U);
}

TEST_F(SessionResumeTest, ServerThatChangesItsMindAboutKeysHasGivenTheSessionUp) {
  start();
  const Region region = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->by_lane = true;
  }
  hang_up();
  EXPECT_TRUE(told_soon("IL"));
  EXPECT_EQ(session_->lost_reason(), Reason::kLapsed);
}

}  // namespace
}  // namespace remora::detail
