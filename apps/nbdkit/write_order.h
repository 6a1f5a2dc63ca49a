#pragma once

/// The order of writes that change the same bytes over different NBD connections.
///
/// A client that loses its connection may send a write again over another connection, while the
/// plugin still executes the first attempt. That first attempt must not overwrite a later write to
/// the same bytes. So a write waits for every earlier overlapping write of another connection.
/// Writes of one connection are unordered: NBD requires no order.

#include <stdbool.h>
#include <stdint.h>

typedef struct WriteOrder WriteOrder;

/// A write that is being executed, or waits for earlier ones: on the stack of its thread.
typedef struct OrderedWrite {
  const void* connection;
  uint64_t offset;
  uint64_t length;
  // Of the order:
  struct OrderedWrite* before;
  struct OrderedWrite* after;
} OrderedWrite;

/// NULL: no memory.
WriteOrder* write_order_create(void);
/// No write may be in the order.
void write_order_free(WriteOrder* order);

/// Any thread. Blocks until no earlier write of another connection overlaps. Meanwhile it calls
/// `may_wait` every 100 ms, without a lock; if that returns false, it returns false, too, and
/// `write` is not in the order. True: write_order_end() must follow.
bool write_order_begin(WriteOrder* order, OrderedWrite* write, bool (*may_wait)(void));
/// The write has ended: it changes nothing any more.
void write_order_end(WriteOrder* order, OrderedWrite* write);
