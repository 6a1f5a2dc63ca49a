#include "server/server_session.h"

#include <algorithm>
#include <array>
#include <unordered_set>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"

namespace remora::detail {

using control::Request;

namespace {

constexpr std::chrono::milliseconds kFlushTimeout{200};
constexpr std::chrono::milliseconds kRoomTimeout{20};

void append_page(const transport::Grant& grant, std::size_t first, auto& page) {
  const auto& [lanes, keys] = grant.lane_keys;
  const std::vector<transport::WireExtent>& extents = grant.extents;
  const std::size_t end = std::min(extents.size(), first + control::kExtentsPerPage);
  for (std::size_t i = first; i < end; ++i) {
    control::Extent& extent = *page.Add();
    extent.set_length_bytes(extents[i].length_bytes);
    extent.set_address(extents[i].remote_address);
    extent.set_key(extents[i].remote_key);
    for (std::size_t lane = 0; lane < lanes; ++lane) extent.add_lane_keys(keys[i * lanes + lane]);
  }
}

}  // namespace

ServerSession::ServerSession(ServerCore& server, std::uint64_t id, std::uint64_t lane_secret,
                             std::unique_ptr<transport::ServerEndpoint> endpoint)
    : server_{server},
      id_{id},
      lane_secret_{lane_secret},
      endpoint_{std::move(endpoint)},
      desk_{std::make_shared<NotificationCredits>(server, id)},
      pace_{server.config().limits.requests_per_second},
      resumes_{TokenBucket::a_minute(server.config().limits.resumes_per_minute)} {
  server_.session_lives();
  server_.metrics().session_began(endpoint_->kind());
}

ServerSession::~ServerSession() {
  release();
  desk_->end();
  endpoint_->shutdown();
  server_.metrics().session_gone(endpoint_->kind());
  server_.session_is_gone();
}

void ServerSession::count_grants(int change) noexcept {
  open_grants_.fetch_add(static_cast<std::size_t>(change), std::memory_order_relaxed);
  server_.metrics().grants(change);
}

bool ServerSession::admit_request() noexcept {
  // An event is acknowledged beside them.
  return unanswered_.fetch_add(1) <= transport::kControlRequestsMax;
}

bool ServerSession::answer_ping(std::span<const std::byte> message) noexcept {
  constexpr std::size_t kPingBytesMax = 32;
  if (message.size() > kPingBytesMax || !handshake_complete()) return false;
  const auto envelope = control::decode(message);
  if (!envelope || !envelope->request().has_ping()) return false;
  const std::unique_lock lock{send_mutex_, std::try_to_lock};
  // Whoever asks too often, or while the worker sends, has its turn with the worker.
  if (!lock.owns_lock() || !ping_pace_.admits(Clock::now())) return false;
  control::Envelope reply;
  reply.set_magic(control::kMagic);
  reply.set_id(envelope->id());
  reply.mutable_reply()->mutable_ping();
  auto bytes = control::encode(reply);
  // A client that does not read is noticed by what it asks of the worker, or by its silence.
  if (bytes) (void)endpoint_->send({.bytes = std::move(*bytes), .descriptors = {}});
  return true;
}

/// Errors: those of control::encode() and ServerEndpoint::send().
Status ServerSession::send(const control::Envelope& envelope) {
  auto bytes = control::encode(envelope);
  if (!bytes) return bytes.error();
  return deliver({.bytes = std::move(*bytes), .descriptors = {}});
}

/// Worker. A client that takes nothing of what it is sent is waited for as strangers are: not for
/// long, and not by many at once.
Status ServerSession::deliver(transport::ControlMessage message) {
  const std::lock_guard lock{send_mutex_};
  const Clock::time_point began = Clock::now();
  if (!endpoint_->has_room(began) && server_.may_linger(began)) {
    (void)endpoint_->has_room(began + kRoomTimeout);
    server_.linger_over(began, Clock::now());
  }
  return endpoint_->send(std::move(message));
}

void ServerSession::settle_alone() {
  endpoint_->destroy_lanes();
  if (!released_) server_.grants().look_at_alone();
}

void ServerSession::release() noexcept {
  released_ = true;
  endpoint_->destroy_lanes();
  events_.clear();
  delayed_.clear();
  while (!grants_.empty()) give_up(grants_.begin());
  for (const auto& weak : std::exchange(own_regions_, {}))
    if (const auto region = weak.lock()) server_.remove_now(region, [] {});
}

std::size_t ServerSession::NotificationCredits::reserve(std::size_t most) noexcept {
  std::size_t before = unhandled_.load();
  std::size_t taken = 0;
  do {
    taken = std::min(most, transport::kNoticesMax - std::min(before, transport::kNoticesMax));
    if (taken == 0) return 0;
  } while (!unhandled_.compare_exchange_weak(before, before + taken));
  return taken;
}

bool ServerSession::NotificationCredits::hold_up() noexcept {
  held_up_.store(true);
  return unhandled_.load() >= transport::kNoticesMax;
}

void ServerSession::NotificationCredits::notice_handled() noexcept {
  // Not for each: whoever waits goes on when half of the room is there.
  const std::size_t left = unhandled_.fetch_sub(1) - 1;
  if (left <= transport::kNoticesMax / 2 && held_up_.exchange(false))
    server_.look_for_notices(session_id_);
}

Status ServerSession::announce(const transport::Notice& notice) {
  Notification told{.offset = ByteOffset{notice.offset_bytes},
                    .length_bytes = notice.length_bytes,
                    .tag = notice.tag};
  bool allowed = false;
  {
    const std::lock_guard lock{named_mutex_};
    const auto found = named_.find(notice.grant_id);
    if (found != named_.end()) {
      const Named& named = found->second;
      allowed = includes(named.rights, Rights::kWrite) && notice.offset_bytes <= named.size_bytes &&
                notice.length_bytes <= named.size_bytes - notice.offset_bytes;
      told.region = named.region;
    } else {
      // Closed long before its last notice was looked at; one that never was is a lie.
      allowed = notice.grant_id != 0 && notice.grant_id < next_grant_id_;
    }
  }
  if (!allowed) {
    desk_->notice_handled();
    return Error{Code::kProtocol, "notice"}.with_subject(endpoint_->peer());
  }
  server_.notifier().deliver(std::move(told), desk_);
  return {};
}

void ServerSession::announce_the_rest() noexcept {
  // Whoever comes second finds that all is told.
  const std::lock_guard lock{rest_mutex_};
  desk_->end();
  std::array<transport::Notice, 32> found;
  for (std::size_t rounds = 0; rounds < 4 * transport::kNoticesMax / found.size(); ++rounds) {
    const std::size_t count = endpoint_->take_notices(found);
    if (count == 0) return;
    for (std::size_t i = 0; i < count; ++i) {
      desk_->add();
      if (!announce(found[i])) return;
    }
  }
}

ServerSession::Served ServerSession::reply(const Asked& asked, Result<Answer> answered) {
  control::Envelope reply;
  reply.set_magic(control::kMagic);
  reply.set_id(asked.id);
  std::vector<UniqueFd> descriptors;
  if (answered) {
    *reply.mutable_reply() = std::move(answered->reply);
    descriptors = std::move(answered->descriptors);
  } else {
    *reply.mutable_reply()->mutable_failure() = control::to_failure(answered.error());
  }
  server_.metrics().request(asked.kind, answered.ok(), Clock::now() - asked.arrived);
  auto bytes = control::encode(reply);
  if (!bytes) {
    log::warn("session {}: {}", endpoint_->peer(), bytes.error().message());
    return Served::kUnheard;
  }
  const bool half_way = handshake_.has_value();
  if (half_way) {
    handshake_->challenge_sent(*bytes);
    waits_since_.store(Clock::now().time_since_epoch().count());
  }
  hear();  // it counts from the answer how long the client is silent
  // Before the answer leaves, so that a prompt client is not taken for one that asks too much.
  unanswered_.fetch_sub(1);
  const Status sent = deliver({.bytes = std::move(*bytes), .descriptors = std::move(descriptors)});
  // A client whose hello was refused has nothing more to say, but it is told why.
  const bool refused = !handshake_complete() && !half_way;
  if (sent && refused) flush_to_stranger();
  if (refused) return Served::kRefused;
  // One that has hung up may have said more before: closes, or a goodbye. All of that is served
  // before its end, which the control thread finds behind it.
  if (!sent && sent.error().code() == Code::kConnectionLost) return Served::kAnswered;
  if (!sent) return Served::kUnheard;
  if (handshake_complete()) send_event();  // what a client that has come back is still to hear
  return Served::kAnswered;
}

/// Waits for what was sent last to leave, before the session ends: the worker has others to serve.
void ServerSession::flush_to_stranger() noexcept {
  const Clock::time_point began = Clock::now();
  if (!server_.may_linger(began)) return;
  const std::lock_guard lock{send_mutex_};  // pings are answered by the control thread
  endpoint_->flush(began + kFlushTimeout);
  server_.linger_over(began, Clock::now());
}

Result<ServerSession::Answer> ServerSession::answer(const Request& request, Raw raw) {
  switch (request.body_case()) {
    case Request::kHello: return hello(request.hello(), raw);
    case Request::kProve: return prove(request.prove(), raw);
    case Request::kUsage: return usage();
    case Request::kOpen: return open(request.open());
    case Request::kExtents: return extents(request.extents());
    case Request::kClose: return close(request.close());
    case Request::kList: return list(request.list());
    case Request::kStat: return stat(request.stat());
    case Request::kRemove: return remove(request.remove());
    case Request::kNotify: return notify(request.notify());
    case Request::kPing: {
      Answer answer;
      answer.reply.mutable_ping();
      return answer;
    }
    case Request::kGoodbye: {
      comes_back_.store(false);  // and hangs up, when it has heard the answer
      Answer answer;
      answer.reply.mutable_goodbye();
      return answer;
    }
    case Request::kGrantState: return grant_state(request.grant_state());
    case Request::kEventAck: return event_ack(request.event_ack());
    // Served in their turn.
    case Request::kCreate:
    case Request::kFence:
    case Request::kResize:
    case Request::BODY_NOT_SET: break;
  }
  return Error{Code::kProtocol, "request"};
}

bool ServerSession::is_that_of(const control::Resume& resume,
                               const ServerSession& other) const noexcept {
  // One that has proven who it is need not tell the secret, which others would hear.
  return resumable() && resume.session_id() == id() && client_name_ == other.client_name_ &&
         proven() == other.proven() && (proven() || resume.lane_secret() == lane_secret_);
}

/// Goes on with the session that the client has lost. False: there is none that is its.
Result<bool> ServerSession::resume() {
  if (!wanted_ || version() < 2) return false;
  const auto claimed = server_.claim(*wanted_, *this);
  if (!claimed) return claimed.error();
  const std::shared_ptr<ServerSession>& before = *claimed;
  if (before == nullptr) return false;
  if (auto adopted = adopt(*before); !adopted) {
    log::warn("session {:x}: {}; it ends", before->id(), adopted.error().message());
    before->release();
    return false;
  }
  const std::uint64_t own = id();
  const std::uint64_t resumed = before->id();
  server_.grants().moved(resumed, *this);
  server_.rename(own, resumed);
  desk_->rename(resumed);
  id_.store(resumed);
  before->id_.store(own);  // what it still had to answer ends nobody's session
  give_up_unknown();
  if (locked_out_) return Error{Code::kConnectionLost, "resume"};
  return true;
}

/// What the client has got no answer about, or has closed without one, it will never use.
void ServerSession::give_up_unknown() {
  const auto& known = wanted_->grants();
  const std::unordered_set<std::uint64_t> held{known.begin(), known.end()};
  for (auto at = grants_.begin(); at != grants_.end();) {
    const auto next = std::next(at);
    if (!held.contains(at->first)) give_up(at);
    at = next;
  }
  // Nobody could tell it of what was taken back meanwhile; of very many it is not known why.
  for (const std::uint64_t grant_id : held)
    if (!grants_.contains(grant_id))
      events_.push_back(revoking_event(grant_id, taken(grant_id).value_or(Reason::kRevoked)));
}

/// `before` has no endpoint any more, and serves nothing.
Status ServerSession::adopt(ServerSession& before) {
  before.endpoint_->shutdown();
  before.endpoint_->destroy_lanes();
  before.endpoint_->await_destroyed();
  // What was acknowledged is told of, before its grants have another session's name.
  before.announce_the_rest();
  if (auto status = endpoint_->take_over(*before.endpoint_); !status) return status;
  const std::scoped_lock lock{named_mutex_, before.named_mutex_};
  grants_ = std::exchange(before.grants_, {});
  open_bytes_ = std::exchange(before.open_bytes_, 0);
  named_ = std::exchange(before.named_, {});
  closed_ = std::exchange(before.closed_, {});
  next_grant_id_ = before.next_grant_id_;
  own_regions_ = std::exchange(before.own_regions_, {});
  taken_ = std::exchange(before.taken_, {});
  taken_order_ = std::exchange(before.taken_order_, {});
  // Whether the client has heard of the grants that are being taken back nobody knows.
  events_.clear();
  before.events_.clear();
  before.delayed_.clear();
  for (const auto& [grant_id, open] : grants_)
    if (open.revoking) events_.push_back(revoking_event(grant_id, open.reason));
  if (lane_keys_ != nullptr)
    for (const auto& [grant_id, open] : grants_)
      owed_pages_ += 1 + open.grant.extents.size() / control::kExtentsPerPage;
  // A client that does not hear of this comes back once more by what it knows.
  lane_secret_ = before.lane_secret_;
  resumes_ = before.resumes_;
  open_grants_.store(before.open_grants_.exchange(0));
  before.released_ = true;  // what it still waits for is not asked for any more
  return {};
}

Result<ServerSession::Answer> ServerSession::create(const control::CreateRequest& request) {
  if (released_) return Error{Code::kConnectionLost, "create"};
  const control::Region& asked = request.region();
  if (asked.rights() > static_cast<std::uint32_t>(Rights::kAll))
    return Error{Code::kInvalidArgument, "create"}.with_subject("rights");
  const auto who = asker();
  if (!who) return who.error();
  auto access = control::to_access(asked);
  if (!access) return access.error();
  if (who->client == nullptr && !access->empty())
    return Error{Code::kUnsupported, "create"}.with_subject(asked.name() +
                                                            ": an access list needs 'auth: keys'");
  if (who->client != nullptr) {
    if (!who->client->create)
      return Error{Code::kNoRight, "create"}.with_subject(asked.name() +
                                                          ": needs clients[].create");
    const std::uint64_t more_bytes = server_.catalog().more_bytes(asked.size_bytes());
    if (auto status = check_quota(*who->client, more_bytes); !status) return status.error();
  }
  RegionSpec spec{.name = asked.name(),
                  .size_bytes = asked.size_bytes(),
                  .block_bytes = asked.block_bytes(),
                  .rights = static_cast<Rights>(asked.rights()),
                  .atomic_domain = asked.atomic_domain(),
                  .shm = asked.shm(),
                  .access = std::move(*access),
                  .lifetime = static_cast<Lifetime>(asked.lifetime()),
                  .ttl = std::chrono::milliseconds{asked.ttl_ms()}};
  if (!control::Lifetime_IsValid(asked.lifetime()) || asked.ttl_ms() > control::kTtlMsMax)
    return Error{Code::kInvalidArgument, "create"}.with_subject("lifetime");
  // Nobody else is served while this waits: see create_when_there().
  auto created =
      server_.create_region(std::move(spec), endpoint_->device(),
                            who->client == nullptr ? "" : who->client->name, Clock::now());
  if (!created) return created.error();
  std::erase_if(own_regions_, [](const auto& weak) { return weak.expired(); });
  if (created->lifetime == Lifetime::kSession)
    if (const auto entry = server_.catalog().find(created->name)) own_regions_.push_back(*entry);
  Answer answer;
  *answer.reply.mutable_create()->mutable_region() = control::to_message(*created);
  return answer;
}

Result<ServerSession::Answer> ServerSession::open(const control::OpenRequest& request) {
  if (released_) return Error{Code::kConnectionLost, "open"};
  const auto rights = static_cast<Rights>(request.rights());
  auto found = server_.catalog().open(request.name());
  if (!found) return found.error();
  const std::shared_ptr<RegionEntry> region = std::move(*found);
  Status may = may_open(*region, request.rights());
  if (may) may = has_room_for(*region, Before::kNothingGoes);
  if (!may) {
    server_.catalog().close(*region);
    return may.error();
  }
  const auto memory = region->memory();
  auto grant = endpoint_->grant({.extents = memory->stretches(),
                                 .rights = rights,
                                 .memory_fd = memory->shareable_fd(),
                                 .cpu_atomics = region->info().atomic_domain == "cpu"});
  if (!grant) {
    server_.catalog().close(*region);
    // A budget's error, or that of locked memory, says what there is and what to change.
    Error why = grant.error();
    if (why.code() == Code::kLimitExceeded) return why;
    if (why.reason() != Reason::kMemlock) return why.with_subject(request.name());
    return why.with_subject(request.name() + ": " + std::string{why.subject()});
  }
  Answer answer;
  control::OpenReply& opened = *answer.reply.mutable_open();
  opened.set_grant_id(next_grant_id_);
  *opened.mutable_region() = control::to_message(region->info());
  opened.mutable_region()->set_extent_count(grant->extents.size());
  append_page(*grant, 0, *opened.mutable_extents());
  answer.descriptors = std::move(grant->descriptors);
  {
    const std::lock_guard lock{named_mutex_};
    const std::uint64_t size_bytes = region->info().size_bytes;
    named_.emplace(next_grant_id_, Named{region->name(), size_bytes, rights});
    grants_.emplace(next_grant_id_++, OpenGrant{region, std::move(*grant), size_bytes});
    open_bytes_ += size_bytes;
  }
  count_grants(1);
  server_.grants().opened(*region, *this, opened.grant_id());
  return answer;
}

Result<ServerSession::Answer> ServerSession::extents(const control::ExtentsRequest& request) {
  const auto found = grants_.find(request.grant_id());
  if (const auto why = taken(request.grant_id()); found == grants_.end() && why)
    return Error{Code::kAccessRefused, "open"}.with_reason(*why);
  if (found == grants_.end() || request.first() >= found->second.grant.extents.size())
    return Error{Code::kInvalidArgument, "extents"};
  if (request.first() == 0 && lane_keys_ != nullptr)
    if (auto renewed = lane_keys_->renew(found->second.grant); !renewed) return renewed.error();
  Answer answer;
  append_page(found->second.grant, request.first(),
              *answer.reply.mutable_extents()->mutable_extents());
  return answer;
}

Result<ServerSession::Answer> ServerSession::close(const control::CloseRequest& request) {
  const auto found = grants_.find(request.grant_id());
  if (found != grants_.end())
    give_up(found);
  else if (!taken(request.grant_id()))
    return Error{Code::kInvalidArgument, "close"};
  Answer answer;
  answer.reply.mutable_close();
  return answer;
}

Result<ServerSession::Answer> ServerSession::list(const control::ListRequest& request) {
  const auto who = asker();
  if (!who) return who.error();
  const auto found = server_.catalog().list(
      request.after(), control::kRegionsPerPage + 1,
      [&](const auto& info) { return permission_of(info, who->client).any(); });
  Answer answer;
  control::ListReply& page = *answer.reply.mutable_list();
  page.set_more(found.size() > control::kRegionsPerPage);
  for (std::size_t i = 0; i < std::min(found.size(), control::kRegionsPerPage); ++i)
    *page.add_regions() = control::to_message(found[i]);
  return answer;
}

Result<ServerSession::Answer> ServerSession::stat(const control::StatRequest& request) {
  Permission permission;
  auto found = find_permitted(request.name(), permission);
  if (!found) return found.error();
  const RegionInfo info = (*found)->info();
  Answer answer;
  control::Region& region = *answer.reply.mutable_stat()->mutable_region();
  region = control::to_message(info);
  if (permission.admin) control::add_access(info.access, region);
  return answer;
}

Result<ServerSession::Answer> ServerSession::remove(const control::RemoveRequest& request) {
  Permission permission;
  if (auto found = find_permitted(request.name(), permission); !found) return found.error();
  if (!permission.admin) return Error{Code::kNoRight, "remove"}.with_subject(request.name());
  const auto removal = static_cast<Removal>(request.removal());
  if (removal != Removal::kIfUnused && removal != Removal::kWhenUnused)
    return Error{Code::kInvalidArgument, "remove"}.with_subject("kind of removal");
  if (auto status = server_.remove_region(request.name(), removal); !status) return status.error();
  Answer answer;
  answer.reply.mutable_remove();
  return answer;
}

Result<ServerSession::Answer> ServerSession::notify(const control::NotifyRequest& request) {
  if (reserve_notices(1) == 0) return Error{Code::kWouldBlock, "notify"};
  const Status announced = announce({.grant_id = request.grant_id(),
                                     .offset_bytes = request.offset(),
                                     .length_bytes = request.length_bytes(),
                                     .tag = request.tag()});
  if (!announced) return announced.error();
  Answer answer;
  answer.reply.mutable_notify();
  return answer;
}

}  // namespace remora::detail
