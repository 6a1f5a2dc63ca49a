#pragma once

/// Registers the server in its cluster, for as long as it serves.

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <remora/config/server_config.h>
#include <remora/engine/server.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/cluster.h>
#include <remora/volume/metadata_store.h>
#include <remora/volume/records.h>

#include "server/cluster_metrics.h"

namespace remora::apps {

/// A thread of its own, so that a store that does not answer delays nothing of the server. It keeps
/// a lease of kLease, and the record of the server with it. A store that cannot be reached, and a
/// name that another server has, are logged once and tried again: the server serves meanwhile.
/// The destructor ends the lease. It waits for that call, and for the rest of the thread's present
/// round: each call ends within kCall and a second (metadata_store.h).
class ClusterMember {
 public:
  static constexpr std::chrono::seconds kLease{10};
  static constexpr std::chrono::seconds kBeat{3};
  static constexpr std::chrono::seconds kCall{2};

  /// `server` outlives the object, whose series are in the server's registry. Null without
  /// `cluster` in the configuration. Errors: kNotFound, kPermissionDenied (a file of `cluster`);
  /// those of ClusterMetrics::create() and start_thread().
  static Result<std::unique_ptr<ClusterMember>> start(const config::ServerConfig& configuration,
                                                      const Server& server);
  ~ClusterMember();
  ClusterMember(const ClusterMember&) = delete;
  ClusterMember& operator=(const ClusterMember&) = delete;

 private:
  using StatusOf = std::function<ServerStatus()>;
  /// What the log has said last.
  enum class Told : std::uint8_t { kNothing, kRegistered, kUnreachable, kNameTaken };

  ClusterMember(volume::Cluster cluster, volume::ServerRecord record, StatusOf status,
                std::unique_ptr<ClusterMetrics> metrics)
      : cluster_{std::move(cluster)},
        record_{std::move(record)},
        status_{std::move(status)},
        metrics_{std::move(metrics)} {}
  void run() noexcept;
  void beat();
  void refresh_record();
  Status renew();
  Status register_again();
  Status tell_renewed();
  void tell_unreachable(const Error& error);
  void tell_name_taken(const std::string& value);

  const volume::Cluster cluster_;
  volume::ServerRecord record_;
  const StatusOf status_;
  const std::unique_ptr<ClusterMetrics> metrics_;
  volume::LeaseId lease_ = volume::kNoLease;
  std::string value_{};  ///< of the server's key; empty: not registered
  Told told_ = Told::kNothing;
  /// Since when another server's record has stood there.
  std::optional<std::chrono::steady_clock::time_point> taken_since_{};
  detail::Mutex mutex_;
  detail::Condition stopped_;
  bool stop_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace remora::apps
