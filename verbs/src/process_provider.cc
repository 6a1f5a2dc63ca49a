#include "process_provider.h"

#include <cerrno>
#include <type_traits>

namespace remora::verbs::detail {
namespace {

template <typename Call>
struct NotHere;
template <typename Answer, typename... Arguments>
struct NotHere<Answer (*)(Arguments...)> {
  /// Null, -1, or nothing for a call that cannot fail.
  static Answer fail(Arguments... /*arguments*/) {
    errno = kForkedErrno;
    if constexpr (std::is_signed_v<Answer>)
      return Answer{-1};
    else if constexpr (!std::is_void_v<Answer>)
      return Answer{};
  }
  static Answer do_nothing(Arguments... /*arguments*/) {
    if constexpr (!std::is_void_v<Answer>) return Answer{};
  }
};

template <typename... Calls>
constexpr void refuse(Calls&... calls) noexcept {
  ((calls = &NotHere<Calls>::fail), ...);
}
template <typename... Calls>
constexpr void pass_over(Calls&... calls) noexcept {
  ((calls = &NotHere<Calls>::do_nothing), ...);
}

constexpr Provider make_table() noexcept {
  Provider p{};
  refuse(p.get_device_list, p.get_device_guid, p.get_device_index, p.open_device, p.query_device,
         p.query_port, p.query_device_ex, p.query_rt_values_ex, p.query_gid_table, p.query_gid_ex,
         p.query_pkey, p.get_async_event, p.fork_init, p.is_software_device,
         p.devices_are_by_namespace);
  refuse(p.alloc_pd, p.alloc_td, p.alloc_parent_domain, p.reg_mr, p.reg_mr_iova, p.reg_dmabuf_mr,
         p.advise_mr, p.alloc_mw, p.memlock_state);
  refuse(p.create_comp_channel, p.create_cq, p.create_cq_ex, p.get_cq_event, p.poll_cq,
         p.req_notify_cq);
  refuse(p.create_qp, p.modify_qp, p.query_qp, p.post_send, p.post_recv, p.create_srq, p.modify_srq,
         p.query_srq, p.post_srq_recv, p.create_ah, p.init_ah_from_wc);
  refuse(p.create_event_channel, p.create_id, p.bind_addr, p.listen, p.resolve_addr,
         p.resolve_route, p.init_qp_attr, p.connect, p.establish, p.accept, p.reject, p.disconnect,
         p.get_cm_event, p.migrate_id, p.set_option, p.get_cm_devices);
  refuse(p.getaddrinfo);
  pass_over(p.free_device_list, p.close_device, p.ack_async_event, p.dealloc_pd, p.dealloc_td,
            p.dereg_mr, p.dealloc_mw, p.destroy_comp_channel, p.destroy_cq, p.ack_cq_events,
            p.destroy_qp, p.destroy_srq, p.destroy_ah, p.destroy_event_channel, p.destroy_id,
            p.ack_cm_event, p.free_cm_devices, p.keep_cm_devices, p.release_cm_device,
            p.freeaddrinfo);
  return p;
}

constexpr Provider kOfParents = make_table();

}  // namespace

const Provider& provider_of_parents() noexcept { return kOfParents; }

}  // namespace remora::verbs::detail
