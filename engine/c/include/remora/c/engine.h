#pragma once

/// The client. A process usually needs one engine.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/error.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

/// Sessions and threads of one client. Any number of threads may use it.
typedef struct remora_engine remora_engine;

/// How bytes travel.
enum remora_transport {
  REMORA_TRANSPORT_AUTO = 0,  ///< for requests only: no session reports it
  REMORA_TRANSPORT_RDMA = 1,
  REMORA_TRANSPORT_SHM = 2,
  REMORA_TRANSPORT_TCP = 3
};

/// The rights of a grant; a set of bits.
enum remora_rights {
  REMORA_RIGHT_READ = 1,
  REMORA_RIGHT_WRITE = 2,
  REMORA_RIGHT_ATOMIC = 4,  ///< compare-and-swap and fetch-and-add
  REMORA_RIGHT_ALL = 7
};

/// What happened to a session.
enum remora_session_change {
  REMORA_SESSION_INTERRUPTED = 1,  ///< its lanes are gone; the engine connects again
  REMORA_SESSION_RESUMED = 2,      ///< connected again, with the same grants
  REMORA_SESSION_LOST = 3,         ///< ended for good: open its regions again
  REMORA_SESSION_STALE = 4,        ///< ended: the server runs with new memory
  REMORA_SESSION_DRAIN = 5         ///< the server is about to stop, or is being drained
};

/// A change of one session, for a remora_session_handler.
typedef struct remora_session_event {
  size_t size;         ///< bytes that the library has filled in
  const char* server;  ///< "host:port"; valid during the call
  int32_t change;      ///< of remora_session_change
  int32_t transport;   ///< of remora_transport
  int32_t reason;      ///< of remora_reason
  int32_t reserved;
} remora_session_event;

/// The engine calls it on one of its own threads, or on a thread that is in a call of the library:
/// one call at a time for each session, in the order of the events. It must not block, must not
/// free the engine, and must not free the last handle of the session that it is called for. After
/// remora_engine_free() has returned, no call runs and none will.
typedef void (*remora_session_handler)(void* context, const remora_session_event* event);

/// The pages of the memory that the engine allocates for slots.
enum remora_huge_pages {
  REMORA_HUGE_PAGES_AUTO = 0,  ///< largest free size, for 2 MiB of slots and more
  REMORA_HUGE_PAGES_NEVER = 1  ///< ordinary pages
};

/// When the pages of a region that is opened over shm enter the page table of this process. The
/// first use of a page that is not in it causes a page fault.
enum remora_populate {
  REMORA_POPULATE_NONE = 0,  ///< at the first use of each
  REMORA_POPULATE_LAZY = 1,  ///< up to 64 MiB when the region is opened, the rest by a thread
  REMORA_POPULATE_NOW = 2    ///< all of them when the region is opened, which takes longer then
};

/// Fill it with remora_engine_options_init(), then change fields. Strings are copied by
/// remora_engine_open(). `rails` and `rdma` have the names and values of a URI's `rails=`,
/// `traffic_class=`, `service_level=`, `pkey=`, `gid_index=`, `mtu=`, `timeout=`, `retry_count=`
/// and `rnr_retry=`; the URI's own values have precedence (engine/docs/fabric.md). The number of
/// its members is an exception: new options are added at the end, and none is removed.
typedef struct remora_engine_options {
  size_t size;              ///< set by remora_engine_options_init()
  const char* client_name;  ///< sent to servers, at most 64 bytes; NULL: "remora"
  const char* key_file;     ///< path of the client's key; NULL: none
  const char* key_hex;      ///< the key itself, 64 hexadecimal digits; NULL: none. One of both.
  uint64_t operation_deadline_ns;  ///< for operations without their own; default 10 s
  uint64_t control_deadline_ns;    ///< of connecting, opening, each control request; default 10 s
  uint64_t connect_for_ns;         ///< time for attempts to open; default 0: one attempt
  uint64_t reconnect_for_ns;       ///< time for attempts to resume a session; default 30 s
  uint64_t spin_ns;                ///< a waiting caller polls before it sleeps; 50 us
  uint32_t lane_depth;             ///< send queue of a lane, in work requests; default 512
  uint32_t lanes;                  ///< data paths of a session, 1 to 8; default 1
  uint32_t copy_threads;           ///< for large copies over shm; 0, the default: as many as fit
  uint32_t bounce_slot_count;      ///< slots for memory that is not registered; default 32
  uint32_t bounce_slot_bytes;      ///< default 64 KiB
  uint32_t huge_pages;             ///< of remora_huge_pages, for slots
  uint64_t mr_cache_from_bytes;    ///< over rdma, longer memory is registered and kept; 64 KiB
  uint64_t mr_cache_bytes;         ///< most bytes that such registrations pin; default 1 GiB
  const char* placement;           ///< "auto", "none" or processors as "0-3,8"; NULL: "auto"
  const char* device;              ///< the only RDMA device to use; NULL: the one that routes
  uint32_t core_dump;              ///< 1: core dumps contain slots and mapped regions
  uint32_t tcp_payload_crc;        ///< 1: over tcp, payload is checked by CRC32C
  remora_session_handler on_session;  ///< may be NULL
  void* session_context;              ///< passed to on_session
  const char* rails;  ///< devices of a session over rdma: "1" to "8", "auto", names; NULL: "1"
  const char* rdma;   ///< how rdma uses the fabric, as "traffic_class=106,mtu=1024"; NULL: defaults
  uint32_t populate;  ///< of remora_populate; default REMORA_POPULATE_LAZY
  uint32_t reserved;
} remora_engine_options;

