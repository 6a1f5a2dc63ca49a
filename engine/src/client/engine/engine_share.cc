#include <remora/engine/engine_share.h>

#include "client/engine/engine_core.h"

namespace remora::detail {

EngineShare::~EngineShare() {
  if (core_ == nullptr) return;
  // As in Engine: the control thread may be the engine's last owner after this.
  const auto parting = core_->parting();
  core_.reset();
}

Result<Region> EngineShare::open_region(std::string_view uri, Rights rights) const {
  return open_by(core_, uri, rights, Opening::kOpen);
}

Result<Region> EngineShare::fence_region(std::string_view uri, Rights rights) const {
  return open_by(core_, uri, rights, Opening::kFence);
}

Result<Session> EngineShare::connect(std::string_view uri) const { return connect_by(core_, uri); }

}  // namespace remora::detail
