#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <deque>
#include <mutex>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "fake_verbs.h"

namespace remora::test {
namespace {

std::mutex g_mutex;  // of channels, ids and their events: several threads destroy them

/// `kCall` with the connection manager locked.
template <auto kCall>
struct Guarded;
template <typename Answer, typename... Arguments, Answer (*kCall)(Arguments...)>
struct Guarded<kCall> {
  static Answer call(Arguments... arguments) {
    const std::lock_guard lock{g_mutex};
    return kCall(arguments...);
  }
};

// librdmacm answers -1 and errno.
int answered(const char* call) {
  const int number = fake().use(call);
  if (number == 0) return 0;
  errno = number;
  return -1;
}

rdma_event_channel* create_event_channel() {
  if (answered("create_event_channel") != 0) return nullptr;
  auto* const channel = new rdma_event_channel{};
  channel->fd = ::eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
  fake().born("cm channel", channel);
  return channel;
}
void destroy_event_channel(rdma_event_channel* channel) {
  fake().died("cm channel", channel);
  for (rdma_cm_event* event : fake().cm_events[channel]) delete event;
  fake().cm_events.erase(channel);
  ::close(channel->fd);
  delete channel;
}

rdma_cm_id* make_id(rdma_event_channel* channel) {
  auto* const id = new rdma_cm_id{};
  id->channel = channel;
  fake().born("id", id, {channel});
  return id;
}
int create_id(rdma_event_channel* channel, rdma_cm_id** id, void*, rdma_port_space) {
  if (answered("create_id") != 0) return -1;
  *id = make_id(channel);
  return 0;
}
int destroy_id(rdma_cm_id* id) {
  const int result = answered("destroy_id");
  if (fake().unacknowledged_ids[id] != 0) fake().violation("rdma_destroy_id would never return");
  // The kernel also drops the requests that wait at a listener.
  const bool listening = fake().listener == id;
  std::erase_if(fake().cm_events[id->channel], [&](rdma_cm_event* event) {
    const bool request = listening && event->event == RDMA_CM_EVENT_CONNECT_REQUEST;
    if (event->id != id && !request) return false;
    if (request) {
      fake().died("id", event->id);
      delete event->id;
    }
    std::uint64_t one = 0;
    if (::read(id->channel->fd, &one, sizeof(one)) < 0) fake().violation("event without wake-up");
    delete event;
    return true;
  });
  if (listening) fake().listener = nullptr;
  fake().died("id", id);
  delete id;
  return result;
}
int bind_addr(rdma_cm_id* id, sockaddr* address) {
  if (answered("bind_addr") != 0) return -1;
  std::memcpy(&id->route.addr.src_storage, address, sizeof(sockaddr_in));
  if (fake().listener_has_device && fake().device_count == 0) return errno = ENODEV, -1;
  if (fake().listener_has_device) id->verbs = &fake().cm_context;
  return 0;
}
int listen(rdma_cm_id* id, int) {
  if (answered("listen") != 0) return -1;
  if (id->route.addr.src_sin.sin_port == 0) id->route.addr.src_sin.sin_port = htons(4242);
  fake().listener = id;
  return 0;
}
/// Whether there is no answer this time: the kernel's time-out comes as an event.
bool times_out(int& time_outs, rdma_cm_id* id, rdma_cm_event_type type, int timeout_ms) {
  fake().resolve_longest_ms = std::max(fake().resolve_longest_ms, timeout_ms);
  if (time_outs == 0) return false;
  --time_outs;
  fake().push_held(id, type, -ETIMEDOUT);
  return true;
}
int resolve_addr(rdma_cm_id* id, sockaddr*, sockaddr* destination, int timeout_ms) {
  if (answered("resolve_addr") != 0) return -1;
  if (!fake().profile().has_connection_manager) return errno = ENODEV, -1;
  if (times_out(fake().address_time_outs, id, RDMA_CM_EVENT_ADDR_ERROR, timeout_ms)) return 0;
  std::memcpy(&id->route.addr.dst_storage, destination, sizeof(sockaddr_in));
  id->verbs = fake().route != nullptr ? fake().route : &fake().cm_context;
  id->port_num = 1;
  if (fake().resolve) fake().push_held(id, RDMA_CM_EVENT_ADDR_RESOLVED);
  return 0;
}
int resolve_route(rdma_cm_id* id, int timeout_ms) {
  if (answered("resolve_route") != 0) return -1;
  if (times_out(fake().route_time_outs, id, RDMA_CM_EVENT_ROUTE_ERROR, timeout_ms)) return 0;
  fake().push_held(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
  return 0;
}
int init_qp_attr(rdma_cm_id*, ibv_qp_attr* attributes, int* mask) {
  if (answered("init_qp_attr") != 0) return -1;
  attributes->max_dest_rd_atomic = 8;
  attributes->max_rd_atomic = 8;
  attributes->timeout = fake().route_timeout;
  attributes->path_mtu = IBV_MTU_2048;
  attributes->pkey_index = 3;
  attributes->ah_attr.sl = 1;
  attributes->ah_attr.is_global = 1;
  attributes->ah_attr.grh.traffic_class = 8;
  attributes->ah_attr.grh.hop_limit = 9;
  attributes->ah_attr.grh.flow_label = 10;
  attributes->ah_attr.grh.sgid_index = 11;
  *mask = IBV_QP_STATE;
  return 0;
}
int connect(rdma_cm_id* id, rdma_conn_param* parameters) {
  if (answered("connect") != 0) return -1;
  fake().last_parameters = *parameters;
  const std::string& data = fake().answer_data;
  switch (fake().answer) {
    case FakeVerbs::Answer::kAccept:
      fake().push_held(id, RDMA_CM_EVENT_CONNECT_RESPONSE, 0, data);
      break;
    case FakeVerbs::Answer::kReject:
      fake().push_held(id, RDMA_CM_EVENT_REJECTED, fake().reject_status, data);
      break;
    case FakeVerbs::Answer::kUnreachable:
      fake().push_held(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
      break;
    case FakeVerbs::Answer::kSilence: break;
  }
  return 0;
}
int establish(rdma_cm_id*) { return answered("establish"); }
int accept(rdma_cm_id* id, rdma_conn_param* parameters) {
  if (answered("accept") != 0) return -1;
  fake().last_parameters = *parameters;
  fake().push_held(id, RDMA_CM_EVENT_ESTABLISHED);
  return 0;
}
int reject(rdma_cm_id*, const void* data, std::uint8_t length) {
  ++fake().rejects;
  fake().last_rejected.assign(static_cast<const char*>(data), length);
  return answered("reject");
}
int disconnect(rdma_cm_id*) { return answered("disconnect"); }

int get_cm_event(rdma_event_channel* channel, rdma_cm_event** event) {
  if (answered("get_cm_event") != 0) return -1;
  auto& events = fake().cm_events[channel];
  if (events.empty()) return errno = EAGAIN, -1;
  std::uint64_t one = 0;
  if (::read(channel->fd, &one, sizeof(one)) < 0) fake().violation("event without wake-up");
  *event = events.front();
  events.pop_front();
  ++fake().unacknowledged_ids[(*event)->id];
  return 0;
}
int ack_cm_event(rdma_cm_event* event) {
  --fake().unacknowledged_ids[event->id];
  delete event;
  return answered("ack_cm_event");
}
int migrate_id(rdma_cm_id* id, rdma_event_channel* channel) {
  if (answered("migrate_id") != 0) return -1;
  if (fake().unacknowledged_ids[id] != 0) fake().violation("rdma_migrate_id would never return");
  fake().died("id", id);
  fake().born("id", id, {channel});
  id->channel = channel;
  return 0;
}
int set_option(rdma_cm_id*, int, int option, void* value, std::size_t length_bytes) {
  if (answered("set_option") != 0) return -1;
  if (length_bytes != 1) fake().violation("option of another size");
  fake().options[option] = *static_cast<const std::uint8_t*>(value);
  return 0;
}
ibv_context** get_cm_devices(int* count) {
  if (answered("get_cm_devices") != 0) return nullptr;
  if (!fake().profile().has_connection_manager) return errno = ENODEV, nullptr;
  *count = fake().device_count + static_cast<int>(fake().others.size());
  if (*count == 0) return errno = ENODEV, nullptr;
  auto** const list = new ibv_context* [fake().others.size() + 2] {};
  int found = 0;
  ibv_context* const first = fake().opened_again;
  if (fake().device_count > 0) list[found++] = first != nullptr ? first : &fake().cm_context;
  for (FakeVerbs::Other& other : fake().others) list[found++] = &other.cm_context;
  fake().born("list", list);
  return list;
}
void free_cm_devices(ibv_context** list) {
  fake().died("list", list);
  delete[] list;
}
void keep_cm_devices(ibv_context** list) {
  for (ibv_context** each = list; *each != nullptr; ++each) ++fake().cm_device_uses;
  free_cm_devices(list);
}
void release_cm_device(ibv_context*, bool none_left) {
  --fake().cm_device_uses;
  if (none_left) ++fake().cm_devices_closed;
}

}  // namespace

void FakeVerbs::push(rdma_cm_id* id, rdma_cm_event_type type, int status,
                     const std::string& private_data) {
  const std::lock_guard lock{g_mutex};
  push_held(id, type, status, private_data);
}

void FakeVerbs::push_held(rdma_cm_id* id, rdma_cm_event_type type, int status,
                          const std::string& private_data) {
  // Each event has data of its own: several may wait.
  static std::deque<std::string> all_kept;
  constexpr std::size_t kEventsMax = 256;
  if (all_kept.size() == kEventsMax) all_kept.pop_front();
  std::string& kept = all_kept.emplace_back(private_data);
  auto* const event = new rdma_cm_event{};
  event->id = id;
  event->event = type;
  event->status = status;
  if (!private_data.empty()) {
    event->param.conn.private_data = kept.data();
    event->param.conn.private_data_len = static_cast<std::uint8_t>(kept.size());
  }
  cm_events[id->channel].push_back(event);
  const std::uint64_t one = 1;
  if (::write(id->channel->fd, &one, sizeof(one)) < 0) violation("eventfd");
}

void FakeVerbs::knock(const std::string& private_data, std::uint8_t initiator,
                      std::uint8_t responder) {
  const std::lock_guard lock{g_mutex};
  rdma_cm_id* const id = make_id(listener->channel);
  id->verbs = route != nullptr ? route : &cm_context;
  id->port_num = 1;
  id->route.addr.dst_sin.sin_family = AF_INET;
  push_held(id, RDMA_CM_EVENT_CONNECT_REQUEST, 0, private_data);
  rdma_conn_param& parameters = cm_events[id->channel].back()->param.conn;
  parameters.responder_resources = initiator;
  parameters.initiator_depth = responder;
}

void install_connection_manager(verbs::Provider& table) {
  table.create_event_channel = &Guarded<&create_event_channel>::call;
  table.destroy_event_channel = &Guarded<&destroy_event_channel>::call;
  table.create_id = &Guarded<&create_id>::call;
  table.destroy_id = &Guarded<&destroy_id>::call;
  table.bind_addr = &Guarded<&bind_addr>::call;
  table.listen = &Guarded<&listen>::call;
  table.resolve_addr = &Guarded<&resolve_addr>::call;
  table.resolve_route = &Guarded<&resolve_route>::call;
  table.init_qp_attr = &Guarded<&init_qp_attr>::call;
  table.connect = &Guarded<&connect>::call;
  table.establish = &Guarded<&establish>::call;
  table.accept = &Guarded<&accept>::call;
  table.reject = &Guarded<&reject>::call;
  table.disconnect = &Guarded<&disconnect>::call;
  table.get_cm_event = &Guarded<&get_cm_event>::call;
  table.ack_cm_event = &Guarded<&ack_cm_event>::call;
  table.migrate_id = &Guarded<&migrate_id>::call;
  table.set_option = &Guarded<&set_option>::call;
  table.get_cm_devices = &Guarded<&get_cm_devices>::call;
  table.free_cm_devices = &Guarded<&free_cm_devices>::call;
  table.keep_cm_devices = &Guarded<&keep_cm_devices>::call;
  table.release_cm_device = &Guarded<&release_cm_device>::call;
}

}  // namespace remora::test
