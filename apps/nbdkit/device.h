#pragma once

/// The region that nbdkit offers as a block device: one engine, one grant, one session, for all
/// connections.
///
/// A region is opened once. When its server comes back with other memory, or does not come back,
/// the device has ended: every later request fails, also of later connections, until nbdkit is
/// started again. So no client that has stayed connected finds other bytes than it has written.

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <remora/remora_c.h>

#include "options.h"
#include "write_order.h"

typedef struct Device {
  remora_engine* engine;
  remora_region* region;
  WriteOrder* order;  ///< of the writes of all connections
  remora_region_info info;
  int transport;  ///< of remora_transport
  bool writable;
  uint64_t reconnect_for_ns;
  char description[256];
  atomic_bool ended;            ///< its session will not be resumed
  atomic_uint_least64_t known;  ///< codes of failures that the log has; a bit each
  // Attempts that ended with REMORA_INDETERMINATE: all, and those without a late effect by now.
  atomic_uint_least64_t in_doubt;
  atomic_uint_least64_t settled;
} Device;

/// Opens the region. A server that is gone is waited for: up to 10 s, and no longer than
/// `reconnect_for_ns`, since nbdkit does not stop meanwhile. 0; -1: nbdkit has the message.
/// Starts threads: nbdkit must not fork afterwards.
int device_open(Device* device, const Options* options);

/// As device_open() in a child process, which closes the device again, but without waiting: a wrong
/// parameter is told before nbdkit goes into the background.
int device_probe(const Options* options);

/// No request and no queue of the device is left.
void device_close(Device* device);

/// Whether a request that has failed with `code` is to be carried out once more. Waits for the
/// session to be resumed and for the outcome of writes in doubt, until `*until_ns`, which it sets
/// where it is 0. A write is repeated as a whole: a client of a block device may not rely on
/// anything before it has the reply.
bool device_may_repeat(Device* device, int code, uint64_t* until_ns);

/// Whether a request may be given to the library. Waits as device_may_repeat() while the session is
/// interrupted. The library would wait as well, but not notice that the client of the request has
/// gone. What it has already ends without its client; WriteOrder has writes that the client sends
/// again over another connection wait for it. Also waits for the outcome of writes in doubt whose
/// client did not wait for it: of several lanes, one may still work while another one breaks.
bool device_may_begin(Device* device, uint64_t* until_ns);

/// Tells nbdkit and its log that a request has failed. Returns -1.
int device_fail(Device* device, int code, const remora_error* error);
