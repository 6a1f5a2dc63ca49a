#include "client/session/grant_keys.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "client/session/session_core.h"
#include "transport/connection_rails.h"
#include "transport/rkey_table.h"

namespace remora::detail {

using control::Request;
using transport::RkeyTable;
using transport::WireExtent;

namespace {

/// The time for the new keys of one grant: a time for the grant, and a time for each of its
/// windows. Longer than LaneKeyRenewal::renew() takes, since the server may serve other sessions
/// first. There is no deadline for all grants of a session together.
constexpr std::chrono::seconds kRenewTime{5};
constexpr std::chrono::milliseconds kRenewWindowTime{1};
/// A server process that has started registers its memory again, and so does a server whose device
/// has returned.
constexpr std::chrono::seconds kRegisterGibTime{1};

/// A device without free resources may have some a moment later, when other sessions release
/// theirs. The time to wait for that, for all grants together.
constexpr std::chrono::seconds kShortageTime{1};
constexpr std::chrono::milliseconds kShortagePause{100};

bool is_shortage(const Status& renewed) noexcept {
  return !renewed && (renewed.error().code() == Code::kOutOfMemory ||
                      renewed.error().code() == Code::kLimitExceeded);
}

Request page_request(const HeldGrant& grant, std::size_t first) {
  Request request;
  request.mutable_extents()->set_grant_id(grant.grant_id);
  request.mutable_extents()->set_first(first);
  return request;
}

Error other_grant() {
  return Error{Code::kProtocol, "resume"}.with_subject("keys of another grant");
}

/// Tokens of a grant; `before`: the transport's state of the grant.
struct HeldTokens {
  std::shared_ptr<RkeyTable> table;
  std::vector<std::uint32_t> tokens;
  std::shared_ptr<void> before;
  ~HeldTokens() { table->give_back(tokens); }
};

}  // namespace

Status GrantKeys::agree(bool by_lane, bool again) {
  // Grants with one key for all lanes cannot use a key for each lane, and the other way round.
  if (again && by_lane != (table_ != nullptr))
    return Error{Code::kConnectionLost, "hello"}.with_reason(Reason::kLapsed);
  if (!by_lane) return {};
  if (table_ == nullptr) {
    auto made = RkeyTable::create();
    if (!made) return made.error();
    table_ = std::move(*made);
  } else {
    table_->forget_keys();
  }
  return session_.channel().endpoint()->use_lane_keys(table_);
}

std::size_t GrantKeys::lane_count() const noexcept { return session_.lanes().size(); }

bool GrantKeys::has_lane_keys(const control::Extent& extent) const noexcept {
  if (table_ == nullptr) return true;
  if (static_cast<std::size_t>(extent.lane_keys_size()) < lane_count()) return false;
  for (std::size_t lane = 0; lane < lane_count(); ++lane)
    if (extent.lane_keys(static_cast<int>(lane)) == RkeyTable::kNoKey) return false;
  return true;
}

void GrantKeys::set_lane_keys(std::uint32_t token, const control::Extent& extent) noexcept {
  for (std::size_t lane = 0; lane < lane_count(); ++lane)
    table_->set(token, lane, extent.lane_keys(static_cast<int>(lane)));
}

Result<transport::AttachedGrant> GrantKeys::with_tokens(transport::AttachedGrant grant,
                                                        const transport::LaneKeys& keys) {
  if (table_ == nullptr) return grant;
  REMORA_ASSERT(keys.keys.size() == keys.lanes * grant.extents.size(),
                "each extent has a key for each lane");
  auto tokens = table_->take(grant.extents.size());
  if (!tokens) return tokens.error();
  for (std::size_t i = 0; i < grant.extents.size(); ++i) {
    for (std::size_t lane = 0; lane < keys.lanes; ++lane)
      table_->set((*tokens)[i], lane, keys.keys[i * keys.lanes + lane]);
    grant.extents[i].remote_key = (*tokens)[i];
  }
  auto held = std::make_shared<HeldTokens>();
  held->table = table_;
  held->tokens = std::move(*tokens);
  held->before = std::move(grant.hold);
  grant.hold = std::move(held);
  return grant;
}

Result<std::vector<WireExtent>> GrantKeys::fetch_extents(const control::OpenReply& opened,
                                                         std::uint64_t connection,
                                                         Deadline deadline,
                                                         transport::LaneKeys& keys) {
  if (table_ != nullptr) keys.lanes = lane_count();
  const Error lost = Error{Code::kConnectionLost, "open"}.with_reason(session_.lost_reason());
  std::vector<WireExtent> extents;
  const std::uint64_t size = opened.region().size_bytes();
  std::uint64_t start = 0;
  const Error malformed = Error{Code::kProtocol, "open"}.with_subject(opened.region().name());
  // False: these are not extents of this region.
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
    auto answer = session_.call(std::move(request), "open", deadline);
    if (!answer) return answer.error();
    if (answer->connection != connection) return lost;
    if (answer->reply.extents().extents().empty() || !append(answer->reply.extents().extents()))
      return malformed;
  }
  if (extents.empty() || start != size) return malformed;
  return extents;
}

Status GrantKeys::renew() {
  if (table_ == nullptr) return {};
  constexpr std::size_t kTogether = ControlChannel::kMaxTogether;
  const Deadline patient_until = Clock::now() + kShortageTime;
  const std::vector<HeldGrant> held = session_.revocations().held_grants();
  for (std::size_t next = 0; next < held.size(); next += kTogether) {
    const auto together = std::span{held}.subspan(next, std::min(kTogether, held.size() - next));
    if (auto status = renew_together(together, patient_until); !status) return status;
  }
  return {};
}

