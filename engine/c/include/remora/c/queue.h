#pragma once

/// A queue of operations: fill, remora_queue_submit() (one doorbell), remora_queue_wait().
///
/// A queue belongs to one thread at a time. Several queues, also of one region, may be used by
/// several threads at once. A call of submit, wait, poll, progress or cancel during another
/// thread's on the same queue is REMORA_BUSY and changes nothing; other calls at once are a fault
/// of the program that is not noticed.
///
/// Operations in flight are unordered among each other. Each one that was taken ends exactly once,
/// as a completion, within its deadline plus two seconds.
///
/// In an event loop: wait for remora_queue_event_fd() to be readable, until
/// remora_queue_next_deadline() at the latest, then call remora_queue_progress() until it returns
/// fewer completions than fit. No thread of the engine takes part.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/error.h>
#include <remora/c/memory.h>
#include <remora/c/region.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

typedef struct remora_queue remora_queue;

typedef struct remora_queue_options {
  size_t size;           ///< sizeof(remora_queue_options)
  size_t depth;          ///< most operations taken and not handed back, 1 to 65,536; 0: 64
  uint64_t deadline_ns;  ///< from submit to completion; 0: the engine's
} remora_queue_options;

/// How one operation ended.
typedef struct remora_completion {
  uint64_t tag;        ///< the caller's own word, given with the operation
  uint64_t ticket;     ///< names the operation
  uint64_t old_value;  ///< of an atomic operation that succeeded: what stood there before
  int32_t code;        ///< REMORA_OK, or as the synchronous operations return it
  int32_t reason;      ///< of remora_reason
} remora_completion;

