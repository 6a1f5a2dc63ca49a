#pragma once

/// Registration of local memory with a device.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include <remora/result.h>

#include "transport/registration.h"
#include "transport/registration_cache.h"

namespace remora::transport {

/// The place where local memory is registered: a device's protection domain, which all sessions of
/// this process on the device share. When the device goes and returns, all registrations are made
/// again, with other keys, before a session connects over it. Thread-safe.
class MemoryDomain {
 public:
  virtual ~MemoryDomain() = default;
  /// Blocks while pages are pinned. Errors: kOutOfMemory (see Reason::kMemlock), kProvider.
  virtual Result<std::unique_ptr<Registration>> register_bytes(std::span<std::byte> bytes) = 0;
  /// Releases everything on a device that has gone. The control thread of an engine calls it about
  /// once a second.
  virtual void look() noexcept {}
  /// Null when registrations cannot be cached; the log says why.
  virtual std::shared_ptr<RegistrationCache> make_cache(const RegistrationCache::Options& options) {
    (void)options;
    return nullptr;
  }
  /// How many more bytes this process may register, by its limit of locked memory.
  [[nodiscard]] virtual std::uint64_t lockable_bytes() const noexcept {
    return std::numeric_limits<std::uint64_t>::max();
  }
  /// Exports the device's own counters, for the life of `registry`. A counter that cannot be
  /// exported is missing, and the log says why. Idempotent.
  virtual void show_counters(metrics::Registry& registry) noexcept { (void)registry; }
};

}  // namespace remora::transport
