#pragma once

/// The claim on a mirror: which client is its one writer.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/metadata_store.h>
#include <remora/volume/records.h>

#include "mirror_options.h"

namespace remora::volume::detail {

/// The writer epoch `w` that a transaction has raised, and a liveness key with a lease. The key
/// keeps other claimants away that do not steal; only `w` decides which transactions apply.
///
/// The volume's value changes with each claim, and by clients that found no liveness key. So a
/// writer that finds another value than its own has lost its claim, for good. Thread-safe.
///
/// The liveness key is bound to the one lease of this writer that still lives: a lease is granted
/// only when the one before has ended, and the store binds no key to a lease that has ended. So a
/// transaction whose answer was lost can bind the key to the lease that is renewed, or not at all.
class VolumeClaim {
 public:
  /// Raises `w`. Errors: kBusy (another writer renews its claim, and options.steal is not set: the
  /// subject is its identity; or other clients change the volume); kUnsupported (no mirror);
  /// kInvalidArgument (options.identity); those of Cluster::layout().
  static Result<std::shared_ptr<VolumeClaim>> claim(const Cluster& cluster, std::string_view volume,
                                                    const MirrorOptions& options);
  /// `found_exclusive`: the volume was exclusive before this claim.
  VolumeClaim(const Cluster& cluster, VolumeRecord volume, std::uint64_t generation, LeaseId lease,
              std::chrono::seconds lifetime, bool found_exclusive);

  [[nodiscard]] const Cluster& cluster() const noexcept { return cluster_; }
  [[nodiscard]] std::uint64_t generation() const noexcept { return generation_; }
  [[nodiscard]] std::uint64_t writer_epoch() const noexcept { return volume_.writer_epoch; }
  /// As the claim has written it: `exclusive` and `nonce` may be others by now.
  [[nodiscard]] const VolumeRecord& volume() const noexcept { return volume_; }

  /// An earlier writer was exclusive, and end_exclusive() was not successful yet: members may
  /// differ in zones that readers could see.
  [[nodiscard]] bool found_exclusive() const noexcept {
    return found_exclusive_.load(std::memory_order_acquire);
  }

  /// Conditions of each transaction of this writer: generation, and the volume's value with `w`.
  [[nodiscard]] Compare generation_is() const { return cluster_.generation_is(generation_); }
  [[nodiscard]] Compare is_writer() const {
    const remora::detail::MutexLock lock{mutex_};
    return {volume_key_, volume_value_};
  }
  /// Whether a snapshot with the keys of both says that this is still the writer, or was when the
  /// store made it: end_exclusive() may change the value meanwhile. If not, lost().
  bool check(const Snapshot& snapshot);
  [[nodiscard]] bool lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  void lose() noexcept { lost_.store(true, std::memory_order_release); }
  /// The error of operations after that.
  [[nodiscard]] Error lost_error() const;

  /// Renews the liveness key, also one that is gone, and looks whether another client has claimed
  /// the volume. Errors: those of the store; lost_error().
  Status keep_alive();
  /// Whether this is still the writer: one linearizable read. Errors: as keep_alive().
  Status confirm();
  /// From now on other clients may read the volume. Errors: as keep_alive().
  Status end_exclusive();
  /// Ends the claim: `w` stays. `exclusive`: members may differ in zones that readers could see.
  /// Errors: as keep_alive().
  Status release(bool exclusive);

 private:
  [[nodiscard]] LeaseId lease() const;
  [[nodiscard]] bool is_own(const std::string& value) const;
  /// Reads the keys of claim and liveness. Errors: as keep_alive().
  Result<Snapshot> look();
  /// Renews the lease, or takes a new one for one that has ended.
  Status renew_lease() REMORA_REQUIRES(transactions_);
  /// Writes the liveness key, with the present lease.
  Status bind_liveness() REMORA_REQUIRES(transactions_);
  /// Writes the volume's value, and `more`.
  Result<bool> replace(const VolumeRecord& next, const std::vector<Change>& more)
      REMORA_REQUIRES(transactions_);

  const Cluster cluster_;
  const VolumeRecord volume_;
  const std::uint64_t generation_;
  const std::string volume_key_;
  const std::chrono::seconds lifetime_;
  std::atomic<bool> lost_{false};
  std::atomic<bool> found_exclusive_;
  remora::detail::Mutex transactions_;  ///< held in a transaction on the volume's key
  mutable remora::detail::Mutex mutex_;
  std::string volume_value_ REMORA_GUARDED_BY(mutex_);
  /// The value that end_exclusive() writes or has replaced; empty: it was not called.
  std::string other_value_ REMORA_GUARDED_BY(mutex_);
  LeaseId lease_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume::detail
