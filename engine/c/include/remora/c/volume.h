#pragma once

/// A volume: one address space over the memory of several servers, which register themselves in a
/// cluster. engine/volume/README.md has clusters, `remora volume create` makes a volume.
///
/// Each byte of a *striped* volume is in one region of one server. A group of stripe units is lost
/// with the memory of its server: operations on it then fail with REMORA_STALE_REGION, and all
/// other groups continue. A handle stays with the regions that it has opened: open the volume again
/// after REMORA_STALE_REGION and REMORA_CONNECTION_LOST, and to reach what was added since.
///
/// A *mirror* has each byte on several servers, and goes on when one of them is lost. Any number of
/// clients read it; it has one writer at a time, which claims it by remora_volume_claim(). A handle
/// of a mirror follows its servers: it need not be opened again, except to reach what was added.
///
/// An operation that goes beyond a stripe unit is cut there. When it fails, other parts may have
/// taken effect. Only compare-and-swap and fetch-and-add are atomic, and only with respect to each
/// other.
///
/// The records of a cluster are in etcd, or in a file of one host. For etcd the library loads
/// libcurl.so.4 (Debian: libcurl4) when it is needed first; nothing else needs it.

#include <stddef.h>
#include <stdint.h>

#include <remora/c/engine.h>
#include <remora/c/error.h>
#include <remora/c/memory.h>
#include <remora/c/queue.h>

