#pragma once

/// The contexts that librdmacm has opened: when they may be used, and when they are closed.
/// Internal.
///
/// librdmacm opens a context for each device and keeps it, until a device that has gone has no id
/// any more. So a context could be closed while domains and registrations of it still exist; and
/// when the host has no device left, librdmacm never checks its list, the context stays open, and a
/// kernel that waits for its end waits until the process ends. This class prevents both: each
/// context is referenced, and released when its device has gone and no object uses it.
///
/// Before rdma-core 52 librdmacm may also take an existing device for gone when another device
/// comes or goes: it sorts the addresses of its list by the lower halves of their differences, and
/// then compares whole addresses. It opens the device again for later ids. The former context stays
/// that of the device as long as it is used (Device::borrow()), and is closed with its last user.
/// device_thread.h makes this rare. Source: cma.c of rdma-core 44 (sync_devices_list(), dev_cmp()).

#include <atomic>
#include <infiniband/verbs.h>
#include <memory>

#include <remora/result.h>
#include <remora/verbs/provider.h>

#include "process_provider.h"

namespace remora::verbs::detail {

/// A reference to one context of librdmacm. The last owner releases it.
class CmDevice {
 public:
  CmDevice(const Provider& provider, ibv_context* context) noexcept
      : provider_{&provider}, context_{context}, device_{context->device} {}
  ~CmDevice();
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;

  /// The object of `context`; null if librdmacm no longer lists it, since the device is just going.
  /// Errors: kProvider (rdma_get_devices, errno kept).
  static Result<std::shared_ptr<CmDevice>> of(const Provider& provider, ibv_context* context);
  /// Marks the devices that the host no longer has, and releases those that no object uses.
  static void look(const Provider& provider);
  /// Finds contexts that librdmacm has replaced by others of the same device: each is released with
  /// its last user.
  static void look_for_replaced(const Provider& provider);

  [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_acquire); }
  /// From now on it is released with its last user.
  void mark_gone() noexcept;
  /// Whether librdmacm has opened the device again, and no longer lists this context.
  [[nodiscard]] bool replaced() const noexcept { return replaced_.load(std::memory_order_acquire); }

 private:
  struct Known;
  static Known& known_devices();

  ProcessProvider provider_;
  ibv_context* context_;
  ibv_device* device_;
  std::atomic<bool> gone_{false};
  std::atomic<bool> replaced_{false};
};

}  // namespace remora::verbs::detail
