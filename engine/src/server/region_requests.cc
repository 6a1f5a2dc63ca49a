#include "server/region_requests.h"

#include <algorithm>
#include <utility>

#include "server/server_core.h"
#include "server/server_session.h"

namespace remora::detail {

using control::Request;

Result<RegionRequests::Asker> RegionRequests::asker() const {
  if (!server_.asks_for_keys()) return Asker{};
  const SessionHandshake& handshake = session_.handshake();
  Asker asker{.registry = server_.session_table().clients(), .client = nullptr};
  asker.client = asker.registry->find(handshake.client_name());
  // A session ends when the server removes its client's key. Requests that came before may still
  // wait for the worker.
  if (!asker.registry->knows(handshake.client_name(), handshake.proven_key()))
    return Error{Code::kConnectionRefused, "request"}.with_reason(Reason::kAuthentication);
  return asker;
}

Result<std::shared_ptr<RegionEntry>> RegionRequests::find_permitted(const std::string& name,
                                                                    Permission& permission) const {
  const auto requester = asker();
  if (!requester) return requester.error();
  auto found = server_.catalog().find(name);
  if (!found) return found;
  permission = permission_of((*found)->fixed_info(), requester->client);
  // The server tells a client that may not use the region that there is no such region.
  if (!permission.any()) return Error{Code::kUnknownRegion, "region"}.with_subject(name);
  return found;
}

/// Only the worker creates regions for clients, so the client's bytes do not grow between this
/// check and the creation.
Status RegionRequests::check_quota(const KnownClient& client, std::uint64_t more_bytes) const {
  return server_.catalog().check_quota(client.name, client.quota_bytes, more_bytes);
}

/// Whether the session may open the region. Does not check the session's limits.
Status RegionRequests::may_open(const RegionEntry& region, std::uint32_t rights) const {
  if (rights == 0 || rights > static_cast<std::uint32_t>(Rights::kAll))
    return Error{Code::kInvalidArgument, "open"}.with_subject("rights");
  const auto requester = asker();
  if (!requester) return requester.error();
  const Permission permission = permission_of(region.fixed_info(), requester->client);
  // The server tells a client that may not use the region that there is no such region.
  if (!permission.any()) return Error{Code::kUnknownRegion, "region"}.with_subject(region.name());
  if (!includes(permission.rights, static_cast<Rights>(rights)))
    return Error{Code::kNoRight, "open"}.with_subject(region.name());
  if (session_.maps_grants() && region.memory()->shareable_fd() < 0)
    return Error{Code::kUnsupported, "open"}.with_subject("region was not created for shm");
  return {};
}

Status RegionRequests::may_administer(Operation operation) const {
  const auto requester = asker();
  if (!requester) return requester.error();
  if (requester->client == nullptr || requester->client->admin) return {};
  return Error{Code::kNoRight, operation}.with_subject(requester->client->name +
                                                       ": needs clients[].admin");
}

std::optional<Error> RegionRequests::refused_by_drain(const Request& request) const {
  if (!server_.drain().requested()) return std::nullopt;
  const auto refused = [](Operation operation, const std::string& name) {
    return Error{Code::kBusy, operation}.with_subject(name).with_reason(Reason::kDraining);
  };
  switch (request.body_case()) {
    case Request::kCreate: return refused("create", request.create().region().name());
    case Request::kOpen: return refused("open", request.open().name());
    // A fence, too, gives a grant, but it ends those of clients that may not answer any more: a
    // client that takes their work over must not wait for the end of the drain.
    default: return std::nullopt;
  }
}

bool RegionRequests::serve_in_turn(const ServerRequest& asked, const Request& request) {
  if (const auto refused = refused_by_drain(request)) {
    session_.reply_later(asked, *refused);
    return true;
  }
  switch (request.body_case()) {
    case Request::kCreate: create_when_there(asked, request.create()); return true;
    case Request::kOpen:
      run_in_turn(
          asked, request.open().name(),
          [asked, open = request.open()](RegionRequests& self, const auto& /*region*/) {
            self.open(open, [&session = self.session_, asked](Result<ServerReply> opened) {
              session.reply_later(asked, std::move(opened));
            });
          },
          RevocationCoordinator::Turn::kOpen);
      return true;
    case Request::kReattach:
      // Also if the grant is refused below: the client later closes it by this id.
      if (session_.restored()) session_.grants().avoid(request.reattach().grant_id());
      // In turn, as an open: an unfinished fence revokes this grant, too.
      run_in_turn(
          asked, request.reattach().name(),
          [asked, wanted = request.reattach()](RegionRequests& self, const auto& region) {
            self.reattach(wanted, region,
                          [&session = self.session_, asked](Result<ServerReply> attached) {
                            session.reply_later(asked, std::move(attached));
                          });
          },
          RevocationCoordinator::Turn::kOpen);
      return true;
    case Request::kExtents:
      session_.grants().extents(request.extents(),
                                [&session = session_, asked](Result<ServerReply> page) {
                                  session.reply_later(asked, std::move(page));
                                });
      return true;
    case Request::kFence:
      run_in_turn(asked, request.fence().name(),
                  [asked, fence = request.fence()](RegionRequests& self, const auto& region) {
                    self.fence(asked, fence, region);
                  });
      return true;
    case Request::kRemove:
      if (request.remove().removal() != control::REMOVAL_NOW) return false;
      remove_now(asked, request.remove().name());
      return true;
    case Request::kResize:
      run_in_turn(asked, request.resize().name(),
                  [asked, resize = request.resize()](RegionRequests& self, const auto& region) {
                    self.resize(asked, resize, region);
                  });
      return true;
    default: return false;
  }
}

/// Runs `job` when no other request uses the region. Does not run it if the region has been removed
/// by then, or if this session is over: no client waits for the reply, so the request must take
/// nothing from other sessions.
void RegionRequests::run_in_turn(const ServerRequest& asked, const std::string& name, TurnJob job,
                                 RevocationCoordinator::Turn turn) {
  auto region = server_.catalog().find(name);
  if (!region) return session_.reply_later(asked, region.error());
  const auto in_turn = [this, keep = session_.shared_from_this(), asked, region = *region,
                        job = std::move(job)] {
    if (session_.over()) return;
    if (!server_.catalog().holds(*region))
      return session_.reply_later(
          asked, Error{Code::kUnknownRegion, "region"}.with_subject(region->name()));
    job(*this, region);
  };
  server_.revocations().run_in_turn(*region, in_turn, turn);
}

Result<ServerReply> RegionRequests::create(const control::CreateRequest& request) {
  if (session_.released()) return Error{Code::kConnectionLost, "create"};
  const control::Region& asked = request.region();
  if (asked.rights() > static_cast<std::uint32_t>(Rights::kAll))
    return Error{Code::kInvalidArgument, "create"}.with_subject("rights");
  const auto requester = asker();
  if (!requester) return requester.error();
  auto access = control::to_access(asked);
  if (!access) return access.error();
  if (requester->client == nullptr && !access->empty())
    return Error{Code::kUnsupported, "create"}.with_subject(asked.name() +
                                                            ": an access list needs 'auth: keys'");
  if (requester->client != nullptr) {
    if (!requester->client->create)
      return Error{Code::kNoRight, "create"}.with_subject(asked.name() +
                                                          ": needs clients[].create");
    const std::uint64_t more_bytes = server_.catalog().more_bytes(asked.size_bytes());
    if (auto status = check_quota(*requester->client, more_bytes); !status) return status.error();
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
  if (!control::Lifetime_IsValid(asked.lifetime()) || asked.ttl_ms() > control::kMaxTtlMs)
    return Error{Code::kInvalidArgument, "create"}.with_subject("lifetime");
  // The worker serves no other session during this call, so create_when_there() waits for memory
  // before it.
  auto created = server_.regions().create(
      std::move(spec), session_.endpoint().device(),
      requester->client == nullptr ? "" : requester->client->name, Clock::now(), session_.id());
  if (!created) return created.error();
  std::erase_if(own_regions_, [](const auto& weak) { return weak.expired(); });
  if (created->lifetime == Lifetime::kSession)
    if (const auto entry = server_.catalog().find(created->name)) own_regions_.push_back(*entry);
  ServerReply answer;
  *answer.reply.mutable_create()->mutable_region() = control::to_message(*created);
  return answer;
}

/// The memory may become free only after the cleaner of the pool has zeroed that of removed
/// regions. The worker serves other requests meanwhile, and then checks the whole request once
/// more.
void RegionRequests::create_when_there(const ServerRequest& asked,
                                       const control::CreateRequest& request) {
  auto created = create(request);
  const Deadline deadline = deadline_after(asked.arrived, server_.limits().request_timeout);
  if (created || created.error().code() != Code::kTimedOut || Clock::now() >= deadline)
    return session_.reply_later(asked, std::move(created));
  server_.regions().allocation_queue().join(
      request.region().size_bytes(), deadline,
      [this, weak = session_.weak_from_this(), asked, request] {
        const auto session = weak.lock();  // the session owns *this
        if (session != nullptr && !session->over()) create_when_there(asked, request);
      });
}

void RegionRequests::open(const control::OpenRequest& request, GrantSet::Opened then) {
  if (session_.released()) return then(Error{Code::kConnectionLost, "open"});
  auto found = server_.catalog().open(request.name());
  if (!found) return then(found.error());
  const Region region = std::move(*found);
  Status may = may_open(*region, request.rights());
  if (may) may = session_.grants().has_room_for(*region, GrantSet::Before::kNothingGoes);
  if (!may) {
    server_.catalog().close(*region);
    return then(may.error());
  }
  session_.grants().open(region, static_cast<Rights>(request.rights()), std::move(then));
}

void RegionRequests::reattach(const control::ReattachRequest& request, const Region& region,
                              GrantSet::Opened then) {
  if (session_.released()) return then(Error{Code::kConnectionLost, "attach again"});
  if (!session_.restored()) return then(Error{Code::kInvalidArgument, "attach again"});
  const Error ended{Code::kAccessRefused, "attach again"};
  GrantSet& grants = session_.grants();
  if (const auto why = grants.taken(request.grant_id())) return then(ended.with_reason(*why));
  if (grants.has(request.grant_id(), *region)) {
    ServerReply answer;
    answer.reply.mutable_reattach();
    return then(std::move(answer));
  }
  const RegionInfo info = region->info();
  // The name may be that of a newer region, and bytes that a smaller region has lost may belong to
  // another one.
  if (info.incarnation != request.incarnation() || info.size_bytes < request.size_bytes())
    return then(ended.with_reason(Reason::kRevoked));
  if (info.epoch != request.epoch()) return then(ended.with_reason(Reason::kFenced));
  // Over rdma the client's requests contain addresses of the previous process.
  if (region->moved() && session_.endpoint().kind() == TransportKind::kRdma)
    return then(ended.with_reason(Reason::kRevoked));
  Status may = may_open(*region, request.rights());
  if (may) may = grants.has_room_for(*region, GrantSet::Before::kNothingGoes);
  if (!may) return then(may.error());
  auto opened = server_.catalog().open(request.name());
  if (!opened) return then(opened.error());
  grants.reattach(*opened, request, std::move(then));
}

Result<ServerReply> RegionRequests::list(const control::ListRequest& request) {
  const auto requester = asker();
  if (!requester) return requester.error();
  const auto found = server_.catalog().list(
      request.after(), control::kRegionsPerPage + 1,
      [&](const auto& info) { return permission_of(info, requester->client).any(); });
  ServerReply answer;
  control::ListReply& page = *answer.reply.mutable_list();
  page.set_more(found.size() > control::kRegionsPerPage);
  for (std::size_t i = 0; i < std::min(found.size(), control::kRegionsPerPage); ++i)
    *page.add_regions() = control::to_message(found[i]);
  return answer;
}

Result<ServerReply> RegionRequests::stat(const control::StatRequest& request) {
  Permission permission;
  auto found = find_permitted(request.name(), permission);
  if (!found) return found.error();
  const RegionInfo info = (*found)->info();
  ServerReply answer;
  control::Region& region = *answer.reply.mutable_stat()->mutable_region();
  region = control::to_message(info);
  if (permission.admin) control::add_access(info.access, region);
  return answer;
}

Result<ServerReply> RegionRequests::remove(const control::RemoveRequest& request) {
  Permission permission;
  if (auto found = find_permitted(request.name(), permission); !found) return found.error();
  if (!permission.admin) return Error{Code::kNoRight, "remove"}.with_subject(request.name());
  const auto removal = static_cast<Removal>(request.removal());
  if (removal != Removal::kIfUnused && removal != Removal::kWhenUnused)
    return Error{Code::kInvalidArgument, "remove"}.with_subject("kind of removal");
  if (auto status = server_.regions().remove(request.name(), removal); !status)
    return status.error();
  ServerReply answer;
  answer.reply.mutable_remove();
  return answer;
}

void RegionRequests::remove_now(const ServerRequest& asked, const std::string& name) {
  Permission permission;
  auto region = find_permitted(name, permission);
  if (!region) return session_.reply_later(asked, region.error());
  if (!permission.admin)
    return session_.reply_later(asked, Error{Code::kNoRight, "remove"}.with_subject(name));
  server_.revocations().run_in_turn(
      *region, [this, keep = session_.shared_from_this(), asked, region = *region] {
        if (session_.over()) return;
        // Other requests were served since the first check: the server may have forgotten the
        // client's key, or the client may have lost its right.
        const auto requester = asker();
        if (!requester) return session_.reply_later(asked, requester.error());
        if (!permission_of(region->fixed_info(), requester->client).admin)
          return session_.reply_later(asked,
                                      Error{Code::kNoRight, "remove"}.with_subject(region->name()));
        server_.regions().revoke_and_remove(region, [this, keep, asked] {
          ServerReply answer;
          answer.reply.mutable_remove();
          session_.reply_later(asked, std::move(answer));
        });
      });
}

void RegionRequests::resize(const ServerRequest& asked, const control::ResizeRequest& request,
                            const Region& region) {
  Permission permission;
  if (auto found = find_permitted(region->name(), permission); !found)
    return session_.reply_later(asked, found.error());
  if (!permission.admin)
    return session_.reply_later(asked,
                                Error{Code::kNoRight, "resize"}.with_subject(region->name()));
  const auto keep = session_.shared_from_this();
  // The quota of the region's owner counts, whichever client asks.
  const auto may = [this, keep, region](std::uint64_t more_bytes) -> Status {
    // The session may have ended while the request waited for memory.
    if (session_.over()) return Error{Code::kConnectionLost, "resize"};
    if (const auto requester = asker(); !requester) return requester.error();
    const auto registry = server_.session_table().clients();
    const KnownClient* const owner = registry->find(region->fixed_info().owner);
    return owner == nullptr ? Status{} : check_quota(*owner, more_bytes);
  };
  server_.regions().resize(
      region, request.size_bytes(), deadline_after(asked.arrived, server_.limits().request_timeout),
      may, [this, keep, asked, region](const Status& resized) {
        if (!resized) return session_.reply_later(asked, resized.error());
        ServerReply answer;
        *answer.reply.mutable_resize()->mutable_region() = control::to_message(region->info());
        session_.reply_later(asked, std::move(answer));
      });
}

Status RegionRequests::may_fence(const RegionEntry& region, std::uint32_t rights) const {
  if (const Status may = may_open(region, rights); !may) return may;
  const auto requester = asker();
  if (!requester) return requester.error();
  // A client may fence a region if it may change it: as an admin, or by writes or atomics.
  const Permission permission = permission_of(region.fixed_info(), requester->client);
  if (!permission.admin &&
      (permission.rights & (Rights::kWrite | Rights::kAtomic)) == Rights::kNone)
    return Error{Code::kNoRight, "fence"}.with_subject(region.name());
  return session_.grants().has_room_for(region, GrantSet::Before::kThoseOfTheRegionGo);
}

void RegionRequests::fence(const ServerRequest& asked, const control::FenceRequest& request,
                           const Region& region) {
  // Checked before any session loses its grant.
  if (const Status may = may_fence(*region, request.rights()); !may)
    return session_.reply_later(asked, may.error());
  // Reserves room for the new grant: otherwise other requests of this session could use up the
  // limits after other sessions have lost their grants to this fence.
  const std::uint64_t size_bytes = region->info().size_bytes;
  session_.grants().reserve_room(size_bytes);
  server_.revocations().revoke_all(region, Reason::kFenced, RevocationCoordinator::Mapped::kLeave,
                                   [this, keep = session_.shared_from_this(), asked, request,
                                    region, size_bytes](std::size_t left) {
                                     session_.grants().give_back_room(size_bytes);
                                     finish_fence(asked, request, region, left);
                                   });
}

/// `left`: the number of grants that could not be revoked.
void RegionRequests::finish_fence(const ServerRequest& asked, const control::FenceRequest& request,
                                  const Region& region, std::size_t left) {
  // No client waits for the grant any more, and it would block other sessions.
  if (session_.over()) return;
  if (left != 0)
    return session_.reply_later(
        asked, Error{Code::kBusy, "fence"}.with_subject(region->name()).with_limit(left, 0));
  // A process that has not returned since the restart of the server may still write.
  if (const std::size_t others = server_.restored_mappings(*region); others != 0)
    return session_.reply_later(
        asked, Error{Code::kBusy, "fence"}.with_subject(region->name()).with_limit(others, 0));
  // A new region of that name has grants that this fence has not revoked.
  if (!server_.catalog().holds(*region))
    return session_.reply_later(asked,
                                Error{Code::kUnknownRegion, "fence"}.with_subject(region->name()));
  server_.catalog().raise_epoch(*region);
  control::OpenRequest wanted;
  wanted.set_name(request.name());
  wanted.set_rights(request.rights());
  // The session outlives the call: GrantSet::open() holds it.
  open(wanted, [this, asked](Result<ServerReply> opened) {
    if (!opened) return session_.reply_later(asked, opened.error());
    ServerReply answer;
    *answer.reply.mutable_fence()->mutable_opened() = std::move(*opened->reply.mutable_open());
    answer.descriptors = std::move(opened->descriptors);
    session_.reply_later(asked, std::move(answer));
  });
}

Result<ServerReply> RegionRequests::usage() {
  const auto requester = asker();
  if (!requester) return requester.error();
  const PoolUsage pool = server_.pool_usage();
  ServerReply answer;
  control::UsageReply& usage = *answer.reply.mutable_usage();
  if (requester->client != nullptr) {
    usage.set_client_bytes(server_.catalog().owned_bytes(requester->client->name));
    usage.set_client_quota_bytes(requester->client->quota_bytes);
  }
  usage.set_pool_bytes(pool.total_bytes);
  usage.set_pool_used_bytes(pool.used_bytes);
  usage.set_pool_freeing_bytes(pool.freeing_bytes);
  usage.set_sessions(server_.session_count());
  usage.set_grants(session_.grants().open_count());
  return answer;
}

void RegionRequests::remove_own() {
  for (const auto& weak : std::exchange(own_regions_, {}))
    if (const auto region = weak.lock()) server_.regions().remove_now(region, [] {});
}

void RegionRequests::take_over(RegionRequests& before) {
  own_regions_ = std::exchange(before.own_regions_, {});
}

void RegionRequests::take_over_restored() {
  for (const auto& region : server_.catalog().of_session(session_.id()))
    own_regions_.push_back(region);
}

}  // namespace remora::detail
