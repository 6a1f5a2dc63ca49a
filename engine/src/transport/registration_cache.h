#pragma once

/// Registrations of the application's memory that are kept for their next use.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"

namespace remora::metrics {
class Registry;
}

namespace remora::transport {

/// The use of a cached registration by one operation. A plain value: its holder returns it once, to
/// the cache that gave it.
struct MemoryLease {
  void* registration = nullptr;
  [[nodiscard]] explicit operator bool() const noexcept { return registration != nullptr; }
};

/// Registrations of memory that the engine does not own. Thread-safe.
class RegistrationCache {
 public:
  struct Options {
    std::uint64_t bytes_max = 0;
    /// Gets the cache's series when the cache is first asked for a lease.
    std::shared_ptr<metrics::Registry> registry{};
  };
  struct Key {
    std::uint32_t local_key;
    std::uint64_t length_bytes;  ///< from the beginning of the part that the key covers
  };
  virtual ~RegistrationCache() = default;
  /// Null if the cache has no registration for the bytes: it cannot observe changes of their
  /// mapping, its budget is spent, or the registration failed. Takes no lock for bytes that were
  /// used before; otherwise blocks while pages are pinned, at most until `deadline` (checked
  /// between pieces).
  virtual MemoryLease acquire_lease(std::span<std::byte> bytes, Deadline deadline) noexcept = 0;
  /// As acquire_lease(), but only with registrations that exist. Never blocks, but the
  /// first call of the two may wait for a scrape of the metrics.
  virtual MemoryLease find_lease(std::span<std::byte> bytes) noexcept = 0;
  /// Never blocks.
  virtual void release_lease(MemoryLease lease) noexcept = 0;
  /// True: the device of `lease` has gone, and its key cannot be used.
  [[nodiscard]] virtual bool lost(MemoryLease /*lease*/) const noexcept { return false; }
  /// Deregisters idle registrations to make room under the process's limit of locked memory. True:
  /// it has deregistered at least one. Blocks while the device deregisters.
  virtual bool trim() noexcept = 0;
  /// The key of a part of the leased memory.
  [[nodiscard]] virtual Key key_of(MemoryLease lease, std::span<std::byte> part) const noexcept = 0;
};

}  // namespace remora::transport
