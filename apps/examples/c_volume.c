/* A volume in C: writes all of it in a queue over its servers, reads it back, counts.
 *
 *   cc -std=c99 c_volume.c $(pkg-config --cflags --libs remora-c) -o c_volume
 *   ./c_volume remora+file:///home/me/cluster.json/scratch
 */

#include <stdio.h>
#include <string.h>

#include <remora/remora_c.h>

enum { kDepth = 16, kPage = 4096, kMaxPages = 1024 };

static char pages[kDepth][kPage];

/* Writes or reads all pages behind the first one. Returns how many were right; 0 after an error. */
static uint64_t pass(remora_queue* queue, uint64_t count, int writes, remora_error* error) {
  uint64_t sent = 1, ended = 1, right = 1;
  while (ended < count) {
    remora_completion done[kDepth];
    size_t found = 0;
    /* A slot is used again when all have ended: simple, not fast. */
    for (int slot = 0; slot < kDepth && sent < count; ++slot, ++sent) {
      memset(pages[slot], writes ? (int)(sent % 251) : 0, kPage);
      if (writes)
        remora_queue_write(queue, sent * kPage, pages[slot], kPage, NULL, sent);
      else
        remora_queue_read(queue, sent * kPage, pages[slot], kPage, NULL, sent);
    }
    if (remora_queue_submit(queue, error) || /* one chain for each server */
        remora_queue_wait(queue, kDepth, done, kDepth, &found, error))
      return 0;
    for (size_t i = 0; i < found; ++i, ++ended) {
      const char* page = pages[(done[i].tag - 1) % kDepth];
      if (remora_queue_completion_error(queue, &done[i], error) != REMORA_NOT_FOUND) return 0;
      right += (unsigned char)page[0] == done[i].tag % 251 && page[kPage - 1] == page[0];
    }
  }
  return right;
}

int main(int argc, char** argv) {
  remora_error error = {.size = sizeof error};
  remora_volume_info info = {.size = sizeof info};
  const remora_queue_options options = {.size = sizeof options, .depth = kDepth};
  remora_engine* engine = NULL;
  remora_volume* volume = NULL;
  remora_queue* queue = NULL;
  uint64_t before = 0;
  if (argc != 2) return fprintf(stderr, "usage: c_volume URI\n"), 2;
  if (remora_engine_open(NULL, &engine, &error) ||
      remora_engine_open_volume(engine, argv[1], NULL, &volume, &error) ||
      remora_volume_info_of(volume, &info, &error) ||
      remora_volume_fetch_add(volume, 0, 1, &before, 0, &error) || /* page 0 has the counter */
      remora_volume_queue_create(volume, &options, &queue, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  uint64_t count = info.size_bytes / kPage;
  if (count > kMaxPages) count = kMaxPages;
  if (pass(queue, count, 1, &error) == 0 || remora_volume_flush_visible(volume, 0, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  const uint64_t right = pass(queue, count, 0, &error);
  if (right == 0) return fprintf(stderr, "%s\n", error.message), 1;
  printf("%llu of %llu pages are right, in %llu groups; this is run %llu\n",
         (unsigned long long)right, (unsigned long long)count, (unsigned long long)info.group_count,
         (unsigned long long)before + 1);
  remora_queue_free(queue);
  remora_volume_free(volume);
  remora_engine_free(engine);
  return 0;
}
