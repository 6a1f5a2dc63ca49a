#pragma once

/// Control requests to one server: create, list, stat, resize, remove.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/engine.h>
#include <remora/c/error.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

/// An authenticated connection with one server. Requests block for at most the engine's control
/// deadline. Errors of all: REMORA_CONNECTION_LOST, REMORA_TIMED_OUT, REMORA_PROTOCOL.
typedef struct remora_session remora_session;

/// When the server removes a region by itself.
enum remora_lifetime {
  REMORA_LIFETIME_PERSISTENT = 0,  ///< never: a client removes it
  REMORA_LIFETIME_SESSION = 1,     ///< with the session that created it
  REMORA_LIFETIME_TTL = 2          ///< when no client has had it open for its ttl
};

/// How a removal treats clients that have the region open.
enum remora_removal {
  REMORA_REMOVE_IF_UNUSED = 0,    ///< refused while a client has it open: REMORA_BUSY
  REMORA_REMOVE_WHEN_UNUSED = 1,  ///< they keep it until they close it; the name is free at once
  REMORA_REMOVE_NOW = 2           ///< the server revokes their grants first
};

/// The rights of a client on the region of another client.
typedef struct remora_region_access {
  char client[72];  ///< its name, or "*": every client of the server
  uint32_t rights;  ///< bits of remora_rights
  uint32_t admin;   ///< 1: may remove, resize and fence the region, and see this list
} remora_region_access;

/// The parameters of a new region. Zero, or NULL, stands for the default.
typedef struct remora_region_spec {
  size_t size;                         ///< sizeof(remora_region_spec)
  const char* name;                    ///< 1 to 64 of A-Z a-z 0-9 . _ -
  uint64_t size_bytes;                 ///< a positive multiple of block_bytes
  uint64_t block_bytes;                ///< default 4096
  const char* atomic_domain;           ///< "none", "cpu", a server device, "auto" (the default)
  const remora_region_access* access;  ///< where clients have keys: rights of others
  size_t access_count;                 ///< entries of `access`
  uint64_t ttl_ms;                     ///< of REMORA_LIFETIME_TTL: 100 ms to 365 days
  uint32_t lifetime;                   ///< of remora_lifetime
  uint32_t rights;                     ///< the most that a grant can carry; default: all
  uint32_t shm;                        ///< 1: clients on the same host may map it
  uint32_t reserved;
} remora_region_spec;

/// A server's description of a region.
typedef struct remora_region_info {
  size_t size;            ///< sizeof(remora_region_info), set by the caller
  uint64_t size_bytes;    ///< a multiple of block_bytes
  uint64_t block_bytes;   ///< the region's unit of addressing in C++: C uses byte offsets
  uint64_t epoch;         ///< greater after each fence, and each time it becomes smaller
  uint64_t incarnation;   ///< another one after the region was removed and created again
  uint64_t memory_id;     ///< the life of the server's memory
  uint64_t extent_count;  ///< contiguous parts of the pool that it consists of
  uint64_t open_count;    ///< grants that exist
  uint64_t ttl_ms;        ///< of REMORA_LIFETIME_TTL, otherwise 0
  uint32_t lifetime;      ///< of remora_lifetime
  uint32_t rights;        ///< the most that a grant can carry
  uint32_t shm;           ///< 1: clients on the same host may map it
  uint32_t reserved;
  char name[72];
  char atomic_domain[72];  ///< "none", "cpu", or the server device's name
  char owner[72];          ///< the client that created it; "": the server's own
} remora_region_info;

/// A server's description of itself.
typedef struct remora_server_info {
  size_t size;         ///< sizeof(remora_server_info), set by the caller
  uint64_t boot_id;    ///< one life of the server process
  uint64_t memory_id;  ///< one life of its memory's contents
  uint64_t pool_bytes;
  uint64_t pool_free_bytes;  ///< at the handshake: remora_session_usage() has the present value
  uint32_t transports;       ///< bit 1 << remora_transport for each that it offers; 0: not known
  uint32_t reserved;
  char name[72];
  char device[72];  ///< the server's RDMA device of this session; "" over shm and tcp
} remora_server_info;

/// The server's memory in use: by regions of this client, and by all regions.
typedef struct remora_usage {
  size_t size;                  ///< sizeof(remora_usage), set by the caller
  uint64_t client_bytes;        ///< of regions that this client created
  uint64_t client_quota_bytes;  ///< 0: none
  uint64_t pool_bytes;
  uint64_t pool_used_bytes;
  uint64_t pool_freeing_bytes;  ///< removed, not yet zeroed
  uint64_t sessions;            ///< of the server
  uint64_t grants;              ///< of this session
} remora_usage;

