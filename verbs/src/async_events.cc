#include <cerrno>

#include <remora/verbs/async_events.h>

#include "errors.h"
#include "wait.h"

namespace remora::verbs {
namespace {

AsyncEvent convert(const ibv_async_event& raw) noexcept {
  AsyncEvent event;
  event.kind = static_cast<AsyncEvent::Kind>(raw.event_type);
  switch (raw.event_type) {
    case IBV_EVENT_CQ_ERR: event.object = raw.element.cq; break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      event.object = raw.element.srq;
      event.context = raw.element.srq->srq_context;
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      event.object = raw.element.qp;
      event.context = raw.element.qp->qp_context;
      event.qp_number = raw.element.qp->qp_num;
      break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE: event.port = static_cast<std::uint8_t>(raw.element.port_num); break;
    default: break;
  }
  return event;
}

}  // namespace

std::string_view to_string(AsyncEvent::Kind kind) noexcept {
  using Kind = AsyncEvent::Kind;
  switch (kind) {
    case Kind::kCompletionQueueError: return "completion queue error";
    case Kind::kQueuePairFatal: return "queue pair fatal";
    case Kind::kQueuePairRequestError: return "queue pair request error";
    case Kind::kQueuePairAccessError: return "queue pair access error";
    case Kind::kCommunicationEstablished: return "communication established";
    case Kind::kSendQueueDrained: return "send queue drained";
    case Kind::kPathMigrated: return "path migrated";
    case Kind::kPathMigrationError: return "path migration error";
    case Kind::kDeviceFatal: return "device fatal";
    case Kind::kPortActive: return "port active";
    case Kind::kPortError: return "port error";
    case Kind::kLidChange: return "LID change";
    case Kind::kPkeyChange: return "pkey change";
    case Kind::kSubnetManagerChange: return "subnet manager change";
    case Kind::kSharedReceiveError: return "shared receive queue error";
    case Kind::kSharedReceiveLimit: return "shared receive queue limit reached";
    case Kind::kLastReceiveReached: return "last receive reached";
    case Kind::kClientReregister: return "client reregister";
    case Kind::kGidChange: return "GID change";
    case Kind::kWorkQueueFatal: return "work queue fatal";
  }
  return "other event";
}

std::ostream& operator<<(std::ostream& out, const AsyncEvent& event) {
  out << to_string(event.kind);
  if (event.port != 0) out << " port " << +event.port;
  if (event.qp_number != 0) out << " qp " << event.qp_number;
  return out;
}

Result<AsyncEvents> AsyncEvents::open(const Device& device) {
  if (device.empty())
    return Error{Code::kInvalidArgument, "ibv_get_async_event"}.with_subject("no device");
  if (const Status set = detail::make_non_blocking(device.raw()->async_fd); !set)
    return set.error();
  return AsyncEvents{device};
}

Result<std::optional<AsyncEvent>> AsyncEvents::next_event() {
  ibv_async_event raw{};
  errno = 0;
  if (device_.provider().get_async_event(device_.raw(), &raw) != 0) {
    if (errno == EAGAIN || errno == EINTR) return std::optional<AsyncEvent>{};
    return detail::provider_error("ibv_get_async_event", detail::errno_of(-1))
        .with_subject(device_.name());
  }
  const AsyncEvent event = convert(raw);
  if (event.kind == AsyncEvent::Kind::kDeviceFatal) device_.mark_gone();
  device_.provider().ack_async_event(&raw);
  return std::optional{event};
}

Result<AsyncEvent> AsyncEvents::wait_event(Deadline deadline) {
  for (;;) {
    const auto event = next_event();
    if (!event) return event.error();
    if (event->has_value()) return **event;
    if (const Status ready = detail::wait_readable(event_fd(), deadline); !ready)
      return ready.error();
  }
}

}  // namespace remora::verbs
