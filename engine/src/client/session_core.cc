#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "client/direct_driver.h"
#include "client/engine_core.h"
#include "client/posted_driver.h"
#include "support/log.h"
#include "transport/nic_series.h"

namespace remora::detail {

using control::Request;
using transport::ControlMessage;
using transport::Notice;
using transport::Opcode;
using transport::WireExtent;

namespace {
/// Closing a region is polite, not necessary: the session's end closes it too.
constexpr std::chrono::seconds kCloseTimeout{2};
}  // namespace

Result<std::shared_ptr<SessionCore>> SessionCore::start(
    std::shared_ptr<EngineCore> engine, std::unique_ptr<transport::ClientEndpoint> endpoint,
    Deadline deadline) {
  auto loop = engine->control_loop();
  if (!loop) return loop.error();
  auto session = std::make_shared<SessionCore>(std::move(engine), std::move(endpoint), **loop);
  auto metrics = ClientMetrics::create(session->engine_->options().registry, session->kind());
  if (!metrics) return metrics.error();
  session->metrics_ = std::move(*metrics);
  auto watch = (*loop)->watch(session->endpoint_->event_fd(), [weak = std::weak_ptr{session}] {
    if (const auto alive = weak.lock()) alive->on_readable();
  });
  if (!watch) return watch.error();
  {
    const std::lock_guard lock{session->mutex_};
    session->watch_ = *watch;
  }
  // The channel may have ended before there was a watch to forget.
  if (!session->connected()) (*loop)->forget(*watch);
  if (auto status = session->hello(deadline); !status) return status.error();
  if (auto status = session->open_lanes(deadline); !status) return status.error();
  if (session->kind() == TransportKind::kRdma)
    transport::show_nic(session->engine_->registry(), session->local_device());
  const std::lock_guard lock{session->mutex_};
  session->metrics_->session_began();
  session->counted_ = true;
  // It may have ended meanwhile, which was not counted then.
  if (session->lost_) session->metrics_->session_ended(session->ended_by_);
  return session;
}

SessionCore::SessionCore(std::shared_ptr<EngineCore> engine,
                         std::unique_ptr<transport::ClientEndpoint> endpoint, EventLoop& loop)
    : engine_{std::move(engine)},
      loop_{loop},
      endpoint_{std::move(endpoint)},
      domain_{endpoint_->memory_domain()},
      revocations_{*this, loop} {}

SessionCore::~SessionCore() {
  if (watch_ != 0) loop_.forget(watch_);
  if (counted_ && !lost_) metrics_->session_ended(ClientMetrics::kClosed);
  lost_.store(true, std::memory_order_release);  // that the lanes end now is no news
  lanes_.clear();
  endpoint_->shutdown();
}

Status SessionCore::hello(Deadline deadline) {
  Request request;
  control::Hello& hello = *request.mutable_hello();
  hello.set_version_oldest(control::kVersionOldest);
  hello.set_version_newest(control::kVersionNewest);
  hello.set_auth(control::AUTH_NONE);
  hello.set_client_name(engine_->options().client_name);
  auto answer = call(std::move(request), "hello", deadline);
  if (!answer) return answer.error();
  const control::Welcome& welcome = answer->reply.hello();
  if (welcome.version() < control::kVersionOldest || welcome.version() > control::kVersionNewest)
    return Error{Code::kProtocol, "hello"}.with_reason(Reason::kVersion);
  version_ = welcome.version();
  server_ = {.name = welcome.server_name(),
             .boot_id = welcome.boot_id(),
             .memory_id = welcome.memory_id(),
             .pool_bytes = welcome.pool_bytes(),
             .pool_free_bytes = welcome.pool_free_bytes(),
             .device = welcome.device(),
             .transports = {}};
  for (const std::uint32_t kind : welcome.transports())
    if (kind == static_cast<std::uint32_t>(TransportKind::kRdma) ||
        kind == static_cast<std::uint32_t>(TransportKind::kShm) ||
        kind == static_cast<std::uint32_t>(TransportKind::kTcp))
      server_.transports.push_back(static_cast<TransportKind>(kind));
  ticket_ = {.session_id = welcome.session_id(), .secret = welcome.lane_secret()};
  return {};
}

std::size_t SessionCore::thread_number() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t t_number = threads.fetch_add(1, std::memory_order_relaxed);
  return t_number;
}

