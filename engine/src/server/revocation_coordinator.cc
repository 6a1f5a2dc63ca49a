#include "server/revocation_coordinator.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include <remora/assert.h>

#include "server/server_session.h"
#include "transport/mapping_client.h"

namespace remora::detail {

namespace {

/// A killed process closes its connection a moment before it has exited, so the server checks again
/// after this time.
constexpr std::chrono::milliseconds kLookAgain{10};

}  // namespace

RevocationCoordinator::~RevocationCoordinator() {
  REMORA_ASSERT(regions_.empty(), "all grants are given back before the server goes");
}

void RevocationCoordinator::add_grant(const RegionEntry& region, ServerSession& session,
                                      std::uint64_t grant_id) {
  const auto added = regions_[&region].holders.emplace(Holder{session.id(), grant_id}, &session);
  REMORA_ASSERT(added.second, "the id of a grant is its own in a session");
}

void RevocationCoordinator::remove_grant(const RegionEntry& region, const ServerSession& session,
                                         std::uint64_t grant_id) {
  const auto found = regions_.find(&region);
  if (found == regions_.end()) return;
  RegionState& state = found->second;
  state.holders.erase({session.id(), grant_id});
  if (state.is_over())
    finish(region);
  else if (state.unused())
    regions_.erase(found);
}

void RevocationCoordinator::begin_open(const RegionEntry& region) { ++regions_[&region].opens; }

void RevocationCoordinator::end_open(const std::shared_ptr<RegionEntry>& region) {
  const auto found = regions_.find(region.get());
  REMORA_ASSERT(found != regions_.end() && found->second.opens > 0, "an open ends once");
  RegionState& state = found->second;
  --state.opens;
  if (!state.waiting.empty()) return take_turns(*region);
  if (state.unused()) regions_.erase(found);
}

void RevocationCoordinator::begin_renewal(const RegionEntry& region) {
  ++regions_[&region].renewals;
}

void RevocationCoordinator::end_renewal(const std::shared_ptr<RegionEntry>& region) {
  const auto found = regions_.find(region.get());
  REMORA_ASSERT(found != regions_.end() && found->second.renewals > 0, "a renewal ends once");
  RegionState& state = found->second;
  --state.renewals;
  if (state.is_over())
    finish(*region);
  else if (state.unused())
    regions_.erase(found);
}

void RevocationCoordinator::move_grants(std::uint64_t session_id, ServerSession& session) {
  for (auto& [region, state] : regions_)
    for (auto at = state.holders.lower_bound({session_id, 0});
         at != state.holders.end() && at->first.first == session_id; ++at)
      at->second = &session;
}

void RevocationCoordinator::run_in_turn(const std::shared_ptr<RegionEntry>& region, Job job,
                                        Turn turn) {
  const auto found = regions_.find(region.get());
  if (found == regions_.end()) return job();
  RegionState& state = found->second;
  if (state.admits(turn) && state.waiting.empty() && !state.turning) return job();
  state.region = region;
  state.waiting.push_back({std::move(job), turn});
}

void RevocationCoordinator::revoke_all(const std::shared_ptr<RegionEntry>& region, Reason reason,
                                       Mapped mapped, Then then) {
  RegionState& state = regions_[region.get()];
  REMORA_ASSERT(state.under_way == nullptr, "one revocation of a region is under way at a time");
  REMORA_ASSERT(state.opens == 0, "a revocation waits for the opens that came before it");
  state.region = region;
  state.under_way = std::make_unique<Revocation>(
      Revocation{reason, mapped, Clock::now() + grace_, std::move(then), false});
  state.starting = true;
  // A copy, since end_grant() removes the grant from `holders`.
  const auto holders = state.holders;
  for (const auto& [holder, session] : holders)
    if (!session->begin_revoking(holder.second, reason) && may_force(*session, mapped))
      session->end_grant(holder.second, reason, ServerMetrics::TakenBack::kForced);
  state.starting = false;
  if (state.is_over()) return finish(*region);
  set_timer();
}

bool RevocationCoordinator::may_force(const ServerSession& session, Mapped mapped) noexcept {
  // The mappings of a process end when the process ends.
  const transport::MappingClient* const client = session.endpoint().mapping_client();
  return mapped == Mapped::kDrop || client == nullptr || client->has_exited();
}

bool RevocationCoordinator::waits_for_exit(const RegionState& state) noexcept {
  return state.under_way != nullptr &&
         std::any_of(state.holders.begin(), state.holders.end(), [&](const auto& holder) {
           return holder.second->detached() && !may_force(*holder.second, state.under_way->mapped);
         });
}

void RevocationCoordinator::stop_waiting_for_detached() {
  struct Taken {
    ServerSession* session;
    std::uint64_t grant_id;
    Reason reason;
  };
  // The end of the last grant continues the request that waits for it, which changes this map. So
  // the grants are collected first.
  std::vector<Taken> taken;
  for (const auto& [region, state] : regions_) {
    if (state.under_way == nullptr) continue;
    for (const auto& [holder, session] : state.holders)
      if (session->detached() && may_force(*session, state.under_way->mapped))
        taken.push_back({session, holder.second, state.under_way->reason});
  }
  for (const Taken& each : taken)
    each.session->end_grant(each.grant_id, each.reason, ServerMetrics::TakenBack::kForced);
  set_timer();
}

void RevocationCoordinator::tick() {
  stop_waiting_for_detached();
  std::vector<std::shared_ptr<RegionEntry>> over;
  for (auto& [region, state] : regions_)
    if (state.under_way != nullptr && state.under_way->until <= Clock::now())
      over.push_back(state.region);
  for (const auto& region : over) {
    const auto found = regions_.find(region.get());
    if (found == regions_.end() || found->second.under_way == nullptr)
      continue;  // the end of another revocation has ended this one
    RegionState& state = found->second;
    state.starting = true;
    const auto holders = state.holders;
    for (const auto& [holder, session] : holders)
      if (may_force(*session, state.under_way->mapped))
        session->end_grant(holder.second, state.under_way->reason,
                           ServerMetrics::TakenBack::kForced);
    state.starting = false;
    state.under_way->forced = true;
    state.under_way->until = Deadline::max();  // only renewals can delay it
    if (state.is_over()) finish(*region);
  }
  set_timer();
}

/// The revocation is over: continues the request that asked for it, then runs the waiting jobs.
void RevocationCoordinator::finish(const RegionEntry& region) {
  RegionState& state = regions_[&region];
  // Kept until the end: the request may release the last other reference to the region.
  const std::shared_ptr<RegionEntry> kept = state.region;
  const std::unique_ptr<Revocation> over = std::move(state.under_way);
  REMORA_ASSERT(over != nullptr, "a revocation ends once");
  over->then(state.holders.size());
  take_turns(region);
}

void RevocationCoordinator::take_turns(const RegionEntry& region) {
  const auto found = regions_.find(&region);
  if (found == regions_.end() || found->second.turning) return;
  RegionState& state = found->second;
  // A job that is added while these run waits behind them.
  state.turning = true;
  // Kept until the end: a job may release the last other reference to the region.
  const std::shared_ptr<RegionEntry> kept = state.region;
  while (!state.waiting.empty() && state.admits(state.waiting.front().turn)) {
    const Job job = std::move(state.waiting.front().job);
    state.waiting.pop_front();
    job();
  }
  state.turning = false;
  if (state.under_way != nullptr || !state.waiting.empty()) return;
  state.region.reset();
  if (state.unused()) regions_.erase(found);
}

void RevocationCoordinator::set_timer() {
  Deadline next = Deadline::max();
  for (const auto& [region, state] : regions_) {
    if (state.under_way != nullptr) next = std::min(next, state.under_way->until);
    if (waits_for_exit(state)) next = std::min(next, Clock::now() + kLookAgain);
  }
  timer_.set(next);
}

}  // namespace remora::detail
