#pragma once

/// An open region, which is named remote memory, and the synchronous operations on it.
///
/// Only compare-and-swap and fetch-and-add are atomic, and only with respect to each other: a read
/// that overlaps a write in flight may return any mixture of bytes. An atomic read is fetch-and-add
/// of 0.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/engine.h>
#include <remora/c/error.h>
#include <remora/c/memory.h>
#include <remora/c/session.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

/// One grant of a region. Any number of threads may call the functions at once.
typedef struct remora_region remora_region;

/// Opens the region of `uri`, "remora://HOST[:7471]/REGION[?transport=rdma|shm|tcp]", with `rights`
/// (bits of remora_rights). Blocks for at most `connect_for_ns` and the control deadline after it.
/// Errors: REMORA_INVALID_ARGUMENT (URI, rights), REMORA_UNKNOWN_REGION, REMORA_NO_RIGHT,
/// REMORA_UNSUPPORTED (no transport fits), REMORA_CONNECTION_REFUSED, REMORA_UNREACHABLE,
/// REMORA_TIMED_OUT.
REMORA_C_EXPORT int remora_engine_open_region(const remora_engine* engine, const char* uri,
                                              uint32_t rights, remora_region** region,
                                              remora_error* error) REMORA_C_NOEXCEPT;
/// As remora_engine_open_region(), but the server revokes every older grant of the region first: it
/// returns when no operation of an older grant can reach the region any more. Errors: also
/// REMORA_BUSY (over shm: a client that has it mapped does not answer), REMORA_UNSUPPORTED (an
/// older server).
REMORA_C_EXPORT int remora_engine_fence_region(const remora_engine* engine, const char* uri,
                                               uint32_t rights, remora_region** region,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// The grant ends when the queues of the region are freed as well.
REMORA_C_EXPORT void remora_region_free(remora_region* region) REMORA_C_NOEXCEPT;

/// The region as the server described it when it was opened. Never blocks.
REMORA_C_EXPORT int remora_region_info_of(const remora_region* region, remora_region_info* info,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// The bytes that this grant reaches, also after a client has enlarged the region.
REMORA_C_EXPORT uint64_t remora_region_size_bytes(const remora_region* region) REMORA_C_NOEXCEPT;
/// The rights that this grant carries: bits of remora_rights.
REMORA_C_EXPORT uint32_t remora_region_rights(const remora_region* region) REMORA_C_NOEXCEPT;
/// The transport of the region, a value of remora_transport.
REMORA_C_EXPORT int remora_region_transport(const remora_region* region) REMORA_C_NOEXCEPT;
/// Why this transport was chosen: one line, valid as long as the handle.
REMORA_C_EXPORT const char* remora_region_transport_reason(const remora_region* region)
    REMORA_C_NOEXCEPT;
/// 0 while the engine connects again, and after the session has ended for good.
REMORA_C_EXPORT int remora_region_connected(const remora_region* region) REMORA_C_NOEXCEPT;
/// See remora_session_settled().
REMORA_C_EXPORT int remora_region_settled(const remora_region* region, uint64_t deadline_ns,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// A new grant of the region with the same rights, after the server has revoked every older one,
/// including the grant of `region`. Blocks for at most the control deadline. Errors: as
/// remora_engine_fence_region().
REMORA_C_EXPORT int remora_region_fence(const remora_region* region, remora_region** fenced,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// Opens the region of the same URI once more: after REMORA_STALE_REGION, REMORA_CONNECTION_LOST,
/// or a grant that was revoked. `*same_contents` (may be NULL) becomes 1 where the region has the
/// same memory as before, with its contents. Errors: as remora_engine_open_region().
REMORA_C_EXPORT int remora_region_reopen(const remora_region* region, remora_region** reopened,
                                         int* same_contents, remora_error* error) REMORA_C_NOEXCEPT;

/// The synchronous operations. `offset`: bytes from the start of the region. They block until done,
/// at most `deadline_ns` (0: the engine's own) plus two seconds. `memory`: see <remora/c/memory.h>,
/// may be NULL. Errors of all: REMORA_OUT_OF_RANGE, REMORA_NO_RIGHT, REMORA_INVALID_ARGUMENT
/// (misuse, before anything is sent); REMORA_TIMED_OUT, REMORA_CONNECTION_LOST, REMORA_STALE_REGION
/// (without remote effect); REMORA_INDETERMINATE (a write or an atomic whose effect cannot be
/// known); REMORA_ACCESS_REFUSED; REMORA_PROVIDER, REMORA_OUT_OF_MEMORY (the local memory).
REMORA_C_EXPORT int remora_region_read(const remora_region* region, uint64_t offset, void* into,
                                       size_t length, const remora_memory* memory,
                                       uint64_t deadline_ns, remora_error* error) REMORA_C_NOEXCEPT;
/// `from` is only read.
REMORA_C_EXPORT int remora_region_write(const remora_region* region, uint64_t offset,
                                        const void* from, size_t length,
                                        const remora_memory* memory, uint64_t deadline_ns,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// One contiguous part of the region, and `count` pieces of local memory, 1 to REMORA_PIECES_MAX:
/// the first piece gets, or has, the first bytes.
REMORA_C_EXPORT int remora_region_read_pieces(const remora_region* region, uint64_t offset,
                                              const remora_piece* pieces, size_t count,
                                              uint64_t deadline_ns,
                                              remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_region_write_pieces(const remora_region* region, uint64_t offset,
                                               const remora_piece* pieces, size_t count,
                                               uint64_t deadline_ns,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// A write with a notice to the serving application, once its bytes are in place: see
/// remora_server_on_notice(). Returns when the server has the notice.
REMORA_C_EXPORT int remora_region_write_notify(const remora_region* region, uint64_t offset,
                                               const void* from, size_t length,
                                               const remora_memory* memory, uint32_t notice,
                                               uint64_t deadline_ns,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// As a write of `length` zeroes, without a buffer: over tcp and shm, no bytes are transferred.
REMORA_C_EXPORT int remora_region_write_zeroes(const remora_region* region, uint64_t offset,
                                               uint64_t length, uint64_t deadline_ns,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// Returns when every write of this session that had completed before is visible to the server's
/// processor and to all of its devices. Needs REMORA_RIGHT_READ. It makes nothing durable.
REMORA_C_EXPORT int remora_region_flush_visible(const remora_region* region, uint64_t deadline_ns,
                                                remora_error* error) REMORA_C_NOEXCEPT;
/// 8 bytes at a multiple of 8. `*before` takes the previous value: equal to `expected` means
/// swapped. Errors: also REMORA_MISALIGNED, REMORA_WRONG_ATOMIC_DOMAIN.
REMORA_C_EXPORT int remora_region_compare_swap(const remora_region* region, uint64_t offset,
                                               uint64_t expected, uint64_t desired,
                                               uint64_t* before, uint64_t deadline_ns,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// `*before` takes the previous value. The sum wraps at 2^64. Errors: as
/// remora_region_compare_swap().
REMORA_C_EXPORT int remora_region_fetch_add(const remora_region* region, uint64_t offset,
                                            uint64_t delta, uint64_t* before, uint64_t deadline_ns,
                                            remora_error* error) REMORA_C_NOEXCEPT;

/// Most pairs of one call.
#define REMORA_PAIRS_MAX 65536

/// A pair of a call with many pairs: a place in the region, and local memory. Initialize the piece
/// with remora_piece_init().
typedef struct remora_pair {
  uint64_t offset;     ///< bytes from the start of the region
  remora_piece piece;  ///< a write only reads its bytes
} remora_pair;

/// 8 bytes at a multiple of 8, to which `delta` is added; the sum wraps at 2^64.
typedef struct remora_add_pair {
  uint64_t offset;  ///< bytes from the start of the region
  uint64_t delta;
  uint64_t before;  ///< takes the previous value where the pair succeeds
} remora_add_pair;

/// 8 bytes at a multiple of 8, which become `desired` if they equal `expected`.
typedef struct remora_swap_pair {
  uint64_t offset;  ///< bytes from the start of the region
  uint64_t expected;
  uint64_t desired;
  uint64_t before;  ///< takes the previous value where the pair succeeds; `expected`: swapped
} remora_swap_pair;

/// How one pair ended.
typedef struct remora_pair_outcome {
  int32_t code;    ///< REMORA_OK, or as the synchronous operations return it
  int32_t reason;  ///< of remora_reason
} remora_pair_outcome;

/// `count` operations (0 to REMORA_PAIRS_MAX) in one call, in no order. Each pair ends by itself,
/// as a single operation does: misuse in one pair ends this pair alone, and the others are carried
/// out. The functions block until all pairs have ended, at most `deadline_ns` (0: the engine's own)
/// plus two seconds. They return REMORA_OK where every pair succeeded, otherwise the code of the
/// first failed pair; the message has its index, counted from 0. `each` may be NULL; otherwise it
/// takes the outcome of every pair. Errors of the call as a whole, before anything is sent:
/// REMORA_OUT_OF_MEMORY, which all elements of `each` then have; REMORA_LIMIT_EXCEEDED
/// (REMORA_PAIRS_MAX), where `each` is not written.
REMORA_C_EXPORT int remora_region_read_many(const remora_region* region, const remora_pair* pairs,
                                            size_t count, remora_pair_outcome* each,
                                            uint64_t deadline_ns,
                                            remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_region_write_many(const remora_region* region, const remora_pair* pairs,
                                             size_t count, remora_pair_outcome* each,
                                             uint64_t deadline_ns,
                                             remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_region_fetch_add_many(const remora_region* region,
                                                 remora_add_pair* pairs, size_t count,
                                                 remora_pair_outcome* each, uint64_t deadline_ns,
                                                 remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_region_compare_swap_many(const remora_region* region,
                                                    remora_swap_pair* pairs, size_t count,
                                                    remora_pair_outcome* each, uint64_t deadline_ns,
                                                    remora_error* error) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
