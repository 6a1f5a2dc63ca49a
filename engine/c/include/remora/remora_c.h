#pragma once

/// Remora for C: the client and an embedded server, as functions of `libremora.so.0`.
///
/// C99, and C++ as well. Link with `pkg-config --cflags --libs remora-c`, or in CMake with
/// `find_package(remora COMPONENTS c)` and the target `remora::c`. engine/c/README.md begins with a
/// program to copy.
///
/// **Errors.** A function that can fail returns an `int`: REMORA_OK (0) or one of `remora_code`.
/// Its last argument takes the whole error and may be NULL; see <remora/c/error.h>. A call that
/// fails writes nothing through its other pointers, except where the function says so. No C++
/// exception leaves a function, and none ends the process by abort() or exit().
///
/// **Pointers.** A null pointer where the function does not say "may be NULL", one that is not
/// aligned for its type, a handle of another kind: REMORA_INVALID_ARGUMENT, and nothing is done. A
/// handle that was freed: REMORA_CLOSED, as long as it is among the 256 handles that were freed
/// last. A pointer to anything else is undefined behaviour, as everywhere in C. Functions that
/// return a value instead of a code answer 0, "" or NULL in these cases.
///
/// **Handles** are opaque. The function that makes one hands it to the caller, whose call of
/// `..._free` ends it; `..._free(NULL)` does nothing. The handle that another one was made from may
/// be freed first: regions and queues keep the parts of their engine that they need. A call during
/// `..._free` of the same handle in another thread is a fault of the program.
///
/// **Structs that can grow** begin with their size, which the caller sets, so that programs and
/// libraries of different versions work together:
///
///     remora_error error = {.size = sizeof error};
///
/// Where the caller fills the struct, fields that a smaller struct does not have take their
/// defaults; a larger one is accepted when the fields that the library does not know are zero,
/// otherwise it is REMORA_INVALID_ARGUMENT. Where the library fills the struct, it fills the fields
/// that both know. Structs without a size do not change.
///
/// **Threads.** A function may be called from any thread unless it says otherwise. Each callback
/// says on which thread it may run. No function may be called from a signal handler. A thread must
/// not be cancelled (pthread_cancel(3)) within a function: the process ends then.
///
/// **Time** is in nanoseconds (`_ns`). A deadline of an operation is 1 ms at least and 1 h at most;
/// others are raised and lowered to that. 0 stands for the engine's own deadline.
///
/// **fork(2).** In a child, each handle of the parent answers REMORA_CLOSED with
/// REMORA_REASON_FORKED, and freeing it touches nothing of the parent's. The child opens an engine
/// of its own.

#include <remora/c/administration.h>  // IWYU pragma: export
#include <remora/c/engine.h>          // IWYU pragma: export
#include <remora/c/error.h>           // IWYU pragma: export
#include <remora/c/memory.h>          // IWYU pragma: export
#include <remora/c/queue.h>           // IWYU pragma: export
#include <remora/c/region.h>          // IWYU pragma: export
#include <remora/c/server.h>          // IWYU pragma: export
#include <remora/c/session.h>         // IWYU pragma: export
#include <remora/c/volume.h>          // IWYU pragma: export
