#pragma once

/// Local memory that operations read from and write to.
///
/// There are three kinds, from fast to convenient: slots of the engine, registered memory of the
/// application, and any other bytes. An operation takes a pointer, a length and a `const
/// remora_memory*`: the registration that the bytes belong to, or NULL for any other bytes. The
/// bytes belong to the operation from the moment it is taken until it has completed: they must stay
/// mapped, and a read's bytes must not be used meanwhile. They need no alignment.
///
/// An operation on bytes that lie outside of its remora_memory ends with REMORA_OUT_OF_RANGE and
/// REMORA_REASON_OUTSIDE_MEMORY; one with a null pointer or a length of 0 with
/// REMORA_INVALID_ARGUMENT.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/engine.h>
#include <remora/c/error.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

/// Memory that is registered with the engine, so that operations on it need no copy.
typedef struct remora_memory remora_memory;

/// Registers `length` bytes of the application at `data`: with the devices in use at once, with
/// others when they are first used. The bytes must outlive the handle and every operation on them.
/// Blocks while pages are pinned. Errors: REMORA_INVALID_ARGUMENT (no bytes), REMORA_OUT_OF_MEMORY,
/// REMORA_PROVIDER.
REMORA_C_EXPORT int remora_engine_register_memory(const remora_engine* engine, void* data,
                                                  size_t length, remora_memory** memory,
                                                  remora_error* error) REMORA_C_NOEXCEPT;
/// Operations that were taken before keep the registration until they have completed.
REMORA_C_EXPORT void remora_memory_free(remora_memory* memory) REMORA_C_NOEXCEPT;

/// Equal pieces of memory that the engine allocates and registers as a whole.
typedef struct remora_slots remora_slots;

/// `count` slots (1 to 1,048,575) of `slot_bytes` each (1 byte to 1 GiB), aligned to 64 bytes.
/// Errors: REMORA_INVALID_ARGUMENT, REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_engine_allocate_slots(const remora_engine* engine, size_t count,
                                                 size_t slot_bytes, remora_slots** slots,
                                                 remora_error* error) REMORA_C_NOEXCEPT;
/// Frees the slots with their memory. Every operation on them must have completed.
REMORA_C_EXPORT void remora_slots_free(remora_slots* slots) REMORA_C_NOEXCEPT;
/// The registration that all slots belong to, for operations on them. Owned by `slots`; do not free
/// it.
REMORA_C_EXPORT const remora_memory* remora_slots_memory(const remora_slots* slots)
    REMORA_C_NOEXCEPT;
/// A free slot, or NULL when all are taken. Never blocks, never allocates, takes no lock.
REMORA_C_EXPORT void* remora_slots_take(remora_slots* slots) REMORA_C_NOEXCEPT;
/// Returns a slot to the pool, after the operation on it has completed. Never blocks. Errors:
/// REMORA_INVALID_ARGUMENT (`slot` is not the start of a slot that was taken).
REMORA_C_EXPORT int remora_slots_return(remora_slots* slots, void* slot) REMORA_C_NOEXCEPT;

/// A piece of local memory of an operation in pieces.
typedef struct remora_piece {
  void* data;              ///< a write only reads it
  size_t length;           ///< bytes
  const void* registered;  ///< set by remora_piece_init(); NULL: any bytes
} remora_piece;

/// Most pieces of one operation.
#define REMORA_PIECES_MAX 1024

/// Fills in a piece. `memory` may be NULL: any bytes; otherwise it must not be freed before the
/// operation has completed. Errors: REMORA_OUT_OF_RANGE (not within `memory`).
REMORA_C_EXPORT int remora_piece_init(remora_piece* piece, void* data, size_t length,
                                      const remora_memory* memory) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
