#pragma once

/// The memory server, embedded.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/error.h>
#include <remora/c/session.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

/// Offers memory to clients until it is stopped or freed.
typedef struct remora_server remora_server;
/// The serving application's own window on a region of its server. Clients change the bytes at any
/// time and without notice.
typedef struct remora_view remora_view;

/// Starts a server from the YAML file at `path` (config/docs/keys.md). Blocks while it populates
/// the pool: about 0.3 s a GiB. `diagnostics` (may be NULL) takes all faults of the file, a line
/// each
/// ("file:line:column: key: message"), to be freed with remora_free(), where it is at fault
/// (REMORA_INVALID_ARGUMENT); else NULL. Errors: also REMORA_ADDRESS_IN_USE, REMORA_UNREACHABLE,
/// REMORA_NOT_FOUND, REMORA_PERMISSION_DENIED, REMORA_OUT_OF_MEMORY, REMORA_UNSUPPORTED.
REMORA_C_EXPORT int remora_server_start_file(const char* path, remora_server** server,
                                             char** diagnostics,
                                             remora_error* error) REMORA_C_NOEXCEPT;
/// The same from YAML in memory; `name` stands for the file in diagnostics and may be NULL. A text
/// that names a file of a secret is refused.
REMORA_C_EXPORT int remora_server_start_text(const char* text, const char* name,
                                             remora_server** server, char** diagnostics,
                                             remora_error* error) REMORA_C_NOEXCEPT;
/// Refuses new clients, tells each session, waits for sessions to end (limits.drain_timeout at
/// most), ends the others and releases the memory. May be called again. Blocks for that and about 2
/// s.
REMORA_C_EXPORT int remora_server_stop(remora_server* server,
                                       remora_error* error) REMORA_C_NOEXCEPT;
/// Ends the wait for sessions in a stop that runs or comes. Returns at once.
REMORA_C_EXPORT int remora_server_expedite_stop(remora_server* server) REMORA_C_NOEXCEPT;
/// Stops the server.
REMORA_C_EXPORT void remora_server_free(remora_server* server) REMORA_C_NOEXCEPT;

/// The port that clients use.
REMORA_C_EXPORT uint16_t remora_server_port(const remora_server* server) REMORA_C_NOEXCEPT;
/// The metrics endpoint as "http://address:port", or "". Freed with remora_free().
REMORA_C_EXPORT int remora_server_metrics_address(const remora_server* server, char** text,
                                                  remora_error* error) REMORA_C_NOEXCEPT;
/// One line a transport, each ended by a line feed: "tcp 10.0.0.1:7471". Freed with remora_free().
REMORA_C_EXPORT int remora_server_listening(const remora_server* server, char** text,
                                            remora_error* error) REMORA_C_NOEXCEPT;
/// The answer of /status as a JSON object, and all series in Prometheus' text format; freed with
/// remora_free(). `length` may be NULL.
REMORA_C_EXPORT int remora_server_status_json(const remora_server* server, char** text,
                                              size_t* length,
                                              remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_metrics(const remora_server* server, char** text, size_t* length,
                                          remora_error* error) REMORA_C_NOEXCEPT;

/// The counts of a server at one moment.
typedef struct remora_server_counts {
  size_t size;  ///< sizeof(remora_server_counts), set by the caller
  uint64_t sessions;
  uint64_t regions;
  uint64_t grants;
  uint64_t pool_bytes;
  uint64_t pool_used_bytes;
  uint64_t pool_freeing_bytes;  ///< removed, not yet zeroed
} remora_server_counts;
REMORA_C_EXPORT int remora_server_status(const remora_server* server, remora_server_counts* counts,
                                         remora_error* error) REMORA_C_NOEXCEPT;

/// As the functions of a session. `info` may be NULL where a region is created or resized.
REMORA_C_EXPORT int remora_server_create_region(const remora_server* server,
                                                const remora_region_spec* spec,
                                                remora_region_info* info,
                                                remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_remove_region(const remora_server* server, const char* name,
                                                int removal, remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_resize_region(const remora_server* server, const char* name,
                                                uint64_t size_bytes, remora_region_info* info,
                                                remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_regions(const remora_server* server, remora_region_list** list,
                                          remora_error* error) REMORA_C_NOEXCEPT;

/// What a client sends with a write with a notice. Its bytes are in place and visible.
typedef struct remora_notice {
  size_t size;         ///< of what the library has filled in
  const char* region;  ///< valid during the call
  uint64_t offset;
  uint64_t length;
  uint32_t notice;
  uint32_t reserved;
} remora_notice;
/// Runs on the server's notification thread, one at a time. While it runs, others wait. It may call
/// the server, also to stop it, but not free it.
typedef void (*remora_notice_handler)(void* context, const remora_notice* notice);
/// Calls `handler` for each write with a notice to the region of this name, there already or not.
/// NULL: notices are dropped and counted. On return the handler before does not run, unless it is
/// the caller. Errors: REMORA_CLOSED (stopped), REMORA_SYSTEM.
REMORA_C_EXPORT int remora_server_on_notice(const remora_server* server, const char* region,
                                            remora_notice_handler handler, void* context,
                                            remora_error* error) REMORA_C_NOEXCEPT;

/// Errors: REMORA_UNKNOWN_REGION.
REMORA_C_EXPORT int remora_server_view(const remora_server* server, const char* region,
                                       remora_view** view, remora_error* error) REMORA_C_NOEXCEPT;
/// The view keeps the memory alive until it is freed.
REMORA_C_EXPORT void remora_view_free(remora_view* view) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_view_size_bytes(const remora_view* view) REMORA_C_NOEXCEPT;
/// Copies out of or into the region. Errors: REMORA_OUT_OF_RANGE.
REMORA_C_EXPORT int remora_view_read(const remora_view* view, uint64_t offset, void* into,
                                     size_t length, remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_view_write(const remora_view* view, uint64_t offset, const void* from,
                                      size_t length, remora_error* error) REMORA_C_NOEXCEPT;
/// A contiguous part of a region.
typedef struct remora_extent {
  void* data;
  size_t length;  ///< bytes
} remora_extent;
/// Up to `capacity` extents in order (`extents` may be NULL where `capacity` is 0), and how many
/// there are.
REMORA_C_EXPORT int remora_view_extents(const remora_view* view, remora_extent* extents,
                                        size_t capacity, size_t* count,
                                        remora_error* error) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