#ifdef __cplusplus
extern "C" {
#endif

// NOLINTBEGIN(readability-identifier-naming): the names of the C API are C's

/// An open volume. Any number of threads may call the functions at once.
typedef struct remora_volume remora_volume;

/// What has happened to a group of a volume. New numbers are added at the end: a handler ignores
/// those that it does not know. If a copy has failed with REMORA_INDETERMINATE, the group may have
/// it.
enum remora_volume_change {
  REMORA_VOLUME_GROUP_LOST = 1,         ///< its server has other memory: its bytes are gone
  REMORA_VOLUME_GROUP_UNREACHABLE = 2,  ///< the session with its server is lost
  REMORA_VOLUME_GROUP_REVOKED = 3,      ///< the grant on its region was revoked, or fenced
  REMORA_VOLUME_MEMBER_REMOVED = 4,  ///< of a claimed mirror: the group goes on without that server
  REMORA_VOLUME_WRITER_LOST = 5,     ///< of a claimed mirror: another client has claimed it
  REMORA_VOLUME_COPY_BEGUN = 6,      ///< remora_volume_repair() makes a copy on that server
  REMORA_VOLUME_COPY_DONE = 7,       ///< the group has that copy
  REMORA_VOLUME_COPY_FAILED = 8      ///< that copy was given up, also where the repair was stopped
};

/// A change of one group, for a remora_volume_handler.
typedef struct remora_volume_event {
  size_t size;         ///< bytes that the library has filled in
  const char* server;  ///< the server's name in the cluster, or ""; valid during the call
  uint32_t group;      ///< its index; 0 with REMORA_VOLUME_WRITER_LOST
  int32_t change;      ///< of remora_volume_change
  int32_t code;        ///< of the operation that noticed it; REMORA_OK: nothing has failed
  int32_t reason;      ///< of remora_reason
} remora_volume_event;

/// Called once for each change and group of a volume (REMORA_VOLUME_MEMBER_REMOVED and those of
/// copies: each time): by the thread that gets the failure, before that thread gets it; for groups
/// that cannot be opened (`partial`), while the volume is opened; of a claimed mirror, also by the
/// thread that claims it, for servers that the claim removes, by the thread that renews the claim,
/// and by the threads of a repair. Any number of threads may call it at once. It must not throw,
/// use a queue of the volume, claim or release the volume, nor free it. An idle striped volume
/// notices nothing: a remora_session_handler is called at once.
typedef void (*remora_volume_handler)(void* context, const remora_volume_event* event);

/// How a volume is opened. Fields that are 0 or NULL have their defaults. Strings are copied.
typedef struct remora_volume_options {
  size_t size;                        ///< sizeof(remora_volume_options)
  uint64_t operation_deadline_ns;     ///< for operations and queues without their own; 0: 10 s
  uint64_t store_deadline_ns;         ///< of a request to the store, 1 ms to 1 h; 0: 5 s
  const char* etcd_ca_file;           ///< PEM; NULL: REMORA_ETCD_CA_FILE of the environment
  const char* etcd_certificate_file;  ///< NULL: REMORA_ETCD_CERTIFICATE_FILE
  const char* etcd_key_file;          ///< NULL: REMORA_ETCD_KEY_FILE
  const char* etcd_user;              ///< NULL: REMORA_ETCD_USER
  const char* etcd_password;       ///< NULL: the first line of the file REMORA_ETCD_PASSWORD_FILE
  remora_volume_handler on_event;  ///< may be NULL
  void* event_context;             ///< passed to on_event
  uint32_t rights;                 ///< bits of remora_rights; 0: REMORA_RIGHT_ALL
  int32_t transport;               ///< of remora_transport; shm is REMORA_UNSUPPORTED
  uint32_t partial;                ///< 1: open it although groups cannot be opened
  uint32_t reserved;
} remora_volume_options;

/// A volume as its record was when it was opened.
typedef struct remora_volume_info {
  size_t size;          ///< sizeof(remora_volume_info), set by the caller
  uint64_t size_bytes;  ///< a multiple of block_bytes
  uint64_t block_bytes;
  uint64_t stripe_bytes;  ///< an operation within a stripe unit is one operation on one server
  uint64_t group_bytes;   ///< of the region of a group
  uint64_t group_count;
  uint32_t width;       ///< groups of one row, over which stripe units go round
  uint32_t rights;      ///< that the grants carry: bits of remora_rights
  uint32_t transports;  ///< bit 1 << remora_transport for each that an open group is known to use
  uint32_t copies;      ///< of each byte; 1: it is striped, 2 or more: a mirror
  char name[72];
} remora_volume_info;

/// How a mirror is claimed. Fields that are 0 or NULL have their defaults. Strings are copied.
typedef struct remora_volume_claim_options {
  size_t size;           ///< sizeof(remora_volume_claim_options)
  const char* identity;  ///< in other clients' errors: up to 200 printable ASCII characters; NULL:
                         ///< "HOST-PID-RANDOM"
  uint32_t steal;        ///< 1: also while another client has the claim; its operations then fail
  uint32_t exclusive;    ///< 1: no other client reads it meanwhile; then writes take less time
} remora_volume_claim_options;

/// How far a repair has come.
typedef struct remora_volume_progress {
  size_t size;       ///< bytes that the library has filled in
  const char* work;  ///< "group 3 on s4, 12 of 64 MiB"; valid during the call
  uint64_t done_bytes;
  uint64_t all_bytes;  ///< of the whole work, as far as it is known
} remora_volume_progress;

/// Called after each MiB of a copy, by the threads that copy, one call at a time. It must not
/// throw, claim or release the volume, nor free it.
typedef void (*remora_volume_progress_handler)(void* context,
                                               const remora_volume_progress* progress);
/// Asked before each server is asked what it has, before each MiB is copied, and twenty times a
/// second while a copy waits for the bandwidth; not while a server does not answer. Not 0: the
/// repair ends with REMORA_CANCELLED. The rules are those of remora_volume_progress_handler.
typedef int (*remora_volume_stop_handler)(void* context);

/// How a mirror is repaired. Fields that are 0 or NULL have their defaults.
typedef struct remora_volume_repair_options {
  size_t size;                    ///< sizeof(remora_volume_repair_options)
  uint64_t bytes_per_second_max;  ///< of all copies together; 0: no limit
  uint64_t step_deadline_ns;      ///< of each step that waits for servers or the store; 0: 30 s
  remora_volume_progress_handler on_progress;
  remora_volume_stop_handler should_stop;
  void* context;            ///< passed to both
  uint32_t groups_at_once;  ///< whose copies are made at once, 1 to 64; 0: 4
  uint32_t zones_at_once;   ///< MiB of a group that are copied at once, 1 to 64; 0: 4
} remora_volume_repair_options;

/// What a repair has done.
typedef struct remora_volume_repair_report {
  size_t size;      ///< sizeof(remora_volume_repair_report), set by the caller
  uint64_t groups;  ///< that were looked at
  uint64_t copies_made;
  uint64_t bytes_copied;
  uint64_t regions_removed;  ///< which no group used any more
  uint64_t left_count;       ///< what could not be done; 0: all is done
} remora_volume_repair_report;

/// A group as this process has it open. Of a mirror, `server` and `region` are those that are read.
typedef struct remora_volume_group {
  uint32_t index;
  int32_t transport;  ///< of remora_transport; REMORA_TRANSPORT_AUTO: not open. Of a claimed
                      ///< mirror: REMORA_TRANSPORT_RDMA where any of its servers is reached over it
  int32_t connected;  ///< as remora_region_connected()
  int32_t copies;     ///< that are equal; of a mirror that is not claimed: as its record was. Fewer
                      ///< than remora_volume_info.copies: a repair makes the others
  char server[72];    ///< the name of its server in the cluster
  char region[72];
  char error[512];  ///< why it is not open, where the volume is open with `partial`
} remora_volume_group;

/// Opens the volume of `uri`, "remora+etcd://HOST[:2379][,HOST2...]/CLUSTER/VOLUME[?tls=on]" or
/// "remora+file:///PATH/NAME.json/VOLUME". `options` may be NULL. Blocks: requests to the store, a
/// session for each server, a request for each group; those of a mirror come with its first read
/// and its claim. Errors: REMORA_INVALID_ARGUMENT (URI, a field); REMORA_NOT_FOUND (no such volume,
/// a file); REMORA_BUSY (it is being created or removed); REMORA_UNSUPPORTED (shm, no
/// libcurl.so.4); REMORA_PROTOCOL (records that do not fit each other); REMORA_STALE_REGION (a
/// group is lost); REMORA_UNREACHABLE, REMORA_TIMED_OUT, REMORA_PERMISSION_DENIED (also of the
/// store); those of remora_engine_open_region().
REMORA_C_EXPORT int remora_engine_open_volume(const remora_engine* engine, const char* uri,
                                              const remora_volume_options* options,
                                              remora_volume** volume,
                                              remora_error* error) REMORA_C_NOEXCEPT;
/// The regions are closed, and a claim ends, when the queues of the volume are freed as well. The
/// end of a claim blocks for requests to the store.
REMORA_C_EXPORT void remora_volume_free(remora_volume* volume) REMORA_C_NOEXCEPT;

/// Never blocks.
REMORA_C_EXPORT int remora_volume_info_of(const remora_volume* volume, remora_volume_info* info,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// Writes up to `capacity` groups in their order (`groups` may be NULL where `capacity` is 0), and
/// the number of all groups. Never blocks. Errors: REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_volume_groups(const remora_volume* volume, remora_volume_group* groups,
                                         size_t capacity, size_t* count,
                                         remora_error* error) REMORA_C_NOEXCEPT;
REMORA_C_EXPORT uint64_t remora_volume_size_bytes(const remora_volume* volume) REMORA_C_NOEXCEPT;
/// The rights that the grants carry: bits of remora_rights.
REMORA_C_EXPORT uint32_t remora_volume_rights(const remora_volume* volume) REMORA_C_NOEXCEPT;
/// 0 while a group is not connected, as remora_region_connected() says it. Looks at each group. Of
/// a mirror that is not claimed, a group is connected from its first read on.
REMORA_C_EXPORT int remora_volume_connected(const remora_volume* volume) REMORA_C_NOEXCEPT;
/// As remora_region_settled(), for each group that is open. Tries all groups, and returns the first
/// error. Of a claimed mirror: returns when its copies are equal. Errors: REMORA_CONNECTION_LOST
/// (this cannot be known); REMORA_TIMED_OUT.
REMORA_C_EXPORT int remora_volume_settled(const remora_volume* volume, uint64_t deadline_ns,
                                          remora_error* error) REMORA_C_NOEXCEPT;

/// Makes this handle, with its queues, the one writer of a mirror. Other clients' claims end: no
/// operation of theirs takes effect any more. Then it makes the bytes equal that a writer before
/// has left unequal. Blocks: two requests for each group, and a copy of each zone of 1 MiB that may
/// differ. A thread of the library renews the claim until remora_volume_release(), or until volume
/// and queues are freed. `options` may be NULL. Errors: REMORA_BUSY with REMORA_REASON_HELD
/// (another client has the claim: `subject` is its identity; a client that has died loses it after
/// 10 s); REMORA_ALREADY_EXISTS (this handle has it); REMORA_UNSUPPORTED (a striped volume);
/// REMORA_NO_RIGHT (opened with REMORA_RIGHT_READ alone); REMORA_INVALID_ARGUMENT (a field);
/// REMORA_STALE_REGION (a group is lost, or another volume has this name); those of the servers and
/// of the store.
REMORA_C_EXPORT int remora_volume_claim(const remora_volume* volume,
                                        const remora_volume_claim_options* options,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// Ends the claim; operations in flight end first. Errors: REMORA_NOT_FOUND (not claimed);
/// REMORA_ACCESS_REFUSED with REMORA_REASON_FENCED (another client has claimed it); those of the
/// store, where the claim ends by itself after 10 s.
REMORA_C_EXPORT int remora_volume_release(const remora_volume* volume,
                                          remora_error* error) REMORA_C_NOEXCEPT;
/// 1 while this handle has the claim, and has not noticed another client's. Sends nothing.
REMORA_C_EXPORT int remora_volume_claimed(const remora_volume* volume) REMORA_C_NOEXCEPT;
/// Makes the copies anew that a claimed mirror has lost, on servers with room, and removes regions
/// that no group uses. Operations and queues go on meanwhile; each group pauses for a moment when a
/// copy comes in. The client needs the right to create regions. `options` and `report` may be NULL.
/// `left` may be NULL; it gets a text with a sentence for each thing that could not be done, one a
/// line, to be freed by remora_free(), or NULL. REMORA_OK also then: a server that has no room is
/// no error. Blocks: requests to each server of the cluster, and the copies. Errors:
/// REMORA_CANCELLED (`should_stop`; complete copies stay, the others are removed);
/// REMORA_INVALID_ARGUMENT (not claimed, a field); REMORA_UNSUPPORTED (a striped volume);
/// REMORA_BUSY (another thread repairs it by this handle); REMORA_STALE_REGION (another client has
/// claimed it); those of the servers and of the store. A repair that has failed may be repeated.
REMORA_C_EXPORT int remora_volume_repair(const remora_volume* volume,
                                         const remora_volume_repair_options* options,
                                         remora_volume_repair_report* report, char** left,
                                         remora_error* error) REMORA_C_NOEXCEPT;

/// The synchronous operations. `offset`: bytes from the start of the volume; `length`: 1 byte to
/// the whole volume. They block until done, at most `deadline_ns` (0: that of the volume) plus two
/// seconds; one that is cut may take twice that deadline. `memory`: see <remora/c/memory.h>, may be
/// NULL. Errors: those of the operations of <remora/c/region.h>; their subject has volume, group
/// and server. Of several failed parts, the error of one; REMORA_INDETERMINATE if any is.
///
/// Of a mirror, all but reads and flushes need the claim: REMORA_NO_RIGHT without, and
/// REMORA_ACCESS_REFUSED with REMORA_REASON_FENCED once another client has it. Reads of other
/// clients are REMORA_BUSY while a claim is `exclusive`. An operation may take 3 s more for each
/// server that does not answer. After REMORA_INDETERMINATE the writer makes all copies equal.
REMORA_C_EXPORT int remora_volume_read(const remora_volume* volume, uint64_t offset, void* into,
                                       size_t length, const remora_memory* memory,
                                       uint64_t deadline_ns, remora_error* error) REMORA_C_NOEXCEPT;
/// `from` is only read.
REMORA_C_EXPORT int remora_volume_write(const remora_volume* volume, uint64_t offset,
                                        const void* from, size_t length,
                                        const remora_memory* memory, uint64_t deadline_ns,
                                        remora_error* error) REMORA_C_NOEXCEPT;
/// As a write of `length` zeroes, without a buffer: over tcp, no bytes are transferred.
REMORA_C_EXPORT int remora_volume_write_zeroes(const remora_volume* volume, uint64_t offset,
                                               uint64_t length, uint64_t deadline_ns,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// remora_region_flush_visible() on the session of each server. It makes nothing durable.
REMORA_C_EXPORT int remora_volume_flush_visible(const remora_volume* volume, uint64_t deadline_ns,
                                                remora_error* error) REMORA_C_NOEXCEPT;
/// As remora_region_compare_swap().
REMORA_C_EXPORT int remora_volume_compare_swap(const remora_volume* volume, uint64_t offset,
                                               uint64_t expected, uint64_t desired,
                                               uint64_t* before, uint64_t deadline_ns,
                                               remora_error* error) REMORA_C_NOEXCEPT;
/// As remora_region_fetch_add().
REMORA_C_EXPORT int remora_volume_fetch_add(const remora_volume* volume, uint64_t offset,
                                            uint64_t delta, uint64_t* before, uint64_t deadline_ns,
                                            remora_error* error) REMORA_C_NOEXCEPT;

/// A queue of operations on `volume`, which it keeps open: operations on all servers are in flight
/// at once. The functions of <remora/c/queue.h> use it as a queue of a region, except: those that
/// take pieces, notices or many pairs return 0 and take nothing; remora_queue_select(),
/// remora_queue_barrier() and remora_queue_cancel() return REMORA_UNSUPPORTED. An operation that is
/// cut ends within twice its deadline plus two seconds. A `memory` must not be freed before the
/// completion. The queue of a mirror has a depth of 1 to 1024, and reads and writes by the claim of
/// the handle. `options` may be NULL: the defaults. Errors: REMORA_INVALID_ARGUMENT (depth),
/// REMORA_OUT_OF_MEMORY.
REMORA_C_EXPORT int remora_volume_queue_create(const remora_volume* volume,
                                               const remora_queue_options* options,
                                               remora_queue** queue,
                                               remora_error* error) REMORA_C_NOEXCEPT;

// NOLINTEND(readability-identifier-naming)

#ifdef __cplusplus
}
#endif
