#include <remora/engine/engine_share.h>

#include "base/closed.h"
#include "client/engine/engine_core.h"

namespace remora::detail {

Result<Region> EngineShare::open_region(std::string_view uri, Rights rights) const {
  return open_by(core_, uri, rights, Opening::kOpen);
}

Result<Region> EngineShare::fence_region(std::string_view uri, Rights rights) const {
  return open_by(core_, uri, rights, Opening::kFence);
}

Result<Session> EngineShare::connect(std::string_view uri) const { return connect_by(core_, uri); }

metrics::Registry& EngineShare::registry() const noexcept {
  return core_ == nullptr ? closed_registry() : core_->registry();
}

}  // namespace remora::detail
