#pragma once

/// A queue of operations: fill, remora_queue_submit() (one doorbell), remora_queue_wait().
/// <remora/c/volume.h> makes queues of a volume, and says which of these functions they lack.
///
/// A queue belongs to one thread at a time. Several queues, also of one region, may be used by
/// several threads at once. A call of submit, wait, poll, progress or cancel during another
/// thread's on the same queue is REMORA_BUSY and changes nothing; any other two calls at the same
/// time are a fault of the program, which the library does not detect.
///
/// Operations in flight have no order. Each operation that the queue has taken ends exactly once,
/// with a completion, within its deadline plus two seconds.
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

/// See the top of this file.
typedef struct remora_queue remora_queue;

/// The capacity and the deadline of a queue.
typedef struct remora_queue_options {
  size_t size;           ///< sizeof(remora_queue_options)
  size_t depth;          ///< most operations taken and not handed back, 1 to 65,536; 0: 64
  uint64_t deadline_ns;  ///< from submit to completion; 0: the engine's own
} remora_queue_options;

/// How one operation ended.
typedef struct remora_completion {
  uint64_t tag;        ///< the caller's own word, given with the operation
  uint64_t ticket;     ///< names the operation
  uint64_t old_value;  ///< the value before an atomic operation that succeeded
  int32_t code;        ///< REMORA_OK, or as the synchronous operations return it
  int32_t reason;      ///< of remora_reason
} remora_completion;

