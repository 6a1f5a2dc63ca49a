#include "shared_queue.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

enum { kMaxCompletions = 64 };

/// A request, on the stack of the thread that waits for it.
typedef struct Transfer {
  uint64_t offset;
  void* into;        ///< of a read; else NULL
  const void* from;  ///< of a write
  size_t length;
  remora_error* error;
  int code;
  bool done;
  pthread_cond_t wake;  ///< it is done, or its thread must drive the queue
  struct Transfer* before;
  struct Transfer* after;
} Transfer;

struct SharedQueue {
  remora_queue* queue;  ///< used only by the driving thread
  pthread_mutex_t mutex;
  // Guarded by `mutex`:
  bool driven;
  bool to_submit;  ///< operations were taken that are not submitted
  size_t in_flight;
  Transfer* first;  ///< all that have not ended, in the order of their arrival
  Transfer* last;
  Transfer* first_waiting;  ///< from here on they are not in the queue; NULL: all are
};

SharedQueue* shared_queue_create(const Memory* memory, size_t depth) {
  SharedQueue* const made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  if (pthread_mutex_init(&made->mutex, NULL) != 0) {
    free(made);
    return NULL;
  }
  if (memory_queue(memory, depth, &made->queue) != REMORA_OK) {
    shared_queue_free(made);
    return NULL;
  }
  return made;
}

void shared_queue_free(SharedQueue* queue) {
  if (queue == NULL) return;
  remora_queue_free(queue->queue);
  pthread_mutex_destroy(&queue->mutex);
  free(queue);
}

// All below are called with the mutex locked.

static void append(SharedQueue* queue, Transfer* transfer) {
  transfer->before = queue->last;
  transfer->after = NULL;
  if (queue->last != NULL)
    queue->last->after = transfer;
  else
    queue->first = transfer;
  queue->last = transfer;
  if (queue->first_waiting == NULL) queue->first_waiting = transfer;
}

/// Its thread may return, and the transfer may end, once the mutex is unlocked.
static void end(SharedQueue* queue, Transfer* transfer, int code) {
  if (transfer->before != NULL)
    transfer->before->after = transfer->after;
  else
    queue->first = transfer->after;
  if (transfer->after != NULL)
    transfer->after->before = transfer->before;
  else
    queue->last = transfer->before;
  if (queue->first_waiting == transfer) queue->first_waiting = transfer->after;
  transfer->code = code;
  transfer->done = true;
  pthread_cond_signal(&transfer->wake);
}

/// Takes the waiting transfers into the queue, as far as there is room.
static void take_waiting(SharedQueue* queue) {
  while (queue->first_waiting != NULL) {
    Transfer* const next = queue->first_waiting;
    const uint64_t tag = (uintptr_t)next;
    const uint64_t ticket =
        next->into != NULL
            ? remora_queue_read(queue->queue, next->offset, next->into, next->length, NULL, tag)
            : remora_queue_write(queue->queue, next->offset, next->from, next->length, NULL, tag);
    if (ticket == 0) break;  // the queue is full, or unusable: collect() notices
    queue->first_waiting = next->after;
    queue->to_submit = true;
    ++queue->in_flight;
  }
}

/// Submits all waiting operations with one doorbell. Unlocks the mutex meanwhile. After a failure
/// the driving thread tries again, after the pause of collect().
static void hand_over(SharedQueue* queue) {
  take_waiting(queue);
  if (!queue->to_submit) return;
  pthread_mutex_unlock(&queue->mutex);
  const int status = remora_queue_submit(queue->queue, NULL);  // other faults: completions
  pthread_mutex_lock(&queue->mutex);
  queue->to_submit = status != REMORA_OK;
}

/// The queue cannot be used any more: no operation of it is in flight.
static void end_all(SharedQueue* queue) {
  while (queue->first != NULL) end(queue, queue->first, REMORA_CLOSED);
  queue->in_flight = 0;
  queue->to_submit = false;
}

/// Waits for at least one completion, and ends the transfers of all completions. Unlocks the mutex
/// while it waits.
static void collect(SharedQueue* queue) {
  remora_completion found[kMaxCompletions];
  size_t count = 0;
  pthread_mutex_unlock(&queue->mutex);
  const int status = remora_queue_wait(queue->queue, 1, found, kMaxCompletions, &count, NULL);
  if (count == 0) {  // the wait has failed, or a submit before it: no loop without a pause
    const struct timespec interval = {.tv_sec = 0, .tv_nsec = 1000000};
    nanosleep(&interval, NULL);
  }
  pthread_mutex_lock(&queue->mutex);
  for (size_t i = 0; i < count; ++i) {
    Transfer* const ended = (Transfer*)(uintptr_t)found[i].tag;
    if (found[i].code != REMORA_OK)
      (void)remora_queue_completion_error(queue->queue, &found[i], ended->error);
    --queue->in_flight;
    end(queue, ended, found[i].code);
  }
  // A queue that takes no operation although it is empty cannot be used either.
  if (status == REMORA_CLOSED || (count == 0 && queue->in_flight == 0)) end_all(queue);
}

/// Drives the queue until `own` has ended, then lets the thread of the oldest transfer continue.
static void drive(SharedQueue* queue, const Transfer* own) {
  queue->driven = true;
  while (!own->done) {
    hand_over(queue);
    collect(queue);
  }
  hand_over(queue);  // before the next thread is awake
  queue->driven = false;
  if (queue->first != NULL) pthread_cond_signal(&queue->first->wake);
}

// With the mutex unlocked.

static int carry_out(SharedQueue* queue, Transfer* transfer) {
  if (pthread_cond_init(&transfer->wake, NULL) != 0) return REMORA_OUT_OF_MEMORY;
  pthread_mutex_lock(&queue->mutex);
  append(queue, transfer);
  while (!transfer->done) {
    if (queue->driven)
      pthread_cond_wait(&transfer->wake, &queue->mutex);
    else
      drive(queue, transfer);
  }
  pthread_mutex_unlock(&queue->mutex);
  pthread_cond_destroy(&transfer->wake);
  return transfer->code;
}

int shared_queue_read(SharedQueue* queue, uint64_t offset, void* into, size_t length,
                      remora_error* error) {
  Transfer transfer = {.offset = offset, .into = into, .length = length, .error = error};
  return carry_out(queue, &transfer);
}

int shared_queue_write(SharedQueue* queue, uint64_t offset, const void* from, size_t length,
                       remora_error* error) {
  Transfer transfer = {.offset = offset, .from = from, .length = length, .error = error};
  return carry_out(queue, &transfer);
}
