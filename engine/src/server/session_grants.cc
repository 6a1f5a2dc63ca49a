/// What a ServerSession does about grants that are taken back: events, fences, and requests that
/// wait for their turn at a region.

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

using control::Request;

void ServerSession::tell(control::Event event) {
  if (released_ || version() < 2) return;
  events_.push_back(std::move(event));
  send_event();
}

/// One at a time: the client keeps room for so many that it has not asked for.
void ServerSession::send_event() {
  if (event_in_flight_ != 0 || events_.empty()) return;
  const control::Event event = std::move(events_.front());
  events_.pop_front();
  event_in_flight_ = next_event_id_++;
  event_grant_ = event.revoking().grant_id();
  event_reason_ = static_cast<Reason>(event.revoking().reason());
  control::Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(event_in_flight_);
  *envelope.mutable_event() = event;
  envelope.mutable_event()->set_id(event_in_flight_);
  const Status sent = send(envelope);
  if (sent) return;
  log::debug("session {:x}: {}", id_, sent.error().message());
  if (sent.error().code() == Code::kConnectionLost) return;  // as in reply()
  server_.after_serving(*this, Served::kUnheard);
}

Result<ServerSession::Answer> ServerSession::event_ack(const control::EventAckRequest& request) {
  if (request.event_id() == 0 || request.event_id() != event_in_flight_)
    return Error{Code::kInvalidArgument, "event"}.with_subject("none of this id is to be seen");
  event_in_flight_ = 0;
  if (event_grant_ != 0)
    release_lease(event_grant_, event_reason_, ServerMetrics::TakenBack::kAcknowledged);
  send_event();
  Answer answer;
  answer.reply.mutable_event_ack();
  return answer;
}

bool ServerSession::begin_revoking(std::uint64_t grant_id, Reason reason) {
  const auto found = grants_.find(grant_id);
  // Of a session without a client nothing is in flight: there is nobody to ask.
  if (found == grants_.end() || released_ || version() < 2 || alone_.load()) return false;
  // The client has been told, and not agreed yet, when it was taken back the last time.
  if (std::exchange(found->second.revoking, true)) return true;
  found->second.reason = reason;
  tell(revoking_event(grant_id, reason));
  return true;
}

control::Event ServerSession::revoking_event(std::uint64_t grant_id, Reason reason) const {
  control::Event event;
  control::Event::Revoking& revoking = *event.mutable_revoking();
  revoking.set_grant_id(grant_id);
  revoking.set_reason(static_cast<std::uint32_t>(reason));
  revoking.set_grace_ms(static_cast<std::uint64_t>(
      std::chrono::ceil<std::chrono::milliseconds>(server_.config().limits.revoke_grace).count()));
  return event;
}

void ServerSession::release_lease(std::uint64_t grant_id, Reason reason,
                                  ServerMetrics::TakenBack how) {
  const auto found = grants_.find(grant_id);
  if (found == grants_.end()) return;
  log::debug("session {:x}: grant {} of {}: {}{}", id_, grant_id, found->second.region->name(),
             to_string(reason), how == ServerMetrics::TakenBack::kForced ? ", by force" : "");
  server_.metrics().grant_revoked(reason, how);
  std::erase_if(events_, [&](const control::Event& event) {
    return event.has_revoking() && event.revoking().grant_id() == grant_id;
  });
  taken_.emplace(grant_id, reason);
  taken_order_.push_back(grant_id);
  if (taken_order_.size() > kMaxTaken) {
    taken_.erase(taken_order_.front());
    taken_order_.pop_front();
  }
  give_up(found);
}

std::optional<Reason> ServerSession::taken(std::uint64_t grant_id) const {
  const auto found = taken_.find(grant_id);
  if (found == taken_.end()) return std::nullopt;
  return found->second;
}

/// Ends a grant, whoever wanted that.
void ServerSession::give_up(Grants::iterator found) {
  const std::uint64_t grant_id = found->first;
  const std::shared_ptr<RegionEntry> region = std::move(found->second.region);
  open_bytes_ -= found->second.size_bytes;
  if (const auto& handle = found->second.grant.handle; handle != nullptr)
    if (const Status revoked = handle->revoke(); !revoked) lock_out(*region, revoked.error());
  found->second.grant = {};
  server_.catalog().close(*region);
  grants_.erase(found);
  {
    // Notices of it may be on their way to the application.
    const std::lock_guard lock{named_mutex_};
    closed_.push_back(grant_id);
    if (closed_.size() > kMaxClosed) {
      named_.erase(closed_.front());
      closed_.pop_front();
    }
  }
  count_grants(-1);
  // Last: whoever waits for this goes on.
  server_.grants().gone(*region, *this, grant_id);
}

