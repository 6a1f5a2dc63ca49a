#pragma once

/// What an administrator does with a server: ping it, list its sessions, end one, and drain it.
///
/// Over a session these requests need the right `clients[].admin` where the server's clients have
/// keys; without keys every client has it. The application that embeds a server needs no right.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/error.h>
#include <remora/c/server.h>
#include <remora/c/session.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

/// A session of a server.
typedef struct remora_session_info {
  size_t size;             ///< sizeof(remora_session_info), set by the caller
  uint64_t id;             ///< never 0
  uint64_t age_ms;         ///< of its connection; a resumption makes a new one
  uint64_t open_regions;   ///< a region that is open twice counts twice
  uint32_t transport;      ///< of remora_transport
  uint32_t client_proven;  ///< 1: by its key
  uint32_t lost;           ///< 1: waits for its client to resume it
  uint32_t own;            ///< 1: the session that has asked
  char client_name[72];
  char peer[96];    ///< the client's address or process, by the transport
  char device[72];  ///< the server's RDMA device; "" over shm and tcp
} remora_session_info;

/// The sessions at one moment, sorted by id. Read-only: any number of threads may use it.
typedef struct remora_session_list remora_session_list;
REMORA_C_EXPORT void remora_session_list_free(remora_session_list* list) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT size_t remora_session_list_count(const remora_session_list* list) REMORA_C_NOEXCEPT;
/// Errors: REMORA_OUT_OF_RANGE (index).
REMORA_C_EXPORT int remora_session_list_get(const remora_session_list* list, size_t index,
                                            remora_session_info* info,
                                            remora_error* error) REMORA_C_NOEXCEPT;

/// The progress of a server's drain.
typedef struct remora_drain_state {
  size_t size;             ///< sizeof(remora_drain_state), set by the caller
  uint64_t remaining_ms;   ///< of limits.drain_timeout
  uint64_t sessions;       ///< with a client, without the session that asks
  uint64_t lost_sessions;  ///< that wait for their clients to resume them
  uint64_t open_regions;   ///< of all sessions
  uint32_t draining;       ///< 1: the server is being drained
  uint32_t reserved;
} remora_drain_state;

/// Measures the time until the server's control thread has answered; `took_ns` may be NULL. No
/// right is needed. Errors: REMORA_CONNECTION_LOST, also while the engine connects again.
REMORA_C_EXPORT int remora_session_ping(const remora_session* session, uint64_t* took_ns,
                                        remora_error* error) REMORA_C_NOEXCEPT;

/// The server's sessions, also those that wait for their clients. Errors of this function and of
/// the next four: REMORA_NO_RIGHT, REMORA_UNSUPPORTED (an older server).
REMORA_C_EXPORT int remora_session_sessions(const remora_session* session,
                                            remora_session_list** list,
                                            remora_error* error) REMORA_C_NOEXCEPT;
/// Ends the session of that id, which its client cannot resume: the client's handler gets
/// REMORA_SESSION_LOST with REMORA_REASON_REVOKED. After the call has returned, no request of the
/// session reaches memory. Its client may open regions again, in a new session. Errors: also
/// REMORA_NOT_FOUND, REMORA_INVALID_ARGUMENT (the id of `session` itself).
REMORA_C_EXPORT int remora_session_end_session(const remora_session* session, uint64_t id,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// Begins a drain: the server sends REMORA_SESSION_DRAIN to each session, also to those that begin
/// during the drain, and refuses to create and open regions (REMORA_BUSY with
/// REMORA_REASON_DRAINING), for every client. Open regions stay open, and regions can be fenced.
/// The server ends no session by itself. A second call before the end of the drain changes nothing.
/// A restart ends the drain. `state` may be NULL.
REMORA_C_EXPORT int remora_session_drain(const remora_session* session, remora_drain_state* state,
                                         remora_error* error) REMORA_C_NOEXCEPT;
/// Ends the drain: regions can be created and opened again. `state` may be NULL.
REMORA_C_EXPORT int remora_session_end_drain(const remora_session* session,
                                             remora_drain_state* state,
                                             remora_error* error) REMORA_C_NOEXCEPT;
/// The present state; changes nothing.
REMORA_C_EXPORT int remora_session_drain_state(const remora_session* session,
                                               remora_drain_state* state,
                                               remora_error* error) REMORA_C_NOEXCEPT;

/// remora_server_sessions() and the four functions behind it do what those of a session do, for the
/// application that embeds the server. They wait for the request that the server is carrying out. A
/// notice handler may call them. remora_server_create_region() is not refused during a drain.
/// Errors: REMORA_CLOSED (stopped); of remora_server_end_session() also REMORA_NOT_FOUND.
REMORA_C_EXPORT int remora_server_sessions(const remora_server* server, remora_session_list** list,
                                           remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_end_session(const remora_server* server, uint64_t id,
                                              remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_drain(const remora_server* server, remora_drain_state* state,
                                        remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_end_drain(const remora_server* server, remora_drain_state* state,
                                            remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT int remora_server_drain_state(const remora_server* server,
                                              remora_drain_state* state,
                                              remora_error* error) REMORA_C_NOEXCEPT;

/// Whether the server makes progress, for a watchdog: its control thread runs, and its present
/// request does not take ten times limits.request_timeout without a step. Never blocks. Errors:
/// REMORA_TIMED_OUT (the subject says what makes no progress).
REMORA_C_EXPORT int remora_server_alive(const remora_server* server,
                                        remora_error* error) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
