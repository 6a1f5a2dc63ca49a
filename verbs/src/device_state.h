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
  DeviceState(const Provider& table, ibv_context* opened, bool owns)
      : provider{&table}, context{opened}, owned{owns} {}
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;
  ~DeviceState();

  [[nodiscard]] bool is_gone() const noexcept {
    return gone.load(std::memory_order_acquire) || (of_cm != nullptr && of_cm->gone());
  }

  /// The first member, so that it goes last, when the context is closed. A driver may close slowly,
  /// and no reference to this struct is left by then.
  std::shared_ptr<const void> open = std::make_shared<char>();
  ProcessProvider provider;
  ibv_context* context;
  bool owned;
  bool software = false;
  std::shared_ptr<CmDevice> of_cm;  ///< of a borrowed context of librdmacm
  mutable std::atomic<bool> gone{false};
  DeviceAttributes attributes;
};

}  // namespace remora::verbs::detail