/// The client can still reach what it has no grant for any more. Its lanes go before anybody else
/// has that memory, and it does not come back to a session whose registration that is: no other can
/// use it.
void ServerSession::lock_out(const RegionEntry& region, const Error& why) {
  log::warn("session {:x} ({}): its access to {} cannot be taken back ({}): the session ends", id(),
            endpoint_->peer(), region.name(), why.message());
  comes_back_.store(false);
  // First, so that nobody ends it for another cause who sees that its lanes have gone.
  if (!std::exchange(locked_out_, true) && !released_)
    server_.enqueue([self = shared_from_this()] { self->server_.end_locked_out(self); });
  endpoint_->shutdown();
  endpoint_->destroy_lanes();
  endpoint_->await_destroyed();
}

Result<ServerSession::Answer> ServerSession::grant_state(
    const control::GrantStateRequest& request) const {
  if (request.grant_id() == 0 || request.grant_id() >= next_grant_id_)
    return Error{Code::kInvalidArgument, "grant state"};
  Answer answer;
  control::GrantStateReply& state = *answer.reply.mutable_grant_state();
  state.set_holds(grants_.contains(request.grant_id()));
  if (state.holds()) return answer;
  state.set_code(static_cast<std::uint32_t>(Code::kAccessRefused));
  state.set_reason(
      static_cast<std::uint32_t>(taken(request.grant_id()).value_or(Reason::kRevoked)));
  return answer;
}

void ServerSession::reply_later(const Asked& asked, Result<Answer> answered) {
  server_.after_serving(*this, reply(asked, std::move(answered)));
}

bool ServerSession::serve_in_turn(const Asked& asked, const Request& request) {
  switch (request.body_case()) {
    case Request::kCreate: create_when_there(asked, request.create()); return true;
    case Request::kOpen:
      in_turn(asked, request.open().name(),
              [asked, open = request.open()](ServerSession& self, const auto& /*region*/) {
                self.reply_later(asked, self.open(open));
              });
      return true;
    case Request::kFence:
      in_turn(asked, request.fence().name(),
              [asked, fence = request.fence()](ServerSession& self, const auto& region) {
                self.fence(asked, fence, region);
              });
      return true;
    case Request::kRemove:
      if (request.remove().removal() != control::REMOVAL_NOW) return false;
      remove_now(asked, request.remove().name());
      return true;
    case Request::kResize:
      in_turn(asked, request.resize().name(),
              [asked, resize = request.resize()](ServerSession& self, const auto& region) {
                self.resize(asked, resize, region);
              });
      return true;
    default: return false;
  }
}

/// Memory may be there only when what was removed before has been zeroed: others are served
/// meanwhile, and it is all asked once more.
void ServerSession::create_when_there(const Asked& asked, const control::CreateRequest& request) {
  auto created = create(request);
  const Deadline deadline = deadline_after(asked.arrived, server_.config().limits.request_timeout);
  if (created || created.error().code() != Code::kTimedOut || Clock::now() >= deadline)
    return reply_later(asked, std::move(created));
  server_.memory_line().join(request.region().size_bytes(), deadline,
                             [weak = weak_from_this(), asked, request] {
                               const auto self = weak.lock();
                               if (self != nullptr && !self->over())
                                 self->create_when_there(asked, request);
                             });
}

void ServerSession::remove_now(const Asked& asked, const std::string& name) {
  Permission permission;
  auto region = find_permitted(name, permission);
  if (!region) return reply_later(asked, region.error());
  if (!permission.admin)
    return reply_later(asked, Error{Code::kNoRight, "remove"}.with_subject(name));
  server_.grants().in_turn(*region, [self = shared_from_this(), asked, region = *region] {
    if (self->over()) return;
    // Another removal may have been first. Its key may have gone since, or its right.
    const auto who = self->asker();
    if (!who) return self->reply_later(asked, who.error());
    if (!permission_of(region->fixed_info(), who->client).admin)
      return self->reply_later(asked, Error{Code::kNoRight, "remove"}.with_subject(region->name()));
    self->server_.take_away(region, [self, asked] {
      Answer answer;
      answer.reply.mutable_remove();
      self->reply_later(asked, std::move(answer));
    });
  });
}

void ServerSession::resize(const Asked& asked, const control::ResizeRequest& request,
                           const std::shared_ptr<RegionEntry>& region) {
  Permission permission;
  if (auto found = find_permitted(region->name(), permission); !found)
    return reply_later(asked, found.error());
  if (!permission.admin)
    return reply_later(asked, Error{Code::kNoRight, "resize"}.with_subject(region->name()));
  const auto self = shared_from_this();
  // Whoever asks: the memory is its owner's.
  const auto may = [self, region](std::uint64_t more_bytes) -> Status {
    // It may have waited for memory, longer than its session was there.
    if (self->over()) return Error{Code::kConnectionLost, "resize"};
    if (const auto who = self->asker(); !who) return who.error();
    const auto registry = self->server_.clients();
    const KnownClient* const owner = registry->find(region->fixed_info().owner);
    return owner == nullptr ? Status{} : self->check_quota(*owner, more_bytes);
  };
  server_.resize_region(region, request.size_bytes(),
                        deadline_after(asked.arrived, server_.config().limits.request_timeout), may,
                        [self, asked, region](const Status& resized) {
                          if (!resized) return self->reply_later(asked, resized.error());
                          Answer answer;
                          *answer.reply.mutable_resize()->mutable_region() =
                              control::to_message(region->info());
                          self->reply_later(asked, std::move(answer));
                        });
}

