#pragma once

#include <string>

namespace remora::detail {

/// The result of one attempt to reach a server, apart from its error.
struct Attempt {
  /// The server has admitted the client and refused the request: another attempt would request it
  /// twice.
  bool answered = false;
  std::string passed_over{};  ///< PassedOver::text() of the latest failed attempt
};

}  // namespace remora::detail
