#include "common/exit_code.h"

namespace remora::apps {

ExitCode exit_code_of(const Error& error) noexcept {
  // A server was there, but did not accept the client, or was not the right one.
  if (error.code() == Code::kConnectionRefused && error.reason() == Reason::kAuthentication)
    return ExitCode::kRefused;
  switch (error.code()) {
    case Code::kInvalidArgument: return ExitCode::kUsage;
    case Code::kOutOfRange:
    case Code::kMisaligned:
    case Code::kNoRight:
    case Code::kWrongAtomicDomain:
    case Code::kUnsupported:
    case Code::kLimitExceeded:
    case Code::kUnknownRegion:
    case Code::kBusy:
    case Code::kAccessRefused:
    case Code::kStaleRegion: return ExitCode::kRefused;
    case Code::kAlreadyExists:
      return error.operation().starts_with("socket file") ? ExitCode::kLocal : ExitCode::kRefused;
    case Code::kNotFound:
      if (error.operation().ends_with(" file") || error.operation() == "socket folder")
        return ExitCode::kLocal;
      if (error.operation() == "getaddrinfo" || error.operation() == "listen.address" ||
          error.operation() == "metrics.address")
        return ExitCode::kConnection;  // no such host
      return ExitCode::kRefused;
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

std::string_view to_string(ExitCode code) noexcept {
  switch (code) {
    case ExitCode::kOk: return "done";
    case ExitCode::kNotSwapped: return "not swapped";
    case ExitCode::kUsage: return "usage";
    case ExitCode::kRefused: return "refused";
    case ExitCode::kConnection: return "connection";
    case ExitCode::kLocal: return "local";
    case ExitCode::kIndeterminate: return "indeterminate";
    case ExitCode::kConfiguration: return "configuration";
    case ExitCode::kDifferent: return "different";
    case ExitCode::kInternal: return "internal";
  }
  return "internal";
}

}  // namespace remora::apps