Status SessionCore::open_lanes(Deadline deadline) {
  lanes_.reserve(engine_->options().lanes);
  // There is one way to memory that is mapped, however many threads copy.
  if (auto path = endpoint_->direct_path())
    return keep(std::make_unique<DirectDriver>(
        std::move(*path), engine_->parallel_copy(), *metrics_, lane_broken(),
        [this](const Notice& notice, Deadline until) { return notify(notice, until); }));
  PostedDriver::Options options{
      .spin = engine_->options().spin, .bounce = nullptr, .zeroes = nullptr};
  options.why_refused = [this](const OperationRecord& operation) {
    return revocations_.why_refused(operation);
  };
  if (domain_ != nullptr) {
    auto index = engine_->intern(domain_);
    if (!index) return index.error();
    auto bounce = engine_->bounce_store(*domain_, *index);
    if (!bounce) return bounce.error();
    options.domain_index = *index;
    options.needs_keys = true;
    options.bounce = std::move(*bounce);
    auto zeroes = engine_->zeroes(*domain_, *index);
    if (!zeroes) return zeroes.error();
    options.zeroes = std::move(*zeroes);
    options.cache = engine_->registration_cache(*index);
    options.cache_from_bytes = engine_->options().mr_cache_from_bytes;
  }
  for (std::uint32_t i = 0; i < engine_->options().lanes; ++i) {
    auto lane = endpoint_->open_lane(ticket_, engine_->options().lane_depth, deadline);
    if (!lane) return lane.error();
    reads_ = reads_ && (*lane)->limits().initiator_depth != 0;
    auto driver =
        std::make_unique<PostedDriver>(std::move(*lane), options, *metrics_, lane_broken());
    if (auto status = keep(std::move(driver)); !status) return status;
  }
  return {};
}

Status SessionCore::notify(const Notice& notice, Deadline deadline) {
  constexpr std::chrono::microseconds kPause{200};
  while (true) {
    Request request;
    control::NotifyRequest& told = *request.mutable_notify();
    told.set_grant_id(notice.grant_id);
    told.set_offset(notice.offset_bytes);
    told.set_length_bytes(notice.length_bytes);
    told.set_tag(notice.tag);
    auto answer = call(std::move(request), "write_notify", deadline);
    if (answer) return {};
    // The serving application has enough to do.
    if (answer.error().code() != Code::kWouldBlock) return answer.error();
    if (Clock::now() + kPause >= deadline) return Error{Code::kTimedOut, "write_notify"};
    std::this_thread::sleep_for(kPause);
  }
}

LaneDriver::BrokenHandler SessionCore::lane_broken() {
  // The driver lives no longer than the session, so the handler needs no reference of its own.
  return [this] { fail(Reason::kLaneBroken); };
}

Status SessionCore::keep(std::unique_ptr<LaneDriver> driver) {
  {
    const std::lock_guard lock{mutex_};
    lanes_.push_back(std::move(driver));
    if (!lost_) return {};
  }
  // The session ended before there was this lane to fail.
  lanes_.back()->fail(lost_reason_);
  return Error{Code::kConnectionLost, "lane"}.with_reason(lost_reason_);
}

Status SessionCore::send(Request request, std::uint64_t id, Deadline deadline) {
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(id);
  *envelope.mutable_request() = std::move(request);
  auto bytes = control::encode(envelope);
  if (!bytes) return bytes.error();
  const std::lock_guard lock{send_mutex_};
  return endpoint_->send({.bytes = std::move(*bytes), .descriptors = {}}, deadline);
}

Result<SessionCore::Answer> SessionCore::call(Request request, Operation operation,
                                              Deadline deadline) {
  // A reply's fields are numbered as the requests', after the failure.
  const int expected = static_cast<int>(request.body_case()) + 1;
  Waiter waiter;
  std::uint64_t id = 0;
  {
    std::unique_lock lock{mutex_};
    const bool room = room_.wait_until(lock, deadline, [this] {
      return waiters_.size() < transport::kControlRequestsMax || !connected();
    });
    if (!room) return Error{Code::kTimedOut, operation};
    if (!connected()) return Error{Code::kConnectionLost, operation}.with_reason(lost_reason_);
    id = next_id_++;
    waiters_.emplace(id, &waiter);
  }
  const Status sent = send(std::move(request), id, deadline);
  if (!sent && sent.error().code() == Code::kConnectionLost) fail(Reason::kPeerGone);
  std::unique_lock lock{mutex_};
  if (sent)
    waiter.ready.wait_until(lock, deadline,
                            [&] { return waiter.answer.has_value() || !connected(); });
  // The server may still answer what nobody waits for any more: until then it counts.
  if (sent && !waiter.answer.has_value() && connected())
    waiters_[id] = nullptr;
  else
    waiters_.erase(id);
  room_.notify_one();
  if (!sent) return sent.error();
  if (!waiter.answer.has_value()) {
    if (!connected()) return Error{Code::kConnectionLost, operation}.with_reason(lost_reason_);
    return Error{Code::kTimedOut, operation};
  }
  if (waiter.answer->reply.has_failure())
    return control::to_error(waiter.answer->reply.failure(), operation);
  if (static_cast<int>(waiter.answer->reply.body_case()) != expected)
    return Error{Code::kProtocol, operation}.with_subject("reply of another kind");
  return std::move(*waiter.answer);
}

