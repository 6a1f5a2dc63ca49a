#include "server/revocation_coordinator.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <remora/assert.h>

#include "server/server_session.h"

namespace remora::detail {

namespace {

/// A process that is killed hangs up a moment before it has exited.
constexpr std::chrono::milliseconds kLookAgain{10};

}  // namespace

RevocationCoordinator::~RevocationCoordinator() {
  REMORA_ASSERT(books_.empty(), "all grants are given back before the server goes");
}

void RevocationCoordinator::opened(const RegionEntry& region, ServerSession& session,
                                   std::uint64_t grant_id) {
  const auto added = books_[&region].holders.emplace(Holder{session.id(), grant_id}, &session);
  REMORA_ASSERT(added.second, "the id of a grant is its own in a session");
}

void RevocationCoordinator::gone(const RegionEntry& region, const ServerSession& session,
                                 std::uint64_t grant_id) {
  const auto found = books_.find(&region);
  if (found == books_.end()) return;
  Books& books = found->second;
  books.holders.erase({session.id(), grant_id});
  if (books.under_way != nullptr) {
    if (books.holders.empty() && !books.starting) finish(region);
  } else if (books.holders.empty() && books.waiting.empty() && !books.turning) {
    books_.erase(found);
  }
}

void RevocationCoordinator::moved(std::uint64_t session_id, ServerSession& session) {
  for (auto& [region, books] : books_)
    for (auto at = books.holders.lower_bound({session_id, 0});
         at != books.holders.end() && at->first.first == session_id; ++at)
      at->second = &session;
}

void RevocationCoordinator::in_turn(const std::shared_ptr<RegionEntry>& region, Job job) {
  const auto found = books_.find(region.get());
  if (found == books_.end() || found->second.free()) return job();
  found->second.waiting.push_back(std::move(job));
}

void RevocationCoordinator::revoke_all(const std::shared_ptr<RegionEntry>& region, Reason reason,
                                       Mapped mapped, Then then) {
  Books& books = books_[region.get()];
  REMORA_ASSERT(books.under_way == nullptr, "one revocation of a region is under way at a time");
  books.region = region;
  books.under_way = std::make_unique<Revocation>(
      Revocation{reason, mapped, Clock::now() + grace_, std::move(then)});
  books.starting = true;
  // A client that cannot be told loses its grant at once, and so goes from this map meanwhile.
  const auto holders = books.holders;
  for (const auto& [holder, session] : holders)
    if (!session->begin_revoking(holder.second, reason) && may_force(*session, mapped))
      session->end_grant(holder.second, reason, ServerMetrics::TakenBack::kForced);
  books.starting = false;
  if (books.holders.empty()) return finish(*region);
  set_timer();
}

bool RevocationCoordinator::may_force(const ServerSession& session, Mapped mapped) noexcept {
  // The mappings of a process end with it.
  const transport::MappingClient* const client = session.endpoint().mapping_client();
  return mapped == Mapped::kDrop || client == nullptr || client->has_exited();
}

bool RevocationCoordinator::waits_for_exit(const Books& books) noexcept {
  return books.under_way != nullptr &&
         std::any_of(books.holders.begin(), books.holders.end(), [&](const auto& holder) {
           return holder.second->detached() && !may_force(*holder.second, books.under_way->mapped);
         });
}

void RevocationCoordinator::look_at_detached() {
  struct Taken {
    ServerSession* session;
    std::uint64_t grant_id;
    Reason reason;
  };
  // A request that waits for the last grant goes on at once, and changes this map.
  std::vector<Taken> taken;
  for (const auto& [region, books] : books_) {
    if (books.under_way == nullptr) continue;
    for (const auto& [holder, session] : books.holders)
      if (session->detached() && may_force(*session, books.under_way->mapped))
        taken.push_back({session, holder.second, books.under_way->reason});
  }
  for (const Taken& each : taken)
    each.session->end_grant(each.grant_id, each.reason, ServerMetrics::TakenBack::kForced);
  set_timer();
}

void RevocationCoordinator::tick() {
  look_at_detached();
  std::vector<std::shared_ptr<RegionEntry>> over;
  for (auto& [region, books] : books_)
    if (books.under_way != nullptr && books.under_way->until <= Clock::now())
      over.push_back(books.region);
  for (const auto& region : over) {
    const auto found = books_.find(region.get());
    if (found == books_.end() || found->second.under_way == nullptr) continue;  // ended by another
    Books& books = found->second;
    books.starting = true;
    const auto holders = books.holders;
    for (const auto& [holder, session] : holders)
      if (may_force(*session, books.under_way->mapped))
        session->end_grant(holder.second, books.under_way->reason,
                           ServerMetrics::TakenBack::kForced);
    books.starting = false;
    finish(*region);
  }
  set_timer();
}

/// The revocation is over: the request that asked for it goes on, then the jobs that have waited.
void RevocationCoordinator::finish(const RegionEntry& region) {
  Books& books = books_[&region];
  // Kept until the end: the request that goes on may let go of the region.
  const std::shared_ptr<RegionEntry> kept = books.region;
  const std::unique_ptr<Revocation> over = std::move(books.under_way);
  REMORA_ASSERT(over != nullptr, "a revocation ends once");
  over->then(books.holders.size());
  take_turns(region);
}

void RevocationCoordinator::take_turns(const RegionEntry& region) {
  const auto found = books_.find(&region);
  if (found == books_.end() || found->second.turning) return;
  Books& books = found->second;
  // Jobs that come before the last one has had its turn wait behind it.
  books.turning = true;
  while (books.under_way == nullptr && !books.waiting.empty()) {
    const Job job = std::move(books.waiting.front());
    books.waiting.pop_front();
    job();
  }
  books.turning = false;
  if (books.under_way != nullptr) return;
  books.region.reset();
  if (books.holders.empty()) books_.erase(found);
}

void RevocationCoordinator::set_timer() {
  Deadline next = Deadline::max();
  for (const auto& [region, books] : books_) {
    if (books.under_way != nullptr) next = std::min(next, books.under_way->until);
    if (waits_for_exit(books)) next = std::min(next, Clock::now() + kLookAgain);
  }
  timer_.set(next);
}

}  // namespace remora::detail
