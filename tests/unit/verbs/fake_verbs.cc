#include "fake_verbs.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

namespace remora::test {
namespace {

FakeVerbs* g_current = nullptr;

// Pointer calls fail with null and errno, the others return the errno.
bool refused(const char* call) {
  const int number = fake().use(call);
  if (number != 0) errno = number;
  return number != 0;
}

ibv_device** get_device_list(int* count) {
  if (refused("get_device_list")) return nullptr;
  if (fake().list_errno != 0) return errno = fake().list_errno, nullptr;
  const auto others = static_cast<int>(fake().others.size());
  auto** const list = new ibv_device* [fake().others.size() + 2] {};
  int found = 0;
  if (fake().device_count > 0) list[found++] = &fake().device;
  for (FakeVerbs::Other& other : fake().others) list[found++] = &other.device;
  *count = fake().device_count + others;
  fake().born("list", list);
  return list;
}
void free_device_list(ibv_device** list) {
  fake().died("list", list);
  delete[] list;
}
__be64 get_device_guid(ibv_device*) { return htobe64(0x1122334455667788); }
int get_device_index(ibv_device*) { return 3; }
ibv_context* open_device(ibv_device* device) {
  if (refused("open_device")) return nullptr;
  auto* const context = new ibv_context{};
  context->device = device;
  context->num_comp_vectors = fake().profile().completion_vectors;
  context->async_fd = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC);
  fake().born("context", context);
  return context;
}
int close_device(ibv_context* context) {
  const int number = fake().use("close_device");
  fake().died("context", context);
  ::close(context->async_fd);
  delete context;
  return number;
}
int query_device(ibv_context* context, ibv_device_attr* attributes) {
  const FakeVerbs::Other* const other = fake().other(context->device);
  *attributes = other != nullptr ? other->attributes : fake().attributes;
  return fake().use("query_device");
}
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  const FakeVerbs::Other* const other = fake().other(context->device);
  if (other != nullptr) return *attributes = other->port, fake().use("query_port");
  *attributes = port == 2 ? fake().second_port.value_or(fake().port) : fake().port;
  return fake().use("query_port");
}
ssize_t query_gid_table(ibv_context*, ibv_gid_entry* entries, std::size_t capacity) {
  if (const int number = fake().use("query_gid_table"); number != 0) return -number;
  const std::size_t count = std::min(capacity, fake().gids.size());
  std::copy_n(fake().gids.begin(), count, entries);
  return static_cast<ssize_t>(count);
}
int fork_init() { return fake().use("fork_init"); }
bool is_software_device(const ibv_device*) { return fake().profile().software; }
bool devices_are_by_namespace() { return fake().by_namespace; }

