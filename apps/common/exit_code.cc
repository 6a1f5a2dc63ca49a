#include "common/exit_code.h"

namespace remora::apps {

ExitCode exit_code_of(const Error& error) noexcept {
  switch (error.code()) {
    case Code::kInvalidArgument: return ExitCode::kUsage;
    case Code::kOutOfRange:
    case Code::kMisaligned:
    case Code::kNoRight:
    case Code::kWrongAtomicDomain:
    case Code::kUnsupported:
    case Code::kLimitExceeded:
    case Code::kNotFound:
    case Code::kUnknownRegion:
    case Code::kAlreadyExists:
    case Code::kBusy:
    case Code::kAccessRefused:
    case Code::kStaleRegion: return ExitCode::kRefused;
    case Code::kAddressInUse:
    case Code::kUnreachable:
    case Code::kConnectionRefused:
    case Code::kConnectionLost:
    case Code::kProtocol:
    case Code::kTimedOut:
    case Code::kCancelled:
    case Code::kWouldBlock:
    case Code::kClosed: return ExitCode::kConnection;
    case Code::kOutOfMemory:
    case Code::kPermissionDenied:
    case Code::kProvider:
    case Code::kSystem: return ExitCode::kLocal;
    case Code::kIndeterminate: return ExitCode::kIndeterminate;
    case Code::kInternal: return ExitCode::kInternal;
  }
  return ExitCode::kInternal;
}

}  // namespace remora::apps
