#pragma once

#include <string>

namespace remora::detail {

/// What one of several attempts to reach a server has found, beside its error.
struct Attempt {
  /// The server has admitted the client and refused the request: another attempt would ask for it
  /// twice.
  bool answered = false;
  std::string passed_over{};  ///< PassedOver::text() of the latest attempt that has failed
};

}  // namespace remora::detail