/// A queue of operations on `region`, which it keeps open. `options` may be NULL: the defaults.
/// Errors: REMORA_INVALID_ARGUMENT (depth), REMORA_OUT_OF_MEMORY,
/// REMORA_CONNECTION_LOST.
REMORA_C_EXPORT int remora_queue_create(const remora_region* region,
                                        const remora_queue_options* options, remora_queue** queue,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// Submits nothing more, waits for the operations in flight (at most their deadline plus two
/// seconds) and drops their results.
REMORA_C_EXPORT void remora_queue_free(remora_queue* queue) REMORA_C_NOEXCEPT;

/// Each of these takes one operation, which the next submit posts, and returns its ticket. Returns
/// 0, and takes nothing, when the queue is full or `queue` cannot be used; remora_queue_submit()
/// then returns the reason. Every other misuse arrives as a completion: for a `memory` that is no
/// live handle, with REMORA_INVALID_ARGUMENT. These functions never allocate, and block only where
/// registered memory is used with a device for the first time.
REMORA_C_EXPORT uint64_t remora_queue_read(remora_queue* queue, uint64_t offset, void* into,
                                           size_t length, const remora_memory* memory,
                                           uint64_t tag) REMORA_C_NOEXCEPT;
/// `from` is only read, and must not change before the operation has completed.
REMORA_C_EXPORT uint64_t remora_queue_write(remora_queue* queue, uint64_t offset, const void* from,
                                            size_t length, const remora_memory* memory,
                                            uint64_t tag) REMORA_C_NOEXCEPT;
/// The array of pieces is borrowed, as the memory is, until the operation has completed.
REMORA_C_EXPORT uint64_t remora_queue_read_pieces(remora_queue* queue, uint64_t offset,
                                                  const remora_piece* pieces, size_t count,
                                                  uint64_t tag) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_queue_write_pieces(remora_queue* queue, uint64_t offset,
                                                   const remora_piece* pieces, size_t count,
                                                   uint64_t tag) REMORA_C_NOEXCEPT;
/// A write with a notice, as remora_region_write_notify(). Over shm, submit blocks until the server
/// has the notice.
REMORA_C_EXPORT uint64_t remora_queue_write_notify(remora_queue* queue, uint64_t offset,
                                                   const void* from, size_t length,
                                                   const remora_memory* memory, uint32_t notice,
                                                   uint64_t tag) REMORA_C_NOEXCEPT;
/// As remora_region_write_zeroes(): a write of `length` zeroes without a buffer.
REMORA_C_EXPORT uint64_t remora_queue_write_zeroes(remora_queue* queue, uint64_t offset,
                                                   uint64_t length, uint64_t tag) REMORA_C_NOEXCEPT;
/// As remora_region_flush_visible(), for writes that had completed before submit. To include the
/// writes of this queue, put a barrier before it.
REMORA_C_EXPORT uint64_t remora_queue_flush_visible(remora_queue* queue,
                                                    uint64_t tag) REMORA_C_NOEXCEPT;
/// 8 bytes at a multiple of 8. The completion's `old_value` is the value before: equal to
/// `expected` means swapped.
REMORA_C_EXPORT uint64_t remora_queue_compare_swap(remora_queue* queue, uint64_t offset,
                                                   uint64_t expected, uint64_t desired,
                                                   uint64_t tag) REMORA_C_NOEXCEPT;
/// As remora_queue_compare_swap(), but adds `delta`; the sum wraps at 2^64.
REMORA_C_EXPORT uint64_t remora_queue_fetch_add(remora_queue* queue, uint64_t offset,
                                                uint64_t delta, uint64_t tag) REMORA_C_NOEXCEPT;

/// Each of these takes `count` operations as one, with one ticket, and one completion when all of
/// them have ended: REMORA_OK where every pair succeeded, otherwise the code of the first failed
/// pair; the message has its index, counted from 0. Each pair ends by itself, as in the calls with
/// many pairs of <remora/c/region.h>, and occupies a place of the queue until it has ended. Returns
/// 0, and takes nothing, when the queue has no room for all of them (remora_queue_room()), `count`
/// is 0, an array is null or misaligned, or there is no memory. `each` may be NULL; otherwise it
/// takes the outcome of every pair when the completion is handed out. `each` and the pairs of
/// atomics, which take the old values, are borrowed until then, the pairs of reads and writes for
/// the call only. remora_queue_cancel() ends all pairs or none. The first call with `each` on a
/// queue allocates.
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

/// Later operations are for `region`, another region of the same session; the queue keeps every
/// region open that it was used with. Errors: REMORA_INVALID_ARGUMENT (a region of another
/// session), REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_queue_select(remora_queue* queue, const remora_region* region,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// Posts all operations taken since the last submit, as one chain with one doorbell. Failures of an
/// operation or of the session arrive as completions. Errors: REMORA_BUSY.
REMORA_C_EXPORT int remora_queue_submit(remora_queue* queue, remora_error* error) REMORA_C_NOEXCEPT;
/// Operations taken after the barrier are posted only when all operations taken before it have
/// completed, with any code. Never blocks.
REMORA_C_EXPORT int remora_queue_barrier(remora_queue* queue) REMORA_C_NOEXCEPT;
/// Ends an operation that has not been posted: it completes with REMORA_CANCELLED. Errors:
/// REMORA_BUSY (it is posted, and ends by itself), REMORA_NOT_FOUND (its completion was handed out
/// already).
REMORA_C_EXPORT int remora_queue_cancel(remora_queue* queue, uint64_t ticket,
                                        remora_error* error) REMORA_C_NOEXCEPT;

/// Blocks until `at_least` operations have ended (0: does not wait; more than `capacity`:
/// `capacity`), or all submitted ones, and puts up to `capacity` (at least 1) completions into
/// `completions`, in no particular order. `*count` takes their number, also where the call fails.
/// When `*count` is `capacity` there may be more, for the next call. Errors: REMORA_BUSY.
REMORA_C_EXPORT int remora_queue_wait(remora_queue* queue, size_t at_least,
                                      remora_completion* completions, size_t capacity,
                                      size_t* count, remora_error* error) REMORA_C_NOEXCEPT;
/// As remora_queue_wait() with `at_least` 0.
REMORA_C_EXPORT int remora_queue_poll(remora_queue* queue, remora_completion* completions,
                                      size_t capacity, size_t* count,
                                      remora_error* error) REMORA_C_NOEXCEPT;
/// As remora_queue_poll(); also takes the events of the descriptor and requests the next one, so
/// that no completion is missed between a call with `*count` below `capacity` and the next sleep.
REMORA_C_EXPORT int remora_queue_progress(remora_queue* queue, remora_completion* completions,
                                          size_t capacity, size_t* count,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// The whole error of a completion that the last wait, poll or progress of this queue has returned.
/// Returns the completion's code, or REMORA_NOT_FOUND for any other completion.
REMORA_C_EXPORT int remora_queue_completion_error(const remora_queue* queue,
                                                  const remora_completion* completion,
                                                  remora_error* error) REMORA_C_NOEXCEPT;

/// A descriptor that is readable when remora_queue_progress() has work, for epoll(7), poll(2) and
/// event loops. The queue owns it. Errors: REMORA_SYSTEM.
REMORA_C_EXPORT int remora_queue_event_fd(remora_queue* queue, int* descriptor,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// The time by CLOCK_MONOTONIC at which the earliest deadline of the operations in flight passes;
/// UINT64_MAX when nothing is in flight.
REMORA_C_EXPORT uint64_t remora_queue_next_deadline(const remora_queue* queue) REMORA_C_NOEXCEPT;
/// The most operations that are taken and not handed back.
REMORA_C_EXPORT size_t remora_queue_depth(const remora_queue* queue) REMORA_C_NOEXCEPT;
/// Operations that can be taken before the queue is full.
REMORA_C_EXPORT size_t remora_queue_room(const remora_queue* queue) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