ibv_pd* alloc_pd(ibv_context* context) {
  if (refused("alloc_pd")) return nullptr;
  auto* const domain = new ibv_pd{};
  domain->context = context;
  fake().born("pd", domain, {context});
  return domain;
}
int dealloc_pd(ibv_pd* domain) {
  const int number = fake().use("dealloc_pd");
  fake().died("pd", domain);
  delete domain;
  return number;
}
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr*) {
  if (!fake().profile().has_thread_domains) return errno = EOPNOTSUPP, nullptr;
  if (refused("alloc_td")) return nullptr;
  auto* const domain = new ibv_td{};
  domain->context = context;
  fake().born("td", domain, {context});
  return domain;
}
int dealloc_td(ibv_td* domain) {
  const int number = fake().use("dealloc_td");
  fake().died("td", domain);
  delete domain;
  return number;
}
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* of) {
  if (refused("alloc_parent_domain")) return nullptr;
  auto* const domain = new ibv_pd{};
  domain->context = context;
  fake().born("pd", domain, {of->pd, of->td});
  return domain;
}
ibv_mr* reg_mr(ibv_pd* domain, void* address, std::size_t length, unsigned access) {
  if (refused("reg_mr")) return nullptr;
  fake().note_registered(reinterpret_cast<std::uintptr_t>(address), access);
  return fake().make_region(domain, address, length);
}
int dereg_mr(ibv_mr* region) {
  const int number = fake().use("dereg_mr");
  if (fake().has_window(region)) fake().violation("ibv_dereg_mr would refuse: a window is bound");
  fake().died("mr", region);
  fake().free_key(region->rkey);
  delete region;
  return number;
}
verbs::MemlockState memlock_state() { return fake().memlock; }

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  if (refused("create_comp_channel")) return nullptr;
  auto* const channel = new ibv_comp_channel{};
  channel->context = context;
  channel->fd = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC);
  fake().born("channel", channel, {context});
  return channel;
}
int destroy_comp_channel(ibv_comp_channel* channel) {
  const int number = fake().use("destroy_comp_channel");
  fake().died("channel", channel);
  ::close(channel->fd);
  delete channel;
  return number;
}
ibv_cq* create_cq(ibv_context* context, int depth, void* user, ibv_comp_channel* channel,
                  int vector) {
  if (refused("create_cq")) return nullptr;
  fake().queues.push_back(
      {static_cast<std::uint32_t>(depth), static_cast<std::uint32_t>(vector), 0});
  auto* const queue = new ibv_cq{};
  queue->context = context;
  queue->channel = channel;
  queue->cq_context = user;
  queue->cqe = depth;
  fake().born("cq", queue, {context, channel});
  return queue;
}
int destroy_cq(ibv_cq* queue) {
  const int number = fake().use("destroy_cq");
  bool acknowledged = true;
  bool extended = false;
  {
    const std::lock_guard lock{fake().events_mutex};
    acknowledged = fake().unacknowledged[queue] == 0;
    extended = fake().extended.erase(queue) != 0;
  }
  if (!acknowledged) fake().violation("ibv_destroy_cq would never return");
  fake().died("cq", queue);
  if (extended)
    delete reinterpret_cast<ibv_cq_ex*>(queue);
  else
    delete queue;
  return number;
}
int get_cq_event(ibv_comp_channel* channel, ibv_cq** queue, void** user) {
  if (refused("get_cq_event")) return -1;
  const std::lock_guard lock{fake().events_mutex};
  auto& events = fake().channel_events[channel];
  if (events.empty()) return errno = EAGAIN, -1;
  std::uint64_t one = 0;
  if (::read(channel->fd, &one, sizeof(one)) < 0) fake().violation("event without a wake-up");
  *queue = events.front();
  *user = events.front()->cq_context;
  events.pop_front();
  ++fake().unacknowledged[*queue];
  return 0;
}
void ack_cq_events(ibv_cq* queue, unsigned count) {
  static_cast<void>(fake().use("ack_cq_events"));
  const std::lock_guard lock{fake().events_mutex};
  fake().unacknowledged[queue] -= static_cast<int>(count);
}
int poll_cq(ibv_cq*, int count, ibv_wc* completions) {
  if (const int number = fake().use("poll_cq"); number != 0) return -number;
  int polled = 0;
  for (; polled < count && !fake().completions.empty(); ++polled) {
    completions[polled] = fake().completions.front();
    fake().completions.pop_front();
  }
  return polled;
}
int req_notify_cq(ibv_cq*, int) { return fake().use("req_notify_cq"); }

ibv_qp* create_qp(ibv_pd* domain, ibv_qp_init_attr* attributes) {
  if (refused("create_qp")) return nullptr;
  if (const int number = fake().refusal_of(*attributes); number != 0)
    return errno = number, nullptr;
  fake().commands += fake().profile().commands_of_pair;
  fake().pairs.push_back(*attributes);
  attributes->cap.max_inline_data =
      std::max(attributes->cap.max_inline_data, fake().granted_inline);
  auto* const pair = new ibv_qp{};
  pair->context = domain->context;
  pair->pd = domain;
  pair->qp_num = 0x77;
  pair->qp_type = attributes->qp_type;
  pair->qp_context = attributes->qp_context;
  pair->srq = attributes->srq;
  fake().born("qp", pair, {domain, attributes->send_cq, attributes->recv_cq, attributes->srq});
  return pair;
}
int modify_qp(ibv_qp* pair, ibv_qp_attr* attributes, int mask) {
  if (const int number = fake().use("modify_qp"); number != 0) return number;
  if (const int number = fake().refusal_of(pair, *attributes, mask); number != 0) return number;
  fake().modified.emplace_back(*attributes, mask);
  if ((mask & IBV_QP_STATE) != 0) pair->state = attributes->qp_state;
  return 0;
}
int query_qp(ibv_qp* pair, ibv_qp_attr* attributes, int, ibv_qp_init_attr*) {
  attributes->qp_state = pair->state;
  return fake().use("query_qp");
}
int destroy_qp(ibv_qp* pair) {
  const int number = fake().use("destroy_qp");
  fake().forget(pair);
  if (fake().has_window(pair)) fake().violation("ibv_destroy_qp would hang: a window is bound");
  fake().died("qp", pair);
  delete pair;
  return number;
}
int post_send(ibv_qp* pair, ibv_send_wr* chain, ibv_send_wr** bad) {
  const int number = fake().use("post_send");
  fake().sent.emplace_back();
  fake().sent_elements.clear();
  int taken = 0;
  for (ibv_send_wr* wr = chain; wr != nullptr; wr = wr->next, ++taken) {
    if (number != 0 && taken >= std::max(fake().take, 0)) return *bad = wr, number;
    fake().sent.back().push_back(*wr);
    if (wr->opcode == IBV_WR_BIND_MW) fake().bind(wr->bind_mw.mw, pair, wr->bind_mw.bind_info.mr);
    fake().sent_elements.emplace_back(wr->sg_list, wr->sg_list + wr->num_sge);
    fake().complete(pair, *wr);
  }
  return 0;
}
int post_recv(ibv_qp*, ibv_recv_wr* chain, ibv_recv_wr** bad) {
  const int number = fake().use("post_recv");
  int taken = 0;
  for (ibv_recv_wr* wr = chain; wr != nullptr; wr = wr->next, ++taken) {
    if (number != 0 && taken >= std::max(fake().take, 0)) return *bad = wr, number;
    fake().received_ids.push_back(wr->wr_id);
  }
  return 0;
}

