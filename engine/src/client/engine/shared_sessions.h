#pragma once

/// The sessions of an engine, one for each server and transport.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <remora/engine/uri.h>
#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"

namespace remora::detail {

class EngineServices;
class SessionCore;

/// Finds the session with a server, or starts one. The engine owns it. Thread-safe.
class SharedSessions {
 public:
  SharedSessions() = default;
  SharedSessions(const SharedSessions&) = delete;
  SharedSessions& operator=(const SharedSessions&) = delete;

  /// The session with the server of `uri` over `kind`. Blocks until it is connected, or until
  /// `deadline`. For each server and transport only one thread at a time connects, and the others
  /// wait for it. Errors: kTimedOut with kExpired; those of SessionCore::start().
  Result<std::shared_ptr<SessionCore>> find_or_start(EngineServices& engine, const Uri& uri,
                                                     TransportKind kind, bool hardware_only,
                                                     Deadline deadline);

  using Keyed = std::pair<std::string, std::shared_ptr<SessionCore>>;
  /// All sessions, ordered by their keys. A key begins with host|port|transport and, over rdma,
  /// ends with |settings of the fabric.
  [[nodiscard]] std::vector<Keyed> all() const;

 private:
  /// The right of one thread to connect for a key. Belongs to that thread.
  class Turn {
   public:
    Turn(SharedSessions& sessions, std::string key, Deadline deadline);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    /// False: another thread had the right until the deadline.
    [[nodiscard]] bool mine() const noexcept { return mine_; }

   private:
    SharedSessions& sessions_;
    std::string key_;
    bool mine_ = false;
  };

  mutable Mutex mutex_;
  Condition turn_over_;
  std::set<std::string> connecting_
      REMORA_GUARDED_BY(mutex_);  ///< Keys with a thread that may connect.
  std::map<std::string, std::weak_ptr<SessionCore>> sessions_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
