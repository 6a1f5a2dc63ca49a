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
#include "transport/memory_domain.h"
#include "transport/registration_cache.h"

namespace remora::detail {

class MemoryReleaser;

/// Slots, registered memory of the application, and the memory that the engine's own transfers
/// need. All of it is registered with each memory domain in use. Never used on the data path.
/// Thread-safe.
class EngineMemory {
 public:
  /// Borrows both: they belong to the engine.
  EngineMemory(const EngineOptions& options, const Placement& placement);
  ~EngineMemory();
  EngineMemory(const EngineMemory&) = delete;
  EngineMemory& operator=(const EngineMemory&) = delete;

  Result<std::shared_ptr<SlotStore>> allocate_slots(std::size_t count, std::size_t slot_bytes);
  Result<std::shared_ptr<LocalMemory>> register_memory(std::span<std::byte> bytes);
  [[nodiscard]] const std::shared_ptr<MemoryReleaser>& releaser() const noexcept {
    return releaser_;
  }

  // For sessions.
  /// Index of the domain in every memory's key table; registers the slots that exist already.
  /// `loop`: of the engine. Errors: kLimitExceeded (kMaxMemoryDomains).
  Result<std::size_t> intern(const std::shared_ptr<transport::MemoryDomain>& domain,
                             EventLoop& loop);
  /// The device of the domain may have gone and returned: all memory takes its keys anew. Before
  /// lanes of a resumed session go on.
  void renew_keys(const transport::MemoryDomain& domain);
  /// Asks each domain, at most once a second, whether its device has gone or returned. Control
  /// thread.
  void look_at_devices() noexcept;
  Result<std::shared_ptr<SlotStore>> bounce_store(transport::MemoryDomain& domain,
                                                  std::size_t domain_index);
  /// Zeroes, registered with the domain.
  Result<std::shared_ptr<LocalMemory>> zeroes(transport::MemoryDomain& domain,
                                              std::size_t domain_index);
  /// The cache of the domain's registrations; the first call makes it. Null where registrations are
  /// not kept.
  std::shared_ptr<transport::RegistrationCache> registration_cache(std::size_t domain_index);

 private:
  struct Cache {
    bool asked = false;
    std::shared_ptr<transport::RegistrationCache> cache;
  };
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
  Clock::time_point looked_at_{};  ///< at the devices; control thread
  std::array<Cache, kMaxMemoryDomains> caches_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<LocalMemory>> memories_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<SlotStore> bounce_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<SlotStore> zeroes_ REMORA_GUARDED_BY(mutex_);  ///< one slot, never handed out
};

}  // namespace remora::detail
