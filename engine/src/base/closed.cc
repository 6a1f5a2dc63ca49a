#include "base/closed.h"

#include <memory>

namespace remora::detail {

metrics::Registry& closed_registry() noexcept {
  static const std::shared_ptr<metrics::Registry> empty = metrics::Registry::create().value();
  return *empty;
}

}  // namespace remora::detail
