#pragma once

/// The memory of a server beyond the life of its process: the descriptors that the previous process
/// has left in the descriptor store, and those that this process leaves to the next one.
/// engine/docs/warm-restart.md has the guarantees.
///
/// | name in the store | descriptor |
/// |---|---|
/// | remora-pool | the memfd of the pool |
/// | remora-catalog | a sealed record of the regions (remora_warm.proto, Catalog) |
/// | remora-sessions | a sealed record of the sessions (Sessions) |
/// | remora-region-N | the own memfd of the region with the incarnation N (shm) |

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/descriptor_store.h>
#include <remora/metrics/recorder.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "server/memory/pool.h"
#include "server/memory/region_journal.h"
#include "server/memory/shared_memory.h"
#include "server/warm/kept_catalog.h"
#include "server/warm/sealed_record.h"

namespace remora::detail {

/// The memory that the previous process has left, completely verified.
struct KeptMemory {
  KeptCatalog catalog;
  KeptSessions sessions;
  SharedMemory pool;
  std::vector<std::unique_ptr<SharedMemory>> own;  ///< of the regions of the catalog, in order
};

/// Thread-safe, except open(), take_kept() and begin().
class WarmMemory final : public RegionJournal {
 public:
  /// Takes the descriptors of the store. If they are not a complete memory, they are given up, and
  /// the memory is new: see reason(). After an error they stay stored. Errors: kUnsupported: there
  /// is no store; kTimedOut: the previous process still runs; kOutOfMemory and kSystem: the memory
  /// cannot be mapped or read; those of DescriptorStore::take(). `ready_gauge`: set to 0 when the
  /// next process cannot take the memory over any more; its registry outlives this.
  static Result<std::unique_ptr<WarmMemory>> open(std::shared_ptr<DescriptorStore> store,
                                                  const config::Pool& options,
                                                  metrics::Gauge ready_gauge);
  WarmMemory(std::shared_ptr<DescriptorStore> store, metrics::Gauge ready_gauge)
      : store_{std::move(store)}, ready_gauge_{ready_gauge} {}
  /// If nothing was recorded, nothing stays stored.
  ~WarmMemory() override;

  /// The memory of the previous process, once; empty: the memory is new.
  [[nodiscard]] std::optional<KeptMemory> take_kept() {
    std::optional<KeptMemory> taken = std::move(kept_);
    kept_.reset();
    return taken;
  }
  /// Why the memory is new; empty: it is that of the previous process.
  [[nodiscard]] const std::string& reason() const noexcept { return reason_; }
  [[nodiscard]] std::uint64_t memory_id() const noexcept { return memory_id_; }

  /// From now on the next process can take over `pool`, which is new if the memory is new. Errors:
  /// those of SealedRecord::create() and DescriptorStore::store().
  Status begin(const Pool& pool);

  // RegionJournal.
  Status keep(std::uint64_t incarnation, int memory_fd) override REMORA_EXCLUDES(mutex_);
  bool record(std::span<const JournaledRegion> regions, std::uint64_t next_epoch) noexcept override
      REMORA_EXCLUDES(mutex_);
  void record_nothing() noexcept override REMORA_EXCLUDES(mutex_);
  /// The session's client may return to it in the next process, until forget().
  void note(KeptSession session) noexcept REMORA_EXCLUDES(mutex_);
  /// The session's client may not return to it, but may have memory mapped: until forget().
  void forbid_resumption(std::uint64_t session_id) noexcept REMORA_EXCLUDES(mutex_);
  /// Called before anything of the session is released.
  void forget(std::uint64_t session_id) noexcept REMORA_EXCLUDES(mutex_);
  /// This process hands the memory over: sessions that end from now on end for this process only.
  void freeze() noexcept REMORA_EXCLUDES(mutex_);
  [[nodiscard]] bool frozen() const noexcept REMORA_EXCLUDES(mutex_);
  /// The memory ends with this process: nothing is stored any more.
  void give_up() noexcept REMORA_EXCLUDES(mutex_);
  /// Whether the next process can take the memory over.
  [[nodiscard]] bool ready() const noexcept REMORA_EXCLUDES(mutex_);

 private:
  using Descriptors = std::map<std::string, UniqueFd>;

  static Result<Descriptors> take(DescriptorStore& store);
  Status lock(const SealedRecord& catalog) const;
  Result<KeptMemory> load(Descriptors& descriptors, const config::Pool& options);
  Status store(const std::string& name, int fd) REMORA_REQUIRES(mutex_);
  void remove(const std::string& name) noexcept REMORA_REQUIRES(mutex_);
  Status write_regions(std::span<const JournaledRegion> regions, std::uint64_t next_epoch)
      REMORA_REQUIRES(mutex_);
  Status write_sessions() REMORA_REQUIRES(mutex_);
  void record_sessions() noexcept REMORA_REQUIRES(mutex_);
  void spoil(const Error& why) noexcept REMORA_REQUIRES(mutex_);
  [[nodiscard]] bool writes() const noexcept REMORA_REQUIRES(mutex_) {
    return catalog_ && sessions_ && !frozen_ && !spoiled_;
  }

  const std::shared_ptr<DescriptorStore> store_;
  const metrics::Gauge ready_gauge_;
  std::optional<KeptMemory> kept_;
  std::string reason_;
  std::uint64_t memory_id_ = 0;  ///< fixed by begin()
  KeptPool pool_{};              ///< fixed by begin()
  /// Locked after the lock of the catalog of regions.
  mutable Mutex mutex_;
  std::optional<SealedRecord> catalog_ REMORA_GUARDED_BY(mutex_);
  std::optional<SealedRecord> sessions_ REMORA_GUARDED_BY(mutex_);
  std::map<std::uint64_t, KeptSession> noted_ REMORA_GUARDED_BY(mutex_);  ///< by id
  std::set<std::string> stored_ REMORA_GUARDED_BY(mutex_);                ///< names
  bool frozen_ REMORA_GUARDED_BY(mutex_) = false;
  bool spoiled_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::detail