/// Fills `options` with the defaults. `size`: sizeof(remora_engine_options).
/// Errors: REMORA_INVALID_ARGUMENT (null, misaligned, a size below that of a pointer).
REMORA_C_EXPORT int remora_engine_options_init(remora_engine_options* options,
                                               size_t size) REMORA_C_NOEXCEPT;

/// Opens an engine, without a connection to any server. `options` may be NULL: the defaults. Blocks
/// only to read `key_file`. Errors: REMORA_INVALID_ARGUMENT (a field, a key), REMORA_OUT_OF_MEMORY;
/// REMORA_NOT_FOUND, REMORA_PERMISSION_DENIED, REMORA_SYSTEM (`key_file`); REMORA_UNSUPPORTED (the
/// process uses another version of protobuf: engine/c/docs/libraries.md).
REMORA_C_EXPORT int remora_engine_open(const remora_engine_options* options, remora_engine** engine,
                                       remora_error* error) REMORA_C_NOEXCEPT;
/// Blocks until the engine's devices have released their resources, usually some milliseconds.
/// Waits for no server. Regions, sessions and queues that still exist keep working.
REMORA_C_EXPORT void remora_engine_free(remora_engine* engine) REMORA_C_NOEXCEPT;

/// Sessions, transports and open regions as a JSON object (engine/docs/status.md). `*text` is freed
/// with remora_free(); `length`, without the final 0, may be NULL. Does not wait for operations.
/// Errors: REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_engine_status_json(const remora_engine* engine, char** text,
                                              size_t* length,
                                              remora_error* error) REMORA_C_NOEXCEPT;
/// All metrics of the engine in Prometheus' text format 0.0.4; `*text` and `length` as above.
REMORA_C_EXPORT int remora_engine_metrics(const remora_engine* engine, char** text, size_t* length,
                                          remora_error* error) REMORA_C_NOEXCEPT;

/// Levels of the library's log.
enum remora_log_level {
  REMORA_LOG_DEBUG = 0,   ///< each attempt and each choice, for finding a fault
  REMORA_LOG_INFO = 1,    ///< sessions that are interrupted and resumed, transports that are chosen
  REMORA_LOG_WARNING = 2  ///< a state that an operator should look at
};

/// One line of UTF-8 of `length` bytes, with a final 0 and without a line feed; valid during the
/// call. `at_ns`: since 1970. The library calls the handler on a thread of its own, one line at a
/// time. The handler may block, and may call the library.
typedef void (*remora_log_handler)(void* context, int level, uint64_t at_ns, const char* text,
                                   size_t length);

/// From now on the log lines of this copy of the library, from `level` on, go to `handler` only.
/// NULL: warnings go to standard error, which is the default. After the call has returned, the
/// previous handler does not run and will not again, unless it made the call itself.
/// Errors: REMORA_INVALID_ARGUMENT (level), REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_set_log_handler(remora_log_handler handler, void* context, int level,
                                           remora_error* error) REMORA_C_NOEXCEPT;

/// A line of the log with its event. Its pointers are valid during the call of the handler.
typedef struct remora_log_line {
  size_t size;         ///< bytes that the library has filled in
  uint64_t at_ns;      ///< since 1970
  const char* event;   ///< stable names, such as "session.silent": engine/docs/log-events.md
  const char* text;    ///< one line of UTF-8, without a line feed
  size_t text_length;  ///< without the final 0
  const char* json;    ///< the whole line as a JSON object, with the fields of the event
  size_t json_length;  ///< without the final 0
  int32_t level;       ///< of remora_log_level
  int32_t reserved;
} remora_log_line;

/// As remora_log_handler.
typedef void (*remora_log_line_handler)(void* context, const remora_log_line* line);

/// As remora_set_log_handler(), for a handler that takes events. There is one handler: each of the
/// two functions replaces the handler that the other one has set. Errors: REMORA_INVALID_ARGUMENT
/// (level), REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_set_log_line_handler(remora_log_line_handler handler, void* context,
                                                int level, remora_error* error) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
