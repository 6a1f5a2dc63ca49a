/* Part of the extension module remora._remora: a wait that returns at signals and after a slice of
 * time, so that the interpreter can run signal handlers. cffi releases the GIL around the call. */

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <time.h>

#include <remora/c/queue.h>

static uint64_t remora_py_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Sleeps until `descriptor` is readable, at most `ns`. 0: a signal came. */
static int remora_py_sleep(int descriptor, uint64_t ns) {
  struct pollfd wanted = {descriptor, POLLIN, 0};
  const int milliseconds = (int)((ns + 999999u) / 1000000u);
  return poll(&wanted, 1, milliseconds) >= 0 || errno != EINTR;
}

/* Waits until operations have ended, `slice_ns` (at most an hour) is over, nothing is in flight, or
 * a signal has come. *count says how many completions there are: those of one call of progress, so
 * that remora_queue_completion_error() knows each of them. It polls for `spin_ns` before it sleeps.
 * Returns a code of remora_code. */
static int remora_py_wait(remora_queue* queue, int descriptor, uint64_t spin_ns, uint64_t slice_ns,
                          remora_completion* completions, size_t capacity, size_t* count,
                          remora_error* error) {
  const uint64_t start = remora_py_now();
  int spinning = spin_ns != 0;
  for (;;) {
    uint64_t now = 0;
    uint64_t end = start + slice_ns;
    /* The next event of the descriptor is asked for only before a sleep. */
    const int code = spinning ? remora_queue_poll(queue, completions, capacity, count, error)
                              : remora_queue_progress(queue, completions, capacity, count, error);
    const uint64_t deadline = remora_queue_next_deadline(queue);
    if (code != REMORA_OK || *count != 0 || deadline == UINT64_MAX) return code;
    now = remora_py_now();
    if (now >= end) return code;
    if (spinning) {
      spinning = now - start < spin_ns;
      continue;
    }
    if (deadline < end) end = deadline > now + 1000000u ? deadline : now + 1000000u;
    if (!remora_py_sleep(descriptor, end - now)) return code;
  }
}