void SessionCore::on_readable() noexcept {
  while (connected()) {
    auto message = endpoint_->receive();
    if (!message) {
      log::debug("session: {}", message.error().message());
      end(Reason::kPeerGone, message.error().code() == Code::kProtocol ? ClientMetrics::kProtocol
                                                                       : ClientMetrics::kPeerGone);
      return;
    }
    if (!message->has_value()) return;
    deliver(std::move(**message));
  }
}

void SessionCore::deliver(ControlMessage message) {
  auto envelope = control::decode(message.bytes);
  if (envelope && envelope->has_event() && version_ >= 2) return on_event(envelope->event());
  if (!envelope || !envelope->has_reply()) {
    log::warn("session: the server sent what is not a reply; ending the session");
    end(Reason::kPeerGone, ClientMetrics::kProtocol);
    return;
  }
  unresponsive_.store(false);
  std::uint64_t late_grant = 0;
  {
    const std::lock_guard lock{mutex_};
    const auto found = waiters_.find(envelope->id());
    if (found == waiters_.end()) return;
    if (found->second != nullptr) {
      found->second->answer =
          Answer{std::move(*envelope->mutable_reply()), std::move(message.descriptors)};
      found->second->ready.notify_one();
      return;
    }
    // Nobody waits any more; a grant that came too late must not stay open.
    waiters_.erase(found);
    room_.notify_one();
    if (envelope->reply().has_open()) late_grant = envelope->reply().open().grant_id();
    if (envelope->reply().has_fence()) late_grant = envelope->reply().fence().opened().grant_id();
  }
  if (late_grant != 0) close_unanswered(late_grant);
}

void SessionCore::close_grant(std::uint64_t grant_id) noexcept {
  if (!connected()) return;
  // It is this thread that would hear the answer.
  if (loop_.is_loop_thread()) return close_unanswered(grant_id);
  // One caller has waited for a server that does not answer; the others need not.
  const auto patience = unresponsive_.load() ? std::chrono::seconds{0} : kCloseTimeout;
  Request request;
  request.mutable_close()->set_grant_id(grant_id);
  const auto closed = call(std::move(request), "close", deadline_after(patience));
  if (!closed && closed.error().code() == Code::kTimedOut) unresponsive_.store(true);
}

void SessionCore::fail(Reason reason) noexcept {
  if (!connected()) return;  // it has ended before, and its lanes may be going
  // What is mapped breaks with its server only.
  const bool lane = reason == Reason::kLaneBroken && kind() != TransportKind::kShm;
  ClientMetrics::SessionEnd by = lane ? ClientMetrics::kLaneBroken : ClientMetrics::kPeerGone;
  const LaneFault fault = lane ? lane_fault() : LaneFault::kNone;
  if (fault == LaneFault::kDeadline) by = ClientMetrics::kDeadline;
  if (fault == LaneFault::kRefused) by = ClientMetrics::kRefused;
  end(reason, by, fault);
}

/// What broke the first of the lanes, if an operation did.
LaneFault SessionCore::lane_fault() noexcept {
  const std::lock_guard lock{mutex_};
  for (const auto& lane : lanes_)
    if (const LaneFault fault = lane->fault(); fault != LaneFault::kNone) return fault;
  return LaneFault::kNone;
}

void SessionCore::end(Reason reason, ClientMetrics::SessionEnd by, LaneFault fault) noexcept {
  EventLoop::Token watch = 0;
  std::array<LaneDriver*, kLanesMax> lanes{};
  {
    const std::lock_guard lock{mutex_};
    if (lost_) return;
    lost_reason_ = reason;
    ended_by_ = by;
    if (counted_) metrics_->session_ended(by);
    lost_.store(true, std::memory_order_release);
    for (auto& [id, waiter] : waiters_)
      if (waiter != nullptr) waiter->ready.notify_all();
    room_.notify_all();
    watch = watch_;
    std::transform(lanes_.begin(), lanes_.end(), lanes.begin(),
                   [](const auto& lane) { return lane.get(); });
  }
  if (watch != 0) loop_.forget(watch);
  hear_the_rest();
  // What one has done is uncertain while another goes on: they end together, and flush together.
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->blame(fault);
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->break_off();
  for (LaneDriver* const lane : lanes)
    if (lane != nullptr) lane->fail(reason);
  endpoint_->shutdown();
}

