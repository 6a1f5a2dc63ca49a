#pragma once

/// Turns a failed verbs or system call into an Error. Internal.

#include <cerrno>

#include <remora/owned.h>
#include <remora/result.h>

#include "process_provider.h"

namespace remora::verbs::detail {

/// The errno of a result: verbs calls return an errno, or -1 and set errno.
[[nodiscard]] inline int errno_of(int result) noexcept {
  if (result > 0) return result;
  return errno != 0 ? errno : EIO;
}

/// kOutOfMemory, kPermissionDenied and kUnsupported if the number means that, kClosed if a parent
/// process made the object, otherwise kProvider.
[[nodiscard]] inline Error provider_error(Operation operation, int number) noexcept {
  if (number == kForkedErrno) return remora::detail::closed_handle(operation, true);
  Code code = Code::kProvider;
  if (number == ENOMEM) code = Code::kOutOfMemory;
  if (number == EPERM || number == EACCES) code = Code::kPermissionDenied;
  if (number == EOPNOTSUPP || number == ENOSYS) code = Code::kUnsupported;
  return Error{code, operation}.with_errno(number);
}

[[nodiscard]] inline Error system_error(Operation operation, int number) noexcept {
  return Error{Code::kSystem, operation}.with_errno(number);
}

}  // namespace remora::verbs::detail