/// Runs `job` when nobody else has its turn at the region, unless that, or this session, has gone
/// by then: what nobody waits for any more takes nothing from others.
void ServerSession::in_turn(const Asked& asked, const std::string& name, TurnJob job) {
  auto region = server_.catalog().find(name);
  if (!region) return reply_later(asked, region.error());
  server_.grants().in_turn(
      *region, [self = shared_from_this(), asked, region = *region, job = std::move(job)] {
        if (self->over()) return;
        if (!self->server_.catalog().holds(*region))
          return self->reply_later(
              asked, Error{Code::kUnknownRegion, "region"}.with_subject(region->name()));
        job(*self, region);
      });
}

/// What would keep this session from opening the region, whatever else there is.
Status ServerSession::may_open(const RegionEntry& region, std::uint32_t rights) const {
  if (rights == 0 || rights > static_cast<std::uint32_t>(Rights::kAll))
    return Error{Code::kInvalidArgument, "open"}.with_subject("rights");
  const auto who = asker();
  if (!who) return who.error();
  const Permission permission = permission_of(region.fixed_info(), who->client);
  // To those who may not use it at all there is no such region.
  if (!permission.any()) return Error{Code::kUnknownRegion, "region"}.with_subject(region.name());
  if (!includes(permission.rights, static_cast<Rights>(rights)))
    return Error{Code::kNoRight, "open"}.with_subject(region.name());
  if (maps_grants() && region.memory()->shareable_fd() < 0)
    return Error{Code::kUnsupported, "open"}.with_subject("region was not created for shm");
  return {};
}

Status ServerSession::has_room_for(const RegionEntry& region, Before before) const {
  const config::Limits& limits = server_.config().limits;
  std::uint64_t count = grants_.size() + fences_;
  std::uint64_t size_bytes = open_bytes_ + fences_bytes_ + region.info().size_bytes;
  if (before == Before::kThoseOfTheRegionGo)
    for (const auto& [grant_id, open] : grants_) {
      if (open.region.get() != &region) continue;
      --count;
      size_bytes -= open.size_bytes;
    }
  if (count >= limits.session_regions_max)
    return Error{Code::kLimitExceeded, "regions open in one session"}
        .with_subject("limits.session_regions_max")
        .with_limit(count + 1, limits.session_regions_max);
  if (limits.session_memory_bytes != 0 && size_bytes > limits.session_memory_bytes)
    return Error{Code::kLimitExceeded, "bytes open in one session"}
        .with_subject("limits.session_memory")
        .with_limit(size_bytes, limits.session_memory_bytes);
  return {};
}

void ServerSession::fence(const Asked& asked, const control::FenceRequest& request,
                          const std::shared_ptr<RegionEntry>& region) {
  // Before anybody loses anything: who may change a region may take it from others.
  if (const Status may = may_open(*region, request.rights()); !may)
    return reply_later(asked, may.error());
  const auto who = asker();
  if (!who) return reply_later(asked, who.error());
  const Permission permission = permission_of(region->fixed_info(), who->client);
  if (!permission.admin &&
      (permission.rights & (Rights::kWrite | Rights::kAtomic)) == Rights::kNone)
    return reply_later(asked, Error{Code::kNoRight, "fence"}.with_subject(region->name()));
  if (const Status room = has_room_for(*region, Before::kThoseOfTheRegionGo); !room)
    return reply_later(asked, room.error());
  control::OpenRequest wanted;
  wanted.set_name(request.name());
  wanted.set_rights(request.rights());
  // Nobody is fenced for a grant that others of this session's requests leave no room for.
  const std::uint64_t size_bytes = region->info().size_bytes;
  ++fences_;
  fences_bytes_ += size_bytes;
  server_.grants().revoke_all(
      region, Reason::kFenced, RevocationCoordinator::Mapped::kLeave,
      [self = shared_from_this(), asked, region, size_bytes,
       wanted = std::move(wanted)](std::size_t left) {
        --self->fences_;
        self->fences_bytes_ -= size_bytes;
        // Whoever has asked is gone: a grant for nobody would only be in others' way.
        if (self->over()) return;
        if (left != 0)
          return self->reply_later(
              asked, Error{Code::kBusy, "fence"}.with_subject(region->name()).with_limit(left, 0));
        // Another one of that name has older grants that were not taken back.
        if (!self->server_.catalog().holds(*region))
          return self->reply_later(
              asked, Error{Code::kUnknownRegion, "fence"}.with_subject(region->name()));
        self->server_.catalog().raise_epoch(*region);
        auto opened = self->open(wanted);
        if (!opened) return self->reply_later(asked, opened.error());
        Answer answer;
        *answer.reply.mutable_fence()->mutable_opened() = std::move(*opened->reply.mutable_open());
        answer.descriptors = std::move(opened->descriptors);
        self->reply_later(asked, std::move(answer));
      });
}

}  // namespace remora::detail
