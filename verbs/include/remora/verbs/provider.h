#pragma once

/// Provider: the table of every libibverbs and librdmacm call that this library makes.
///
/// `Provider::system()` is the real libraries. A test copies it, replaces entries and passes its
/// own table to `devices()`, `Connector::resolve()` or `ConnectionListener::bind()`: all objects
/// made from their results use the same table, so a test can make any call fail at its nth use. The
/// table must outlive all of these objects.
///
/// The calls of the data path (`post_send`, `post_recv`, `post_srq_recv`, `poll_cq`) and
/// `req_notify_cq` are null in the system table: queue pairs, shared receive queues and completion
/// queues then read the device's own function from `ibv_context::ops` once, when they are created,
/// and call that. A post is one indirect call, exactly as in the inline function of libibverbs.
/// Source: verbs.h, ibv_post_send. The functions of an extended completion queue are in `ibv_cq_ex`
/// itself, as `create_cq_ex` made it.
///
/// Thread safety: immutable once in use.

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <rdma/rdma_cma.h>
#include <sys/types.h>

namespace remora::verbs {

/// The memory that the kernel lets this process pin.
struct MemlockState {
  std::uint64_t limit_bytes = 0;   ///< RLIMIT_MEMLOCK; UINT64_MAX when unlimited
  std::uint64_t pinned_bytes = 0;  ///< pinned by this process now (VmPin)
  bool exempt = false;             ///< CAP_IPC_LOCK: the limit does not apply
};

/// Entries have the signatures and error conventions of the calls whose names they have. exception:
/// the table has one entry for each call of the libraries.
struct Provider {
  /// Devices.
  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  __be64 (*get_device_guid)(ibv_device* device);
  int (*get_device_index)(ibv_device* device);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);
  int (*query_device)(ibv_context* context, ibv_device_attr* attributes);
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
  int (*query_device_ex)(ibv_context* context, ibv_device_attr_ex* attributes);
  int (*query_rt_values_ex)(ibv_context* context, ibv_values_ex* values);
  ssize_t (*query_gid_table)(ibv_context* context, ibv_gid_entry* entries, std::size_t capacity);
  int (*query_gid_ex)(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry);
  int (*query_pkey)(ibv_context* context, std::uint8_t port, int index, __be16* key);
  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);
  int (*fork_init)();
  /// True if the kernel implements the device in software (rxe, siw). Not a verbs call.
  bool (*is_software_device)(const ibv_device* device);
  /// True if each network namespace has devices of its own. Called only if there are no devices;
  /// null: not called. Not a verbs call.
  bool (*devices_are_by_namespace)();

  /// Protection and memory.
  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* domain);
  ibv_td* (*alloc_td)(ibv_context* context, ibv_td_init_attr* attributes);
  int (*dealloc_td)(ibv_td* domain);
  ibv_pd* (*alloc_parent_domain)(ibv_context* context, ibv_parent_domain_init_attr* attributes);
  ibv_mr* (*reg_mr)(ibv_pd* domain, void* address, std::size_t length_bytes, unsigned int access);
  ibv_mr* (*reg_mr_iova)(ibv_pd* domain, void* address, std::size_t length_bytes,
                         std::uint64_t iova, unsigned int access);
  ibv_mr* (*reg_dmabuf_mr)(ibv_pd* domain, std::uint64_t offset_bytes, std::size_t length_bytes,
                           std::uint64_t iova, int fd, int access);
  int (*dereg_mr)(ibv_mr* region);
  int (*advise_mr)(ibv_pd* domain, ibv_advise_mr_advice advice, std::uint32_t flags,
                   ibv_sge* ranges, std::uint32_t count);
  ibv_mw* (*alloc_mw)(ibv_pd* domain, ibv_mw_type type);
  int (*dealloc_mw)(ibv_mw* window);
  /// Called only after a registration failed. Not a verbs call.
  MemlockState (*memlock_state)();

  /// Completion.
  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int depth, void* user, ibv_comp_channel* channel,
                       int vector);
  ibv_cq_ex* (*create_cq_ex)(ibv_context* context, ibv_cq_init_attr_ex* attributes);
  int (*destroy_cq)(ibv_cq* queue);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** queue, void** user);
  void (*ack_cq_events)(ibv_cq* queue, unsigned int count);
  int (*poll_cq)(ibv_cq* queue, int count, ibv_wc* completions);  ///< null: the device's own
  int (*req_notify_cq)(ibv_cq* queue, int solicited_only);        ///< null: the device's own

  /// Queue pairs.
  ibv_qp* (*create_qp)(ibv_pd* domain, ibv_qp_init_attr* attributes);
  int (*modify_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask);
  int (*query_qp)(ibv_qp* pair, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* initial);
  int (*destroy_qp)(ibv_qp* pair);
  int (*post_send)(ibv_qp* pair, ibv_send_wr* chain, ibv_send_wr** bad);  ///< null: the device's
  int (*post_recv)(ibv_qp* pair, ibv_recv_wr* chain, ibv_recv_wr** bad);  ///< null: the device's

  /// Shared receive queues and address handles.
  ibv_srq* (*create_srq)(ibv_pd* domain, ibv_srq_init_attr* attributes);
  int (*modify_srq)(ibv_srq* queue, ibv_srq_attr* attributes, int mask);
  int (*query_srq)(ibv_srq* queue, ibv_srq_attr* attributes);
  int (*destroy_srq)(ibv_srq* queue);
  /// Null: the device's own.
  int (*post_srq_recv)(ibv_srq* queue, ibv_recv_wr* chain, ibv_recv_wr** bad);
  ibv_ah* (*create_ah)(ibv_pd* domain, ibv_ah_attr* attributes);
  int (*destroy_ah)(ibv_ah* handle);
  int (*init_ah_from_wc)(ibv_context* context, std::uint8_t port, ibv_wc* completion, ibv_grh* grh,
                         ibv_ah_attr* attributes);

  /// Connection manager.
  rdma_event_channel* (*create_event_channel)();
  void (*destroy_event_channel)(rdma_event_channel* channel);
  int (*create_id)(rdma_event_channel* channel, rdma_cm_id** id, void* context,
                   rdma_port_space space);
  int (*destroy_id)(rdma_cm_id* id);
  int (*bind_addr)(rdma_cm_id* id, sockaddr* address);
  int (*listen)(rdma_cm_id* id, int backlog);
  int (*resolve_addr)(rdma_cm_id* id, sockaddr* source, sockaddr* destination, int timeout_ms);
  int (*resolve_route)(rdma_cm_id* id, int timeout_ms);
  int (*init_qp_attr)(rdma_cm_id* id, ibv_qp_attr* attributes, int* mask);
  int (*connect)(rdma_cm_id* id, rdma_conn_param* parameters);
  int (*establish)(rdma_cm_id* id);
  int (*accept)(rdma_cm_id* id, rdma_conn_param* parameters);
  int (*reject)(rdma_cm_id* id, const void* private_data, std::uint8_t length_bytes);
  int (*disconnect)(rdma_cm_id* id);
  int (*get_cm_event)(rdma_event_channel* channel, rdma_cm_event** event);
  int (*ack_cm_event)(rdma_cm_event* event);
  int (*migrate_id)(rdma_cm_id* id, rdma_event_channel* channel);
  int (*set_option)(rdma_cm_id* id, int level, int name, void* value, std::size_t length_bytes);
  ibv_context** (*get_cm_devices)(int* count);
  void (*free_cm_devices)(ibv_context** list);
  /// Frees only the list: librdmacm continues to count its contexts as in use. Not a call of
  /// librdmacm.
  void (*keep_cm_devices)(ibv_context** list);
  /// Ends one such use. `none_left`: the host has no device any more, which librdmacm does not
  /// notice: then the context's descriptors are closed, so that the kernel can remove the device.
  /// Not a call of librdmacm.
  void (*release_cm_device)(ibv_context* context, bool none_left);

  /// Names. May be called on a thread of the library's own (Address::resolve).
  int (*getaddrinfo)(const char* node, const char* service, const addrinfo* hints, addrinfo** list);
  void (*freeaddrinfo)(addrinfo* list);

  /// The real libraries. Never destroyed.
  [[nodiscard]] static const Provider& system() noexcept;
};

}  // namespace remora::verbs
