#pragma once

/// Connects again when the peer's connection manager still knows the queue pair.

#include <remora/verbs/connection.h>

#include "base/clock.h"
#include "base/log.h"

namespace remora::transport::rdma {

/// After a host has crashed, its device may assign the number of a queue pair that the peer still
/// has. The peer then refuses the request and destroys that queue pair, so the next request is
/// accepted, or has another number. `connect(stale)` sets `stale` if it was refused for this
/// reason.
template <typename Connect>
auto connect_past_stale(Deadline deadline, Connect connect) {
  constexpr int kTries = 4;
  for (int i = 1;; ++i) {
    bool stale = false;
    auto made = connect(stale);
    if (made || !stale || i == kTries || Clock::now() >= deadline) return made;
    log::debug("rdma: {}: the peer had a stale connection of that number; again",
               made.error().message());
  }
}

}  // namespace remora::transport::rdma
