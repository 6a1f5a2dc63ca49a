#pragma once

/// The state behind Device handles. Internal.

#include <atomic>
#include <infiniband/verbs.h>
#include <memory>

#include <remora/verbs/device.h>
#include <remora/verbs/provider.h>

#include "cm_device.h"
#include "process_provider.h"

namespace remora::verbs::detail {

struct DeviceState {
  DeviceState(const Provider& table, ibv_context* opened, bool owns) noexcept
      : provider{&table}, context{opened}, owned{owns} {}
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;
  ~DeviceState();

  [[nodiscard]] bool is_gone() const noexcept {
    return gone.load(std::memory_order_acquire) || (of_cm != nullptr && of_cm->gone());
  }

  ProcessProvider provider;
  ibv_context* context;
  bool owned;
  bool software = false;
  std::shared_ptr<CmDevice> of_cm;  ///< of a borrowed context of librdmacm
  mutable std::atomic<bool> gone{false};
  DeviceAttributes attributes;
};

}  // namespace remora::verbs::detail
