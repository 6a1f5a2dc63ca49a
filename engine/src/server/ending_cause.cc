#include "server/ending_cause.h"

namespace remora::detail {

std::optional<EndingCause> ending_cause(ServerMetrics::SessionEnd why) noexcept {
  using SessionEnd = ServerMetrics::SessionEnd;
  switch (why) {
    case SessionEnd::kProtocol:
      return EndingCause{Code::kProtocol, Reason::kNone,
                         "what came is not the protocol, or more than may be unanswered"};
    case SessionEnd::kUnknownClient:
      return EndingCause{Code::kConnectionRefused, Reason::kAuthentication,
                         "no longer one of the server's clients"};
    case SessionEnd::kStopped:
      return EndingCause{Code::kConnectionLost, Reason::kDraining, "the server stops"};
    case SessionEnd::kByAdmin:
      return EndingCause{Code::kConnectionLost, Reason::kRevoked,
                         "an administrator of the server has ended it"};
    // The client may resume this session, so the reason is not kLapsed, after which it may not.
    case SessionEnd::kLapsed:
      return EndingCause{Code::kConnectionLost, Reason::kSilent, "limits.session_lease"};
    case SessionEnd::kLeft:
    case SessionEnd::kLost:
    case SessionEnd::kRefused:
    case SessionEnd::kNoHello:
    case SessionEnd::kKeyKept:
    case SessionEnd::kHandedOver:
    case SessionEnd::kCount: break;
  }
  return std::nullopt;
}

}  // namespace remora::detail
