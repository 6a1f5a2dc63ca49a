#pragma once

/// The memory behind the device: a region of one server, or a volume over several. The functions
/// are those of remora_c.h for either of them.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <remora/remora_c.h>

typedef struct Memory {
  remora_region* region;  ///< NULL: a volume, or not open
  remora_volume* volume;
  uint64_t size_bytes;
  uint64_t block_bytes;
  uint32_t rights;
  uint32_t copies;  ///< of each byte; more than 1: a mirror
  char name[72];
} Memory;

typedef struct MemoryOptions {
  const char* uri;
  uint32_t rights;
  // Of a volume; a region has those of the engine.
  uint64_t deadline_ns;
  remora_volume_handler on_event;
  void* event_context;
} MemoryOptions;

/// Whether `uri` names a volume: "remora+etcd://..." or "remora+file://...".
bool memory_is_volume(const char* uri);

/// Returns a code of remora_code.
int memory_open(Memory* memory, const remora_engine* engine, const MemoryOptions* options,
                remora_error* error);
void memory_close(Memory* memory);

int memory_read(const Memory* memory, uint64_t offset, void* into, size_t length,
                remora_error* error);
int memory_write(const Memory* memory, uint64_t offset, const void* from, size_t length,
                 remora_error* error);
int memory_zero(const Memory* memory, uint64_t offset, uint64_t length, remora_error* error);
int memory_flush(const Memory* memory, remora_error* error);

bool memory_connected(const Memory* memory);
/// Bit 1 << remora_transport for each that it uses at the moment; 0: not known.
uint32_t memory_transports(const Memory* memory);
/// Whether a group of a claimed mirror has fewer copies than the mirror shall have.
bool memory_lacks_copies(const Memory* memory);
int memory_settled(const Memory* memory, uint64_t deadline_ns);
/// Of a mirror, a depth beyond that of its queues becomes the greatest one.
int memory_queue(const Memory* memory, size_t depth, remora_queue** queue);
