#pragma once

/// The error struct of the C API, in tests.

#include <remora/c/error.h>

namespace remora::test {

/// As a caller has it before a call.
inline remora_error no_error() noexcept {
  remora_error error{};
  error.size = sizeof(error);
  return error;
}

}  // namespace remora::test
