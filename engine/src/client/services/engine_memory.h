#pragma once

/// The local memory of one engine, and the devices with which it is registered.

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/placement.h"
#include "client/datapath/local_memory.h"
#include "client/datapath/slab.h"
#include "client/datapath/slot_store.h"
#include "transport/memory_domain.h"
#include "transport/registration_cache.h"

namespace remora::detail {

class MemoryReleaser;

/// Owns slots, the application's registered memory, and the memory that the engine's own transfers
/// need. Each is registered with all memory domains in use. The engine owns it; the data path does
/// not use it. Thread-safe.
class EngineMemory {
 public:
  /// Borrows both arguments, which belong to the engine.
  EngineMemory(const EngineOptions& options, const Placement& placement);
  ~EngineMemory();
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  Result<std::shared_ptr<SlotStore>> allocate_slots(std::size_t count, std::size_t slot_bytes);
  Result<std::shared_ptr<LocalMemory>> register_memory(std::span<std::byte> bytes);
  [[nodiscard]] const std::shared_ptr<MemoryReleaser>& releaser() const noexcept {
    return releaser_;
  }

  // Sessions call these:
  /// Returns the index of the domain in each memory's table of keys, and registers the existing
  /// slots; memory that is registered takes the keys that it has there now. If the table is full, a
  /// domain that no session uses gives its index. `loop`: the engine's. Errors: kLimitExceeded
  /// (kMaxMemoryDomains).
  Result<std::size_t> intern(const std::shared_ptr<transport::MemoryDomain>& domain,
                             EventLoop& loop);
  /// The device of the domain may have failed and returned: all memory takes new keys. Call it
  /// before lanes of a resumed session post again.
  void renew_keys(const transport::MemoryDomain& domain);
  /// Asks each domain, at most once a second, whether its device has failed or returned. The
  /// control thread calls it.
  void look_at_devices() noexcept;
  Result<std::shared_ptr<SlotStore>> bounce_store(transport::MemoryDomain& domain,
                                                  std::size_t domain_index);
  /// Memory full of zeroes, registered with the domain.
  Result<std::shared_ptr<LocalMemory>> zeroes(transport::MemoryDomain& domain,
                                              std::size_t domain_index);
  /// The cache of the domain's registrations; the first call makes it. Null: registrations are not
  /// cached.
  std::shared_ptr<transport::RegistrationCache> registration_cache(std::size_t domain_index);

 private:
  struct Cache {
    bool asked = false;
    std::shared_ptr<transport::RegistrationCache> cache;
  };
  /// The index of a domain that no session uses: only the engine keeps it, for a next session. The
  /// size of domains_: there is none.
  [[nodiscard]] std::size_t find_unused() const noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] std::vector<std::shared_ptr<LocalMemory>> all_memory() const
      REMORA_REQUIRES(mutex_);
  void register_with_all(const std::shared_ptr<LocalMemory>& memory);
  [[nodiscard]] SlabOptions slab_options() const noexcept {
    return {.huge_pages = options_.huge_pages,
            .placement = &placement_,
            .core_dump = options_.core_dump};
  }

  const EngineOptions& options_;
  const Placement& placement_;
  const std::shared_ptr<MemoryReleaser> releaser_;
  Mutex mutex_;
  std::array<std::shared_ptr<transport::MemoryDomain>, kMaxMemoryDomains> domains_
      REMORA_GUARDED_BY(mutex_);
  /// Time of the last look_at_devices(); used by the control thread.
  Clock::time_point looked_at_{};
  std::array<Cache, kMaxMemoryDomains> caches_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<LocalMemory>> memories_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<SlotStore> bounce_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<SlotStore> zeroes_
      REMORA_GUARDED_BY(mutex_);  ///< One slot, which no application gets.
};

}  // namespace remora::detail
