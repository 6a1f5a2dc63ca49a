#include "device.h"

#include <errno.h>
#include <nbdkit-plugin.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/// Every later request fails.
static void end_with_claim(Device* device) {
  if (atomic_exchange(&device->ended, true)) return;
  nbdkit_error(
      "another client has claimed the mirror %s; every request fails from now on; start nbdkit "
      "again once that client has ended",
      device->memory.name);
}

/// Of a mirror, called by any thread. The failures of a striped volume come with its sessions.
static void on_event(void* context, const remora_volume_event* event) {
  Device* const device = context;
  if (event->change == REMORA_VOLUME_WRITER_LOST) end_with_claim(device);
  if (event->change != REMORA_VOLUME_MEMBER_REMOVED) return;
  const char* const why = remora_code_name(event->code);
  if (atomic_exchange(&device->degraded, true))
    nbdkit_debug("group %u goes on without its copy on %s: %s", event->group, event->server, why);
  else
    nbdkit_error(
        "the mirror goes on without copies: that of group %u on %s: %s; 'remora volume stat' shows "
        "all; %s",
        event->group, event->server, why,
        device->repairs ? "they are made anew where a server has room"
                        : "'remora volume repair' makes them anew when nbdkit has ended");
  repairer_wake(device->repairer);
}

/// Requests need not know: the library uses the other copies.
static void on_session_of_mirror(Device* device, const remora_session_event* event,
                                 const char* why) {
  switch (event->change) {
    case REMORA_SESSION_INTERRUPTED:
      nbdkit_error("%s: interrupted: %s; the mirror uses its other copies", event->server, why);
      break;
    case REMORA_SESSION_RESUMED:
      atomic_store(&device->known, 0);
      nbdkit_error("%s: connected again, with the same memory", event->server);
      break;
    case REMORA_SESSION_LOST:
      nbdkit_error("%s: lost: %s; the mirror uses its other copies", event->server, why);
      break;
    case REMORA_SESSION_STALE:
      nbdkit_error("%s: has new memory; the mirror uses its other copies", event->server);
      break;
    default: break;
  }
}

/// Called by a thread of the engine. Requests that fail for the reason logged here do not log it
/// again.
static void on_session(void* context, const remora_session_event* event) {
  Device* const device = context;
  const char* const why = remora_reason_name(event->reason);
  if (atomic_load(&device->mirror)) {
    on_session_of_mirror(device, event, why);
    return;
  }
  switch (event->change) {
    case REMORA_SESSION_INTERRUPTED:
      atomic_store(&device->interrupted, true);
      nbdkit_error("%s: interrupted: %s; requests wait for it", event->server, why);
      break;
    case REMORA_SESSION_RESUMED:
      atomic_store(&device->known, 0);
      nbdkit_error("%s: connected again, with the same memory", event->server);
      break;
    case REMORA_SESSION_LOST:
      atomic_store(&device->ended, true);
      nbdkit_error("%s: lost: %s; every request fails from now on; start nbdkit again",
                   event->server, why);
      break;
    case REMORA_SESSION_STALE:
      atomic_store(&device->ended, true);
      nbdkit_error(
          "%s: has new memory, what was written is gone; every request fails from now on; "
          "start nbdkit again to use the new memory",
          event->server);
      break;
    default: break;  // a server's own log reports its stop
  }
}

/// Lines of the library, in a thread of its own.
static void on_log(void* context, int level, uint64_t at_ns, const char* text, size_t length) {
  (void)context;
  (void)at_ns;
  (void)length;
  if (level >= REMORA_LOG_WARNING)
    nbdkit_error("%s", text);
  else
    nbdkit_debug("%s", text);
}

/// The device is opened once more afterwards, and these lines come again.
static void on_log_of_probe(void* context, int level, uint64_t at_ns, const char* text,
                            size_t length) {
  (void)context;
  (void)level;
  (void)at_ns;
  (void)length;
  nbdkit_debug("%s", text);
}

static int open_engine(Device* device, const Options* options, uint64_t connect_for_ns,
                       remora_error* error) {
  remora_engine_options given;
  const int filled = remora_engine_options_init(&given, sizeof given);
  if (filled != REMORA_OK) return filled;
  given.client_name = options->client;
  given.key_file = options->key_file;
  given.operation_deadline_ns = options->deadline_ns;
  given.connect_for_ns = connect_for_ns;
  given.reconnect_for_ns = options->reconnect_for_ns;
  given.lanes = options->lanes;
  given.on_session = on_session;
  given.session_context = device;
  return remora_engine_open(&given, &device->engine, error);
}

static int open_memory(Device* device, const Options* options, remora_error* error) {
  const MemoryOptions given = {
      .uri = options->uri,
      .rights = options->readonly ? REMORA_RIGHT_READ : REMORA_RIGHT_READ | REMORA_RIGHT_WRITE,
      .deadline_ns = options->deadline_ns,
      .on_event = on_event,
      .event_context = device};
  const int code = memory_open(&device->memory, device->engine, &given, error);
  // Its sessions begin with the claim, or with the first read.
  if (code == REMORA_OK) atomic_store(&device->mirror, device->memory.copies > 1);
  return code;
}