Result<std::vector<WireExtent>> SessionCore::fetch_extents(const control::OpenReply& opened,
                                                           Deadline deadline) {
  std::vector<WireExtent> extents;
  std::uint64_t start = 0;
  bool wraps = false;
  const auto append = [&](const auto& page) {
    for (const control::Extent& extent : page) {
      extents.push_back({.start_bytes = start,
                         .length_bytes = extent.length_bytes(),
                         .remote_address = extent.address(),
                         .remote_key = extent.key()});
      start += extent.length_bytes();
      wraps = wraps || extent.address() + extent.length_bytes() < extent.address();
    }
  };
  const Error malformed = Error{Code::kProtocol, "open"}.with_subject(opened.region().name());
  append(opened.extents());
  while (extents.size() < opened.region().extent_count()) {
    Request request;
    request.mutable_extents()->set_grant_id(opened.grant_id());
    request.mutable_extents()->set_first(extents.size());
    auto answer = call(std::move(request), "open", deadline);
    if (!answer) return answer.error();
    if (answer->reply.extents().extents().empty()) return malformed;
    append(answer->reply.extents().extents());
  }
  const bool any_empty = std::any_of(extents.begin(), extents.end(),
                                     [](const WireExtent& e) { return e.length_bytes == 0; });
  if (extents.empty() || any_empty || wraps || start != opened.region().size_bytes())
    return malformed;
  return extents;
}

Result<std::shared_ptr<RegionCore>> SessionCore::open(const std::string& name, Rights rights,
                                                      std::string transport_reason,
                                                      Deadline deadline, Opening how) {
  if (!reads_ && (includes(rights, Rights::kRead) || includes(rights, Rights::kAtomic)))
    return Error{Code::kUnsupported,
                 "open for reads or atomics: the devices of this connection "
                 "together keep none in flight (max_qp_init_rd_atom, "
                 "max_qp_rd_atom); open it for writes alone"}
        .with_subject(name);
  auto answer = ask_for(name, rights, how, deadline);
  if (!answer) return answer.error();
  const control::OpenReply& opened =
      how == Opening::kFence ? answer->reply.fence().opened() : answer->reply.open();
  // The server has said yes: whatever fails from here on gives the grant back.
  const auto give_back = [&](const Error& error) {
    close_unanswered(opened.grant_id());
    return error;
  };
  auto info = control::to_info(opened.region());
  if (!info) return give_back(info.error());
  auto extents = fetch_extents(opened, deadline);
  if (!extents) return give_back(extents.error());
  auto grant = endpoint_->attach(std::move(*extents), std::move(answer->descriptors), rights);
  if (!grant) return give_back(grant.error());
  auto region =
      std::make_shared<RegionCore>(shared_from_this(), std::move(*info), rights, opened.grant_id(),
                                   std::move(*grant), std::move(transport_reason));
  revocations_.add(region->grant_id(), region);
  return region;
}

RegionCore::RegionCore(std::shared_ptr<SessionCore> session, RegionInfo info, Rights rights,
                       std::uint64_t grant_id, transport::AttachedGrant grant,
                       std::string transport_reason)
    : session_{std::move(session)},
      info_{std::move(info)},
      rights_{rights},
      grant_id_{grant_id},
      grant_{std::move(grant)},
      transport_reason_{std::move(transport_reason)},
      atomics_here_{session_->kind() == TransportKind::kRdma
                        ? info_.atomic_domain == session_->server().device
                        : info_.atomic_domain == "cpu"},
      quick_{.size_bytes = info_.size_bytes,
             .request_bytes_max = session_->lanes().front()->request_bytes_max(),
             .inline_bytes_max = session_->lanes().front()->inline_bytes_max(),
             .domain_index = session_->lanes().front()->needs_keys()
                                 ? session_->lanes().front()->domain_index()
                                 : kNoMemoryDomain,
             .needs_keys = session_->lanes().front()->needs_keys(),
             .remote_key = grant_.extents.front().remote_key,
             .remote_address = grant_.extents.front().remote_address,
             .bytes_max = {},
             .only_lane = session_->lanes().size() == 1 ? session_->lanes().front().get() : nullptr,
             .one_extent_bytes_max = {}},
      domain_index_{quick_.domain_index} {
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite})
    if (includes(rights_, right_for(opcode)))
      quick_.bytes_max[static_cast<std::size_t>(opcode)] =
          std::min<std::uint64_t>(quick_.size_bytes, quick_.request_bytes_max);
  if (grant_.extents.size() == 1) quick_.one_extent_bytes_max = quick_.bytes_max;
  session_->region_opened(grant_id_, {info_.name, transport_reason_});
}

RegionCore::~RegionCore() {
  session_->region_closed(grant_id_);
  session_->revocations().remove(grant_id_);
  session_->close_grant(grant_id_);
}

}  // namespace remora::detail
