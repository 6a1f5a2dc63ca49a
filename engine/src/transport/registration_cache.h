#pragma once

/// Registrations of the application's memory, kept for its next use.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/clock.h"

namespace remora::metrics {
class Registry;
}

namespace remora::transport {

/// The use of a kept registration by one operation. A plain value: its holder returns it once, to
/// the cache that it came from.
struct MemoryLease {
  void* registration = nullptr;
  [[nodiscard]] explicit operator bool() const noexcept { return registration != nullptr; }
};

/// Registrations of memory that the engine does not own. Thread-safe.
class RegistrationCache {
 public:
  struct Options {
    std::uint64_t bytes_max = 0;
    std::shared_ptr<metrics::Registry> registry{};  ///< gets the cache's series
  };
  struct Key {
    std::uint32_t local_key;
    std::uint64_t length_bytes;  ///< of the part, from its beginning on, that the key reaches
  };
  virtual ~RegistrationCache() = default;
  /// Null where the cache can give none: memory whose changes of mapping it cannot notice, a spent
  /// budget, a failed registration. Takes no lock where the bytes were used before; else blocks
  /// while pages are pinned, until `deadline` at most (looked at between pieces).
  virtual MemoryLease acquire_lease(std::span<std::byte> bytes, Deadline deadline) noexcept = 0;
  /// As acquire_lease(), of registrations that exist already. Never blocks.
  virtual MemoryLease find_lease(std::span<std::byte> bytes) noexcept = 0;
  /// Never blocks.
  virtual void release_lease(MemoryLease lease) noexcept = 0;
  /// True: the device of `lease` has gone, and its key is of no use.
  [[nodiscard]] virtual bool lost(MemoryLease /*lease*/) const noexcept { return false; }
  /// Deregisters what is idle, to make room under the process's limit of locked memory. True: it
  /// has deregistered something. Blocks while the device deregisters.
  virtual bool trim() noexcept = 0;
  /// The key of a part of the leased memory.
  [[nodiscard]] virtual Key key_of(MemoryLease lease, std::span<std::byte> part) const noexcept = 0;
};

}  // namespace remora::transport
