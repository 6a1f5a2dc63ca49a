#pragma once

/// One queue of Remora for all threads of an NBD connection.
///
/// nbdkit calls the plugin from several threads, and each call returns when its request has ended.
/// A thread that finds the queue unused drives it: it submits the requests of all threads with one
/// doorbell, waits for completions, and wakes the threads whose requests have ended. When its own
/// request has ended, the thread of the oldest request continues. So requests that arrive while the
/// driving thread waits are submitted together, and a single request wakes no other thread.

#include <stddef.h>
#include <stdint.h>

#include <remora/remora_c.h>

#include "memory.h"

typedef struct SharedQueue SharedQueue;

/// At most `depth` requests are in flight; further ones wait. NULL: Remora makes no queue, or there
/// is no memory.
SharedQueue* shared_queue_create(const Memory* memory, size_t depth);
/// No thread may be in a call.
void shared_queue_free(SharedQueue* queue);

/// Any thread. They block until the request has ended: at most its deadline plus two seconds after
/// it was submitted. Return and `error`: as memory_read() and memory_write().
int shared_queue_read(SharedQueue* queue, uint64_t offset, void* into, size_t length,
                      remora_error* error);
int shared_queue_write(SharedQueue* queue, uint64_t offset, const void* from, size_t length,
                       remora_error* error);
