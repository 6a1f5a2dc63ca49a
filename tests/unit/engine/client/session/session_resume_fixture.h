#pragma once

/// A session whose server is a script: the test decides each message, and when connections break.

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
#include <string>
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
#include "transport/connection_rails.h"
#include "transport/fault/core.h"
#include "transport/rkey_table.h"
#include "unit/engine/fake_lane.h"

namespace remora::detail {

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
    if (!polled_since_ && !std::exchange(armed_, false)) polled_since_ = Clock::now();
    return FakeLane::poll(found);
  }
  /// A thread that arms the lane polls it once more.
  Status arm() noexcept override {
    const std::lock_guard lock{mutex_};
    if (polled_since_) longest_polled_ = std::max(longest_polled_, Clock::now() - *polled_since_);
    polled_since_.reset();
    armed_ = true;
    return FakeLane::arm();
  }
  void move_to_error() noexcept override {
    const std::lock_guard lock{mutex_};
    FakeLane::move_to_error();
  }
  void finish(std::uint64_t sequence) {
    const std::lock_guard lock{mutex_};
    complete(sequence);
  }
  void fail(std::uint64_t sequence, CompletionStatus status = CompletionStatus::kRetryExceeded) {
    const std::lock_guard lock{mutex_};
    complete(sequence, status);
  }
  void close() noexcept override {
    if (before_close) before_close();
    FakeLane::close();
  }
  std::function<void()> before_close;
  /// How long a thread has polled at most before it armed the lane, since forget_polls().
  Clock::duration longest_polled() {
    const std::lock_guard lock{mutex_};
    return longest_polled_;
  }
  void forget_polls() {
    const std::lock_guard lock{mutex_};
    polled_since_.reset();
    longest_polled_ = {};
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
  std::optional<Clock::time_point> polled_since_;  ///< without a look at what is armed
  Clock::duration longest_polled_{};
  bool armed_ = false;
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
  /// Why an attempt to connect fails that may take until then; empty: it succeeds.
  std::function<std::optional<Error>(Deadline)> not_connected = [](Deadline) {
    return std::optional<Error>{};
  };
  /// A lane is connected once this is true, or a deadline later.
  std::function<bool()> lane_is_due = [] { return true; };
  /// True: the request is not answered.
  std::function<bool(const Request&)> withheld = [](const Request&) { return false; };
  bool rails = false;                                   ///< lanes may go over several devices
  bool by_lane = false;                                 ///< a key for each lane
  int keyless_lanes = 0;                                ///< of the eight there might be
  std::uint64_t keyless_grant = 0;                      ///< gets none a second time,
  int keyless_times = std::numeric_limits<int>::max();  ///< so often
  int roomless_lane = -1;   ///< of a grant that is renewed; its rail is left when the client asks
  int other_server_on = 0;  ///< the connection at which another server answers
  int rail_returns_on = 0;  ///< the connection whose lanes lack a rail that has answered again
  std::vector<std::size_t> failed_rails;                      ///< numbers of lanes
  int strange_pages = 0;                                      ///< so many are of another grant
  std::vector<std::shared_ptr<transport::RkeyTable>> tables;  ///< of each connection
  /// Events right behind the Welcome of a resumed session, each sent after the one before is seen.
  std::deque<control::Event> behind_welcome;
};

class ScriptedEndpoint final : public transport::ClientEndpoint,
                               private transport::ConnectionRails {
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
  [[nodiscard]] transport::ConnectionRails* rails() noexcept override {
    const std::lock_guard lock{script_->mutex};
    return script_->rails ? this : nullptr;
  }
  void learn_rails(const std::string& /*device*/,
                   const std::vector<transport::RailAddress>& /*told*/) override {}
  std::size_t find_rails(Deadline /*deadline*/) override { return 1; }
  bool leave_other_server() override {
    const std::lock_guard lock{script_->mutex};
    return script_->other_server_on == connection_;
  }
  void rail_failed(std::size_t lane) override {
    const std::lock_guard lock{script_->mutex};
    script_->failed_rails.push_back(lane);
  }
  bool leave_rail_of(std::size_t lane) override {
    const std::lock_guard lock{script_->mutex};
    if (static_cast<int>(lane) != script_->roomless_lane) return false;
    script_->roomless_lane = -1;
    return true;
  }
  [[nodiscard]] bool rail_returned() const noexcept override {
    const std::lock_guard lock{script_->mutex};
    return script_->rail_returns_on == connection_;
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
      welcome.set_memory_id(script_->other_server_on == connection_ ? 2 : 1);
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
      if (script_->roomless_lane >= 0)
        reply.mutable_extents()->mutable_extents(0)->set_lane_keys(script_->roomless_lane,
                                                                   transport::RkeyTable::kNoKey);
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
  [[nodiscard]] transport::ConnectionRails* rails() noexcept override { return real_->rails(); }
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
    ServerConnector connector{
        .server = "script:1",
        .connect = transport::with_faults(faults_.hook(), TransportKind::kTcp,
                                          [this](Deadline until) { return connect(until); })};
    session_ = SessionCore::start(engine_, std::move(connector), deadline()).value();
  }
  void TearDown() override {
    engine_->handler_gate().close();
    session_.reset();
  }
  static Deadline deadline() { return deadline_after(std::chrono::seconds{30}); }
  Result<std::unique_ptr<transport::ClientEndpoint>> connect(Deadline until) {
    const std::lock_guard lock{script_->mutex};
    if (auto error = script_->not_connected(until)) return *error;
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

}  // namespace remora::detail