/// `options` may be NULL. Errors: REMORA_INVALID_ARGUMENT (depth), REMORA_OUT_OF_MEMORY,
/// REMORA_CONNECTION_LOST.
REMORA_C_EXPORT int remora_queue_create(const remora_region* region,
                                        const remora_queue_options* options, remora_queue** queue,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// Submits nothing more, waits for what is in flight (at most its deadline plus two seconds) and
/// drops the results.
REMORA_C_EXPORT void remora_queue_free(remora_queue* queue) REMORA_C_NOEXCEPT;

/// Each of these takes one operation, which the next submit posts, and returns its ticket. 0:
/// nothing was taken, since the queue is full; or `queue` cannot be used, and remora_queue_submit()
/// says why. All other misuse arrives as a completion; of a `memory` that is no live handle, as
/// REMORA_INVALID_ARGUMENT. They never allocate, and block only where registered memory is used
/// with a device for the first time.
REMORA_C_EXPORT uint64_t remora_queue_read(remora_queue* queue, uint64_t offset, void* into,
                                           size_t length, const remora_memory* memory,
                                           uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_write(remora_queue* queue, uint64_t offset, const void* from,
                                            size_t length, const remora_memory* memory,
                                            uint64_t tag) REMORA_C_NOEXCEPT;
/// The array of pieces is borrowed like the memory: until the operation has completed.
REMORA_C_EXPORT uint64_t remora_queue_read_pieces(remora_queue* queue, uint64_t offset,
                                                  const remora_piece* pieces, size_t count,
                                                  uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_write_pieces(remora_queue* queue, uint64_t offset,
                                                   const remora_piece* pieces, size_t count,
                                                   uint64_t tag) REMORA_C_NOEXCEPT;
/// Over shm the submit blocks until the server has the notice.
REMORA_C_EXPORT uint64_t remora_queue_write_notify(remora_queue* queue, uint64_t offset,
                                                   const void* from, size_t length,
                                                   const remora_memory* memory, uint32_t notice,
                                                   uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_write_zeroes(remora_queue* queue, uint64_t offset,
                                                   uint64_t length, uint64_t tag) REMORA_C_NOEXCEPT;
/// Put a barrier before it to flush the writes of this queue.
REMORA_C_EXPORT uint64_t remora_queue_flush_visible(remora_queue* queue,
                                                    uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_compare_swap(remora_queue* queue, uint64_t offset,
                                                   uint64_t expected, uint64_t desired,
                                                   uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_fetch_add(remora_queue* queue, uint64_t offset,
                                                uint64_t delta, uint64_t tag) REMORA_C_NOEXCEPT;

/// Each of these takes `count` operations as one, with one ticket, and one completion when all of
/// them have ended: REMORA_OK where every pair succeeded, else the code of the failed pair that
/// stands first; the message names its index, from 0 on. Each pair ends by itself, as in the calls
/// with many of <remora/c/region.h>, and needs a place of the queue until it has ended. 0: nothing
/// was taken, since there is not room for all of them (remora_queue_room()), there are none, an
/// array is null or misaligned, or there is no memory. `each` may be NULL, or takes the outcome of
/// every pair when the completion is handed out. `each` and the pairs of atomics, which take the
/// old values, are borrowed until then, the pairs of reads and writes for the call only.
/// remora_queue_cancel() ends all pairs or none. The first call with `each` on a queue allocates.
REMORA_C_EXPORT uint64_t remora_queue_read_many(remora_queue* queue, const remora_pair* pairs,
                                                size_t count, remora_pair_outcome* each,
                                                uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_write_many(remora_queue* queue, const remora_pair* pairs,
                                                 size_t count, remora_pair_outcome* each,
                                                 uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_fetch_add_many(remora_queue* queue, remora_add_pair* pairs,
                                                     size_t count, remora_pair_outcome* each,
                                                     uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_compare_swap_many(remora_queue* queue,
                                                        remora_swap_pair* pairs, size_t count,
                                                        remora_pair_outcome* each,
                                                        uint64_t tag) REMORA_C_NOEXCEPT;

/// Operations from now on are for `region`, another one of the same session; the queue keeps every
/// region open that it was used on. Errors: REMORA_INVALID_ARGUMENT (a region of another session),
/// REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_queue_select(remora_queue* queue, const remora_region* region,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// Hands over everything taken since the last submit: one chain, one doorbell. Faults of an
/// operation or of the session arrive as completions. Errors: REMORA_BUSY.
REMORA_C_EXPORT int remora_queue_submit(remora_queue* queue, remora_error* error) REMORA_C_NOEXCEPT;
/// What is taken after it is posted only when everything taken before has completed, with whatever
/// code. Never blocks.
REMORA_C_EXPORT int remora_queue_barrier(remora_queue* queue) REMORA_C_NOEXCEPT;
/// Ends an operation that has not been posted: it completes with REMORA_CANCELLED. Errors:
/// REMORA_BUSY (posted: it ends by itself), REMORA_NOT_FOUND (it was handed out already).
REMORA_C_EXPORT int remora_queue_cancel(remora_queue* queue, uint64_t ticket,
                                        remora_error* error) REMORA_C_NOEXCEPT;

/// Blocks until `at_least` operations have ended (0: does not wait; more than `capacity`: as many
/// as that) or all that was submitted has, and puts up to `capacity` (1 at least) completions into
/// `completions`, in no order that can be relied on. `*count` says how many, also where the call
/// fails. When `*count` is `capacity` there may be more: the next call has them. Errors:
/// REMORA_BUSY.
REMORA_C_EXPORT int remora_queue_wait(remora_queue* queue, size_t at_least,
                                      remora_completion* completions, size_t capacity,
                                      size_t* count, remora_error* error) REMORA_C_NOEXCEPT;
/// As wait with `at_least` 0.
REMORA_C_EXPORT int remora_queue_poll(remora_queue* queue, remora_completion* completions,
                                      size_t capacity, size_t* count,
                                      remora_error* error) REMORA_C_NOEXCEPT;
/// As poll; also takes the events of the descriptor and asks for the next one, so that nothing is
/// missed between a call with `*count` below `capacity` and the next sleep.
REMORA_C_EXPORT int remora_queue_progress(remora_queue* queue, remora_completion* completions,
                                          size_t capacity, size_t* count,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// The whole error of a completion that the last wait, poll or progress of this queue has returned.
/// Returns the completion's code, or REMORA_NOT_FOUND where it is not one of these.
REMORA_C_EXPORT int remora_queue_completion_error(const remora_queue* queue,
                                                  const remora_completion* completion,
                                                  remora_error* error) REMORA_C_NOEXCEPT;

/// A descriptor that is readable when progress has something to do, for epoll(7), poll(2) and
/// event loops. The queue owns it. Errors: REMORA_SYSTEM.
REMORA_C_EXPORT int remora_queue_event_fd(remora_queue* queue, int* descriptor,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// When the earliest operation in flight runs out of time, by CLOCK_MONOTONIC; UINT64_MAX when
/// nothing is in flight.
REMORA_C_EXPORT uint64_t remora_queue_next_deadline(const remora_queue* queue) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT size_t remora_queue_depth(const remora_queue* queue) REMORA_C_NOEXCEPT;
/// Operations that can be taken before the queue is full.
REMORA_C_EXPORT size_t remora_queue_room(const remora_queue* queue) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
