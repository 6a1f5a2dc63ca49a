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

/// A server that offers memory to clients until it is stopped or freed.
typedef struct remora_server remora_server;
/// The serving application's own access to the bytes of a region of its server. Clients change the
/// bytes at any time and without notice.
typedef struct remora_view remora_view;

/// Starts a server from the YAML file at `path` (config/docs/keys.md). Blocks while it populates
/// the pool: about 0.3 s a GiB. Where the file has faults (REMORA_INVALID_ARGUMENT), `diagnostics`
/// (may be NULL) takes all of them, one a line ("file:line:column: key: message"), to be freed with
/// remora_free(); otherwise it becomes NULL. Errors: also REMORA_ADDRESS_IN_USE,
/// REMORA_UNREACHABLE, REMORA_NOT_FOUND, REMORA_PERMISSION_DENIED, REMORA_OUT_OF_MEMORY,
/// REMORA_UNSUPPORTED.
REMORA_C_EXPORT int remora_server_start_file(const char* path, remora_server** server,
                                             char** diagnostics,
                                             remora_error* error) REMORA_C_NOEXCEPT;
/// The same from YAML in memory. `name` replaces the file's name in diagnostics and may be NULL. A
/// text that names the file of a secret is refused.
REMORA_C_EXPORT int remora_server_start_text(const char* text, const char* name,
                                             remora_server** server, char** diagnostics,
                                             remora_error* error) REMORA_C_NOEXCEPT;
/// Refuses new clients, notifies each session, waits for sessions to end (limits.drain_timeout at
/// most), ends the others and releases the memory. May be called again. Blocks for this time and
/// about 2 s.
REMORA_C_EXPORT int remora_server_stop(remora_server* server,
                                       remora_error* error) REMORA_C_NOEXCEPT;
/// Ends the wait for sessions in a running or a later stop. Returns at once.
REMORA_C_EXPORT int remora_server_expedite_stop(remora_server* server) REMORA_C_NOEXCEPT;
/// Stops the server, as remora_server_stop() does, and ends the handle. Views stay valid.
REMORA_C_EXPORT void remora_server_free(remora_server* server) REMORA_C_NOEXCEPT;

/// The port that clients use: the bound port if the configuration says 0.
REMORA_C_EXPORT uint16_t remora_server_port(const remora_server* server) REMORA_C_NOEXCEPT;
/// The address of the metrics endpoint as "http://address:port", or "". Freed with remora_free().
REMORA_C_EXPORT int remora_server_metrics_address(const remora_server* server, char** text,
                                                  remora_error* error) REMORA_C_NOEXCEPT;
/// One line for each transport, with a line feed at its end: "tcp 10.0.0.1:7471". Freed with
/// remora_free().
REMORA_C_EXPORT int remora_server_listening(const remora_server* server, char** text,
                                            remora_error* error) REMORA_C_NOEXCEPT;
/// The body of /status as a JSON object, and all metrics in Prometheus' text format. `*text` is
/// freed with remora_free(). `length` may be NULL.
REMORA_C_EXPORT int remora_server_status_json(const remora_server* server, char** text,
                                              size_t* length,
                                              remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_metrics(const remora_server* server, char** text, size_t* length,
                                          remora_error* error) REMORA_C_NOEXCEPT;

/// The counts of a server at one moment.
typedef struct remora_server_counts {
  size_t size;        ///< sizeof(remora_server_counts), set by the caller
  uint64_t sessions;  ///< also those that wait for their client to resume them
  uint64_t regions;
  uint64_t grants;  ///< of all sessions
  uint64_t pool_bytes;
  uint64_t pool_used_bytes;     ///< by regions, in whole pages of the pool
  uint64_t pool_freeing_bytes;  ///< removed, not yet zeroed
} remora_server_counts;
/// Writes the present counts.
REMORA_C_EXPORT int remora_server_status(const remora_server* server, remora_server_counts* counts,
                                         remora_error* error) REMORA_C_NOEXCEPT;

/// As the functions of a session with the same names. `info` may be NULL where a region is created
/// or resized.
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

/// The notice of a client's write. The bytes of the write are in place and visible.
typedef struct remora_notice {
  size_t size;         ///< bytes that the library has filled in
  const char* region;  ///< its name; valid during the call
  uint64_t offset;     ///< of the written bytes, from the start of the region
  uint64_t length;     ///< bytes
  uint32_t notice;     ///< the number that the client gave
  uint32_t reserved;
} remora_notice;
/// The server calls it on its notification thread, one call at a time; other notices wait
/// meanwhile. The handler may call the server, also to stop it, but must not free it.
typedef void (*remora_notice_handler)(void* context, const remora_notice* notice);
/// Calls `handler` for each write with a notice to the region of this name, which need not exist
/// yet. NULL: notices are dropped and counted. After the call has returned, the previous handler
/// does not run, unless it made the call itself. Errors: REMORA_CLOSED (stopped), REMORA_SYSTEM.
REMORA_C_EXPORT int remora_server_on_notice(const remora_server* server, const char* region,
                                            remora_notice_handler handler, void* context,
                                            remora_error* error) REMORA_C_NOEXCEPT;

/// Opens a view of a region; while one exists, the region cannot become smaller. Errors:
/// REMORA_UNKNOWN_REGION.
REMORA_C_EXPORT int remora_server_view(const remora_server* server, const char* region,
                                       remora_view** view, remora_error* error) REMORA_C_NOEXCEPT;
/// The view keeps the memory alive until it is freed.
REMORA_C_EXPORT void remora_view_free(remora_view* view) REMORA_C_NOEXCEPT;
/// The size of the region when the view was made.
REMORA_C_EXPORT uint64_t remora_view_size_bytes(const remora_view* view) REMORA_C_NOEXCEPT;
/// Copies out of or into the region, in the caller's thread. `offset`: bytes from the start of the
/// region. Errors: REMORA_OUT_OF_RANGE.
REMORA_C_EXPORT int remora_view_read(const remora_view* view, uint64_t offset, void* into,
                                     size_t length, remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_view_write(const remora_view* view, uint64_t offset, const void* from,
                                      size_t length, remora_error* error) REMORA_C_NOEXCEPT;
/// A contiguous part of a region.
typedef struct remora_extent {
  void* data;
  size_t length;  ///< bytes
} remora_extent;
/// Writes up to `capacity` extents in their order (`extents` may be NULL where `capacity` is 0),
/// and the number of all extents. Their memory is valid as long as the view.
REMORA_C_EXPORT int remora_view_extents(const remora_view* view, remora_extent* extents,
                                        size_t capacity, size_t* count,
                                        remora_error* error) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
