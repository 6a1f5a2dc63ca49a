#include <utility>

#include "client/engine_core.h"
#include "support/log.h"

namespace remora::detail {

using control::Reply;
using control::Request;
using transport::ControlMessage;
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
  auto session = std::make_shared<SessionCore>(std::move(engine), std::move(endpoint));
  auto metrics = ClientMetrics::create(session->engine_->options().registry, session->kind());
  if (!metrics) return metrics.error();
  session->metrics_ = std::move(*metrics);
  auto watch = (*loop)->watch(session->endpoint_->event_fd(), [weak = std::weak_ptr{session}] {
    if (const auto alive = weak.lock()) alive->on_readable();
  });
  if (!watch) return watch.error();
  session->watch_ = *watch;
  if (auto status = session->hello(deadline); !status) return status.error();
  if (auto status = session->open_lane(deadline); !status) return status.error();
  return session;
}

SessionCore::SessionCore(std::shared_ptr<EngineCore> engine,
                         std::unique_ptr<transport::ClientEndpoint> endpoint)
    : engine_{std::move(engine)},
      endpoint_{std::move(endpoint)},
      domain_{endpoint_->memory_domain()} {}

SessionCore::~SessionCore() {
  if (watch_ != 0)
    if (auto loop = engine_->control_loop()) (*loop)->forget(watch_);
  lane_.reset();
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
  if (!answer->reply.has_hello()) return Error{Code::kProtocol, "hello"};
  const control::Welcome& welcome = answer->reply.hello();
  if (welcome.version() < control::kVersionOldest || welcome.version() > control::kVersionNewest)
    return Error{Code::kProtocol, "hello"}.with_reason(Reason::kVersion);
  server_ = {.name = welcome.server_name(),
             .boot_id = welcome.boot_id(),
             .memory_id = welcome.memory_id(),
             .pool_bytes = welcome.pool_bytes(),
             .pool_free_bytes = welcome.pool_free_bytes(),
             .device = welcome.device()};
  ticket_ = {.session_id = welcome.session_id(), .secret = welcome.lane_secret()};
  return {};
}

Status SessionCore::open_lane(Deadline deadline) {
  LaneDriver::Options options{.spin = engine_->options().spin, .bounce = nullptr};
  if (domain_ != nullptr) {
    auto index = engine_->intern(domain_);
    if (!index) return index.error();
    auto bounce = engine_->bounce_store(*domain_, *index);
    if (!bounce) return bounce.error();
    options.domain_index = *index;
    options.needs_keys = true;
    options.bounce = std::move(*bounce);
  }
  auto lane = endpoint_->open_lane(ticket_, engine_->options().lane_depth, deadline);
  if (!lane) return lane.error();
  // The driver lives no longer than the session, so the handler needs no reference of its own.
  lane_ = std::make_unique<LaneDriver>(std::move(*lane), std::move(options), *metrics_,
                                       [this] { fail(Reason::kLaneBroken); });
  return {};
}

Status SessionCore::send(const Request& request, std::uint64_t id, Deadline deadline) {
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(id);
  *envelope.mutable_request() = request;
  auto bytes = control::encode(envelope);
  if (!bytes) return bytes.error();
  const std::lock_guard lock{send_mutex_};
  return endpoint_->send({.bytes = std::move(*bytes), .descriptors = {}}, deadline);
}

Result<SessionCore::Answer> SessionCore::call(Request request, Operation operation,
                                              Deadline deadline) {
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
  const Status sent = send(request, id, deadline);
  if (!sent && sent.error().code() == Code::kConnectionLost) fail(Reason::kPeerGone);
  std::unique_lock lock{mutex_};
  if (sent)
    waiter.ready.wait_until(lock, deadline,
                            [&] { return waiter.answer.has_value() || !connected(); });
  waiters_.erase(id);
  room_.notify_one();
  if (!sent) return sent.error();
  if (!waiter.answer.has_value()) {
    if (!connected()) return Error{Code::kConnectionLost, operation}.with_reason(lost_reason_);
    return Error{Code::kTimedOut, operation};
  }
  if (waiter.answer->reply.has_failure())
    return control::to_error(waiter.answer->reply.failure(), operation);
  return std::move(*waiter.answer);
}

