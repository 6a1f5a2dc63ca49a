/* The loop of queue_cost.cc in C: queue_cost_c N. Both are counted by callgrind. */

#include <stdio.h>
#include <stdlib.h>

#include <remora/remora_c.h>

/* As support/counted.h has it. */
#ifdef __has_include
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_START_INSTRUMENTATION
#define CALLGRIND_START_INSTRUMENTATION (void)0
#define CALLGRIND_STOP_INSTRUMENTATION (void)0
#endif

enum { kDepth = 32, kBytes = 64 };

int main(int argc, char** argv) {
  static unsigned char memory[kDepth * kBytes];
  const unsigned long long times = argc == 2 ? strtoull(argv[1], NULL, 10) : 0;
  remora_server* server = NULL;
  remora_engine* engine = NULL;
  remora_region* region = NULL;
  remora_memory* registered = NULL;
  remora_queue* queue = NULL;
  remora_completion found[kDepth];
  char uri[128];
  const remora_queue_options options = {.size = sizeof options, .depth = kDepth};
  if (remora_server_start_text("listen: {port: 0}\ntransports: {rdma: off}\n"
                               "pool: {size: 4MiB, huge_pages: never}\n"
                               "regions:\n  - {name: demo, size: 64KiB, shm: true}\nauth: none\n",
                               NULL, &server, NULL, NULL) != REMORA_OK)
    return 1;
  snprintf(uri, sizeof uri, "remora://127.0.0.1:%u/demo?transport=shm", remora_server_port(server));
  if (remora_engine_open(NULL, &engine, NULL) != REMORA_OK ||
      remora_engine_open_region(engine, uri, REMORA_RIGHT_ALL, &region, NULL) != REMORA_OK ||
      remora_engine_register_memory(engine, memory, sizeof memory, &registered, NULL) !=
          REMORA_OK ||
      remora_queue_create(region, &options, &queue, NULL) != REMORA_OK)
    return 1;
  CALLGRIND_START_INSTRUMENTATION;
  for (unsigned long long done = 0; done < times;) {
    size_t count = 0;
    for (unsigned i = 0; i < kDepth; ++i)
      remora_queue_read(queue, (i * 37 & 63) * 1024, memory + i * kBytes, kBytes, registered, i);
    if (remora_queue_submit(queue, NULL) != REMORA_OK ||
        remora_queue_wait(queue, kDepth, found, kDepth, &count, NULL) != REMORA_OK)
      return 1;
    for (size_t i = 0; i < count; ++i)
      if (found[i].code != REMORA_OK || found[i].tag >= kDepth) return 1;
    done += count;
  }
  CALLGRIND_STOP_INSTRUMENTATION;
  remora_queue_free(queue);
  remora_memory_free(registered);
  remora_region_free(region);
  remora_engine_free(engine);
  remora_server_free(server);
  return 0;
}
