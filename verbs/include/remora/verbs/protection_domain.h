#pragma once

/// ProtectionDomain: the fence around registrations and queue pairs that may use each other.
///
/// A handle, see device.h. Keeps its device open; every registration and queue pair made in it
/// keeps the domain. Thread safety: every call is safe concurrently.

#include <cstddef>
#include <infiniband/verbs.h>
#include <memory>
#include <ostream>
#include <span>
#include <utility>

#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/device.h>

namespace remora::verbs {

class MemoryRegion;

/// See the top of this file.
class ProtectionDomain {
 public:
  /// An empty handle.
  ProtectionDomain() noexcept = default;

  /// The same as `device.allocate_domain()`.
  /// Errors: kOutOfMemory; kProvider (errno kept). Source: ibv_alloc_pd(3).
  [[nodiscard]] static Result<ProtectionDomain> allocate(const Device& device);

  /// A domain for queue pairs that one thread at a time posts to (ibv_alloc_td(3) and
  /// ibv_alloc_parent_domain(3)): the provider may leave out their locks, and give them a doorbell
  /// of their own. Memory registered with base() is registered for it, too. The result keeps this
  /// domain. The caller must ensure that no two threads post to such a queue pair at once. Errors:
  /// kUnsupported: the provider has no such domains; kOutOfMemory; kProvider (errno kept).
  [[nodiscard]] Result<ProtectionDomain> for_one_thread() const;
  /// The domain from which for_one_thread() has made this one; otherwise this one.
  [[nodiscard]] ProtectionDomain base() const noexcept {
    return base_ == nullptr ? *this : ProtectionDomain{base_, device_};
  }

  /// True: made empty or moved from.
  [[nodiscard]] bool empty() const noexcept { return domain_ == nullptr; }
  /// The device that it was made on; valid as long as this handle.
  [[nodiscard]] const Device& device() const noexcept { return device_; }

  /// The same as `MemoryRegion::register_bytes`; include memory_region.h to call it.
  [[nodiscard]] Result<MemoryRegion> register_bytes(std::span<std::byte> bytes,
                                                    Access access) const;

  /// Borrowed; never deallocate it.
  [[nodiscard]] ibv_pd* raw() const noexcept { return domain_.get(); }

  /// True: both name the same domain.
  friend bool operator==(const ProtectionDomain& a, const ProtectionDomain& b) noexcept {
    return a.domain_ == b.domain_;
  }

 private:
  ProtectionDomain(std::shared_ptr<ibv_pd> domain, Device device) noexcept
      : device_{std::move(device)}, domain_{std::move(domain)} {}
  Device device_;
  std::shared_ptr<ibv_pd> domain_;  ///< its deleter holds the device too
  std::shared_ptr<ibv_pd> base_;    ///< of a domain for one thread; otherwise null
};
/// "protection domain 3 on rxe0", by the kernel's handle; "no protection domain".
std::ostream& operator<<(std::ostream& out, const ProtectionDomain& domain);

}  // namespace remora::verbs
