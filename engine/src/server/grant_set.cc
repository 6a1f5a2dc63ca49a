#include "server/grant_set.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

namespace {

void append_page(const transport::Grant& grant, std::size_t first, auto& page) {
  const auto& [lanes, keys] = grant.lane_keys;
  const std::vector<transport::WireExtent>& extents = grant.extents;
  REMORA_ASSERT(keys.size() == lanes * extents.size(), "each extent has a key for each lane");
  const std::size_t end = std::min(extents.size(), first + control::kExtentsPerPage);
  for (std::size_t i = first; i < end; ++i) {
    control::Extent& extent = *page.Add();
    extent.set_length_bytes(extents[i].length_bytes);
    extent.set_address(extents[i].remote_address);
    extent.set_key(extents[i].remote_key);
    for (std::size_t lane = 0; lane < lanes; ++lane) extent.add_lane_keys(keys[i * lanes + lane]);
  }
}

/// Adds the region to an error of the transport. The error of a budget is not changed: it already
/// names the amount and the limit to change. Neither is the error of locked memory.
Error grant_error(const Error& why, const std::string& region) {
  if (why.code() == Code::kLimitExceeded) return why;
  if (why.reason() != Reason::kMemlock) return why.with_subject(region);
  return why.with_subject(region + ": " + std::string{why.subject()});
}

}  // namespace

GrantSet::~GrantSet() {
  REMORA_ASSERT(grants_.empty() && open_count_.load() == 0 && open_bytes_ == 0,
                "a session that goes has given all of its grants back");
  REMORA_ASSERT(reserved_ == 0 && reserved_bytes_ == 0, "a session outlives its fences and opens");
}