/// Of a mirror that is to be written.
static int claim(Device* device, const Options* options, remora_error* error) {
  if (!atomic_load(&device->mirror)) {
    if (!options->steal && !options->exclusive && options->repair_bytes_per_second == 0)
      return REMORA_OK;
    (void)snprintf(error->message, sizeof error->message,
                   "steal=, exclusive= and repair-bandwidth= are for mirrors, which '%s' is not",
                   device->memory.name);
    return REMORA_INVALID_ARGUMENT;
  }
  if (options->readonly) return REMORA_OK;
  const remora_volume_claim_options wanted = {
      .size = sizeof wanted, .steal = options->steal, .exclusive = options->exclusive};
  const int code = remora_volume_claim(device->memory.volume, &wanted, error);
  device->claimed = code == REMORA_OK;
  return code;
}

/// Of a mirror that was claimed. Returns 0, or -1: nbdkit has the message.
static int start_repairs(Device* device, const Options* options) {
  if (!device->claimed || !device->repairs) return 0;
  const RepairerOptions wanted = {.memory = &device->memory,
                                  .bytes_per_second_max = options->repair_bytes_per_second,
                                  .degraded = &device->degraded};
  return repairer_start(device->repairer, &wanted);
}

static void release(Device* device) {
  remora_error error = {.size = sizeof error};
  const bool claimed = device->claimed && remora_volume_claimed(device->memory.volume) != 0;
  device->claimed = false;
  if (!claimed || remora_volume_release(device->memory.volume, &error) == REMORA_OK) return;
  nbdkit_error("the claim of %s ends by itself, ten seconds from now: %s", device->memory.name,
               error.message);
}

/// What the parameters can change about a refusal.
static const char* advice(int code, const remora_error* error, const Options* options) {
  if (code == REMORA_NO_RIGHT && !options->readonly)
    return "; readonly=true asks for the right to read alone";
  if (code == REMORA_BUSY && error->reason == REMORA_REASON_HELD)
    return "; here: steal=true takes the claim, readonly=true needs none";
  return "";
}

static void describe(Device* device) {
  const Memory* const memory = &device->memory;
  char* const to = device->description;
  const size_t size = sizeof device->description;
  if (memory->copies > 1)
    (void)snprintf(to, size, "Remora mirror %s; %u copies", memory->name, memory->copies);
  else if (memory->volume != NULL)
    (void)snprintf(to, size, "Remora volume %s", memory->name);
  else
    (void)snprintf(to, size, "Remora region %s; %s", memory->name,
                   remora_region_transport_reason(memory->region));
}

static int open_within(Device* device, const Options* options, uint64_t connect_for_ns,
                       remora_log_handler log) {
  remora_error error = {.size = sizeof error};
  device->reconnect_for_ns = options->reconnect_for_ns;
  device->repairs = options->repair && !options->readonly;
  (void)remora_set_log_handler(log, NULL, REMORA_LOG_INFO, NULL);
  device->order = write_order_create();
  device->repairer = repairer_create();
  const bool has_memory = device->order != NULL && device->repairer != NULL;
  int code =
      has_memory ? open_engine(device, options, connect_for_ns, &error) : REMORA_OUT_OF_MEMORY;
  if (code == REMORA_OK) code = open_memory(device, options, &error);
  if (code == REMORA_OK) code = claim(device, options, &error);
  if (code != REMORA_OK) {
    nbdkit_error("%s%s", error.message[0] != '\0' ? error.message : remora_code_name(code),
                 advice(code, &error, options));
    device_close(device);
    return -1;
  }
  describe(device);
  return 0;
}

int device_open(Device* device, const Options* options) {
  const uint64_t longest_ns = UINT64_C(10000000000);
  const uint64_t connect_for_ns =
      options->reconnect_for_ns < longest_ns ? options->reconnect_for_ns : longest_ns;
  if (open_within(device, options, connect_for_ns, on_log) != 0) return -1;
  if (start_repairs(device, options) == 0) return 0;
  device_close(device);
  return -1;
}

void device_close(Device* device) {
  if (device->repairer != NULL) repairer_stop(device->repairer);
  release(device);
  memory_close(&device->memory);
  remora_engine_free(device->engine);
  repairer_free(device->repairer);  // handlers of the volume have used it
  write_order_free(device->order);
  device->engine = NULL;
  device->repairer = NULL;
  device->order = NULL;
  (void)remora_set_log_handler(NULL, NULL, REMORA_LOG_WARNING, NULL);
}

