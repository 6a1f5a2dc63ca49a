#include "server/server_request.h"

namespace remora::detail {

RequestKind kind_of(const control::Request& request) noexcept {
  switch (request.body_case()) {
    case control::Request::kHello: return RequestKind::kHello;
    case control::Request::kCreate: return RequestKind::kCreate;
    case control::Request::kOpen: return RequestKind::kOpen;
    case control::Request::kExtents: return RequestKind::kExtents;
    case control::Request::kClose: return RequestKind::kClose;
    case control::Request::kList: return RequestKind::kList;
    case control::Request::kStat: return RequestKind::kStat;
    case control::Request::kRemove: return RequestKind::kRemove;
    case control::Request::kNotify: return RequestKind::kNotify;
    case control::Request::kProve: return RequestKind::kProve;
    case control::Request::kUsage: return RequestKind::kUsage;
    case control::Request::kFence: return RequestKind::kFence;
    case control::Request::kResize: return RequestKind::kResize;
    case control::Request::kGrantState: return RequestKind::kGrantState;
    case control::Request::kEventAck: return RequestKind::kEventAck;
    case control::Request::kReattach: return RequestKind::kReattach;
    case control::Request::kSessions: return RequestKind::kSessions;
    case control::Request::kEndSession: return RequestKind::kEndSession;
    case control::Request::kDrain: return RequestKind::kDrain;
    case control::Request::kGoodbye:
    case control::Request::kPing:
    case control::Request::BODY_NOT_SET: break;
  }
  return RequestKind::kPing;
}

}  // namespace remora::detail
