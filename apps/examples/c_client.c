/* A client in C: writes a page, reads 1,000 pages through a queue, counts.
 *
 *   cc -std=c99 c_client.c $(pkg-config --cflags --libs remora-c) -o c_client
 *   ./c_client remora://localhost/demo
 */

#include <stdio.h>

#include <remora/remora_c.h>

enum { kDepth = 32, kPage = 4096, kReads = 1000 };

int main(int argc, char** argv) {
  remora_error error = {.size = sizeof error};
  remora_engine* engine = NULL;
  remora_region* region = NULL;
  remora_slots* slots = NULL;
  remora_queue* queue = NULL;
  char page[kPage] = "hello";
  uint64_t before = 0;
  if (argc != 2) return fprintf(stderr, "usage: c_client URI\n"), 2;
  if (remora_engine_open(NULL, &engine, &error) ||
      remora_engine_open_region(engine, argv[1], REMORA_RIGHT_ALL, &region, &error) ||
      remora_region_write(region, kPage, page, kPage, NULL, 0, &error) ||
      remora_region_fetch_add(region, 0, 1, &before, 0, &error))
    return fprintf(stderr, "%s\n", error.message), 1;

  const remora_queue_options options = {.size = sizeof options, .depth = kDepth};
  if (remora_engine_allocate_slots(engine, kDepth, kPage, &slots, &error) ||
      remora_queue_create(region, &options, &queue, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  const uint64_t pages = remora_region_size_bytes(region) / kPage;
  remora_completion done[kDepth];
  uint64_t sent = 0, finished = 0, found = 0;
  while (finished < kReads) {
    for (void* slot; sent < kReads && (slot = remora_slots_take(slots)) != NULL; ++sent)
      remora_queue_read(queue, sent % pages * kPage, slot, kPage, remora_slots_memory(slots),
                        (uintptr_t)slot);
    size_t count = 0;
    if (remora_queue_submit(queue, &error) || /* one chain, one doorbell */
        remora_queue_wait(queue, 1, done, kDepth, &count, &error))
      return fprintf(stderr, "%s\n", error.message), 1;
    for (size_t i = 0; i < count; ++i, ++finished) {
      char* slot = (char*)(uintptr_t)done[i].tag;
      if (done[i].code) return fprintf(stderr, "%s\n", remora_code_name(done[i].code)), 1;
      found += slot[0] == 'h';
      remora_slots_return(slots, slot);
    }
  }
  printf("%d reads, %llu of our page; this is run %llu\n", kReads, (unsigned long long)found,
         (unsigned long long)before + 1);
  remora_queue_free(queue);
  remora_slots_free(slots);
  remora_region_free(region);
  remora_engine_free(engine);
  return 0;
}
