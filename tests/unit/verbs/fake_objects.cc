// The fake's shared receive queues, address handles, windows, extended queues, events and queries.
#include <algorithm>
#include <cstring>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_verbs.h"

namespace remora::test {
namespace {

bool object_refused(const char* call) {
  const int number = fake().use(call);
  if (number != 0) errno = number;
  return number != 0;
}

int query_device_ex(ibv_context*, ibv_device_attr_ex* attributes) {
  attributes->orig_attr = fake().attributes;
  attributes->completion_timestamp_mask = 0xffff;
  attributes->hca_core_clock = 156'250;
  if (fake().on_demand_paging) attributes->odp_caps.general_caps = IBV_ODP_SUPPORT;
  return fake().use("query_device_ex");
}
int query_rt_values_ex(ibv_context*, ibv_values_ex* values) {
  values->raw_clock = {2, 7};
  return fake().use("query_rt_values_ex");
}
int query_gid_ex(ibv_context*, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  if (const int number = fake().use("query_gid_ex"); number != 0) return number;
  for (const ibv_gid_entry& row : fake().gids)
    if (row.port_num == port && row.gid_index == index) return *entry = row, 0;
  return ENODATA;
}
int query_pkey(ibv_context*, std::uint8_t, int index, __be16* key) {
  *key = htobe16(fake().pkeys.at(static_cast<std::size_t>(index)));
  if (object_refused("query_pkey")) return -1;
  return 0;
}
int get_async_event(ibv_context* context, ibv_async_event* event) {
  if (object_refused("get_async_event")) return -1;
  if (fake().async_events.empty()) return errno = EAGAIN, -1;
  std::uint64_t one = 0;
  if (::read(context->async_fd, &one, sizeof(one)) < 0) fake().violation("event without wake-up");
  *event = fake().async_events.front();
  fake().async_events.pop_front();
  ++fake().unacknowledged_async;
  return 0;
}
void ack_async_event(ibv_async_event*) {
  static_cast<void>(fake().use("ack_async_event"));
  --fake().unacknowledged_async;
}

ibv_mr* reg_mr_iova(ibv_pd* domain, void* address, std::size_t length, std::uint64_t iova,
                    unsigned access) {
  if (object_refused("reg_mr_iova")) return nullptr;
  fake().note_registered(iova, access);
  return fake().make_region(domain, address, length);
}
ibv_mr* reg_dmabuf_mr(ibv_pd* domain, std::uint64_t, std::size_t length, std::uint64_t iova, int,
                      int access) {
  if (object_refused("reg_dmabuf_mr")) return nullptr;
  fake().note_registered(iova, static_cast<std::uint32_t>(access));
  static std::byte foreign{};  // libibverbs puts the offset there: nothing to be touched
  return fake().make_region(domain, &foreign, length);
}
int advise_mr(ibv_pd*, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge*,
              std::uint32_t count) {
  fake().advised = {advice, flags, count};
  return fake().use("advise_mr");
}
ibv_mw* alloc_mw(ibv_pd* domain, ibv_mw_type type) {
  if (object_refused("alloc_mw")) return nullptr;
  if (!fake().profile().has_windows_type_2) return errno = EOPNOTSUPP, nullptr;
  fake().commands += fake().profile().commands_of_window;
  auto* const window = new ibv_mw{};
  window->pd = domain;
  window->context = domain->context;
  window->type = type;
  window->rkey = fake().next_key(5) << 8U;
  fake().born("mw", window, {domain});
  return window;
}
int dealloc_mw(ibv_mw* window) {
  const int number = fake().use("dealloc_mw");
  fake().unbind(window);
  fake().died("mw", window);
  fake().free_key(window->rkey >> 8U);
  delete window;
  return number;
}

// The extended queue hands out fake().completions like the plain one.
ibv_wc g_current_wc{};
int take_one(ibv_cq_ex* queue) {
  if (fake().completions.empty()) return ENOENT;
  g_current_wc = fake().completions.front();
  fake().completions.pop_front();
  queue->wr_id = g_current_wc.wr_id;
  queue->status = g_current_wc.status;
  return 0;
}
int start_poll(ibv_cq_ex* queue, ibv_poll_cq_attr*) {
  if (const int number = fake().use("start_poll"); number != 0) return number;
  const int result = take_one(queue);
  if (result == 0) ++fake().open_polls;
  return result;
}
int next_poll(ibv_cq_ex* queue) {
  if (const int number = fake().use("next_poll"); number != 0) return number;
  return take_one(queue);
}
void end_poll(ibv_cq_ex*) { --fake().open_polls; }

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  if (object_refused("create_cq_ex")) return nullptr;
  fake().queues.push_back({attributes->cqe, attributes->comp_vector, attributes->wc_flags});
  auto* const queue = new ibv_cq_ex{};
  queue->context = context;
  queue->channel = attributes->channel;
  queue->cq_context = attributes->cq_context;
  queue->cqe = static_cast<int>(attributes->cqe);
  queue->start_poll = &start_poll;
  queue->next_poll = &next_poll;
  queue->end_poll = &end_poll;
  queue->read_opcode = [](ibv_cq_ex*) { return g_current_wc.opcode; };
  queue->read_vendor_err = [](ibv_cq_ex*) { return g_current_wc.vendor_err; };
  queue->read_byte_len = [](ibv_cq_ex*) { return g_current_wc.byte_len; };
  queue->read_imm_data = [](ibv_cq_ex*) { return g_current_wc.imm_data; };
  queue->read_qp_num = [](ibv_cq_ex*) { return g_current_wc.qp_num; };
  queue->read_src_qp = [](ibv_cq_ex*) { return g_current_wc.src_qp; };
  queue->read_slid = [](ibv_cq_ex*) { return std::uint32_t{g_current_wc.slid}; };
  queue->read_sl = [](ibv_cq_ex*) { return g_current_wc.sl; };
  queue->read_dlid_path_bits = [](ibv_cq_ex*) { return g_current_wc.dlid_path_bits; };
  queue->read_completion_wallclock_ns = [](ibv_cq_ex*) { return std::uint64_t{1'763'800'000}; };
  queue->read_wc_flags = [](ibv_cq_ex*) { return g_current_wc.wc_flags; };
  queue->read_completion_ts = [](ibv_cq_ex*) { return std::uint64_t{4711}; };
  const std::lock_guard lock{fake().events_mutex};
  fake().extended.insert(ibv_cq_ex_to_cq(queue));
  fake().born("cq", queue, {context, attributes->channel});
  return queue;
}

ibv_srq* create_srq(ibv_pd* domain, ibv_srq_init_attr* attributes) {
  if (object_refused("create_srq")) return nullptr;
  auto* const queue = new ibv_srq{};
  queue->context = domain->context;
  queue->pd = domain;
  queue->srq_context = attributes->srq_context;
  fake().shared_attributes = attributes->attr;
  fake().born("srq", queue, {domain});
  return queue;
}
int modify_srq(ibv_srq*, ibv_srq_attr* attributes, int mask) {
  if ((mask & IBV_SRQ_LIMIT) != 0) fake().shared_attributes.srq_limit = attributes->srq_limit;
  return fake().use("modify_srq");
}
int query_srq(ibv_srq*, ibv_srq_attr* attributes) {
  *attributes = fake().shared_attributes;
  return fake().use("query_srq");
}
int destroy_srq(ibv_srq* queue) {
  const int number = fake().use("destroy_srq");
  fake().died("srq", queue);
  delete queue;
  return number;
}
int post_srq_recv(ibv_srq*, ibv_recv_wr* chain, ibv_recv_wr** bad) {
  const int number = fake().use("post_srq_recv");
  if (number != 0) return *bad = chain, number;
  for (ibv_recv_wr* wr = chain; wr != nullptr; wr = wr->next)
    fake().received_ids.push_back(wr->wr_id);
  return 0;
}

ibv_ah* create_ah(ibv_pd* domain, ibv_ah_attr* attributes) {
  if (object_refused("create_ah")) return nullptr;
  auto* const handle = new ibv_ah{};
  handle->context = domain->context;
  handle->pd = domain;
  fake().paths.push_back(*attributes);
  fake().born("ah", handle, {domain});
  return handle;
}
int destroy_ah(ibv_ah* handle) {
  const int number = fake().use("destroy_ah");
  fake().died("ah", handle);
  delete handle;
  return number;
}
int init_ah_from_wc(ibv_context*, std::uint8_t port, ibv_wc* completion, ibv_grh* header,
                    ibv_ah_attr* attributes) {
  if (const int number = fake().use("init_ah_from_wc"); number != 0) return number;
  *attributes = {};
  attributes->port_num = port;
  attributes->dlid = completion->slid;
  attributes->is_global = 1;
  attributes->grh.dgid = header->sgid;
  return 0;
}

}  // namespace

ibv_mr* FakeVerbs::make_region(ibv_pd* domain, void* address, std::size_t length) {
  auto* const region = new ibv_mr{};
  region->pd = domain;
  region->context = domain->context;
  region->addr = address;
  region->length = length;
  // As drivers do, but for those of plain_device(), which tell a mistake.
  const bool fixed = profile_->keys == KeyHabit::kFixed;
  region->rkey = fixed ? 22 : next_key(0);
  region->lkey = fixed ? 11 : region->rkey;
  commands += profile_->commands_of_registration;
  born("mr", region, {domain});
  return region;
}

void FakeVerbs::happen(const verbs::Device& where, const ibv_async_event& event) {
  async_events.push_back(event);
  const std::uint64_t one = 1;
  if (::write(where.raw()->async_fd, &one, sizeof(one)) < 0) violation("eventfd");
}

void install_objects(verbs::Provider& table) {
  table.query_device_ex = &query_device_ex;
  table.query_rt_values_ex = &query_rt_values_ex;
  table.query_gid_ex = &query_gid_ex;
  table.query_pkey = &query_pkey;
  table.get_async_event = &get_async_event;
  table.ack_async_event = &ack_async_event;
  table.reg_mr_iova = &reg_mr_iova;
  table.reg_dmabuf_mr = &reg_dmabuf_mr;
  table.advise_mr = &advise_mr;
  table.alloc_mw = &alloc_mw;
  table.dealloc_mw = &dealloc_mw;
  table.create_cq_ex = &create_cq_ex;
  table.create_srq = &create_srq;
  table.modify_srq = &modify_srq;
  table.query_srq = &query_srq;
  table.destroy_srq = &destroy_srq;
  table.post_srq_recv = &post_srq_recv;
  table.create_ah = &create_ah;
  table.destroy_ah = &destroy_ah;
  table.init_ah_from_wc = &init_ah_from_wc;
}

}  // namespace remora::test
