#include "client/session/session_core.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/log.h"
#include "client/datapath/mapped_memory_driver.h"
#include "client/datapath/queued_lane_driver.h"
#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "transport/rdma/device_metrics.h"

namespace remora::detail {

using control::Request;
using transport::ControlMessage;
using transport::Notice;
using transport::Opcode;
using transport::WireExtent;

Result<std::shared_ptr<SessionCore>> SessionCore::start(std::shared_ptr<EngineCore> engine,
                                                        Dial dial, Deadline deadline) {
  auto endpoint = dial.connect(deadline);
  if (!endpoint) return endpoint.error();
  auto loop = engine->control_loop();
  if (!loop) return loop.error();
  auto session = std::make_shared<SessionCore>(std::move(engine), std::move(dial),
                                               std::move(*endpoint), **loop);
  auto metrics = ClientMetrics::create(session->engine_->options().registry, session->kind());
  if (!metrics) return metrics.error();
  session->metrics_ = std::move(*metrics);
  if (auto status = session->watch(session->endpoint(), 1); !status) return status.error();
  if (auto status = session->hello(deadline); !status) return status.error();
  // From here on: lanes may take longer to connect than the lease is.
  if (session->lease_ > session->lease_.zero())
    session->engine_->keep_alive(session, session->lease_);
  if (auto status = session->open_lanes(deadline); !status) return status.error();
  if (session->kind() == TransportKind::kRdma)
    transport::show_nic(session->engine_->registry(), session->local_device());
  const Turn turn{*session};
  const std::lock_guard lock{session->mutex_};
  // It may have ended meanwhile: nobody has it, nobody is told of it, and it counts for nothing.
  if (session->ended())
    return Error{Code::kConnectionLost, "connect"}.with_reason(session->lost_reason_.load());
  session->metrics_->session_began();
  session->counted_ = true;
  return session;
}

/// From now on what comes in over `endpoint` is heard.
Status SessionCore::watch(const std::shared_ptr<transport::ClientEndpoint>& endpoint,
                          std::uint64_t connection) {
  auto watch = loop_.watch(endpoint->event_fd(), [weak = weak_from_this(), endpoint, connection] {
    if (const auto alive = weak.lock()) alive->on_readable(*endpoint, connection);
  });
  if (!watch) return watch.error();
  const std::lock_guard lock{mutex_};
  // The channel may have ended before there was a watch to drop.
  if (endpoint_ != endpoint || ended() || heard_all_.load()) {
    loop_.drop(*watch);
  } else {
    if (watch_ != 0) loop_.drop(watch_);  // of the connection before
    watch_ = *watch;
  }
  return {};
}

SessionCore::SessionCore(std::shared_ptr<EngineCore> engine, Dial dial,
                         std::shared_ptr<transport::ClientEndpoint> endpoint, EventLoop& loop)
    : engine_{std::move(engine)},
      loop_{loop},
      dial_{std::move(dial)},
      kind_{endpoint->kind()},
      device_{endpoint->device()},
      domain_{endpoint->memory_domain()},
      heard_at_{Clock::now().time_since_epoch().count()},
      attempt_{std::make_shared<Attempt>(dial_)},
      endpoint_{std::move(endpoint)},
      revocations_{*this, loop} {}

SessionCore::~SessionCore() {
  {
    // Nobody is there any more for what comes in.
    const std::lock_guard lock{mutex_};
    if (watch_ != 0) loop_.drop(std::exchange(watch_, 0));
  }
  say_goodbye();
  {
    const std::lock_guard lock{mutex_};
    // The reconnector may have come to watch a connection meanwhile. From now on it drops its own.
    if (watch_ != 0) loop_.drop(std::exchange(watch_, 0));
    if (counted_ && !ended()) metrics_->session_ended(ClientMetrics::kClosed);
    state_.store(State::kEnded, std::memory_order_release);  // that the lanes end now is no news
    for (auto& [id, waiter] : waiters_)
      if (waiter != nullptr) waiter->ready.notify_all();
    fate_.notify_all();
    room_.notify_all();
  }
  {
    const std::lock_guard lock{attempt_->mutex};
    attempt_->abandoned = true;
    // It ends by itself, when its attempt does.
    if (attempt_->connecting) reconnector_.detach();
  }
  if (reconnector_.joinable()) reconnector_.join();
  lanes_.clear();
  endpoint_->shutdown();
}

std::size_t SessionCore::thread_number() noexcept {
  static std::atomic<std::size_t> threads{0};
  thread_local const std::size_t t_number = threads.fetch_add(1, std::memory_order_relaxed);
  return t_number;
}

std::shared_ptr<MemoryReleaser> SessionCore::releaser_of(const LaneDriver& lane) const noexcept {
  return lane.needs_keys() ? engine_->releaser() : nullptr;
}

Result<SessionCore::Answer> SessionCore::call(Request request, Operation operation) {
  return call(std::move(request), operation, deadline_after(engine_->options().control_deadline));
}

Status SessionCore::open_lanes(Deadline deadline) {
  lanes_.reserve(engine_->options().lanes);
  const auto endpoint = this->endpoint();
  // There is one way to memory that is mapped, however many threads copy.
  if (auto path = endpoint->direct_path())
    return keep(std::make_unique<MappedMemoryDriver>(
        std::move(*path), engine_->parallel_copy(), *metrics_, lane_broken(),
        [this](const Notice& notice, Deadline until) { return notify(notice, until); },
        [this](const OperationRecord& operation) { return await_return(operation); },
        [this](const OperationRecord& operation) { return look_for_return(operation); }));
  QueuedLaneDriver::Options options{
      .spin = engine_->options().spin, .bounce = nullptr, .zeroes = nullptr};
  options.why_refused = [this](const OperationRecord& operation) {
    return revocations_.why_refused(operation);
  };
  options.revoked = [this](const OperationRecord& operation) {
    return revocations_.revoked(operation);
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
  options.revivable = resumable_;
  for (std::uint32_t i = 0; i < engine_->options().lanes; ++i) {
    auto lane = endpoint->open_lane(ticket_, engine_->options().lane_depth, deadline);
    if (!lane) return lane.error();
    reads_ = reads_ && (*lane)->limits().initiator_depth != 0;
    auto driver =
        std::make_unique<QueuedLaneDriver>(std::move(*lane), options, *metrics_, lane_broken());
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
  return [this] { lane_gone(); };
}

Status SessionCore::keep(std::unique_ptr<LaneDriver> driver) {
  {
    const std::lock_guard lock{mutex_};
    lanes_.push_back(std::move(driver));
    if (connected()) return {};
  }
  // The session ended before there was this lane to fail.
  lanes_.back()->fail(lost_reason_);
  return Error{Code::kConnectionLost, "lane"}.with_reason(lost_reason_);
}

Result<std::vector<std::byte>> SessionCore::encode(Request request, std::uint64_t id) {
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(id);
  *envelope.mutable_request() = std::move(request);
  return control::encode(envelope);
}

Status SessionCore::send(transport::ClientEndpoint& endpoint, Request request, std::uint64_t id,
                         Deadline deadline, std::vector<std::byte>* raw) {
  auto bytes = encode(std::move(request), id);
  if (!bytes) return bytes.error();
  if (raw != nullptr) *raw = *bytes;
  const std::lock_guard lock{send_mutex_};
  return endpoint.send({.bytes = std::move(*bytes), .descriptors = {}}, deadline);
}

Result<SessionCore::Answer> SessionCore::exchange(Request request, Operation operation,
                                                  Deadline deadline, std::vector<std::byte>* raw) {
  // A reply's fields are numbered as the requests', after the failure.
  const int expected = static_cast<int>(request.body_case()) + 1;
  const bool greets = request.has_hello();
  Waiter waiter;
  std::uint64_t id = 0;
  // Where the request is expected to be answered it is sent, whatever follows meanwhile.
  std::shared_ptr<transport::ClientEndpoint> endpoint;
  {
    std::unique_lock lock{mutex_};
    // Behind the closes that no caller waits for: a region that was let go of before this request
    // is closed before it.
    const bool room = room_.wait_until(lock, deadline, [this] {
      return (waiters_.size() < transport::kControlRequestsMax &&
              (to_close_.empty() || !connected())) ||
             !may_call();
    });
    if (!room)
      return Error{Code::kTimedOut, operation}.with_limit(transport::kControlRequestsMax + 1,
                                                          transport::kControlRequestsMax);
    if (!may_call()) return Error{Code::kConnectionLost, operation}.with_reason(lost_reason_);
    id = next_id_++;
    waiter.connection = connection_;
    endpoint = endpoint_;
    waiters_.emplace(id, &waiter);
  }
  const Clock::rep asked_at = Clock::now().time_since_epoch().count();
  const Status sent = send(*endpoint, std::move(request), id, deadline, raw);
  if (!sent && sent.error().code() == Code::kConnectionLost) {
    hear_last_word();
    fail(Reason::kPeerGone, waiter.connection);
  }
  std::unique_lock lock{mutex_};
  const auto still_asked = [&] { return waiter.connection == connection_ && may_call(); };
  if (sent)
    waiter.ready.wait_until(lock, deadline,
                            [&] { return waiter.answer.has_value() || !still_asked(); });
  // The server may still answer what nobody waits for any more: until then it counts.
  if (sent && !waiter.answer.has_value() && still_asked())
    waiters_[id] = nullptr;
  else
    waiters_.erase(id);
  room_.notify_one();
  // That the connection went is told alike, whether the request left or not.
  if (!sent && sent.error().code() == Code::kConnectionLost)
    return Error{Code::kConnectionLost, operation}.with_reason(lost_reason_);
  if (!sent) return sent.error();
  if (!waiter.answer.has_value()) {
    if (!still_asked()) return Error{Code::kConnectionLost, operation}.with_reason(lost_reason_);
    const bool silent = heard_at_.load(std::memory_order_relaxed) < asked_at;
    return Error{Code::kTimedOut, operation}.with_reason(silent ? Reason::kSilent
                                                                : Reason::kExpired);
  }
  if (waiter.answer->reply.has_failure())
    return control::to_error(waiter.answer->reply.failure(), operation);
  if (static_cast<int>(waiter.answer->reply.body_case()) != expected &&
      !(greets && waiter.answer->reply.has_challenge()))
    return Error{Code::kProtocol, operation}.with_subject("reply of another kind");
  return std::move(*waiter.answer);
}

void SessionCore::on_readable(transport::ClientEndpoint& endpoint,
                              std::uint64_t connection) noexcept {
  while (true) {
    auto message = endpoint.receive();
    if (!message) {
      log::debug("session: {}", message.error().message());
      return hung_up(connection, message.error().code() == Code::kProtocol);
    }
    if (!message->has_value()) return;
    heard_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    deliver(std::move(**message), connection);
  }
}

/// All has been read that there was, also of why.
void SessionCore::hung_up(std::uint64_t connection, bool wrongly) noexcept {
  EventLoop::Token watch = 0;
  {
    const std::lock_guard lock{mutex_};
    if (connection != connection_) return;  // another one has followed
    watch = std::exchange(watch_, 0);
    heard_all_.store(true, std::memory_order_release);
  }
  if (watch != 0) loop_.drop(watch);
  lose(Reason::kPeerGone, wrongly ? ClientMetrics::kProtocol : ClientMetrics::kPeerGone,
       LaneFault::kNone, connection);
}

void SessionCore::deliver(ControlMessage message, std::uint64_t connection) {
  auto envelope = control::decode(message.bytes);
  // An event may be right behind the answer to a hello, which is still being read.
  if (envelope && envelope->has_event() && version_ != 1)
    return on_event(envelope->event(), connection);
  if (!envelope || !envelope->has_reply()) {
    log::warn("session: the server sent what is not a reply; ending the session");
    lose(Reason::kPeerGone, ClientMetrics::kProtocol, LaneFault::kNone, connection);
    return;
  }
  std::uint64_t late_grant = 0;
  {
    const std::lock_guard lock{mutex_};
    if (connection != connection_) return;  // what is left of one that another has followed
    const auto found = waiters_.find(envelope->id());
    if (found == waiters_.end()) return;
    if (found->second != nullptr) {
      found->second->answer = Answer{.reply = std::move(*envelope->mutable_reply()),
                                     .descriptors = std::move(message.descriptors),
                                     .raw = std::move(message.bytes),
                                     .connection = connection};
      found->second->ready.notify_one();
      return;
    }
    // Nobody waits any more; a grant that came too late must not stay open.
    waiters_.erase(found);
    room_.notify_one();
    if (envelope->reply().has_open()) late_grant = envelope->reply().open().grant_id();
    if (envelope->reply().has_fence()) late_grant = envelope->reply().fence().opened().grant_id();
    if (late_grant != 0) to_close_.push_back(late_grant);
  }
  send_closes();
}

Result<std::vector<WireExtent>> SessionCore::fetch_extents(const control::OpenReply& opened,
                                                           std::uint64_t connection,
                                                           Deadline deadline,
                                                           transport::LaneKeys& keys) {
  if (keys_ != nullptr) keys.lanes = lanes_.size();
  const Error lost = Error{Code::kConnectionLost, "open"}.with_reason(lost_reason_);
  std::vector<WireExtent> extents;
  const std::uint64_t size = opened.region().size_bytes();
  std::uint64_t start = 0;
  const Error malformed = Error{Code::kProtocol, "open"}.with_subject(opened.region().name());
  // False: no extents of this region.
  const auto append = [&](const auto& page) {
    for (const control::Extent& extent : page) {
      const std::uint64_t length = extent.length_bytes();
      if (length == 0 || length > size - start || extent.address() + length < extent.address() ||
          !has_lane_keys(extent))
        return false;
      extents.push_back({.start_bytes = start,
                         .length_bytes = length,
                         .remote_address = extent.address(),
                         .remote_key = extent.key()});
      for (std::size_t lane = 0; lane < keys.lanes; ++lane)
        keys.keys.push_back(extent.lane_keys(static_cast<int>(lane)));
      start += length;
    }
    return true;
  };
  if (!append(opened.extents())) return malformed;
  while (extents.size() < opened.region().extent_count()) {
    Request request;
    request.mutable_extents()->set_grant_id(opened.grant_id());
    request.mutable_extents()->set_first(extents.size());
    auto answer = call(std::move(request), "open", deadline);
    if (!answer) return answer.error();
    if (answer->connection != connection) return lost;
    if (answer->reply.extents().extents().empty() || !append(answer->reply.extents().extents()))
      return malformed;
  }
  if (extents.empty() || start != size) return malformed;
  return extents;
}

Result<std::shared_ptr<RegionGrant>> SessionCore::open(const std::string& name, Rights rights,
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
    close_grant(opened.grant_id());
    return error;
  };
  auto info = control::to_info(opened.region());
  if (!info) return give_back(info.error());
  info->memory_id = server_.memory_id;
  transport::LaneKeys keys;
  auto extents = fetch_extents(opened, answer->connection, deadline, keys);
  if (!extents) return give_back(extents.error());
  auto grant = endpoint()->attach(std::move(*extents), std::move(answer->descriptors), rights);
  if (grant) grant = with_tokens(std::move(*grant), keys);
  if (!grant) return give_back(grant.error());
  auto region =
      std::make_shared<RegionGrant>(shared_from_this(), std::move(*info), rights, opened.grant_id(),
                                    std::move(*grant), std::move(transport_reason));
  revocations_.add(region->grant_id(), region);
  const std::uint64_t connection = answer->connection;
  {
    const std::lock_guard lock{mutex_};
    if (connection == connection_) return region;
  }
  // The server may have been told meanwhile which grants are held, without this one.
  return Error{Code::kConnectionLost, "open"}.with_reason(lost_reason_);
}

}  // namespace remora::detail
