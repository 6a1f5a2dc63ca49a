#pragma once

/// An NBD connection, and the requests that it carries out on the device.

#include <stdint.h>

#include "device.h"
#include "shared_queue.h"

typedef struct Connection {
  Device* device;
  SharedQueue* queue;  ///< NULL: each thread carries out its own requests
} Connection;

typedef enum RequestKind { kRead, kWrite, kZero, kFlush } RequestKind;

typedef struct Request {
  RequestKind kind;
  uint64_t offset;
  uint64_t length;
  void* into;        ///< of kRead
  const void* from;  ///< of kWrite
} Request;

/// NULL: no memory, and nbdkit has the message.
Connection* connection_open(Device* device, unsigned depth);
void connection_close(Connection* connection);

/// Any thread; blocks until the request has ended, and its memory is not used any more. The request
/// is repeated while its server can still return. A write waits for earlier overlapping writes of
/// other connections. Returns 0, or -1: nbdkit has the error.
int carry_out(const Connection* connection, const Request* request);
