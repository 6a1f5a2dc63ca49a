#pragma once

/// Sessions with the servers of a cluster, for control requests.

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/engine_share.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/volume/records.h>

namespace remora::volume {

/// Tries each server once: one that cannot be reached costs its time limit once, however many
/// groups it has. Thread-safe: while a server is tried, other threads wait.
class MemberServers {
 public:
  explicit MemberServers(remora::detail::EngineShare engine) : engine_{std::move(engine)} {}

  /// Tries the addresses in order. The session is over rdma or tcp, as those of the data path are.
  /// Errors: those of Engine::connect(), of the last address.
  Result<Session> connect(const std::string& server, const std::vector<std::string>& addresses);

 private:
  Result<Session> connect_one(const std::string& address) const;

  const remora::detail::EngineShare engine_;
  remora::detail::Mutex mutex_;
  std::map<std::string, Result<Session>, std::less<>> sessions_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::volume
