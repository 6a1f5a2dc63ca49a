/// Grants whose memory is registered again. A registration thread does that, as for a first grant,
/// so that the worker serves other requests meanwhile.

#include <memory>
#include <utility>
#include <vector>

#include <remora/assert.h>

#include "server/grant_renewal.h"
#include "server/grant_set.h"
#include "server/server_core.h"
#include "server/server_session.h"
#include "transport/lane_key_renewal.h"

namespace remora::detail {

void GrantSet::extents(const control::ExtentsRequest& request, Opened then) {
  if (const Status has = has_page(request); !has) return then(has.error());
  const auto found = grants_.find(request.grant_id());
  OpenGrant& open = found->second;
  if (open.renewal != nullptr) return wait_for(*open.renewal, request, std::move(then));
  transport::LaneKeyRenewal* const lane_keys = session_.connection().lane_keys();
  if (request.first() == 0 && lane_keys != nullptr) {
    if (lane_keys->registers_again(open.grant) && begin_renewal(found, *lane_keys, request, then))
      return;
    if (const Status renewed = lane_keys->renew(open.grant); !renewed) return then(renewed.error());
  }
  then(page_of(open.grant, request.first()));
}

Status GrantSet::has_page(const control::ExtentsRequest& request) const {
  const auto found = grants_.find(request.grant_id());
  if (const auto why = taken(request.grant_id()); found == grants_.end() && why)
    return Error{Code::kAccessRefused, "open"}.with_reason(*why);
  if (found == grants_.end() || request.first() >= found->second.extent_count)
    return Error{Code::kInvalidArgument, "extents"};
  return {};
}

/// A session has few unanswered requests; the requests of ended sessions get no answer.
void GrantSet::wait_for(GrantRenewal& renewal, const control::ExtentsRequest& request,
                        Opened then) {
  std::erase_if(renewal.waiting, [](const auto& asked) { return asked.session->over(); });
  renewal.waiting.push_back({session_.shared_from_this(), request, std::move(then)});
}

bool GrantSet::begin_renewal(Grants::iterator found, transport::LaneKeyRenewal& lane_keys,
                             const control::ExtentsRequest& request, const Opened& then) {
  OpenGrant& open = found->second;
  auto renewal = std::make_shared<GrantRenewal>();
  renewal->grant_id = found->first;
  renewal->region = open.region;
  renewal->first = {session_.shared_from_this(), request, then};
  renewal->lane_keys = &lane_keys;
  renewal->owner = renewal->first.session;
  renewal->grant = std::move(open.grant);
  const bool begun = server_.registration_threads().enqueue(
      [&server = server_, renewal]() mutable { renew(server, std::move(renewal)); },
      registration_group(*open.region));
  if (!begun) {
    open.grant = std::move(renewal->grant);
    return false;
  }
  open.renewal = std::move(renewal);
  server_.revocations().begin_renewal(*open.region);
  return true;
}

/// Runs on a registration thread. It holds nothing of the session when it hands the result to the
/// worker.
void GrantSet::renew(ServerCore& server, std::shared_ptr<GrantRenewal> renewal) {
  // The client may have waited too long, and have asked again over a new connection.
  if (renewal->given_up.load() || renewal->first.session->detached() ||
      server.registration_threads().stop_token().stop_requested())
    renewal->renewed = Error{Code::kConnectionLost, "extents"};
  else
    renewal->renewed = renewal->lane_keys->renew(renewal->grant);
  server.enqueue([&server, renewal = std::move(renewal)] { finish_renewal(server, renewal); });
}

void GrantSet::finish_renewal(ServerCore& server, const std::shared_ptr<GrantRenewal>& renewal) {
  const std::shared_ptr<RegionEntry> region = renewal->region;
  if (renewal->leaves_device && renewal->grant.handle != nullptr)
    renewal->grant.handle->leave_device();
  GrantSet& owner = renewal->owner->grants();
  if (renewal->given_up.load())
    owner.drop(*region, std::move(renewal->grant));
  else
    owner.put_back(*renewal);
  answer(*renewal);
  // This call comes last: it continues a revocation that has waited for the end of this renewal.
  server.revocations().end_renewal(region);
}

void GrantSet::put_back(GrantRenewal& renewal) {
  const auto found = grants_.find(renewal.grant_id);
  REMORA_ASSERT(found != grants_.end() && found->second.renewal.get() == &renewal,
                "a grant whose memory is registered again is its session's until it is given up");
  found->second.grant = std::move(renewal.grant);
  found->second.renewal.reset();
}

void GrantSet::answer(GrantRenewal& renewal) {
  std::vector<GrantRenewal::Asked> left = std::exchange(renewal.waiting, {});
  const GrantRenewal::Asked& first = renewal.first;
  if (renewal.given_up.load())
    left.push_back(first);  // the answer tells whether the grant still exists
  else if (!first.session->over())
    first.session->grants().answer_first(first, renewal.renewed);
  for (GrantRenewal::Asked& asked : left)
    if (!asked.session->over())
      asked.session->grants().extents(asked.request, std::move(asked.then));
}

void GrantSet::answer_first(const GrantRenewal::Asked& asked, const Status& renewed) const {
  if (!renewed) return asked.then(renewed.error());
  asked.then(page_of(grants_.at(asked.request.grant_id()).grant, asked.request.first()));
}

}  // namespace remora::detail
