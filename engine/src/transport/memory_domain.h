#pragma once

/// Local memory as a device knows it.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include <remora/result.h>

#include "transport/registration.h"
#include "transport/registration_cache.h"

namespace remora::transport {

/// Where local memory is registered: a device's protection domain, which all sessions of this
/// process on the device share. Where the device goes and returns, all registrations are made anew,
/// with other keys, before a session connects over it. Thread-safe.
class MemoryDomain {
 public:
  virtual ~MemoryDomain() = default;
  /// Blocks while pages are pinned. Errors: kOutOfMemory (see Reason::kMemlock), kProvider.
  virtual Result<std::unique_ptr<Registration>> register_bytes(std::span<std::byte> bytes) = 0;
  /// Gives back all that is on a device which has gone. By the control thread of an engine, every
  /// second or so.
  virtual void look() noexcept {}
  /// Null where registrations cannot be kept; the log says why.
  virtual std::shared_ptr<RegistrationCache> make_cache(const RegistrationCache::Options& options) {
    (void)options;
    return nullptr;
  }
  /// How many bytes more this process may have registered, by its limit on locked memory.
  [[nodiscard]] virtual std::uint64_t lockable_bytes() const noexcept {
    return std::numeric_limits<std::uint64_t>::max();
  }
  /// Exports the device's own counters, for the life of `registry`. What cannot be shown is
  /// missing, and the log says why. Idempotent.
  virtual void show_counters(metrics::Registry& registry) noexcept { (void)registry; }
};

}  // namespace remora::transport
