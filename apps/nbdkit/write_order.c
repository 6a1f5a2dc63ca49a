#include "write_order.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <time.h>

struct WriteOrder {
  pthread_mutex_t mutex;
  pthread_cond_t ended;  ///< waits by CLOCK_MONOTONIC
  // Guarded by `mutex`:
  OrderedWrite* first;  ///< with those that wait, in the order of their arrival
  OrderedWrite* last;
  unsigned waiting;  ///< threads that wait for `ended`
};

static bool init_condition(pthread_cond_t* condition) {
  pthread_condattr_t attributes;
  if (pthread_condattr_init(&attributes) != 0) return false;
  const bool made = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0 &&
                    pthread_cond_init(condition, &attributes) == 0;
  pthread_condattr_destroy(&attributes);
  return made;
}

WriteOrder* write_order_create(void) {
  WriteOrder* const made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  if (!init_condition(&made->ended)) {
    free(made);
    return NULL;
  }
  if (pthread_mutex_init(&made->mutex, NULL) != 0) {
    pthread_cond_destroy(&made->ended);
    free(made);
    return NULL;
  }
  return made;
}

void write_order_free(WriteOrder* order) {
  if (order == NULL) return;
  pthread_mutex_destroy(&order->mutex);
  pthread_cond_destroy(&order->ended);
  free(order);
}

// All below are called with the mutex locked.

static void append(WriteOrder* order, OrderedWrite* write) {
  write->before = order->last;
  write->after = NULL;
  if (order->last != NULL)
    order->last->after = write;
  else
    order->first = write;
  order->last = write;
}

static void take_out(WriteOrder* order, OrderedWrite* write) {
  if (write->before != NULL)
    write->before->after = write->after;
  else
    order->first = write->after;
  if (write->after != NULL)
    write->after->before = write->before;
  else
    order->last = write->before;
  if (order->waiting > 0) pthread_cond_broadcast(&order->ended);
}

/// nbdkit has checked that no request reaches beyond the end of the device.
static bool overlap(const OrderedWrite* one, const OrderedWrite* other) {
  return one->offset < other->offset + other->length && other->offset < one->offset + one->length;
}

/// Each write waits only for earlier ones, so the first write of all never waits.
static bool has_to_wait(const OrderedWrite* write) {
  for (const OrderedWrite* at = write->before; at != NULL; at = at->before)
    if (at->connection != write->connection && overlap(at, write)) return true;
  return false;
}

// With the mutex unlocked.

static struct timespec next_look(void) {
  enum { kSecondNs = 1000000000, kIntervalNs = 100000000 };
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  at.tv_nsec += kIntervalNs;
  if (at.tv_nsec >= kSecondNs) {
    at.tv_nsec -= kSecondNs;
    ++at.tv_sec;
  }
  return at;
}

/// Unlocks the mutex while it waits: until `at`, or until the write no longer has to wait. Returns
/// whether it still has to.
static bool wait_until(WriteOrder* order, const OrderedWrite* write, struct timespec at) {
  int status = 0;
  pthread_mutex_lock(&order->mutex);
  ++order->waiting;
  while (has_to_wait(write) && status == 0)
    status = pthread_cond_timedwait(&order->ended, &order->mutex, &at);
  --order->waiting;
  const bool waits = has_to_wait(write);
  pthread_mutex_unlock(&order->mutex);
  return waits;
}

bool write_order_begin(WriteOrder* order, OrderedWrite* write, bool (*may_wait)(void)) {
  pthread_mutex_lock(&order->mutex);
  append(order, write);
  const bool waits = has_to_wait(write);
  pthread_mutex_unlock(&order->mutex);
  if (!waits) return true;
  while (wait_until(order, write, next_look())) {
    if (may_wait()) continue;
    write_order_end(order, write);
    return false;
  }
  return true;
}

void write_order_end(WriteOrder* order, OrderedWrite* write) {
  pthread_mutex_lock(&order->mutex);
  take_out(order, write);
  pthread_mutex_unlock(&order->mutex);
}
