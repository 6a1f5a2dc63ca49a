#pragma once

/// A device of the plugin of nbdkit with its connections, for C++, which does not have the atomic
/// types of apps/nbdkit/device.h.

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { kDiskConnections = 2 };

typedef struct Disk Disk;

/// NULL: there is no memory, or device_open() has failed.
Disk* disk_open(uint64_t reconnect_for_ns);
/// A mirror that is repaired, without connections. NULL: as disk_open().
Disk* disk_open_mirror(void);
void disk_close(Disk* disk);

/// Requests of the connection of this index, as carry_out() returns them.
int disk_write(const Disk* disk, size_t connection, uint64_t offset, uint64_t length);
int disk_zero(const Disk* disk, size_t connection, uint64_t offset, uint64_t length);

#ifdef __cplusplus
}
#endif
