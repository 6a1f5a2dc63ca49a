/// How an engine comes to a session or a region: which transports are tried, in which order and for
/// how long, and what the caller is told where none of them fits.

#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "client/engine/engine_core.h"
#include "client/engine/passed_over.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "transport/connect.h"

namespace remora::detail {

namespace {

/// Errors of opening a region that another transport would only repeat.
bool is_final(Code code) noexcept {
  return code == Code::kUnknownRegion || code == Code::kNoRight || code == Code::kInvalidArgument ||
         code == Code::kPermissionDenied || code == Code::kLimitExceeded;
}

/// No transport of this server lets the client in, or the client trusts none of them.
bool is_wrong_key(const Error& error) noexcept {
  return error.code() == Code::kConnectionRefused && error.reason() == Reason::kAuthentication;
}

/// `error` of a server that has let the client in, as the caller is told it.
Error refused_region(const Error& error, TransportKind kind, const Uri& uri) {
  const Error named = error.with_server(uri.server());
  if (error.code() == Code::kUnsupported && kind == TransportKind::kShm)
    return Error{Code::kUnsupported, "open over shm (the region was not created for it)"}
        .with_server(uri.server())
        .with_subject(uri.region);
  // Which bound it met, and what there is of locked memory, says the server.
  const bool told = error.code() == Code::kLimitExceeded || error.reason() == Reason::kMemlock;
  return told && !error.subject().empty() ? named : named.with_subject(uri.region);
}

/// Of several transports, one whose server stays silent leaves half of the time to those behind it.
Deadline share_of(Deadline deadline, bool last) {
  return last ? deadline : deadline - (deadline - Clock::now()) / 2;
}

}  // namespace

std::vector<EngineCore::Candidate> EngineCore::candidates(const Uri& uri, Deadline deadline,
                                                          PassedOver& passed_over) const {
  if (uri.transport != TransportKind::kAuto) return {{uri.transport, "named in the URI"}};
  std::vector<Candidate> found;
  if (transport::shm_reaches(uri.host, deadline))
    found.push_back({TransportKind::kShm, "same host, allowed by server and region"});
  else
    passed_over.skip(TransportKind::kShm, "another host");
  found.push_back({TransportKind::kRdma, "hardware device"});
  found.push_back({TransportKind::kTcp, "nothing faster there"});
  return found;
}

Result<Region> EngineCore::open_once(const Uri& uri, Rights rights, Opening opening,
                                     Deadline deadline, Attempt& attempt) {
  PassedOver passed_over;
  const std::vector<Candidate> candidates = this->candidates(uri, deadline, passed_over);
  for (const Candidate& candidate : candidates) {
    auto session = this->session(uri, candidate.kind, uri.transport == TransportKind::kAuto,
                                 share_of(deadline, &candidate == &candidates.back()));
    if (!session) {
      if (is_wrong_key(session.error())) return session.error();
      passed_over.add_unreached(candidate.kind, session.error());
      continue;
    }
    auto region =
        RegionGrant::open(std::move(*session), uri.region, rights,
                          passed_over.reason(candidate.kind, candidate.reason), deadline, opening);
    if (region) {
      (*region)->set_origin(uri, *this);
      const std::string others = passed_over.text();
      log::info("{}: {}{}{}", uri.text(), (*region)->transport_reason(),
                others.empty() ? "" : "; passed over: ", others);
      return Region{std::move(*region)};
    }
    const Error error = refused_region(region.error(), candidate.kind, uri);
    // Asked twice, a fence would be two: of clients that have come in between, too. One that the
    // server refuses for the transport has revoked nothing.
    if (opening == Opening::kFence && error.code() != Code::kUnsupported) {
      attempt.answered = true;
      return error;
    }
    attempt.answered = attempt.answered || error.code() != Code::kConnectionLost;
    if (is_final(error.code())) return error;
    if (error.code() == Code::kConnectionLost)
      passed_over.add_unreached(candidate.kind, error);
    else
      passed_over.add_answered(candidate.kind, error);
  }
  if (candidates.size() > 1) attempt.passed_over = passed_over.text();
  return passed_over.cause();
}

Result<std::shared_ptr<SessionCore>> EngineCore::connect_once(const Uri& uri, Deadline deadline,
                                                              Attempt& attempt) {
  PassedOver passed_over;
  const std::vector<Candidate> candidates = this->candidates(uri, deadline, passed_over);
  for (const Candidate& candidate : candidates) {
    auto session = this->session(uri, candidate.kind, uri.transport == TransportKind::kAuto,
                                 share_of(deadline, &candidate == &candidates.back()));
    if (session || is_wrong_key(session.error())) return session;
    passed_over.add_unreached(candidate.kind, session.error());
  }
  if (candidates.size() > 1) attempt.passed_over = passed_over.text();
  return passed_over.cause();
}

}  // namespace remora::detail
