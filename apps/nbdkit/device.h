#pragma once

/// The memory that nbdkit offers as a block device: one engine and one region or volume, opened
/// once, for all connections.
///
/// If a server returns with other memory, or does not return, the device has ended: every later
/// request fails, also of later connections and on other servers of the volume, until nbdkit is
/// started again. So a client that has stayed connected never reads other bytes than it has
/// written.
///
/// A mirror goes on without such a server. The device is its one writer, unless it is opened to be
/// read only, and ends when another client claims it.

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <remora/remora_c.h>

#include "memory.h"
#include "options.h"
#include "repairer.h"
#include "write_order.h"

typedef struct Device {
  remora_engine* engine;
  Memory memory;
  WriteOrder* order;   ///< of the writes of all connections
  Repairer* repairer;  ///< of a mirror that is claimed; for all others it does not run
  uint64_t reconnect_for_ns;
  char description[256];
  bool claimed;                 ///< a mirror; does not change while there are connections
  bool repairs;                 ///< lost copies of a claimed mirror are made anew
  atomic_bool mirror;           ///< losses of servers are its own matter
  atomic_bool degraded;         ///< the log says that a copy is gone; until all are there again
  atomic_bool interrupted;      ///< a session may not be connected
  atomic_bool ended;            ///< a session, or the claim, has ended for good
  atomic_uint_least64_t known;  ///< codes of failures that the log has, one bit each
  // Attempts that ended with REMORA_INDETERMINATE: all, and those that can have no late effect any
  // more.
  atomic_uint_least64_t in_doubt;
  atomic_uint_least64_t settled;
} Device;

/// Opens the memory, and claims a mirror that is to be written. Waits for a server that is not
/// there up to 10 s, and no longer than `reconnect_for_ns`, since nbdkit does not stop meanwhile.
/// Returns 0, or -1: nbdkit has the message. Starts threads: nbdkit must not fork afterwards.
int device_open(Device* device, const Options* options);

/// As device_open() in a child process, which closes the device again, but without waiting, so that
/// a wrong parameter is reported before nbdkit goes into the background.
int device_probe(const Options* options);

/// Called when no request and no queue of the device is left. Releases the claim.
void device_close(Device* device);

/// Whether a request that has failed with `code` must be repeated. Waits until the session is
/// resumed and the outcome of writes in doubt is known, until `*until_ns`, which it sets if it is
/// 0. A write is repeated as a whole: a client of a block device may not rely on anything before it
/// has the reply.
bool device_may_repeat(Device* device, int code, uint64_t* until_ns);

/// Whether a request may be passed to the library. Waits as device_may_repeat() while the session
/// is interrupted. The library would wait, too, but not notice that the client of the request has
/// gone. Requests that the library already has end without their client; WriteOrder makes writes
/// that the client sends again over another connection wait for them. Also waits for the outcome of
/// writes in doubt whose client did not wait for it: of several lanes, one may still work while
/// another one breaks.
bool device_may_begin(Device* device, uint64_t* until_ns);

/// False: another client has claimed the mirror. Bytes that were read may then be that client's.
bool device_keeps_claim(Device* device);

/// Why device_may_begin() has refused.
const char* device_refusal(Device* device);

/// Reports to nbdkit and its log that a request has failed. Returns -1.
int device_fail(Device* device, int code, const remora_error* error);
