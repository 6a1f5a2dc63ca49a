#pragma once

/// AsyncEvents: the asynchronous events of a device, as a typed stream.
///
/// Use one stream for each device: two would take events from each other. An event is acknowledged
/// as soon as it is taken, so destroying the object that it names never waits for it; `object` is
/// for comparing only, since another thread may have destroyed that object.
///
/// Thread safety: one thread at a time. Source: ibv_get_async_event(3).

#include <cstdint>
#include <optional>
#include <ostream>
#include <string_view>

#include <remora/result.h>
#include <remora/verbs/deadline.h>
#include <remora/verbs/device.h>
#include <remora/verbs/format.h>

namespace remora::verbs {

/// One asynchronous event of a device. Source: ibv_get_async_event(3).
struct AsyncEvent {
  /// Values equal ibv_event_type; an unlisted value is kept as it is.
  enum class Kind : std::uint8_t {
    kCompletionQueueError = IBV_EVENT_CQ_ERR,
    kQueuePairFatal = IBV_EVENT_QP_FATAL,
    kQueuePairRequestError = IBV_EVENT_QP_REQ_ERR,
    kQueuePairAccessError = IBV_EVENT_QP_ACCESS_ERR,
    kCommunicationEstablished = IBV_EVENT_COMM_EST,
    kSendQueueDrained = IBV_EVENT_SQ_DRAINED,
    kPathMigrated = IBV_EVENT_PATH_MIG,
    kPathMigrationError = IBV_EVENT_PATH_MIG_ERR,
    kDeviceFatal = IBV_EVENT_DEVICE_FATAL,
    kPortActive = IBV_EVENT_PORT_ACTIVE,
    kPortError = IBV_EVENT_PORT_ERR,
    kLidChange = IBV_EVENT_LID_CHANGE,
    kPkeyChange = IBV_EVENT_PKEY_CHANGE,
    kSubnetManagerChange = IBV_EVENT_SM_CHANGE,
    kSharedReceiveError = IBV_EVENT_SRQ_ERR,
    kSharedReceiveLimit = IBV_EVENT_SRQ_LIMIT_REACHED,
    kLastReceiveReached = IBV_EVENT_QP_LAST_WQE_REACHED,
    kClientReregister = IBV_EVENT_CLIENT_REREGISTER,
    kGidChange = IBV_EVENT_GID_CHANGE,
    kWorkQueueFatal = IBV_EVENT_WQ_FATAL,
  };
  Kind kind = Kind::kDeviceFatal;
  std::uint8_t port = 0;         ///< of port events, from 1
  std::uint32_t qp_number = 0;   ///< of queue pair events
  const void* object = nullptr;  ///< equal to raw() of its queue pair or queue
  void* context = nullptr;       ///< of a queue pair or shared receive queue
};
/// The name of the kind in words, for messages.
[[nodiscard]] std::string_view to_string(AsyncEvent::Kind kind) noexcept;
/// "port active port 1", "queue pair fatal qp 17".
std::ostream& operator<<(std::ostream& out, const AsyncEvent& event);

/// Keeps its device open. Movable.
class AsyncEvents {
 public:
  /// Makes the device's descriptor non-blocking. Errors: kInvalidArgument; kSystem (errno kept).
  [[nodiscard]] static Result<AsyncEvents> open(const Device& device);

  /// Readable when an event waits. Borrowed: for poll and epoll only.
  [[nodiscard]] int event_fd() const noexcept { return device_.raw()->async_fd; }
  /// Takes one event; empty: none waits. kDeviceFatal marks the device: Device::gone(). Errors:
  /// kProvider (errno kept).
  [[nodiscard]] Result<std::optional<AsyncEvent>> next_event();
  /// next_event(), waiting for one. **Blocks.** Errors: kTimedOut; kProvider, kSystem (errno kept).
  [[nodiscard]] Result<AsyncEvent> wait_event(Deadline deadline);

 private:
  explicit AsyncEvents(Device device) noexcept : device_{std::move(device)} {}
  Device device_;
};

}  // namespace remora::verbs
