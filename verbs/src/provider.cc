#include <array>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/capability.h>
#include <memory>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <remora/verbs/provider.h>

#include "device_thread.h"
#include "net_namespace.h"
#include "standard_descriptors_taken.h"

namespace remora::verbs {
namespace {

using detail::AboveStandard;
using detail::OnDeviceThread;

// Several calls are macros or inline functions over other symbols: they get a function here.
ibv_device** system_get_device_list(int* count) { return ibv_get_device_list(count); }

// Inside some calls librdmacm lists the devices on the caller's thread, if it does not know the
// device of an id. So the device thread first lists devices that have come since. The pause: a
// burst of connections has many events.
void list_new_devices() noexcept {
  if (!detail::needs_device_thread()) return;
  constexpr std::chrono::milliseconds kPause{10};
  using Clock = std::chrono::steady_clock;
  static std::atomic<Clock::rep> listed_at{0};
  const Clock::rep now = Clock::now().time_since_epoch().count();
  if (now - listed_at.load(std::memory_order_relaxed) < Clock::duration{kPause}.count()) return;
  listed_at.store(now, std::memory_order_relaxed);
  int count = 0;
  ibv_device** const list = OnDeviceThread<&system_get_device_list>::call(&count);
  if (list != nullptr) ibv_free_device_list(list);
}

int system_get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  pollfd waiting{.fd = channel->fd, .events = POLLIN, .revents = 0};
  if (::poll(&waiting, 1, 0) > 0) list_new_devices();
  return rdma_get_cm_event(channel, event);
}

int system_bind_addr(rdma_cm_id* id, sockaddr* address) {
  list_new_devices();
  return rdma_bind_addr(id, address);
}

int system_query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  return ibv_query_port(context, port, attributes);
}

ssize_t system_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t capacity) {
  return ibv_query_gid_table(context, entries, capacity, 0);
}

ibv_mr* system_reg_mr(ibv_pd* domain, void* address, std::size_t length_bytes,
                      unsigned int access) {
  return ibv_reg_mr(domain, address, length_bytes, access);
}

int system_query_device_ex(ibv_context* context, ibv_device_attr_ex* attributes) {
  return ibv_query_device_ex(context, nullptr, attributes);
}

int system_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                        ibv_gid_entry* entry) {
  return ibv_query_gid_ex(context, port, index, entry, 0);
}

// The inline functions return ENOSYS or EOPNOTSUPP, or null with errno, if the provider does not
// have the call.
int system_query_rt_values_ex(ibv_context* context, ibv_values_ex* values) {
  return ibv_query_rt_values_ex(context, values);
}

int system_advise_mr(ibv_pd* domain, ibv_advise_mr_advice advice, std::uint32_t flags,
                     ibv_sge* ranges, std::uint32_t count) {
  return ibv_advise_mr(domain, advice, flags, ranges, count);
}

ibv_mr* system_reg_mr_iova(ibv_pd* domain, void* address, std::size_t length_bytes,
                           std::uint64_t iova, unsigned int access) {
  return ibv_reg_mr_iova(domain, address, length_bytes, iova, access);
}

ibv_td* system_alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
  return ibv_alloc_td(context, attributes);
}

int system_dealloc_td(ibv_td* domain) { return ibv_dealloc_td(domain); }

ibv_pd* system_alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  return ibv_alloc_parent_domain(context, attributes);
}

ibv_mw* system_alloc_mw(ibv_pd* domain, ibv_mw_type type) { return ibv_alloc_mw(domain, type); }

int system_dealloc_mw(ibv_mw* window) { return ibv_dealloc_mw(window); }

ibv_cq_ex* system_create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  return ibv_create_cq_ex(context, attributes);
}

// If the kernel copies pinned pages for a child, nothing must be done. ibv_fork_init() of rdma-core
// 44 nevertheless removes registered pages, and the heap around them, from children.
int system_fork_init() {
  return ibv_is_fork_initialized() == IBV_FORK_UNNEEDED ? 0 : ibv_fork_init();
}

// A device without a bus behind it lives under /sys/devices/virtual: rxe and siw do.
bool system_is_software_device(const ibv_device* device) {
  std::array<char, PATH_MAX> resolved{};
  return ::realpath(device->ibdev_path, resolved.data()) != nullptr &&
         std::strncmp(resolved.data(), "/sys/devices/virtual/", 21) == 0;
}

MemlockState system_memlock_state() {
  MemlockState state;
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    state.limit_bytes = UINT64_MAX;
  else
    state.limit_bytes = limit.rlim_cur;
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen("/proc/self/status", "re"),
                                                             &std::fclose};
  if (!file) return state;
  std::array<char, 256> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), file.get()) != nullptr) {
    const char* const colon = std::strchr(line.data(), ':');
    if (colon == nullptr) continue;
    if (std::strncmp(line.data(), "VmPin:", 6) == 0)
      state.pinned_bytes += std::strtoull(colon + 1, nullptr, 10) * 1024;
    if (std::strncmp(line.data(), "CapEff:", 7) == 0)
      state.exempt = ((std::strtoull(colon + 1, nullptr, 16) >> CAP_IPC_LOCK) & 1) != 0;
  }
  return state;
}

void system_keep_cm_devices(ibv_context** list) { std::free(list); }