int device_probe(const Options* options) {
  const pid_t child = fork();
  if (child == -1) {
    nbdkit_error("fork: %m");
    return -1;
  }
  if (child == 0) {
    Device device;
    memset(&device, 0, sizeof device);
    const int opened = open_within(&device, options, 0, on_log_of_probe);
    if (opened == 0) device_close(&device);
    _exit(opened == 0 ? 0 : 1);
  }
  int status = 0;
  while (waitpid(child, &status, 0) == -1)
    if (errno != EINTR) break;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  if (!WIFEXITED(status)) nbdkit_error("the process that tried to open the memory was killed");
  return -1;
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/// A volume has many sessions: they are looked at only after one was interrupted. A mirror needs
/// none of them in particular.
static bool is_connected(Device* device) {
  if (atomic_load(&device->mirror)) return true;
  if (device->memory.volume == NULL) return memory_connected(&device->memory);
  if (!atomic_load(&device->interrupted)) return true;
  atomic_store(&device->interrupted, false);  // before the look: a later event sets it again
  if (memory_connected(&device->memory)) return true;
  atomic_store(&device->interrupted, true);
  return false;
}

/// Whether the session is connected, and no earlier write can take effect any more.
static bool wait_until_settled(Device* device, uint64_t until_ns) {
  enum { kLookNs = 100000000, kPauseNs = 10000000 };
  while (!atomic_load(&device->ended) && now_ns() < until_ns) {
    const uint_least64_t in_doubt = atomic_load(&device->in_doubt);
    // Short waits, so that nbdkit can stop meanwhile.
    const int code = memory_settled(&device->memory, kLookNs);
    if (code != REMORA_OK && code != REMORA_TIMED_OUT) return false;
    if (nbdkit_nanosleep(0, kPauseNs) == -1) return false;
    if (code == REMORA_OK && is_connected(device)) {
      // A smaller number of another thread only means that a request checks once more.
      atomic_store(&device->settled, in_doubt);
      return true;
    }
  }
  return false;
}

bool device_may_repeat(Device* device, int code, uint64_t* until_ns) {
  if (code != REMORA_CONNECTION_LOST && code != REMORA_INDETERMINATE && code != REMORA_TIMED_OUT)
    return false;
  if (code == REMORA_INDETERMINATE) atomic_fetch_add(&device->in_doubt, 1);
  if (*until_ns == 0) *until_ns = now_ns() + device->reconnect_for_ns;
  return wait_until_settled(device, *until_ns);
}

bool device_may_begin(Device* device, uint64_t* until_ns) {
  // Of a volume the other servers would still answer, and of a mirror its next writer's bytes.
  if (device->memory.volume != NULL && atomic_load(&device->ended)) return false;
  const bool doubtful = atomic_load(&device->in_doubt) != atomic_load(&device->settled);
  return (!doubtful && is_connected(device)) ||
         device_may_repeat(device, REMORA_CONNECTION_LOST, until_ns) ||
         atomic_load(&device->ended);  // the library returns the reason at once
}

const char* device_refusal(Device* device) {
  if (!atomic_load(&device->ended))
    return "not sent: the server did not come back in time, or the client left";
  return atomic_load(&device->mirror)
             ? "not sent: another client has claimed the mirror; start nbdkit again"
             : "not sent: a server of the volume is lost; start nbdkit again";
}

bool device_keeps_claim(Device* device) {
  if (!device->claimed || remora_volume_claimed(device->memory.volume) != 0) return true;
  end_with_claim(device);
  return false;
}

/// NBD has few errors. It has none for a time-out, and nbdkit would make EINVAL of it.
static int errno_of(int code, int reason) {
  if (code == REMORA_NO_RIGHT || reason == REMORA_REASON_NO_RIGHT) return EROFS;
  if (code == REMORA_OUT_OF_RANGE || reason == REMORA_REASON_OUT_OF_RANGE) return ENOSPC;
  if (code == REMORA_CONNECTION_LOST || code == REMORA_CLOSED) return ESHUTDOWN;
  if (code == REMORA_OUT_OF_MEMORY) return ENOMEM;
  return EIO;
}

/// Whether the log has no failure of this kind yet since the session was resumed.
static bool is_new(Device* device, int code) {
  if (atomic_load(&device->ended)) return false;  // it says why
  const bool of_session = code == REMORA_STALE_REGION || code == REMORA_CONNECTION_LOST;
  if (of_session && !atomic_load(&device->mirror)) return false;  // on_session()
  const uint_least64_t bit = UINT64_C(1) << ((unsigned)code % 64);
  return (atomic_fetch_or(&device->known, bit) & bit) == 0;
}

int device_fail(Device* device, int code, const remora_error* error) {
  if (device->claimed && error->reason == REMORA_REASON_FENCED) (void)device_keeps_claim(device);
  const char* const text = error->message[0] != '\0' ? error->message : remora_code_name(code);
  if (is_new(device, code))
    nbdkit_error("%s", text);
  else
    nbdkit_debug("%s", text);
  nbdkit_set_error(errno_of(code, error->reason));
  return -1;
}
