#pragma once

/// Codes, reasons and the whole error. See <remora/remora_c.h> for the rules of all functions.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define REMORA_C_NOEXCEPT noexcept
extern "C" {
#else
#define REMORA_C_NOEXCEPT
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

#define REMORA_C_EXPORT __attribute__((visibility("default")))

/// The version of this header; raised with each addition.
#define REMORA_C_API 8

/// What a function returns. The numbers never change; new ones are added at the end.
enum remora_code {
  REMORA_OK = 0,
  REMORA_INVALID_ARGUMENT = 1,     ///< misuse of the call: null, misaligned, a bad URI, a size
  REMORA_OUT_OF_RANGE = 2,         ///< bytes outside the region or the registered memory
  REMORA_MISALIGNED = 3,           ///< the offset of an atomic operation is no multiple of 8
  REMORA_NO_RIGHT = 4,             ///< the grant does not carry the right that was used
  REMORA_WRONG_ATOMIC_DOMAIN = 5,  ///< the region's atomics belong to another device or to the CPU
  REMORA_UNSUPPORTED = 6,          ///< device, transport, server or library cannot do this
  REMORA_LIMIT_EXCEEDED = 7,       ///< a documented bound: `asked` and `allowed` have both numbers
  REMORA_OUT_OF_MEMORY = 8,        ///< memory, or memory that may be pinned, is exhausted
  REMORA_PERMISSION_DENIED = 9,    ///< the operating system refused
  REMORA_NOT_FOUND = 10,           ///< a device, file, host or entry that does not exist
  REMORA_UNKNOWN_REGION = 11,      ///< the server has no region of that name
  REMORA_ALREADY_EXISTS = 12,      ///< the name is taken
  REMORA_BUSY = 13,                ///< in use by another client, thread or process; retry later
  REMORA_ADDRESS_IN_USE = 14,      ///< another process listens there
  REMORA_UNREACHABLE = 15,         ///< no route, no such address, no answer
  REMORA_CONNECTION_REFUSED = 16,  ///< nothing listens there, or the peer rejected the client
  REMORA_CONNECTION_LOST = 17,     ///< the session ended; the operation has changed nothing
  REMORA_PROTOCOL = 18,            ///< the peer sent bytes that do not follow the protocol
  REMORA_ACCESS_REFUSED = 19,      ///< the peer's NIC or server refused the access; see the reason
  REMORA_STALE_REGION = 20,        ///< the memory behind the region is new: old contents are gone
  REMORA_TIMED_OUT = 21,           ///< the deadline passed; provably without remote effect
  REMORA_CANCELLED = 22,           ///< cancelled; provably without remote effect
  REMORA_INDETERMINATE = 23,       ///< the lane broke after posting: the effect cannot be known
  REMORA_WOULD_BLOCK = 24,         ///< a bounded queue is full, or has no result yet
  REMORA_CLOSED = 25,              ///< the handle was freed, or made by a parent process
  REMORA_PROVIDER = 26,            ///< a verbs call failed; `system_errno` is kept
  REMORA_SYSTEM = 27,              ///< a system call failed; `system_errno` is kept
  REMORA_INTERNAL = 28             ///< a bug of Remora
};

/// Refines a code where the peer sent more details. The numbers never change.
enum remora_reason {
  REMORA_REASON_NONE = 0,
  REMORA_REASON_FENCED = 1,           ///< a newer grant fenced this one
  REMORA_REASON_REVOKED = 2,          ///< the server revoked the grant
  REMORA_REASON_OUT_OF_RANGE = 3,     ///< bytes outside of the grant
  REMORA_REASON_NO_RIGHT = 4,         ///< the grant has no such right
  REMORA_REASON_PEER_GONE = 5,        ///< the other process ended or hung up
  REMORA_REASON_LANE_BROKEN = 6,      ///< the connection of the lane ended
  REMORA_REASON_DRAINING = 7,         ///< the server stops, or is being drained
  REMORA_REASON_VERSION = 8,          ///< no protocol version in common
  REMORA_REASON_AUTHENTICATION = 9,   ///< the peer did not accept the credentials
  REMORA_REASON_MEMLOCK = 10,         ///< RLIMIT_MEMLOCK is too small for what has to be pinned
  REMORA_REASON_POOL_FULL = 11,       ///< the server's pool has no room for the region
  REMORA_REASON_NO_ATOMICS = 12,      ///< the region was created with the atomic domain "none"
  REMORA_REASON_NOT_OFFERED = 13,     ///< the server does not offer the transport
  REMORA_REASON_UNKNOWN_DEVICE = 14,  ///< the server uses no device of that name
  REMORA_REASON_OTHER_USER = 15,      ///< file, folder or process of another user
  REMORA_REASON_WORLD_WRITABLE = 16,  ///< a folder in which every user may replace files
  REMORA_REASON_GID_UNSET = 17,       ///< a GID of the pair is empty
  REMORA_REASON_GID_FAMILY = 18,      ///< one GID of the pair is IPv4, the other IPv6
  REMORA_REASON_GID_SCOPE = 19,       ///< one GID reaches its host or segment only
  REMORA_REASON_NO_NEIGHBOUR = 20,    ///< the kernel has no route or no neighbour for the GIDs
  REMORA_REASON_NEW_MEMORY = 21,      ///< the server runs with new memory
  REMORA_REASON_LAPSED = 22,          ///< the server had not heard from this client for its lease
  REMORA_REASON_SILENT = 23,          ///< the peer has not answered for longer than it may
  REMORA_REASON_TOO_OFTEN = 24,       ///< the session broke more often than the server allows
  REMORA_REASON_NO_THREAD = 25,       ///< a limit on threads or processes
  REMORA_REASON_UNREACHABLE = 26,     ///< no connection to the server could be made
  REMORA_REASON_EXPIRED = 27,         ///< the operation's own deadline passed
  REMORA_REASON_LANE_VICTIM = 28,     ///< another operation on the same lane broke it
  REMORA_REASON_ZERO_LENGTH = 29,     ///< argument: the length is 0
  REMORA_REASON_NULL_POINTER = 30,    ///< argument: a null pointer
  REMORA_REASON_EMPTY_SLOT = 31,      ///< argument: the slot is empty
  REMORA_REASON_OUTSIDE_MEMORY = 32,  ///< argument: not within the registered memory
  REMORA_REASON_PIECES = 33,          ///< argument: no pieces, or more than REMORA_PIECES_MAX
  REMORA_REASON_HELD = 34,            ///< another client holds the lock
  REMORA_REASON_NOT_REMORA = 35,      ///< the other side speaks another protocol
  REMORA_REASON_HTTP = 36,            ///< the other side speaks HTTP
  REMORA_REASON_LOCAL_SHORTAGE = 37,  ///< this process or host has run out of what the call needs
  REMORA_REASON_FORKED = 38           ///< a parent process made the handle, before fork()
};

/// Everything about one failure. The caller sets `size`; only a call that fails writes the struct.
/// A struct whose size is too small for `message`, or whose address is not aligned, stays
/// unchanged; the code that the function returns is right in this case as well.
typedef struct remora_error {
  size_t size;                ///< sizeof(remora_error)
  int32_t code;               ///< of remora_code
  int32_t reason;             ///< of remora_reason
  int32_t system_errno;       ///< errno of the failed call; 0: none
  int32_t completion_status;  ///< the NIC's verdict, numbered as ibv_wc_status; 0: none
  uint32_t vendor_error;      ///< the NIC's own number
  uint8_t has_limit;          ///< 1: `asked` and `allowed` are set
  uint8_t has_place;          ///< 1: `offset` and `length` say which bytes of a region
  uint8_t reserved[2];        ///< 0
  uint64_t asked;             ///< the requested amount, in the unit of the operation
  uint64_t allowed;           ///< the limit that it exceeds
  uint64_t offset;            ///< bytes from the start of the region
  uint64_t length;            ///< bytes
  char operation[48];         ///< the call that failed
  char subject[96];           ///< an address, a path, a device, a region's name; may be ""
  char server[56];            ///< "host:port"; "" where no server is concerned
  char message[768];  ///< one line for a person: the failure, its place, its cause and the remedy
} remora_error;

/// The message of an error that a function has filled in; "" where it is NULL, misaligned or too
/// small. Valid as long as the struct.
REMORA_C_EXPORT const char* remora_error_message(const remora_error* error) REMORA_C_NOEXCEPT;

/// "out of range" for REMORA_OUT_OF_RANGE, "ok" for REMORA_OK; never NULL, never freed.
REMORA_C_EXPORT const char* remora_code_name(int code) REMORA_C_NOEXCEPT;
/// "the server stops, or is being drained" for REMORA_REASON_DRAINING; never NULL, never freed.
REMORA_C_EXPORT const char* remora_reason_name(int reason) REMORA_C_NOEXCEPT;

/// The version of the library, such as "0.1.0"; never freed.
REMORA_C_EXPORT const char* remora_version(void) REMORA_C_NOEXCEPT;
/// Whether the library offers everything in the header that the program was compiled with: pass
/// REMORA_C_API. Errors: REMORA_UNSUPPORTED (an older library; `asked` and `allowed` are set).
REMORA_C_EXPORT int remora_require_api(int api, remora_error* error) REMORA_C_NOEXCEPT;

/// Frees a text that a function has handed over as a `char**`. NULL is allowed.
REMORA_C_EXPORT void remora_free(void* text) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