// The numbers stay in use, by descriptors of an empty file, so that librdmacm closes no descriptor
// of another owner when it finally closes the context.
void close_descriptors(const ibv_context& context) {
  const int nothing = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (nothing < 0) return;
  ::dup3(nothing, context.cmd_fd, O_CLOEXEC);
  ::dup3(nothing, context.async_fd, O_CLOEXEC);
  ::close(nothing);
}

void system_release_cm_device(ibv_context* context, bool none_left) {
  if (none_left) close_descriptors(*context);
  // The list of one device, as rdma_get_devices() would make it: rdma_free_devices() frees it.
  auto** const list = static_cast<ibv_context**>(std::calloc(2, sizeof(void*)));
  if (list == nullptr) return;
  list[0] = context;
  rdma_free_devices(list);
}

// AboveStandard: the calls that make descriptors, or open devices by themselves.
constexpr Provider kSystem{
    .get_device_list = &AboveStandard<&OnDeviceThread<&system_get_device_list>::call>::call,
    .free_device_list = &ibv_free_device_list,
    .get_device_guid = &ibv_get_device_guid,
    .get_device_index = &ibv_get_device_index,
    .open_device = &AboveStandard<&ibv_open_device>::call,
    .close_device = &ibv_close_device,
    .query_device = &ibv_query_device,
    .query_port = &system_query_port,
    .query_device_ex = &system_query_device_ex,
    .query_rt_values_ex = &system_query_rt_values_ex,
    .query_gid_table = &system_query_gid_table,
    .query_gid_ex = &system_query_gid_ex,
    .query_pkey = &ibv_query_pkey,
    .get_async_event = &ibv_get_async_event,
    .ack_async_event = &ibv_ack_async_event,
    .fork_init = &system_fork_init,
    .is_software_device = &system_is_software_device,
    .devices_are_by_namespace = &detail::devices_are_by_namespace,
    .alloc_pd = &ibv_alloc_pd,
    .dealloc_pd = &ibv_dealloc_pd,
    .alloc_td = &system_alloc_td,
    .dealloc_td = &system_dealloc_td,
    .alloc_parent_domain = &system_alloc_parent_domain,
    .reg_mr = &system_reg_mr,
    .reg_mr_iova = &system_reg_mr_iova,
    .reg_dmabuf_mr = &ibv_reg_dmabuf_mr,
    .dereg_mr = &ibv_dereg_mr,
    .advise_mr = &system_advise_mr,
    .alloc_mw = &system_alloc_mw,
    .dealloc_mw = &system_dealloc_mw,
    .memlock_state = &system_memlock_state,
    .create_comp_channel = &AboveStandard<&ibv_create_comp_channel>::call,
    .destroy_comp_channel = &ibv_destroy_comp_channel,
    .create_cq = &ibv_create_cq,
    .create_cq_ex = &system_create_cq_ex,
    .destroy_cq = &ibv_destroy_cq,
    .get_cq_event = &ibv_get_cq_event,
    .ack_cq_events = &ibv_ack_cq_events,
    .poll_cq = nullptr,
    .req_notify_cq = nullptr,
    .create_qp = &ibv_create_qp,
    .modify_qp = &ibv_modify_qp,
    .query_qp = &ibv_query_qp,
    .destroy_qp = &ibv_destroy_qp,
    .post_send = nullptr,
    .post_recv = nullptr,
    .create_srq = &ibv_create_srq,
    .modify_srq = &ibv_modify_srq,
    .query_srq = &ibv_query_srq,
    .destroy_srq = &ibv_destroy_srq,
    .post_srq_recv = nullptr,
    .create_ah = &ibv_create_ah,
    .destroy_ah = &ibv_destroy_ah,
    .init_ah_from_wc = &ibv_init_ah_from_wc,
    .create_event_channel = &AboveStandard<&OnDeviceThread<&rdma_create_event_channel>::call>::call,
    .destroy_event_channel = &rdma_destroy_event_channel,
    .create_id = &AboveStandard<&rdma_create_id>::call,
    .destroy_id = &rdma_destroy_id,
    .bind_addr = &AboveStandard<&system_bind_addr>::call,
    .listen = &rdma_listen,
    .resolve_addr = &AboveStandard<&rdma_resolve_addr>::call,
    .resolve_route = &AboveStandard<&rdma_resolve_route>::call,
    .init_qp_attr = &rdma_init_qp_attr,
    .connect = &rdma_connect,
    .establish = &rdma_establish,
    .accept = &rdma_accept,
    .reject = &rdma_reject,
    .disconnect = &rdma_disconnect,
    .get_cm_event = &AboveStandard<&system_get_cm_event>::call,
    .ack_cm_event = &rdma_ack_cm_event,
    .migrate_id = &rdma_migrate_id,
    .set_option = &rdma_set_option,
    .get_cm_devices = &AboveStandard<&OnDeviceThread<&rdma_get_devices>::call>::call,
    .free_cm_devices = &rdma_free_devices,
    .keep_cm_devices = &system_keep_cm_devices,
    .release_cm_device = &system_release_cm_device,
    .getaddrinfo = &AboveStandard<&::getaddrinfo>::call,
    .freeaddrinfo = &::freeaddrinfo,
};

}  // namespace

const Provider& Provider::system() noexcept { return kSystem; }

}  // namespace remora::verbs
