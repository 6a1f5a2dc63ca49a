#pragma once

/// Makes lost copies of a mirror anew while the device is in use, in a thread of its own.

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "memory.h"

typedef struct Repairer Repairer;

typedef struct RepairerOptions {
  const Memory* memory;           ///< a mirror that this process has claimed; borrowed
  uint64_t bytes_per_second_max;  ///< of all copies together; 0: no limit
  atomic_bool* degraded;          ///< becomes false when all copies are there; borrowed
} RepairerOptions;

/// Its thread does not run yet. NULL: no memory.
Repairer* repairer_create(void);
/// Once. The thread looks for missing copies at once, and after each repairer_wake(). While some
/// are missing that no server has room for, it tries again every ten seconds at the latest. Returns
/// 0, or -1: nbdkit has the message.
int repairer_start(Repairer* repairer, const RepairerOptions* options);
/// Any thread, also before the start, and in a handler of the volume: never blocks for a server.
void repairer_wake(Repairer* repairer);
/// Ends the thread, if it runs. A copy in work is given up and removed, which takes some seconds if
/// a server does not answer.
void repairer_stop(Repairer* repairer);
/// After repairer_stop(); NULL is ignored.
void repairer_free(Repairer* repairer);
