#pragma once

/// The contexts that librdmacm has opened: when they may be used, and when they are closed.
/// Internal.
///
/// librdmacm opens a context for each device and keeps it, until a device that has gone has no id
/// any more. So a context could be closed below domains and registrations that are still there; and
/// where the host has no device left, librdmacm never looks, the context stays open, and a kernel
/// that waits for it waits for the end of the process. Both are prevented here: each context is
/// referenced, and given back when its device has gone and nothing uses it.
///
/// Before rdma-core 52 librdmacm may also take a device for gone that is there, when another device
/// comes or goes: it sorts the addresses of its list by the lower halves of their differences, and
/// then compares whole addresses. It opens the device anew for later ids. The context of before
/// stays that of the device as long as it is used (Device::borrow()), and is closed with its last
/// user. device_thread.h makes this rare. Source: cma.c of rdma-core 44 (sync_devices_list(),
/// dev_cmp()).

#include <atomic>
#include <infiniband/verbs.h>
#include <memory>

#include <remora/result.h>
#include <remora/verbs/provider.h>

#include "process_provider.h"

namespace remora::verbs::detail {

/// A reference on one context of librdmacm. The last owner gives it back.
class CmDevice {
 public:
  CmDevice(const Provider& provider, ibv_context* context) noexcept
      : provider_{&provider}, context_{context}, device_{context->device} {}
  ~CmDevice();
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;

  /// Of `context`; null where librdmacm lists it no longer, since the device goes just now. Errors:
  /// kProvider (rdma_get_devices, errno kept).
  static Result<std::shared_ptr<CmDevice>> of(const Provider& provider, ibv_context* context);
  /// Marks the devices that the host no longer has, and gives back those that nothing uses.
  static void look(const Provider& provider);
  /// Looks for contexts that librdmacm has replaced by others of the same device: each goes with
  /// its last user.
  static void look_for_replaced(const Provider& provider);

  [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_acquire); }
  /// From now on it goes with its last user.
  void mark_gone() noexcept;
  /// librdmacm has opened the device again, and lists this context no longer.
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
