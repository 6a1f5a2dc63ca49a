/* Part of the extension module remora._remora: a repair that one thread carries out, and another
 * one watches and stops. The library calls the handlers in threads of its own: no Python runs
 * there. */

#include <stdint.h>

#include <remora/c/volume.h>

typedef struct remora_py_repair {
  int stop;
  uint64_t done_bytes;
  uint64_t all_bytes;
} remora_py_repair;

static void remora_py_note_progress(void* context, const remora_volume_progress* progress) {
  remora_py_repair* const repair = (remora_py_repair*)context;
  __atomic_store_n(&repair->all_bytes, progress->all_bytes, __ATOMIC_RELAXED);
  __atomic_store_n(&repair->done_bytes, progress->done_bytes, __ATOMIC_RELEASE);
}

static int remora_py_should_stop(void* context) {
  const remora_py_repair* const repair = (const remora_py_repair*)context;
  return __atomic_load_n(&repair->stop, __ATOMIC_RELAXED);
}

/* `repair` must outlive the call that gets the options. */
static void remora_py_watch_repair(remora_py_repair* repair,
                                   remora_volume_repair_options* options) {
  options->on_progress = remora_py_note_progress;
  options->should_stop = remora_py_should_stop;
  options->context = repair;
}

static void remora_py_stop_repair(remora_py_repair* repair) {
  __atomic_store_n(&repair->stop, 1, __ATOMIC_RELAXED);
}

/* The bytes that are copied; then remora_py_to_repair() has those of the whole work. */
static uint64_t remora_py_repaired(const remora_py_repair* repair) {
  return __atomic_load_n(&repair->done_bytes, __ATOMIC_ACQUIRE);
}

static uint64_t remora_py_to_repair(const remora_py_repair* repair) {
  return __atomic_load_n(&repair->all_bytes, __ATOMIC_RELAXED);
}
