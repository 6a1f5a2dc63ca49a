#include "repairer.h"

#include <inttypes.h>
#include <nbdkit-plugin.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct Repairer {
  RepairerOptions options;
  pthread_t thread;
  bool started;
  atomic_bool stopped;
  pthread_mutex_t mutex;
  pthread_cond_t wake;  ///< of the thread
  // Guarded by `mutex`:
  bool woken;
  // Of the thread, and of the handlers of its call:
  bool told_begin;        ///< the log says that copies are being made
  bool told_obstacle;     ///< the log says why not all can be made
  uint64_t copies_made;   ///< since told_begin
  uint64_t bytes_copied;  ///< of these
};

Repairer* repairer_create(void) {
  Repairer* const made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  pthread_condattr_t monotonic;
  if (pthread_condattr_init(&monotonic) != 0) {
    free(made);
    return NULL;
  }
  (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  const bool has_wake = pthread_cond_init(&made->wake, &monotonic) == 0;
  pthread_condattr_destroy(&monotonic);
  if (has_wake && pthread_mutex_init(&made->mutex, NULL) == 0) return made;
  if (has_wake) pthread_cond_destroy(&made->wake);
  free(made);
  return NULL;
}

void repairer_free(Repairer* repairer) {
  if (repairer == NULL) return;
  pthread_mutex_destroy(&repairer->mutex);
  pthread_cond_destroy(&repairer->wake);
  free(repairer);
}

void repairer_wake(Repairer* repairer) {
  pthread_mutex_lock(&repairer->mutex);
  repairer->woken = true;
  pthread_cond_signal(&repairer->wake);
  pthread_mutex_unlock(&repairer->mutex);
}

/// Until repairer_wake(), at most for the pause; 0: no longer than that. False: the thread has to
/// end.
static bool wait_for_work(Repairer* repairer, unsigned pause_seconds) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += pause_seconds;
  pthread_mutex_lock(&repairer->mutex);
  int waited = 0;
  while (!repairer->woken && waited == 0)
    waited = pause_seconds == 0 ? pthread_cond_wait(&repairer->wake, &repairer->mutex)
                                : pthread_cond_timedwait(&repairer->wake, &repairer->mutex, &until);
  repairer->woken = false;
  pthread_mutex_unlock(&repairer->mutex);
  return !atomic_load(&repairer->stopped);
}

/// Called by threads of the library, one call at a time, during remora_volume_repair().
static void on_progress(void* context, const remora_volume_progress* progress) {
  Repairer* const repairer = context;
  nbdkit_debug("%s", progress->work);
  if (repairer->told_begin) return;
  repairer->told_begin = true;
  nbdkit_error("the mirror %s: missing copies are made anew: %s", repairer->options.memory->name,
               progress->work);
}

static int should_stop(void* context) {
  Repairer* const repairer = context;
  return atomic_load(&repairer->stopped) ? 1 : 0;
}

/// `text`: its first line is logged once, until all copies are there.
static void tell_obstacle(Repairer* repairer, const char* text) {
  const int length = (int)strcspn(text, "\n");
  const char* const name = repairer->options.memory->name;
  if (repairer->told_obstacle)
    nbdkit_debug("the mirror %s: copies are still missing: %.*s", name, length, text);
  else
    nbdkit_error("the mirror %s: copies are missing, and are made as soon as it can be: %.*s", name,
                 length, text);
  repairer->told_obstacle = true;
}

/// All copies are there.
static void tell_end(Repairer* repairer) {
  atomic_store(repairer->options.degraded, false);
  if (repairer->told_begin || repairer->told_obstacle)
    nbdkit_error("the mirror %s: all its copies are there again: %" PRIu64 " made, %" PRIu64 " MiB",
                 repairer->options.memory->name, repairer->copies_made,
                 repairer->bytes_copied >> 20U);
  repairer->told_begin = repairer->told_obstacle = false;
  repairer->copies_made = repairer->bytes_copied = 0;
}

/// Whether copies are still missing.
static bool make_copies(Repairer* repairer) {
  const Memory* const memory = repairer->options.memory;
  const remora_volume_repair_options options = {
      .size = sizeof options,
      .bytes_per_second_max = repairer->options.bytes_per_second_max,
      .on_progress = on_progress,
      .should_stop = should_stop,
      .context = repairer};
  remora_volume_repair_report report = {.size = sizeof report};
  remora_error error = {.size = sizeof error};
  char* left = NULL;
  const int code = remora_volume_repair(memory->volume, &options, &report, &left, &error);
  repairer->copies_made += report.copies_made;
  repairer->bytes_copied += report.bytes_copied;
  const bool missing = memory_lacks_copies(memory);
  const bool ends = atomic_load(&repairer->stopped) || remora_volume_claimed(memory->volume) == 0;
  if (!missing)
    tell_end(repairer);
  else if (!ends && code != REMORA_OK)
    tell_obstacle(repairer, error.message);
  else if (!ends && left != NULL)
    tell_obstacle(repairer, left);
  remora_free(left);
  return missing;
}

static void* run(void* context) {
  const unsigned max_pause_seconds = 10;
  Repairer* const repairer = context;
  const Memory* const memory = repairer->options.memory;
  unsigned pause_seconds = 0;
  while (wait_for_work(repairer, pause_seconds)) {
    if (remora_volume_claimed(memory->volume) == 0) break;
    if (!memory_lacks_copies(memory) || !make_copies(repairer))
      pause_seconds = 0;
    else if (pause_seconds == 0)
      pause_seconds = 1;
    else
      pause_seconds = pause_seconds * 2 < max_pause_seconds ? pause_seconds * 2 : max_pause_seconds;
  }
  return NULL;
}

int repairer_start(Repairer* repairer, const RepairerOptions* options) {
  repairer->options = *options;
  repairer_wake(repairer);
  const int failed = pthread_create(&repairer->thread, NULL, run, repairer);
  repairer->started = failed == 0;
  if (repairer->started) return 0;
  nbdkit_error("pthread_create, for repair=true: %s", strerror(failed));
  return -1;
}

void repairer_stop(Repairer* repairer) {
  if (!repairer->started) return;
  atomic_store(&repairer->stopped, true);
  repairer_wake(repairer);
  pthread_join(repairer->thread, NULL);
  repairer->started = false;
}
