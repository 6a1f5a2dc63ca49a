#pragma once

/// The order of writes that change the same bytes over different NBD connections.
///
/// A client that loses its connection may send a write again over another one, while the first
/// attempt is still carried out here. A later write to the same bytes must not be overwritten by
/// that first attempt. So a write waits for every earlier one of another connection that it
/// overlaps. Writes of one connection have no order among each other: NBD asks for none.

#include <stdbool.h>
#include <stdint.h>

typedef struct WriteOrder WriteOrder;

/// A write that is carried out, or waits for earlier ones: on the stack of its thread.
typedef struct OrderedWrite {
  const void* connection;
  uint64_t offset;
  uint64_t length;
  // Of the order:
  struct OrderedWrite* before;
  struct OrderedWrite* after;
} OrderedWrite;

/// NULL: there is no memory.
WriteOrder* write_order_create(void);
/// No write may be in the order.
void write_order_free(WriteOrder* order);

/// Any thread. Blocks until no earlier write of another connection overlaps. Meanwhile it calls
/// `may_wait` every 100 ms, without a lock; where that returns false, it returns false too, and
/// `write` is not in the order. True: write_order_end() has to follow.
bool write_order_begin(WriteOrder* order, OrderedWrite* write, bool (*may_wait)(void));
/// The write has ended: it changes nothing any more.
void write_order_end(WriteOrder* order, OrderedWrite* write);
