#include "memory.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool memory_is_volume(const char* uri) {
  return strncasecmp(uri, "remora+", strlen("remora+")) == 0;
}

static int open_region(Memory* memory, const remora_engine* engine, const MemoryOptions* options,
                       remora_error* error) {
  remora_region_info info = {.size = sizeof info};
  int code =
      remora_engine_open_region(engine, options->uri, options->rights, &memory->region, error);
  if (code == REMORA_OK) code = remora_region_info_of(memory->region, &info, error);
  if (code != REMORA_OK) return code;
  memory->size_bytes = info.size_bytes;
  memory->block_bytes = info.block_bytes;
  memory->rights = remora_region_rights(memory->region);
  memory->copies = 1;
  memcpy(memory->name, info.name, sizeof memory->name);
  return REMORA_OK;
}

static int open_volume(Memory* memory, const remora_engine* engine, const MemoryOptions* options,
                       remora_error* error) {
  const remora_volume_options given = {.size = sizeof given,
                                       .rights = options->rights,
                                       .operation_deadline_ns = options->deadline_ns,
                                       .on_event = options->on_event,
                                       .event_context = options->event_context};
  remora_volume_info info = {.size = sizeof info};
  int code = remora_engine_open_volume(engine, options->uri, &given, &memory->volume, error);
  if (code == REMORA_OK) code = remora_volume_info_of(memory->volume, &info, error);
  if (code != REMORA_OK) return code;
  memory->size_bytes = info.size_bytes;
  memory->block_bytes = info.block_bytes;
  memory->rights = info.rights;
  memory->copies = info.copies;
  memcpy(memory->name, info.name, sizeof memory->name);
  return REMORA_OK;
}

int memory_open(Memory* memory, const remora_engine* engine, const MemoryOptions* options,
                remora_error* error) {
  return memory_is_volume(options->uri) ? open_volume(memory, engine, options, error)
                                        : open_region(memory, engine, options, error);
}

void memory_close(Memory* memory) {
  remora_region_free(memory->region);
  remora_volume_free(memory->volume);
  memory->region = NULL;
  memory->volume = NULL;
}

int memory_read(const Memory* memory, uint64_t offset, void* into, size_t length,
                remora_error* error) {
  if (memory->volume != NULL)
    return remora_volume_read(memory->volume, offset, into, length, NULL, 0, error);
  return remora_region_read(memory->region, offset, into, length, NULL, 0, error);
}

int memory_write(const Memory* memory, uint64_t offset, const void* from, size_t length,
                 remora_error* error) {
  if (memory->volume != NULL)
    return remora_volume_write(memory->volume, offset, from, length, NULL, 0, error);
  return remora_region_write(memory->region, offset, from, length, NULL, 0, error);
}

int memory_zero(const Memory* memory, uint64_t offset, uint64_t length, remora_error* error) {
  if (memory->volume != NULL)
    return remora_volume_write_zeroes(memory->volume, offset, length, 0, error);
  return remora_region_write_zeroes(memory->region, offset, length, 0, error);
}

int memory_flush(const Memory* memory, remora_error* error) {
  if (memory->volume != NULL) return remora_volume_flush_visible(memory->volume, 0, error);
  return remora_region_flush_visible(memory->region, 0, error);
}

bool memory_connected(const Memory* memory) {
  if (memory->volume != NULL) return remora_volume_connected(memory->volume) != 0;
  return remora_region_connected(memory->region) != 0;
}

uint32_t memory_transports(const Memory* memory) {
  if (memory->volume == NULL) return 1U << (unsigned)remora_region_transport(memory->region);
  remora_volume_info info = {.size = sizeof info};
  return remora_volume_info_of(memory->volume, &info, NULL) == REMORA_OK ? info.transports : 0;
}

bool memory_lacks_copies(const Memory* memory) {
  size_t count = 0;
  if (remora_volume_groups(memory->volume, NULL, 0, &count, NULL) != REMORA_OK) return true;
  remora_volume_group* const groups = calloc(count, sizeof *groups);
  if (groups == NULL) return true;  // the library knows it
  size_t found = count;
  bool lacks = remora_volume_groups(memory->volume, groups, count, &found, NULL) != REMORA_OK;
  for (size_t i = 0; i < count && !lacks; ++i) lacks = groups[i].copies < (int64_t)memory->copies;
  free(groups);
  return lacks;
}

int memory_settled(const Memory* memory, uint64_t deadline_ns) {
  if (memory->volume != NULL) return remora_volume_settled(memory->volume, deadline_ns, NULL);
  return remora_region_settled(memory->region, deadline_ns, NULL);
}

int memory_queue(const Memory* memory, size_t depth, remora_queue** queue) {
  enum { kMaxMirrorDepth = 1024 };
  const bool too_deep = memory->copies > 1 && depth > kMaxMirrorDepth;
  const remora_queue_options options = {.size = sizeof options,
                                        .depth = too_deep ? kMaxMirrorDepth : depth};
  if (memory->volume != NULL)
    return remora_volume_queue_create(memory->volume, &options, queue, NULL);
  return remora_queue_create(memory->region, &options, queue, NULL);
}
