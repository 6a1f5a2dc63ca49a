#include "nbdkit_disk.h"

#include <stdlib.h>

#include "nbdkit/device.h"
#include "nbdkit/options.h"
#include "nbdkit/request.h"

struct Disk {
  Device device;
  Connection* connections[kDiskConnections];
};

Disk* disk_open(uint64_t reconnect_for_ns) {
  const Options options = {.uri = "remora://server/region",
                           .client = "nbdkit",
                           .deadline_ns = UINT64_C(10000000000),
                           .reconnect_for_ns = reconnect_for_ns,
                           .depth = 64,
                           .lanes = 1};
  Disk* const made = calloc(1, sizeof *made);
  if (made == NULL) return NULL;
  if (device_open(&made->device, &options) != 0) {
    free(made);
    return NULL;
  }
  for (size_t i = 0; i < kDiskConnections; ++i) {
    made->connections[i] = connection_open(&made->device, options.depth);
    if (made->connections[i] == NULL) abort();
  }
  return made;
}

Disk* disk_open_mirror(void) {
  const Options options = {.uri = "remora+etcd://server/cluster/disk",
                           .client = "nbdkit",
                           .deadline_ns = UINT64_C(10000000000),
                           .depth = 64,
                           .lanes = 1,
                           .repair = true};
  Disk* const made = calloc(1, sizeof *made);
  if (made == NULL || device_open(&made->device, &options) == 0) return made;
  free(made);
  return NULL;
}

void disk_close(Disk* disk) {
  if (disk == NULL) return;
  for (size_t i = 0; i < kDiskConnections; ++i)
    if (disk->connections[i] != NULL) connection_close(disk->connections[i]);
  device_close(&disk->device);
  free(disk);
}

int disk_write(const Disk* disk, size_t connection, uint64_t offset, uint64_t length) {
  static const char bytes[4096];
  const Request request = {.kind = kWrite, .offset = offset, .length = length, .from = bytes};
  return carry_out(disk->connections[connection], &request);
}

int disk_zero(const Disk* disk, size_t connection, uint64_t offset, uint64_t length) {
  const Request request = {.kind = kZero, .offset = offset, .length = length};
  return carry_out(disk->connections[connection], &request);
}
