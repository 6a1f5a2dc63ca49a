/// nbdkit-remora-plugin: a region of a Remora server, or a volume, as a block device. The functions
/// are in the order of the manual page nbdkit-plugin(3).

#include <nbdkit-plugin.h>
#include <stdio.h>

#include <remora/remora_c.h>

#include "device.h"
#include "options.h"
#include "request.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static Options options = {.client = "nbdkit",
                          .deadline_ns = UINT64_C(10000000000),
                          .reconnect_for_ns = UINT64_C(30000000000),
                          .depth = 64,
                          .lanes = 1,
                          .repair = true};
static Device device;

static void unload(void) { free_options(&options); }

static void dump_plugin(void) { printf("remora_version=%s\n", remora_version()); }

static int config(const char* key, const char* value) { return set_option(&options, key, value); }

static int config_complete(void) {
  remora_error error = {.size = sizeof error};
  if (remora_require_api(REMORA_C_API, &error) != REMORA_OK) {
    nbdkit_error("%s", error.message);
    return -1;
  }
  return check_options(&options);
}

static int get_ready(void) { return device_probe(&options); }

/// The engine has threads, which do not survive a fork.
static int after_fork(void) { return device_open(&device, &options); }

static void cleanup(void) { device_close(&device); }

static void* open_connection(int readonly) {
  (void)readonly;  // nbdkit itself then refuses to write
  return connection_open(&device, options.depth);
}

static void close_connection(void* handle) { connection_close(handle); }

static int64_t get_size(void* handle) {
  (void)handle;
  return (int64_t)device.memory.size_bytes;
}

static const char* export_description(void* handle) {
  (void)handle;
  return device.description;
}

/// Every length and offset is allowed. The block of the memory is preferred if NBD allows it.
static int block_size(void* handle, uint32_t* minimum, uint32_t* preferred, uint32_t* maximum) {
  (void)handle;
  const uint64_t block = device.memory.block_bytes;
  const bool fits = block >= 512 && block <= (32U << 20U) && (block & (block - 1)) == 0;
  *minimum = 1;
  *preferred = fits ? (uint32_t)block : 4096;
  *maximum = UINT32_MAX;
  return 0;
}

static int can_write(void* handle) {
  (void)handle;
  return (device.memory.rights & REMORA_RIGHT_WRITE) != 0 ? 1 : 0;
}

/// All connections use one session, or one writer of a mirror, and this process caches no bytes. Of
/// a mirror that is read only, all connections see each write that its writer was told to be done.
static int can_multi_conn(void* handle) {
  (void)handle;
  return 1;
}

/// Over tcp and shm zeroes are not sent as bytes. A mirror that is read only may not know yet.
static int zero_is_fast(void* handle) {
  (void)handle;
  const uint32_t transports = memory_transports(&device.memory);
  return transports != 0 && (transports & (1U << REMORA_TRANSPORT_RDMA)) == 0 ? 1 : 0;
}

/// There is no cache to fill: nbdkit then answers success.
static int can_cache(void* handle) {
  (void)handle;
  return NBDKIT_CACHE_NATIVE;
}

static int read_bytes(void* handle, void* into, uint32_t count, uint64_t offset, uint32_t flags) {
  (void)flags;
  const Request request = {.kind = kRead, .offset = offset, .length = count, .into = into};
  return carry_out(handle, &request);
}

static int write_bytes(void* handle, const void* from, uint32_t count, uint64_t offset,
                       uint32_t flags) {
  (void)flags;  // nbdkit calls flush() for FUA
  const Request request = {.kind = kWrite, .offset = offset, .length = count, .from = from};
  return carry_out(handle, &request);
}

static int flush(void* handle, uint32_t flags) {
  (void)flags;
  const Request request = {.kind = kFlush};
  return carry_out(handle, &request);
}

/// Also for trim: trimmed bytes read as zeroes.
static int zero(void* handle, uint32_t count, uint64_t offset, uint32_t flags) {
  (void)flags;
  const Request request = {.kind = kZero, .offset = offset, .length = count};
  return carry_out(handle, &request);
}

static struct nbdkit_plugin plugin = {
    .name = "remora",
    .longname = "nbdkit remora plugin",
    .version = REMORA_VERSION,
    .description = "a region of a Remora server, or a volume, as a block device",
    .magic_config_key = "uri",
    .config_help =
        "uri=remora://HOST/REGION  the region (required); uri= may be left out\n"
        "                          a volume: remora+etcd://HOST/CLUSTER/VOLUME or\n"
        "                          remora+file:///PATH/NAME.json/VOLUME\n"
        "client=NAME               the client's name, where the server has keys (nbdkit)\n"
        "key-file=FILE             the client's key\n"
        "deadline=10s              of one attempt at a request\n"
        "reconnect-for=30s         how long requests wait for a server that is gone\n"
        "depth=64                  requests of a connection that are in flight\n"
        "lanes=1                   data paths to the server, 1 to 8\n"
        "readonly=true             ask for the right to read alone; claim no mirror\n"
        "steal=true                of a mirror: take the claim of another client\n"
        "exclusive=true            of a mirror: no other client reads it\n"
        "repair=false              of a mirror: make no lost copies anew\n"
        "repair-bandwidth=100M     of a mirror: bytes that these copies take in a second",
    .unload = unload,
    .dump_plugin = dump_plugin,
    .config = config,
    .config_complete = config_complete,
    .get_ready = get_ready,
    .after_fork = after_fork,
    .cleanup = cleanup,
    .open = open_connection,
    .close = close_connection,
    .get_size = get_size,
    .export_description = export_description,
    .block_size = block_size,
    .can_write = can_write,
    .can_multi_conn = can_multi_conn,
    .can_trim = zero_is_fast,
    .can_fast_zero = zero_is_fast,
    .can_cache = can_cache,
    .pread = read_bytes,
    .pwrite = write_bytes,
    .flush = flush,
    .trim = zero,
    .zero = zero,
};

NBDKIT_REGISTER_PLUGIN(plugin)