/// When many clients resume at once, an answer may take long. The server prepares the answers for
/// several grants at the same time.
Status GrantKeys::renew_together(std::span<const HeldGrant> grants, Deadline patient_until) {
  std::vector<Request> requests;
  Clock::duration time{};
  for (const HeldGrant& grant : grants) {
    requests.push_back(page_request(grant, 0));
    time += renew_time(grant);
  }
  auto pages = session_.channel().call_together(std::move(requests), "resume", Clock::now() + time);
  REMORA_ASSERT(pages.size() == grants.size(), "each request has its answer");
  for (std::size_t i = 0; i < grants.size(); ++i) {
    std::optional<Page> first{std::move(pages[i])};
    const auto renew_one = [&](const HeldGrant& grant) {
      return renew_keys_of(grant, std::exchange(first, std::nullopt));
    };
    if (auto status = carry_out(renew_one, grants[i], patient_until); !status) return status;
  }
  return {};
}

Status GrantKeys::reattach() {
  if (!session_.handshake().reattaches()) return {};
  const Deadline patient_until = Clock::now() + kShortageTime;
  const auto reattach_it = [this](const HeldGrant& grant) { return reattach_one(grant); };
  for (const HeldGrant& each : session_.revocations().held_grants())
    if (auto status = carry_out(reattach_it, each, patient_until); !status) return status;
  return {};
}

Status GrantKeys::carry_out(const Step& step, const HeldGrant& grant, Deadline patient_until) {
  Status done = step(grant);
  while (is_shortage(done) && Clock::now() < patient_until &&
         session_.sleep_unless_ended(kShortagePause))
    done = step(grant);
  if (done) return {};
  const Error& why = done.error();
  switch (why.code()) {
    case Code::kConnectionLost:
    case Code::kTimedOut:
    case Code::kProtocol: return why;
    case Code::kAccessRefused:
      session_.revocations().set_revoked(
          grant.grant_id, why.reason() == Reason::kNone ? Reason::kRevoked : why.reason());
      break;
    default:
      log::warn({"grant.ended", "server grant region reason"},
                "session with {}: grant {} of {} ends: {}", session_.server_address(),
                grant.grant_id, grant.name, why.message());
      session_.revocations().set_revoked(grant.grant_id, Reason::kRevoked);
      session_.channel().close_grant(grant.grant_id);
  }
  return {};
}

/// For a new server process, which knows the region, and gives the grant again unless the grant was
/// fenced or revoked meanwhile.
Status GrantKeys::reattach_one(const HeldGrant& grant) {
  Request request;
  control::ReattachRequest& wanted = *request.mutable_reattach();
  wanted.set_grant_id(grant.grant_id);
  wanted.set_name(grant.name);
  wanted.set_rights(static_cast<std::uint32_t>(grant.rights));
  wanted.set_size_bytes(grant.size_bytes);
  wanted.set_incarnation(grant.incarnation);
  wanted.set_epoch(grant.epoch);
  if (session_.kind() == TransportKind::kTcp)
    for (const WireExtent& extent : grant.extents) wanted.add_keys(extent.remote_key);
  if (session_.kind() == TransportKind::kRdma && !grant.extents.empty())
    wanted.set_address(grant.extents.front().remote_address);
  const Deadline deadline =
      Clock::now() + kRenewTime + kRegisterGibTime * (grant.size_bytes >> 30U);
  const auto answer = session_.call(std::move(request), "resume", deadline);
  return answer ? Status{} : Status{answer.error()};
}

Status GrantKeys::check_renewed(const WireExtent& have, const control::Extent& extent) {
  if (extent.length_bytes() != have.length_bytes || extent.address() != have.remote_address)
    return other_grant();
  if (has_lane_keys(extent)) return {};
  const auto& keys = extent.lane_keys();
  const auto lane = static_cast<std::size_t>(
      std::find(keys.begin(), keys.end(), RkeyTable::kNoKey) - keys.begin());
  const auto endpoint = session_.channel().endpoint();
  transport::ConnectionRails* const rails = endpoint->rails();
  if (lane >= lane_count() || rails == nullptr || !rails->leave_rail_of(lane)) return other_grant();
  return Error{Code::kConnectionLost, "resume"}.with_subject("a rail without room for a grant");
}

Clock::duration GrantKeys::renew_time(const HeldGrant& grant) const noexcept {
  return kRenewTime + kRegisterGibTime * (grant.size_bytes >> 30U) +
         kRenewWindowTime * (grant.extents.size() * lane_count());
}

Status GrantKeys::renew_keys_of(const HeldGrant& grant, std::optional<Page> first) {
  const Deadline deadline = Clock::now() + renew_time(grant);
  for (std::size_t next = 0; next < grant.extents.size();) {
    const Page answer = first ? *std::exchange(first, std::nullopt)
                              : session_.call(page_request(grant, next), "resume", deadline);
    if (!answer) return answer.error();
    const auto& page = answer->reply.extents().extents();
    if (page.empty() || static_cast<std::size_t>(page.size()) > grant.extents.size() - next)
      return other_grant();
    for (const control::Extent& extent : page) {
      const WireExtent& have = grant.extents[next++];
      if (auto status = check_renewed(have, extent); !status) return status;
      set_lane_keys(have.remote_key, extent);
    }
  }
  return {};
}

}  // namespace remora::detail
