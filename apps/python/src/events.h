/* Part of the extension module remora._remora: what has happened to volumes, until Python takes it.
 * The library calls the handler in threads of its own: no Python runs there. The events of all
 * volumes are in one ring that lives as long as the process, since a queue may keep a volume, and
 * so its handler, longer than Python keeps the volume. */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <remora/c/volume.h>

enum { REMORA_PY_EVENTS_MAX = 1024 };

typedef struct remora_py_event {
  uint32_t group;
  int32_t change;
  int32_t code;
  int32_t reason;
  char server[72];
} remora_py_event;

typedef struct remora_py_kept_event {
  uint64_t volume; /* that of remora_py_watch_events() */
  remora_py_event event;
} remora_py_kept_event;

static struct {
  pthread_mutex_t mutex;
  uint64_t last_volume;
  size_t begin; /* of the oldest one */
  size_t count;
  remora_py_kept_event ring[REMORA_PY_EVENTS_MAX];
} remora_py_events = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static remora_py_kept_event* remora_py_event_at(size_t index) {
  return &remora_py_events.ring[(remora_py_events.begin + index) % REMORA_PY_EVENTS_MAX];
}

/* Where there is no room, the oldest event goes. */
static void remora_py_note_event(void* context, const remora_volume_event* event) {
  pthread_mutex_lock(&remora_py_events.mutex);
  remora_py_kept_event* const kept = remora_py_event_at(remora_py_events.count);
  if (remora_py_events.count < REMORA_PY_EVENTS_MAX)
    ++remora_py_events.count;
  else
    remora_py_events.begin = (remora_py_events.begin + 1) % REMORA_PY_EVENTS_MAX;
  size_t length = strlen(event->server);
  if (length >= sizeof kept->event.server) length = sizeof kept->event.server - 1;
  memset(kept, 0, sizeof *kept);
  kept->volume = (uint64_t)(uintptr_t)context;
  kept->event.group = event->group;
  kept->event.change = event->change;
  kept->event.code = event->code;
  kept->event.reason = event->reason;
  memcpy(kept->event.server, event->server, length);
  pthread_mutex_unlock(&remora_py_events.mutex);
}

/* For the volume that is opened with `options`. Returns its number here. */
static uint64_t remora_py_watch_events(remora_volume_options* options) {
  pthread_mutex_lock(&remora_py_events.mutex);
  const uint64_t volume = ++remora_py_events.last_volume;
  pthread_mutex_unlock(&remora_py_events.mutex);
  options->on_event = remora_py_note_event;
  options->event_context = (void*)(uintptr_t)volume;
  return volume;
}

/* Moves up to `capacity` events of the volume out of the ring, the oldest first. */
static size_t remora_py_take_events(uint64_t volume, remora_py_event* events, size_t capacity) {
  size_t taken = 0;
  size_t kept = 0;
  pthread_mutex_lock(&remora_py_events.mutex);
  for (size_t i = 0; i < remora_py_events.count; ++i) {
    const remora_py_kept_event* const each = remora_py_event_at(i);
    if (each->volume == volume && taken < capacity)
      events[taken++] = each->event;
    else
      *remora_py_event_at(kept++) = *each;
  }
  remora_py_events.count = kept;
  pthread_mutex_unlock(&remora_py_events.mutex);
  return taken;
}

/* In a child of fork(), where a thread of the parent may have held the mutex. */
static void remora_py_forget_events(void) {
  pthread_mutex_init(&remora_py_events.mutex, NULL);
  remora_py_events.count = 0;
}
