#include "request.h"

#include <nbdkit-plugin.h>
#include <stdlib.h>

/// Longer requests gain nothing by a common doorbell. They go by themselves, over all lanes, and
/// over rdma their memory may have to be registered first, which no other request waits for.
enum { kMaxQueuedBytes = 64 * 1024 };

Connection* connection_open(Device* device, unsigned depth) {
  Connection* const made = calloc(1, sizeof *made);
  if (made == NULL) {
    nbdkit_error("calloc: %m");
    return NULL;
  }
  made->device = device;
  // Over shm a request is a copy, which its own thread makes. While the session is interrupted
  // there may be no queue: then the requests go without one.
  if (device->transport != REMORA_TRANSPORT_SHM)
    made->queue = shared_queue_create(device->region, depth);
  return made;
}

void connection_close(Connection* connection) {
  shared_queue_free(connection->queue);
  free(connection);
}

/// As the functions of remora_c.h, with the deadline of the engine.
static int attempt(const Connection* connection, const Request* request, remora_error* error) {
  const remora_region* const region = connection->device->region;
  SharedQueue* const queue = request->length <= kMaxQueuedBytes ? connection->queue : NULL;
  const uint64_t at = request->offset;
  const size_t length = (size_t)request->length;
  switch (request->kind) {
    case kRead:
      if (queue != NULL) return shared_queue_read(queue, at, request->into, length, error);
      return remora_region_read(region, at, request->into, length, NULL, 0, error);
    case kWrite:
      if (queue != NULL) return shared_queue_write(queue, at, request->from, length, error);
      return remora_region_write(region, at, request->from, length, NULL, 0, error);
    case kZero: return remora_region_write_zeroes(region, at, request->length, 0, error);
    case kFlush: return remora_region_flush_visible(region, 0, error);
  }
  return REMORA_INTERNAL;
}

int carry_out(const Connection* connection, const Request* request) {
  remora_error error;  // filled by an attempt that fails
  error.size = sizeof error;
  error.reason = REMORA_REASON_NONE;
  error.message[0] = '\0';
  Device* const device = connection->device;
  uint64_t until_ns = 0;
  int code = REMORA_CONNECTION_LOST;
  if (device_may_begin(device, &until_ns)) code = attempt(connection, request, &error);
  while (code != REMORA_OK && device_may_repeat(device, code, &until_ns))
    code = attempt(connection, request, &error);
  return code == REMORA_OK ? 0 : device_fail(device, code, &error);
}