void SessionCore::on_readable() noexcept {
  while (connected()) {
    auto message = endpoint_->receive();
    if (!message) {
      log::debug("session: {}", message.error().message());
      fail(Reason::kPeerGone);
      return;
    }
    if (!message->has_value()) return;
    deliver(std::move(**message));
  }
}

void SessionCore::deliver(ControlMessage message) {
  auto envelope = control::decode(message.bytes);
  if (!envelope || !envelope->has_reply()) {
    log::warn("session: the server sent what is not a reply; ending the session");
    fail(Reason::kPeerGone);
    return;
  }
  std::uint64_t late_grant = 0;
  {
    const std::lock_guard lock{mutex_};
    const auto found = waiters_.find(envelope->id());
    if (found != waiters_.end()) {
      found->second->answer =
          Answer{std::move(*envelope->mutable_reply()), std::move(message.descriptors)};
      found->second->ready.notify_one();
      return;
    }
    // Nobody waits any more; a grant that came too late must not stay open.
    if (envelope->reply().has_open()) late_grant = envelope->reply().open().grant_id();
    if (late_grant == 0) return;
    next_id_++;
  }
  Request close;
  close.mutable_close()->set_grant_id(late_grant);
  (void)send(close, next_id_, Clock::now());
}

void SessionCore::fail(Reason reason) noexcept {
  {
    const std::lock_guard lock{mutex_};
    if (lost_.exchange(true, std::memory_order_acq_rel)) return;
    lost_reason_ = reason;
    for (auto& [id, waiter] : waiters_) waiter->ready.notify_all();
    room_.notify_all();
  }
  if (watch_ != 0)
    if (auto loop = engine_->control_loop()) (*loop)->forget(watch_);
  if (lane_ != nullptr) lane_->fail(reason);
  endpoint_->shutdown();
}

Result<std::vector<WireExtent>> SessionCore::fetch_extents(const control::OpenReply& opened) {
  std::vector<WireExtent> extents;
  std::uint64_t start = 0;
  const auto append = [&](const auto& page) {
    for (const control::Extent& extent : page) {
      extents.push_back({.start_bytes = start,
                         .length_bytes = extent.length_bytes(),
                         .remote_address = extent.address(),
                         .remote_key = extent.key()});
      start += extent.length_bytes();
    }
  };
  const Error malformed = Error{Code::kProtocol, "open"}.with_subject(opened.region().name());
  append(opened.extents());
  while (extents.size() < opened.region().extent_count()) {
    Request request;
    request.mutable_extents()->set_grant_id(opened.grant_id());
    request.mutable_extents()->set_first(extents.size());
    auto answer = call(std::move(request), "open");
    if (!answer) return answer.error();
    if (answer->reply.extents().extents().empty()) return malformed;
    append(answer->reply.extents().extents());
  }
  const bool any_empty = std::any_of(extents.begin(), extents.end(),
                                     [](const WireExtent& e) { return e.length_bytes == 0; });
  if (any_empty || start != opened.region().size_bytes()) return malformed;
  return extents;
}

Result<std::shared_ptr<RegionCore>> SessionCore::open(const std::string& name, Rights rights,
                                                      std::string transport_reason) {
  Request request;
  request.mutable_open()->set_name(name);
  request.mutable_open()->set_rights(static_cast<std::uint32_t>(rights));
  auto answer = call(std::move(request), "open");
  if (!answer) return answer.error();
  if (!answer->reply.has_open()) return Error{Code::kProtocol, "open"};
  const control::OpenReply& opened = answer->reply.open();
  auto info = control::to_info(opened.region());
  if (!info) return info.error();
  auto extents = fetch_extents(opened);
  if (!extents) return extents.error();
  auto grant = endpoint_->attach(std::move(*extents), std::move(answer->descriptors), rights);
  if (!grant) return grant.error();
  return std::make_shared<RegionCore>(shared_from_this(), std::move(*info), rights,
                                      opened.grant_id(), std::move(*grant),
                                      std::move(transport_reason));
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
                        : info_.atomic_domain == "cpu"} {}

RegionCore::~RegionCore() {
  if (!session_->connected()) return;
  Request request;
  request.mutable_close()->set_grant_id(grant_id_);
  (void)session_->call(std::move(request), "close", deadline_after(kCloseTimeout));
}

}  // namespace remora::detail