verbs::Provider make_table() {
  verbs::Provider table = verbs::Provider::system();
  table.get_device_list = &get_device_list;
  table.free_device_list = &free_device_list;
  table.get_device_guid = &get_device_guid;
  table.get_device_index = &get_device_index;
  table.open_device = &open_device;
  table.close_device = &close_device;
  table.query_device = &query_device;
  table.query_port = &query_port;
  table.query_gid_table = &query_gid_table;
  table.fork_init = &fork_init;
  table.is_software_device = &is_software_device;
  table.devices_are_by_namespace = &devices_are_by_namespace;
  table.alloc_pd = &alloc_pd;
  table.dealloc_pd = &dealloc_pd;
  table.alloc_td = &alloc_td;
  table.dealloc_td = &dealloc_td;
  table.alloc_parent_domain = &alloc_parent_domain;
  table.reg_mr = &reg_mr;
  table.dereg_mr = &dereg_mr;
  table.memlock_state = &memlock_state;
  table.create_comp_channel = &create_comp_channel;
  table.destroy_comp_channel = &destroy_comp_channel;
  table.create_cq = &create_cq;
  table.destroy_cq = &destroy_cq;
  table.get_cq_event = &get_cq_event;
  table.ack_cq_events = &ack_cq_events;
  table.poll_cq = &poll_cq;
  table.req_notify_cq = &req_notify_cq;
  table.create_qp = &create_qp;
  table.modify_qp = &modify_qp;
  table.query_qp = &query_qp;
  table.destroy_qp = &destroy_qp;
  table.post_send = &post_send;
  table.post_recv = &post_recv;
  install_objects(table);
  install_connection_manager(table);
  return table;
}

}  // namespace

FakeVerbs::FakeVerbs() : table{make_table()} {
  g_current = this;
  std::strncpy(attributes.fw_ver, "20.31.1014", sizeof(attributes.fw_ver) - 1);
  attributes.max_mr_size = 1 << 30;
  attributes.max_qp_wr = 128;
  attributes.max_sge = 4;
  attributes.max_cqe = 1024;
  attributes.max_qp_rd_atom = 16;
  attributes.max_qp_init_rd_atom = 16;
  attributes.atomic_cap = IBV_ATOMIC_HCA;
  attributes.phys_port_cnt = 1;
  attributes.max_srq = 4;
  attributes.max_srq_wr = 64;
  attributes.max_srq_sge = 2;
  attributes.device_cap_flags = IBV_DEVICE_MEM_WINDOW_TYPE_2B;
  port.state = IBV_PORT_ACTIVE;
  port.active_mtu = IBV_MTU_4096;
  port.max_mtu = IBV_MTU_4096;
  port.gid_tbl_len = 8;
  port.pkey_tbl_len = 1;
  port.phys_state = 5;
  port.active_width = 2;
  port.active_speed = 32;
  port.link_layer = IBV_LINK_LAYER_ETHERNET;
  gids = {gid(0, 1, "fe80::1"), gid(1, 1, "::ffff:10.0.0.1")};
  memlock.limit_bytes = UINT64_MAX;
  std::strncpy(device.name, device_name.c_str(), sizeof(device.name) - 1);
  device.transport_type = IBV_TRANSPORT_IB;
  cm_context.device = &device;
  cm_context.num_comp_vectors = profile_->completion_vectors;
  cm_context.async_fd = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC);
  const char* const named = std::getenv("REMORA_TEST_DEVICE");
  if (named == nullptr) return;
  const DeviceProfile* const kind = find_device_profile(named);
  if (kind != nullptr)
    play(*kind);
  else
    violation(std::string{"no device profile "} + named);
}

FakeVerbs::Other::Other(const std::string& name)
    : attributes{fake().attributes}, port{fake().port} {
  std::strncpy(device.name, name.c_str(), sizeof(device.name) - 1);
  device.transport_type = IBV_TRANSPORT_IB;
  cm_context.device = &device;
  cm_context.num_comp_vectors = 2;
  cm_context.async_fd = ::eventfd(0, EFD_NONBLOCK | EFD_SEMAPHORE | EFD_CLOEXEC);
}
FakeVerbs::Other::~Other() { ::close(cm_context.async_fd); }