/// Connects to the server of `uri`, "remora://HOST[:7471][?transport=rdma|shm|tcp]". Blocks for at
/// most `connect_for_ns` and the control deadline after it. Errors: REMORA_INVALID_ARGUMENT (URI),
/// REMORA_UNSUPPORTED (no transport fits), REMORA_CONNECTION_REFUSED, REMORA_UNREACHABLE,
/// REMORA_TIMED_OUT.
REMORA_C_EXPORT int remora_engine_connect(const remora_engine* engine, const char* uri,
                                          remora_session** session,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// Ends the handle. Regions, and other handles of the same session, keep the connection.
REMORA_C_EXPORT void remora_session_free(remora_session* session) REMORA_C_NOEXCEPT;

/// What the server told about itself at the handshake. Never blocks.
REMORA_C_EXPORT int remora_session_server(const remora_session* session, remora_server_info* info,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// The transport of the session, a value of remora_transport. Never blocks.
REMORA_C_EXPORT int remora_session_transport(const remora_session* session) REMORA_C_NOEXCEPT;
/// 0 while the engine connects again, and after the session has ended for good. Never blocks.
REMORA_C_EXPORT int remora_session_connected(const remora_session* session) REMORA_C_NOEXCEPT;
/// Blocks, for at most `deadline_ns`, until no operation that has ended as REMORA_INDETERMINATE can
/// take effect any more. Errors: REMORA_CONNECTION_LOST (this cannot be known).
REMORA_C_EXPORT int remora_session_settled(const remora_session* session, uint64_t deadline_ns,
                                           remora_error* error) REMORA_C_NOEXCEPT;

/// Creates a region, which begins as zeroes. `info` takes its description, and may be NULL. Errors:
/// REMORA_ALREADY_EXISTS, REMORA_INVALID_ARGUMENT,
/// REMORA_OUT_OF_MEMORY, REMORA_UNSUPPORTED, REMORA_LIMIT_EXCEEDED, REMORA_NO_RIGHT.
REMORA_C_EXPORT int remora_session_create_region(const remora_session* session,
                                                 const remora_region_spec* spec,
                                                 remora_region_info* info,
                                                 remora_error* error) REMORA_C_NOEXCEPT;
/// The present description of a region. Errors: REMORA_UNKNOWN_REGION.
REMORA_C_EXPORT int remora_session_stat(const remora_session* session, const char* name,
                                        remora_region_info* info,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// Writes the access list of a region that this client may remove: up to `capacity` entries into
/// `entries` (may be NULL where `capacity` is 0), and the number of all entries. Errors:
/// REMORA_UNKNOWN_REGION.
REMORA_C_EXPORT int remora_session_access(const remora_session* session, const char* name,
                                          remora_region_access* entries, size_t capacity,
                                          size_t* count, remora_error* error) REMORA_C_NOEXCEPT;
/// Removes a region; its memory is zeroed before it is used again. `removal`: of remora_removal.
/// Errors: REMORA_UNKNOWN_REGION, REMORA_BUSY (it is open), REMORA_NO_RIGHT, REMORA_UNSUPPORTED.
REMORA_C_EXPORT int remora_session_remove_region(const remora_session* session, const char* name,
                                                 int removal,
                                                 remora_error* error) REMORA_C_NOEXCEPT;
/// Gives a region another size, a positive multiple of its block size. Larger: zeroes follow its
/// bytes, and clients reach them when they open it again. Smaller: the server revokes all grants
/// first. `info` may be NULL. Errors: REMORA_UNKNOWN_REGION, REMORA_NO_RIGHT,
/// REMORA_INVALID_ARGUMENT, REMORA_OUT_OF_MEMORY, REMORA_LIMIT_EXCEEDED, REMORA_BUSY,
/// REMORA_UNSUPPORTED (a region for shm).
REMORA_C_EXPORT int remora_session_resize_region(const remora_session* session, const char* name,
                                                 uint64_t size_bytes, remora_region_info* info,
                                                 remora_error* error) REMORA_C_NOEXCEPT;
/// The present use of the server's memory. Errors: REMORA_UNSUPPORTED (an older server).
REMORA_C_EXPORT int remora_session_usage(const remora_session* session, remora_usage* usage,
                                         remora_error* error) REMORA_C_NOEXCEPT;

/// The regions at one moment, sorted by name. Read-only: any number of threads may use it.
typedef struct remora_region_list remora_region_list;

/// The regions on which this client has any right. The caller frees `*list`.
REMORA_C_EXPORT int remora_session_regions(const remora_session* session, remora_region_list** list,
                                           remora_error* error) REMORA_C_NOEXCEPT;
/// The descriptions that remora_region_list_get() has written stay valid.
REMORA_C_EXPORT void remora_region_list_free(remora_region_list* list) REMORA_C_NOEXCEPT;
/// The number of regions: their indices are 0 to this number - 1.
REMORA_C_EXPORT size_t remora_region_list_count(const remora_region_list* list) REMORA_C_NOEXCEPT;
/// Writes the description of the region at `index`. Errors: REMORA_OUT_OF_RANGE (index).
REMORA_C_EXPORT int remora_region_list_get(const remora_region_list* list, size_t index,
                                           remora_region_info* info,
                                           remora_error* error) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