Status GrantSet::has_room_for(const RegionEntry& region, Before before) const {
  const config::Limits limits = server_.limits();
  std::uint64_t count = grants_.size() + reserved_;
  std::uint64_t size_bytes = open_bytes_ + reserved_bytes_ + region.info().size_bytes;
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

void GrantSet::reserve_room(std::uint64_t region_bytes) noexcept {
  ++reserved_;
  reserved_bytes_ += region_bytes;
}

void GrantSet::give_back_room(std::uint64_t region_bytes) noexcept {
  REMORA_ASSERT(reserved_ > 0 && reserved_bytes_ >= region_bytes,
                "a fence or an open gives back the room that was kept for it");
  --reserved_;
  reserved_bytes_ -= region_bytes;
}

/// Collects the data that a grant of the whole region needs.
GrantSet::PendingOpen GrantSet::prepare(const std::shared_ptr<RegionEntry>& region, Rights rights,
                                        Opened then) {
  const RegionInfo info = region->info();
  auto memory = region->memory();
  const transport::GrantRequest request{.extents = memory->stretches(),
                                        .rights = rights,
                                        .memory_fd = memory->shareable_fd(),
                                        .cpu_atomics = info.atomic_domain == "cpu",
                                        .epoch = info.epoch,
                                        .atomic_domain = info.atomic_domain,
                                        .stop = server_.registration_threads().stop_token()};
  return {session_.shared_from_this(),
          region,
          std::move(memory),
          request,
          info.size_bytes,
          std::move(then)};
}

void GrantSet::open(const std::shared_ptr<RegionEntry>& region, Rights rights, Opened then) {
  make(prepare(region, rights, std::move(then)));
}

void GrantSet::reattach(const std::shared_ptr<RegionEntry>& region,
                        const control::ReattachRequest& request, Opened then) {
  PendingOpen wanted = prepare(region, static_cast<Rights>(request.rights()), std::move(then));
  // The region may have grown since: the client reaches the same bytes as before.
  std::uint64_t left = request.size_bytes();
  for (const transport::MemoryStretch& stretch : wanted.memory->stretches()) {
    if (left == 0) break;
    wanted.reached.push_back({stretch.address, std::min(left, stretch.length_bytes)});
    left -= wanted.reached.back().length_bytes;
  }
  if (left != 0 || wanted.reached.empty()) {
    server_.catalog().close(*region);
    return wanted.then(Error{Code::kAccessRefused, "attach again"}.with_reason(Reason::kRevoked));
  }
  wanted.grant_id = request.grant_id();
  wanted.size_bytes = request.size_bytes();
  wanted.keys.assign(request.keys().begin(), request.keys().end());
  wanted.request.extents = wanted.reached;
  wanted.request.keys = wanted.keys;
  wanted.request.address = request.address();
  make(std::move(wanted));
}

/// Sessions that prove the key of one client share the registration of a region: the first session
/// makes it, and the threads of the others would only wait for it. Empty: this session shares none.
std::string GrantSet::registration_group(const RegionEntry& region) const {
  const SessionHandshake& handshake = session_.handshake();
  if (!handshake.proven() || handshake.has_rails()) return {};
  return handshake.client_name() + '\n' + session_.endpoint().device() + '\n' + region.name();
}

void GrantSet::make(PendingOpen wanted) {
  if (!session_.endpoint().registers(wanted.request)) {
    wanted.made.emplace(session_.endpoint().grant(wanted.request));
    auto answer = add(wanted);
    return wanted.then(std::move(answer));
  }
  // Moving the vectors keeps the spans of the request valid.
  auto pending = std::make_shared<PendingOpen>(std::move(wanted));
  reserve_room(pending->size_bytes);
  server_.revocations().begin_open(*pending->region);
  const bool begun = server_.registration_threads().enqueue(
      [&server = server_, pending]() mutable { register_pending(server, std::move(pending)); },
      registration_group(*pending->region));
  if (begun) return;
  pending->made.emplace(session_.endpoint().grant(pending->request));
  finish_pending(*pending);
}

/// Runs on a registration thread. It holds nothing of the session when it hands the result to the
/// worker.
void GrantSet::register_pending(ServerCore& server, std::shared_ptr<PendingOpen> pending) {
  // Clients that reconnect at the same time may have waited too long, and have asked again over new
  // connections.
  if (pending->session->detached() || pending->request.stop.stop_requested())
    pending->made.emplace(Error{Code::kConnectionLost, "open"});
  else
    pending->made.emplace(pending->session->endpoint().grant(pending->request));
  server.enqueue(
      [pending = std::move(pending)] { pending->session->grants().finish_pending(*pending); });
}

void GrantSet::finish_pending(PendingOpen& pending) {
  const std::shared_ptr<ServerSession> keep = pending.session;
  const std::shared_ptr<RegionEntry> region = pending.region;
  pending.memory.reset();  // a request that waits for this open may shrink it
  give_back_room(pending.size_bytes);
  if (session_.over())
    drop(*region, std::move(*pending.made));
  else
    pending.then(add(pending));
  // This call comes last: it continues requests that have waited for this open.
  server_.revocations().end_open(region);
}

/// Revokes a grant that the session does not keep: the session has ended, no client waits for the
/// grant, or the client has it already.
void GrantSet::drop(RegionEntry& region, Result<transport::Grant> grant) {
  if (grant) {
    if (grant->handle != nullptr)
      if (const Status revoked = grant->handle->revoke(); !revoked)
        session_.lock_out(region, revoked.error());
    *grant = {};
  }
  // From here on other clients may get the memory.
  server_.catalog().close(region);
}

/// Adds the grant to the session; its client gets the reply.
Result<ServerReply> GrantSet::add(PendingOpen& pending) {
  const std::shared_ptr<RegionEntry>& region = pending.region;
  Result<transport::Grant>& grant = *pending.made;
  if (!grant) {
    server_.catalog().close(*region);
    return grant_error(grant.error(), region->name());
  }
  if (pending.grant_id) return add_again(pending, *pending.grant_id);
  const std::uint64_t grant_id =
      names_.add({region->name(), pending.size_bytes, pending.request.rights});
  ServerReply answer;
  control::OpenReply& opened = *answer.reply.mutable_open();
  opened.set_grant_id(grant_id);
  *opened.mutable_region() = control::to_message(region->info());
  opened.mutable_region()->set_extent_count(grant->extents.size());
  append_page(*grant, 0, *opened.mutable_extents());
  answer.descriptors = std::move(grant->descriptors);
  hold(grant_id, OpenGrant{region, std::move(*grant), pending.size_bytes});
  return answer;
}

/// Adds again a grant that the client has from the previous process.
Result<ServerReply> GrantSet::add_again(PendingOpen& pending, std::uint64_t grant_id) {
  const std::shared_ptr<RegionEntry>& region = pending.region;
  ServerReply answer;
  answer.reply.mutable_reattach();
  // The client may have asked twice: opens of a region run at the same time.
  const bool there = has(grant_id, *region);
  const bool named = !there && names_.add_as(grant_id, {region->name(), pending.size_bytes,
                                                        pending.request.rights});
  if (!named) {
    drop(*region, std::move(*pending.made));
    if (there) return answer;
    return Error{Code::kAccessRefused, "attach again"}.with_reason(Reason::kRevoked);
  }
  transport::Grant& grant = **pending.made;
  grant.descriptors.clear();  // the client already has the memory mapped
  hold(grant_id, OpenGrant{region, std::move(grant), pending.size_bytes});
  return answer;
}

void GrantSet::hold(std::uint64_t grant_id, OpenGrant open) {
  open.extent_count = open.grant.extents.size();
  const RegionEntry& region = *open.region;
  const std::uint64_t size_bytes = open.size_bytes;
  const auto added = grants_.emplace(grant_id, std::move(open));
  REMORA_ASSERT(added.second, "the id of a grant is its own in a session");
  open_bytes_ += size_bytes;
  open_count_.fetch_add(1, std::memory_order_relaxed);
  server_.metrics().grants(1);
  server_.revocations().add_grant(region, session_, grant_id);
}

bool GrantSet::has(std::uint64_t grant_id, const RegionEntry& region) const {
  const auto found = grants_.find(grant_id);
  return found != grants_.end() && found->second.region.get() == &region;
}

ServerReply GrantSet::page_of(const transport::Grant& grant, std::size_t first) {
  ServerReply answer;
  append_page(grant, first, *answer.reply.mutable_extents()->mutable_extents());
  return answer;
}

Result<ServerReply> GrantSet::close(const control::CloseRequest& request) {
  const auto found = grants_.find(request.grant_id());
  if (found != grants_.end())
    end(found);
  else if (!taken(request.grant_id()))
    return Error{Code::kInvalidArgument, "close"};
  ServerReply answer;
  answer.reply.mutable_close();
  return answer;
}

Result<ServerReply> GrantSet::state(const control::GrantStateRequest& request) const {
  if (!names_.was_granted(request.grant_id())) return Error{Code::kInvalidArgument, "grant state"};
  ServerReply answer;
  control::GrantStateReply& state = *answer.reply.mutable_grant_state();
  state.set_holds(grants_.contains(request.grant_id()));
  if (state.holds()) return answer;
  state.set_code(static_cast<std::uint32_t>(Code::kAccessRefused));
  state.set_reason(
      static_cast<std::uint32_t>(taken(request.grant_id()).value_or(Reason::kRevoked)));
  return answer;
}

std::optional<bool> GrantSet::mark_revoking(std::uint64_t grant_id, Reason reason) {
  const auto found = grants_.find(grant_id);
  if (found == grants_.end()) return std::nullopt;
  if (std::exchange(found->second.revoking, true)) return false;
  found->second.reason = reason;
  return true;
}

void GrantSet::end_grant(std::uint64_t grant_id, Reason reason, ServerMetrics::TakenBack how) {
  const auto found = grants_.find(grant_id);
  if (found == grants_.end()) return;
  log::debug("session {:x}: grant {} of {}: {}{}", session_.id(), grant_id,
             found->second.region->name(), to_string(reason),
             how == ServerMetrics::TakenBack::kForced ? ", by force" : "");
  server_.metrics().grant_revoked(reason, how);
  session_.events().drop_grant(grant_id);
  taken_.emplace(grant_id, reason);
  taken_order_.push_back(grant_id);
  if (taken_order_.size() > kMaxTaken) {
    taken_.erase(taken_order_.front());
    taken_order_.pop_front();
  }
  end(found);
}

std::optional<Reason> GrantSet::taken(std::uint64_t grant_id) const {
  const auto found = taken_.find(grant_id);
  if (found == taken_.end()) return std::nullopt;
  return found->second;
}

void GrantSet::leave_device() noexcept {
  for (auto& [grant_id, open] : grants_) {
    if (open.renewal != nullptr) open.renewal->leaves_device = true;
    if (open.grant.handle != nullptr) open.grant.handle->leave_device();
  }
}

void GrantSet::close_all() {
  while (!grants_.empty()) end(grants_.begin());
}

/// Every grant ends by this function, whatever the cause.
void GrantSet::end(Grants::iterator found) {
  const std::uint64_t grant_id = found->first;
  const std::shared_ptr<RegionEntry> region = std::move(found->second.region);
  REMORA_ASSERT(open_bytes_ >= found->second.size_bytes,
                "the bytes that a session has open are the sum over its grants");
  open_bytes_ -= found->second.size_bytes;
  if (found->second.renewal != nullptr)
    found->second.renewal->given_up.store(true);  // see finish_renewal()
  else
    drop(*region, std::move(found->second.grant));
  grants_.erase(found);
  names_.close(grant_id);
  open_count_.fetch_sub(1, std::memory_order_relaxed);
  server_.metrics().grants(-1);
  // This call comes last: it continues a revocation that has waited for this grant.
  server_.revocations().remove_grant(*region, session_, grant_id);
}

void GrantSet::take_over(GrantSet& before) {
  REMORA_ASSERT(grants_.empty() && open_bytes_ == 0,
                "a session resumes another one before it has grants of its own");
  grants_ = std::exchange(before.grants_, {});
  open_bytes_ = std::exchange(before.open_bytes_, 0);
  taken_ = std::exchange(before.taken_, {});
  taken_order_ = std::exchange(before.taken_order_, {});
  names_.take_over(before.names_);
  for (const auto& [grant_id, open] : grants_) {
    if (open.renewal != nullptr) open.renewal->owner = session_.shared_from_this();
    if (session_.connection().lane_keys() != nullptr)
      owed_pages_ += 1 + open.extent_count / control::kExtentsPerPage;
  }
  open_count_.store(before.open_count_.exchange(0));
  REMORA_ASSERT(open_count_.load() == grants_.size(), "a session counts its open grants");
}

std::vector<GrantSet::Missing> GrantSet::reconcile(const std::vector<std::uint64_t>& held) {
  const std::unordered_set<std::uint64_t> known{held.begin(), held.end()};
  std::vector<std::uint64_t> unknown;
  for (const auto& [grant_id, open] : grants_)
    if (!known.contains(grant_id)) unknown.push_back(grant_id);
  // The end of one may continue a revocation, which ends others.
  for (const std::uint64_t grant_id : unknown)
    if (const auto found = grants_.find(grant_id); found != grants_.end()) end(found);
  return missing(held);
}

std::vector<GrantSet::Missing> GrantSet::missing(const std::vector<std::uint64_t>& held) const {
  const std::unordered_set<std::uint64_t> known{held.begin(), held.end()};
  std::vector<Missing> missing;
  // The server could not tell the client about grants that it took back meanwhile. It remembers
  // only the reasons of the newest kMaxTaken.
  for (const std::uint64_t grant_id : known)
    if (!grants_.contains(grant_id))
      missing.push_back({grant_id, taken(grant_id).value_or(Reason::kRevoked)});
  return missing;
}

std::vector<GrantSet::Missing> GrantSet::being_revoked() const {
  std::vector<Missing> revoked;
  for (const auto& [grant_id, open] : grants_)
    if (open.revoking) revoked.push_back({grant_id, open.reason});
  return revoked;
}

bool GrantSet::take_owed_page() noexcept {
  if (owed_pages_ == 0) return false;
  --owed_pages_;
  return true;
}

}  // namespace remora::detail
