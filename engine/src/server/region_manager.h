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

/// Thread-safe, but for the functions that say otherwise.
class RegionManager {
 public:
  /// All but the pool outlive this.
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

  /// Once the worker runs: requests that wait for memory go on when there is more.
  void start();
  /// Any thread: limits.regions_max and limits.revoke_grace have changed. The worker takes the
  /// latter as its next job.
  void take_limits();
  /// Cancels the populating of memory by the worker; create() fails from now on where it needs it.
  void cancel_populating() noexcept { populating_.request_stop(); }
  /// The pool calls nothing any more.
  void stop() { pool_->on_cleaned(nullptr); }
  /// Worker, when it is to end and no job is left: drops the requests that wait for memory. False:
  /// there are none.
  bool drop_waiting() noexcept;
  /// Control thread, from time to time: removes regions that have expired, closes memory that no
  /// process holds any more, and has requests go on whose time is over.
  void remove_outdated();

  /// Gives the regions of the process before the rights and access lists of the configuration,
  /// where that has them and no client owns them. A region that some client may use less than
  /// before gets the next epoch: all grants of it have ended then. Before they are restored.
  void apply_access(std::vector<Catalog::Restored>& regions, std::uint64_t& next_epoch) const;

  /// `steps_for`: how far the regions are populated, from the bytes done before a region and the
  /// bytes of all. Errors: as create(); kCancelled (`stop`).
  using StepsFor =
      std::function<PopulateSteps(std::uint64_t done_bytes, std::uint64_t total_bytes)>;
  Status create_configured(const StepsFor& steps_for, const std::stop_token& stop);
  /// `device`: the session's, for "auto"; empty for none. `owner`: the client, where they have
  /// keys. `session_id`: the session that creates it. Waits until `deadline` for memory that is
  /// being zeroed. Errors: as
  /// Session::create_region; kTimedOut; kCancelled (the server stops).
  Result<RegionInfo> create(RegionSpec spec, const std::string& device, std::string_view owner,
                            Deadline deadline, std::uint64_t session_id = 0);
  /// For the application itself: "auto" is the CPU with shm or without a device, else the device.
  Result<RegionInfo> create(RegionSpec spec);

  /// Not Removal::kNow. Errors: as Server::remove_region.
  Status remove(std::string_view name, Removal removal);
  /// Worker: revokes the region's grants in its turn; the region is gone when `then` is called.
  void remove_now(const std::shared_ptr<RegionEntry>& region, std::function<void()> then);
  /// As remove_now(), when it is the region's turn.
  void revoke_and_remove(const std::shared_ptr<RegionEntry>& region, std::function<void()> then);
  /// As remove_now(), by any other thread, which waits for it. Errors: kUnknownRegion, kClosed.
  Status remove_now(std::string_view name);

  using MayGrow = std::function<Status(std::uint64_t more_bytes)>;
  /// Worker, when it is the region's turn: calls `then` with the outcome. Larger: when there is
  /// memory, until `deadline`, and if `may` allows so many more bytes; grants keep what they reach.
  /// Smaller: all grants are revoked first. Errors: those of Catalog::grow(), shrink() and
  /// check_size().
  void resize(const std::shared_ptr<RegionEntry>& region, std::uint64_t size_bytes,
              Deadline deadline, MayGrow may, std::function<void(const Status&)> then);
  /// By any other thread, which waits for it. Errors: also kUnknownRegion, kClosed.
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
  std::atomic<bool> removes_expired_{false};  ///< a job for it waits, or runs
};

}  // namespace remora::detail
