#include "support/closed.h"

#include <memory>

namespace remora::detail {

Error closed(Operation operation) noexcept {
  return Error{Code::kClosed, operation}.with_subject("this handle was moved from");
}

metrics::Registry& closed_registry() noexcept {
  static const std::shared_ptr<metrics::Registry> empty = metrics::Registry::create().value();
  return *empty;
}

}  // namespace remora::detail
