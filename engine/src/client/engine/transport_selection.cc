#include "client/engine/transport_selection.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "client/engine/shared_sessions.h"
#include "client/region/region_grant.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"
#include "transport/connect.h"

namespace remora::detail {

namespace {

/// Errors that opening the region over another transport would also give.
bool is_final(Code code) noexcept {
  return code == Code::kUnknownRegion || code == Code::kNoRight || code == Code::kInvalidArgument ||
         code == Code::kPermissionDenied || code == Code::kLimitExceeded;
}

/// Whether one side refuses the key of the other, which it would do over each transport.
bool is_wrong_key(const Error& error) noexcept {
  return error.code() == Code::kConnectionRefused && error.reason() == Reason::kAuthentication;
}

/// The error for the caller, from the `error` of a server that has admitted the client.
Error refused_region(const Error& error, TransportKind kind, const Uri& uri) {
  const Error named = error.with_server(uri.server());
  if (error.code() == Code::kUnsupported && kind == TransportKind::kShm)
    return Error{Code::kUnsupported, "open over shm (the region was not created for it)"}
        .with_server(uri.server())
        .with_subject(uri.region);
  // For limits and for locked memory, the server's subject contains the numbers.
  const bool told = error.code() == Code::kLimitExceeded || error.reason() == Reason::kMemlock;
  return told && !error.subject().empty() ? named : named.with_subject(uri.region);
}

}  // namespace

std::vector<TransportSelection::Candidate> TransportSelection::candidates() {
  if (uri_.transport != TransportKind::kAuto) return {{uri_.transport, "named in the URI"}};
  std::vector<Candidate> found;
  if (transport::shm_reaches(uri_.host, deadline_))
    found.push_back({TransportKind::kShm, "same host, allowed by server and region"});
  else
    passed_over_.skip(TransportKind::kShm, "another host");
  found.push_back({TransportKind::kRdma, "hardware device"});
  found.push_back({TransportKind::kTcp, "nothing faster there"});
  return found;
}

/// A transport that is not the last one leaves half of the time for the transports after it, in
/// case its server does not answer.
Deadline TransportSelection::share_of_time(bool last) const noexcept {
  return last ? deadline_ : deadline_ - (deadline_ - Clock::now()) / 2;
}

/// Calls `use` with the session of one candidate after another, until it returns a result.
template <typename Made, typename Use>
Result<Made> TransportSelection::try_candidates(Attempt& attempt, const Use& use) {
  const std::vector<Candidate> candidates = this->candidates();
  for (const Candidate& candidate : candidates) {
    auto session = sessions_.find_or_start(engine_, uri_, candidate.kind,
                                           uri_.transport == TransportKind::kAuto,
                                           share_of_time(&candidate == &candidates.back()));
    if (session) {
      std::optional<Result<Made>> made = use(std::move(*session), candidate);
      if (made) return std::move(*made);
    } else {
      if (is_wrong_key(session.error())) return session.error();
      passed_over_.add_unreached(candidate.kind, session.error());
    }
  }
  if (candidates.size() > 1) attempt.passed_over = passed_over_.text();
  return passed_over_.cause();
}

Result<std::shared_ptr<SessionCore>> TransportSelection::connect(Attempt& attempt) {
  using Made = std::shared_ptr<SessionCore>;
  return try_candidates<Made>(attempt, [](Made session, const Candidate& /*candidate*/) {
    return std::optional<Result<Made>>{std::move(session)};
  });
}

Result<std::shared_ptr<RegionGrant>> TransportSelection::open(Rights rights, Opening opening,
                                                              Attempt& attempt) {
  using Made = std::shared_ptr<RegionGrant>;
  const auto open_over = [&](std::shared_ptr<SessionCore> session,
                             const Candidate& candidate) -> std::optional<Result<Made>> {
    auto region = RegionGrant::open(std::move(session), uri_.region, rights,
                                    passed_over_.reason(candidate.kind, candidate.reason),
                                    deadline_, opening);
    if (region) {
      const std::string others = passed_over_.text();
      log::info({"client.transport_chosen", "uri reason - passed_over"}, "{}: {}{}{}", uri_.text(),
                (*region)->transport_reason(), others.empty() ? "" : "; passed over: ", others);
      return region;
    }
    const Error error = refused_region(region.error(), candidate.kind, uri_);
    // A second request would be a second fence, and would revoke the grants of clients that have
    // opened the region after the first. If the server refuses a fence because of the transport, it
    // has revoked nothing.
    if (opening == Opening::kFence && error.code() != Code::kUnsupported) {
      attempt.answered = true;
      return error;
    }
    attempt.answered = attempt.answered || error.code() != Code::kConnectionLost;
    if (is_final(error.code())) return error;
    if (error.code() == Code::kConnectionLost)
      passed_over_.add_unreached(candidate.kind, error);
    else
      passed_over_.add_answered(candidate.kind, error);
    return std::nullopt;
  };
  return try_candidates<Made>(attempt, open_over);
}

}  // namespace remora::detail
