#include "request.h"

#include <nbdkit-plugin.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "write_order.h"

/// Longer requests gain nothing by a common doorbell. They are posted separately, over all lanes,
/// and over rdma their memory may have to be registered first, for which no other request waits.
enum { kMaxQueuedBytes = 64 * 1024 };

Connection* connection_open(Device* device, unsigned depth) {
  Connection* const made = calloc(1, sizeof *made);
  if (made == NULL) {
    nbdkit_error("calloc: %m");
    return NULL;
  }
  made->device = device;
  // Over shm a request is a copy, which its own thread makes. While the session is interrupted
  // there may be no queue: then requests do not use one.
  if (memory_transports(&device->memory) != 1U << REMORA_TRANSPORT_SHM)
    made->queue = shared_queue_create(&device->memory, depth);
  return made;
}

void connection_close(Connection* connection) {
  shared_queue_free(connection->queue);
  free(connection);
}

/// As the functions of remora_c.h, with the deadline of the engine.
static int attempt(const Connection* connection, const Request* request, remora_error* error) {
  const Memory* const memory = &connection->device->memory;
  SharedQueue* const queue = request->length <= kMaxQueuedBytes ? connection->queue : NULL;
  const uint64_t at = request->offset;
  const size_t length = (size_t)request->length;
  switch (request->kind) {
    case kRead:
      if (queue != NULL) return shared_queue_read(queue, at, request->into, length, error);
      return memory_read(memory, at, request->into, length, error);
    case kWrite:
      if (queue != NULL) return shared_queue_write(queue, at, request->from, length, error);
      return memory_write(memory, at, request->from, length, error);
    case kZero: return memory_zero(memory, at, request->length, error);
    case kFlush: return memory_flush(memory, error);
  }
  return REMORA_INTERNAL;
}

/// Whether to continue waiting: nbdkit does not stop, and the client of the request has not gone.
static bool client_waits(void) { return nbdkit_nanosleep(0, 1000000) == 0; }

/// Not every failure fills in the error: it must not keep that of an earlier attempt.
static void clear(remora_error* error) {
  error->size = sizeof *error;
  error->reason = REMORA_REASON_NONE;
  error->message[0] = '\0';
}

/// A request that ends before the library has it.
static int end_unsent(remora_error* error, const char* why) {
  clear(error);
  (void)snprintf(error->message, sizeof error->message, "%s", why);
  return REMORA_CONNECTION_LOST;
}

/// Repeats while the server can still return. Returns the code of the last attempt, with its
/// `error`.
static int attempt_repeatedly(const Connection* connection, const Request* request,
                              remora_error* error) {
  Device* const device = connection->device;
  uint64_t until_ns = 0;
  if (!device_may_begin(device, &until_ns)) return end_unsent(error, device_refusal(device));
  int code = REMORA_OK;
  do {
    clear(error);
    code = attempt(connection, request, error);
  } while (code != REMORA_OK && device_may_repeat(device, code, &until_ns));
  if (code == REMORA_OK && request->kind == kRead && !device_keeps_claim(device))
    return end_unsent(error, device_refusal(device));
  return code;
}

/// In parts, each of which has the whole deadline.
static int zero_in_parts(const Connection* connection, const Request* request,
                         remora_error* error) {
  enum { kMaxPartBytes = 64 << 20 };
  Request part = *request;
  int code = REMORA_OK;
  for (uint64_t done = 0; code == REMORA_OK && done < request->length; done += part.length) {
    const uint64_t left = request->length - done;
    part.offset = request->offset + done;
    part.length = left < kMaxPartBytes ? left : kMaxPartBytes;
    code = attempt_repeatedly(connection, &part, error);
  }
  return code;
}

int carry_out(const Connection* connection, const Request* request) {
  remora_error error;  // its large texts are not cleared
  Device* const device = connection->device;
  const bool changes = request->kind == kWrite || request->kind == kZero;
  OrderedWrite write = {
      .connection = connection, .offset = request->offset, .length = request->length};
  if (changes && !write_order_begin(device->order, &write, client_waits))
    return device_fail(
        device, end_unsent(&error, "not sent: the client left while an earlier write went on"),
        &error);
  const int code = request->kind == kZero ? zero_in_parts(connection, request, &error)
                                          : attempt_repeatedly(connection, request, &error);
  if (changes) write_order_end(device->order, &write);
  return code == REMORA_OK ? 0 : device_fail(device, code, &error);
}
