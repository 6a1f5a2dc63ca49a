#pragma once

/// Creates, resizes and removes the regions of a server. Owns the pool, the catalog, and the queues
/// of requests that wait for memory or for a region.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/engine/region.h>
#include <remora/engine/server.h>
#include <remora/result.h>

#include "base/clock.h"
#include "server/listener_set.h"
#include "server/memory/allocation_queue.h"
#include "server/memory/catalog.h"
#include "server/memory/pool.h"
#include "server/revocation_coordinator.h"
#include "server/running_limits.h"
#include "server/server_metrics.h"
#include "server/worker.h"

namespace remora::detail {

/// Thread-safe, except the functions that say otherwise.
class RegionManager {
 public:
  /// All parameters but the pool outlive this object.
  RegionManager(const config::ServerConfig& config, const RunningLimits& limits,
                const ServerMetrics& metrics, const ListenerSet& listeners,
                std::shared_ptr<Pool> pool, Worker& worker, RegionJournal* journal = nullptr);
  RegionManager(const RegionManager&) = delete;
  RegionManager& operator=(const RegionManager&) = delete;

  [[nodiscard]] Catalog& catalog() noexcept { return catalog_; }
  [[nodiscard]] const Catalog& catalog() const noexcept { return catalog_; }
  [[nodiscard]] Pool& pool() const noexcept { return *pool_; }
  /// Worker.
  [[nodiscard]] RevocationCoordinator& revocations() noexcept { return revocations_; }
  /// Worker.
  [[nodiscard]] AllocationQueue& allocation_queue() noexcept { return allocation_queue_; }

  /// Called once the worker runs: requests that wait for memory continue when there is more.
  void start();
  /// Any thread: limits.regions_max and limits.revoke_grace have changed. The worker takes the
  /// latter as its next job.
  void take_limits();
  /// Cancels populating of memory by the worker; from now on create() fails if it needs populating.
  void cancel_populating() noexcept { populating_.request_stop(); }
  /// On return the pool calls no function of this object any more.
  void stop() { pool_->on_cleaned(nullptr); }
  /// Called by the worker when it is to end and no job is left: drops the requests that wait for
  /// memory. False: there are none.
  bool drop_waiting() noexcept;
  /// Called by the control thread periodically: removes expired regions, closes memory that no
  /// process has mapped any more, and continues requests whose deadline has passed.
  void remove_outdated();

  /// Gives the regions of the previous process the rights and access lists of the configuration, if
  /// it has the region and no client owns it. A region on which a client gets fewer rights than
  /// before gets the next epoch: all its grants have ended then. Called before the regions are
  /// restored.
  void apply_access(std::vector<Catalog::Restored>& regions, std::uint64_t& next_epoch) const;

  /// `steps_for`: returns the steps of populating a region, from the bytes populated before it and
  /// the bytes of all regions. Errors: as create(); kCancelled (`stop`).
  using StepsFor =
      std::function<PopulateSteps(std::uint64_t done_bytes, std::uint64_t total_bytes)>;
  Status create_configured(const StepsFor& steps_for, const std::stop_token& stop);
  /// `device`: the session's device, for "auto"; empty: none. `owner`: the client, if clients have
  /// keys. `session_id`: the session that creates the region. Waits until `deadline` for memory
  /// that is being zeroed. Errors: as Session::create_region; kTimedOut; kCancelled (the server
  /// stops).
  Result<RegionInfo> create(RegionSpec spec, const std::string& device, std::string_view owner,
                            Deadline deadline, std::uint64_t session_id = 0);
  /// For the application itself: "auto" is the CPU with shm or without a device, otherwise the
  /// device.
  Result<RegionInfo> create(RegionSpec spec);

  /// `removal` is not Removal::kNow. Errors: as Server::remove_region.
  Status remove(std::string_view name, Removal removal);
  /// Worker: revokes the region's grants in the region's turn; the region is removed when `then` is
  /// called.
  void remove_now(const std::shared_ptr<RegionEntry>& region, std::function<void()> then);
  /// As remove_now(), called in the region's turn.
  void revoke_and_remove(const std::shared_ptr<RegionEntry>& region, std::function<void()> then);
  /// As remove_now(), called by any other thread, which waits. Errors: kUnknownRegion, kClosed.
  Status remove_now(std::string_view name);

  using MayGrow = std::function<Status(std::uint64_t more_bytes)>;
  /// Worker, in the region's turn: resizes the region and calls `then` with the outcome. To grow,
  /// it waits for memory until `deadline`, and `may` must allow the additional bytes; existing
  /// grants reach the same bytes as before. To shrink, all grants are revoked first. Errors: those
  /// of Catalog::grow(), shrink() and check_size().
  void resize(const std::shared_ptr<RegionEntry>& region, std::uint64_t size_bytes,
              Deadline deadline, MayGrow may, std::function<void(const Status&)> then);
  /// As resize(), called by any other thread, which waits. Errors: also kUnknownRegion, kClosed.
  Result<RegionInfo> resize(std::string_view name, std::uint64_t size_bytes);

 private:
  Result<RegionInfo> create(RegionSpec spec, const std::string& device, std::string_view owner,
                            Deadline deadline, const PopulateSteps& steps,
                            std::uint64_t session_id);
  [[nodiscard]] bool is_restored(const config::RegionConfig& region) const;
  [[nodiscard]] std::string first_device_for(const RegionSpec& spec) const;
  void resize_in_turn(const std::shared_ptr<RegionEntry>& region, std::uint64_t size_bytes,
                      Deadline deadline, MayGrow may, std::function<void(const Status&)> then);
  void run_waiting();
  void close_unheld_orphans();
  void remove_expired();

  const config::ServerConfig& config_;
  const RunningLimits& limits_;
  const ServerMetrics& metrics_;
  const ListenerSet& listeners_;
  Worker& worker_;
  const std::shared_ptr<Pool> pool_;
  Catalog catalog_;
  RevocationCoordinator revocations_;
  AllocationQueue allocation_queue_;
  std::stop_source populating_;               ///< see cancel_populating()
  std::atomic<bool> removes_expired_{false};  ///< a job that removes expired regions waits or runs
};

}  // namespace remora::detail