FakeVerbs::Other* FakeVerbs::other(const ibv_device* wanted) {
  for (Other& each : others)
    if (&each.device == wanted) return &each;
  return nullptr;
}

FakeVerbs::~FakeVerbs() {
  // The process keeps the contexts of devices that it has used.
  device_count = 0;
  const std::deque<Other> gone = std::exchange(others, {});
  verbs::look_for_gone_devices(table);
  ::close(cm_context.async_fd);
  g_current = nullptr;
}

FakeVerbs& FakeVerbs::current() { return *g_current; }

ibv_gid_entry FakeVerbs::gid(std::uint32_t index, std::uint32_t port, std::string_view text) {
  ibv_gid_entry entry{};
  entry.gid_index = index;
  entry.port_num = port;
  entry.gid_type = IBV_GID_TYPE_ROCE_V2;
  ::inet_pton(AF_INET6, std::string{text}.c_str(), entry.gid.raw);
  return entry;
}

void FakeVerbs::fail(const std::string& call, int nth, int number) {
  const std::lock_guard lock{mutex_};
  failures_[call] = {nth, number};
}

int FakeVerbs::uses(const std::string& call) const {
  const std::lock_guard lock{mutex_};
  const auto found = uses_.find(call);
  return found == uses_.end() ? 0 : found->second;
}

std::string FakeVerbs::live() const {
  const std::lock_guard lock{mutex_};
  std::map<std::string, int> kinds;
  for (const auto& [address, object] : objects_) ++kinds[object.kind];
  std::string text;
  for (const auto& [kind, count] : kinds) text += kind + "*" + std::to_string(count) + " ";
  return text;
}

void FakeVerbs::raise(ibv_cq* queue) {
  const std::lock_guard lock{events_mutex};
  channel_events[queue->channel].push_back(queue);
  const std::uint64_t one = 1;
  if (::write(queue->channel->fd, &one, sizeof(one)) < 0) violation("eventfd");
}

int FakeVerbs::use(const char* call) {
  const std::lock_guard lock{mutex_};
  ++uses_[call];
  const auto found = failures_.find(call);
  if (found == failures_.end() || --found->second.first != 0) return 0;
  const int number = found->second.second;
  failures_.erase(found);
  return number;
}

void FakeVerbs::born(const std::string& kind, const void* object,
                     std::vector<const void*> parents) {
  const std::lock_guard lock{mutex_};
  std::erase(parents, nullptr);
  std::erase(parents, &cm_context);
  for (const Other& each : others) std::erase(parents, &each.cm_context);
  for (const void* parent : parents)
    if (!objects_.contains(parent)) violation(kind + " made from a dead parent");
  objects_[object] = {kind, std::move(parents)};
}

void FakeVerbs::died(const std::string& kind, const void* object) {
  const std::lock_guard lock{mutex_};
  const auto found = objects_.find(object);
  if (found == objects_.end() || found->second.kind != kind)
    return violation(kind + " destroyed twice or never made");
  for (const auto& [address, other] : objects_)
    for (const void* parent : other.parents)
      if (parent == object) violation(kind + " destroyed before its " + other.kind);
  objects_.erase(found);
}

void FakeVerbs::bind(const ibv_mw* window, const ibv_qp* pair, const ibv_mr* region) {
  const std::lock_guard lock{mutex_};
  bound_[window] = {pair, region};
}

void FakeVerbs::unbind(const ibv_mw* window) {
  const std::lock_guard lock{mutex_};
  bound_.erase(window);
}

bool FakeVerbs::has_window(const ibv_qp* pair) {
  const std::lock_guard lock{mutex_};
  return std::any_of(bound_.begin(), bound_.end(),
                     [pair](const auto& each) { return each.second.first == pair; });
}

bool FakeVerbs::has_window(const ibv_mr* region) {
  const std::lock_guard lock{mutex_};
  return std::any_of(bound_.begin(), bound_.end(),
                     [region](const auto& each) { return each.second.second == region; });
}

void FakeVerbs::note_registered(std::uint64_t iova, std::uint32_t access) {
  const std::lock_guard lock{mutex_};
  registered.push_back({iova, access});
}

void FakeVerbs::violation(const std::string& what) { ADD_FAILURE() << what; }

verbs::Device FakeTest::open() {
  return verbs::devices(fake_.provider()).value().find("fake0").value().open().value();
}

FakeRig::FakeRig(verbs::Device opened)
    : device{std::move(opened)},
      domain{device.allocate_domain().value()},
      queue{device.create_completion_queue({.depth = 64, .events = true}).value()},
      bytes(4096),
      memory{domain
                 .register_bytes(bytes, verbs::Access::kLocalWrite | verbs::Access::kRemoteRead |
                                            verbs::Access::kRemoteWrite)
                 .value()} {}

}  // namespace remora::test
