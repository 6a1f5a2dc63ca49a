/// Of a session whose server has a key for each lane: the keys of its grants, which end with their
/// lanes. Operations carry tokens (transport/rkey_table.h), so what waits while a session is
/// interrupted goes on by the keys of the lanes that follow.

#include <chrono>
#include <utility>
#include <vector>

#include "base/log.h"
#include "client/engine/engine_core.h"
#include "client/session/session_core.h"
#include "transport/rkey_table.h"

namespace remora::detail {

using control::Request;
using transport::RkeyTable;
using transport::WireExtent;

namespace {

/// For one grant, of however many: an attempt to come back lasts as long as it gets on. And for
/// each of its windows. More than the server takes (ServerEndpoint::renew()), which serves others
/// before.
constexpr std::chrono::seconds kRenewTime{5};
constexpr std::chrono::milliseconds kRenewWindowTime{1};

/// A device that has nothing left may have it a moment later, when what others held is freed: all
/// grants together are waited for that long.
constexpr std::chrono::seconds kShortageTime{1};
constexpr std::chrono::milliseconds kShortagePause{100};

bool is_shortage(const Status& renewed) noexcept {
  return !renewed && (renewed.error().code() == Code::kOutOfMemory ||
                      renewed.error().code() == Code::kLimitExceeded);
}

/// Tokens of a grant; `before` is what the transport holds for it.
struct HeldTokens {
  std::shared_ptr<RkeyTable> table;
  std::vector<std::uint32_t> tokens;
  std::shared_ptr<void> before;
  ~HeldTokens() { table->give_back(tokens); }
};

}  // namespace

/// What the server said in its Welcome. `again`: to one who comes back.
Status SessionCore::agree_on_keys(bool by_lane, bool again) {
  // Nothing that was made for the one would do for the other.
  if (again && by_lane != (keys_ != nullptr))
    return Error{Code::kConnectionLost, "hello"}.with_reason(Reason::kLapsed);
  if (!by_lane) return {};
  if (keys_ == nullptr) {
    auto made = RkeyTable::create();
    if (!made) return made.error();
    keys_ = std::move(*made);
  } else {
    keys_->forget_keys();
  }
  return endpoint()->use_lane_keys(keys_);
}

bool SessionCore::has_lane_keys(const control::Extent& extent) const noexcept {
  if (keys_ == nullptr) return true;
  if (static_cast<std::size_t>(extent.lane_keys_size()) < lanes_.size()) return false;
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    if (extent.lane_keys(static_cast<int>(lane)) == RkeyTable::kNoKey) return false;
  return true;
}

/// Of one that has them.
void SessionCore::set_lane_keys(std::uint32_t token, const control::Extent& extent) noexcept {
  for (std::size_t lane = 0; lane < lanes_.size(); ++lane)
    keys_->set(token, lane, extent.lane_keys(static_cast<int>(lane)));
}

Result<transport::AttachedGrant> SessionCore::with_tokens(transport::AttachedGrant grant,
                                                          const transport::LaneKeys& keys) {
  if (keys_ == nullptr) return grant;
  auto tokens = keys_->take(grant.extents.size());
  if (!tokens) return tokens.error();
  for (std::size_t i = 0; i < grant.extents.size(); ++i) {
    for (std::size_t lane = 0; lane < keys.lanes; ++lane)
      keys_->set((*tokens)[i], lane, keys.keys[i * keys.lanes + lane]);
    grant.extents[i].remote_key = (*tokens)[i];
  }
  auto held = std::make_shared<HeldTokens>();
  held->table = keys_;
  held->tokens = std::move(*tokens);
  held->before = std::move(grant.hold);
  grant.hold = std::move(held);
  return grant;
}

/// The reconnector, when there are lanes again and nothing is posted yet. A grant that gets no keys
/// is of no use any more, and known as revoked, also by the server; the others go on. Errors: the
/// connection is not what it has to be.
Status SessionCore::renew_keys() {
  if (keys_ == nullptr) return {};
  const Deadline patient_until = Clock::now() + kShortageTime;
  for (const RevocationTracker::Extents& each : revocations_.held_extents()) {
    Status renewed = renew_keys_of(each);
    while (is_shortage(renewed) && Clock::now() < patient_until &&
           sleep_unless_ended(kShortagePause))
      renewed = renew_keys_of(each);
    if (renewed) continue;
    const Error& why = renewed.error();
    switch (why.code()) {
      case Code::kConnectionLost:
      case Code::kTimedOut:
      case Code::kProtocol: return why;
      case Code::kAccessRefused:
        revocations_.mark(each.grant_id,
                          why.reason() == Reason::kNone ? Reason::kRevoked : why.reason());
        break;
      default:
        log::warn("session with {}: grant {} gets no keys any more: {}", dial_.server,
                  each.grant_id, why.message());
        revocations_.mark(each.grant_id, Reason::kRevoked);
        close_grant(each.grant_id);
    }
  }
  return {};
}

Status SessionCore::renew_keys_of(const RevocationTracker::Extents& grant) {
  const Error malformed = Error{Code::kProtocol, "resume"}.with_subject("keys of another grant");
  const Deadline deadline =
      Clock::now() + kRenewTime + kRenewWindowTime * (grant.extents.size() * lanes_.size());
  for (std::size_t first = 0; first < grant.extents.size();) {
    Request request;
    request.mutable_extents()->set_grant_id(grant.grant_id);
    request.mutable_extents()->set_first(first);
    const auto answer = call(std::move(request), "resume", deadline);
    if (!answer) return answer.error();
    const auto& page = answer->reply.extents().extents();
    if (page.empty() || static_cast<std::size_t>(page.size()) > grant.extents.size() - first)
      return malformed;
    for (const control::Extent& extent : page) {
      const WireExtent& have = grant.extents[first++];
      if (extent.length_bytes() != have.length_bytes || extent.address() != have.remote_address ||
          !has_lane_keys(extent))
        return malformed;
      set_lane_keys(have.remote_key, extent);
    }
  }
  return {};
}

}  // namespace remora::detail
