#pragma once

/// The server's side of one session's transport: the control channel, the lanes and the grants.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "base/clock.h"
#include "transport/control_message.h"
#include "transport/grant.h"
#include "transport/lane_ticket.h"
#include "transport/notice.h"

namespace remora::transport {

class DelayedDestruction;
class DeviceSession;
class LaneKeyRenewal;
class MappingClient;

/// Thread safety: the control thread calls receive() and take_notices(); one thread at a time, the
/// worker where a function says so, calls send(), grant() and the other functions; any thread calls
/// shutdown() and the functions that say "any thread".
class ServerEndpoint {
 public:
  /// Operations and bytes that the server's own CPU has carried out for this client.
  struct ServedTotals {
    std::array<std::uint64_t, 4> operations{};  ///< by Opcode; writes of zeroes count as writes
    std::array<std::uint64_t, 2> bytes{};       ///< [0]: read, [1]: written
  };
  virtual ~ServerEndpoint() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  /// The client's address or process, for logs.
  [[nodiscard]] virtual const std::string& peer() const noexcept = 0;
  /// Name of the server's device, or empty.
  [[nodiscard]] virtual const std::string& device() const noexcept = 0;
  /// Readable when receive() or take_notices() has a message, a notice or an error to return. The
  /// endpoint owns it.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// The next message; empty: none has arrived; or the error that ended the channel or a lane.
  /// Never blocks.
  virtual Result<std::optional<ControlMessage>> receive() noexcept = 0;
  /// Never blocks. Errors: kTimedOut and kLimitExceeded (no room: the client does not take the
  /// messages that were sent), kConnectionLost, kProvider, kSystem.
  virtual Status send(ControlMessage message) noexcept = 0;
  /// Waits until send() has room, at most until `deadline`.
  virtual bool has_room(Deadline /*deadline*/) noexcept { return true; }
  /// Waits until all messages passed to send() have left, at most until `deadline`. Call it before
  /// shutdown(), which discards messages that have not left.
  virtual void flush(Deadline deadline) noexcept = 0;
  /// The client can use keys that differ from lane to lane, and asks for them after each resume. If
  /// keys end with a lane or a device, the grants of this session get such keys, and the result
  /// renews them; null: one key for all lanes, which does not change. Called before any grant and
  /// any lane. Worker. The endpoint owns the result.
  virtual LaneKeyRenewal* use_lane_keys() noexcept { return nullptr; }
  /// Null when no device carries the data of clients: shm and tcp. Any thread. The endpoint owns
  /// it.
  [[nodiscard]] virtual DeviceSession* device_session() noexcept { return nullptr; }
  /// From now on a lane that shows this ticket belongs to this session.
  virtual void expect_lanes(const LaneTicket& ticket) noexcept = 0;
  /// Whether grant() registers memory for the request, and so blocks until that memory is pinned.
  /// If true, any thread may call grant(), several at a time, also while the worker calls other
  /// functions. Worker.
  [[nodiscard]] virtual bool registers(const GrantRequest& /*request*/) noexcept { return false; }
  /// Makes a grant. Blocks while memory is registered. Worker, unless registers(). Errors:
  /// kOutOfMemory (see Reason::kMemlock), kLimitExceeded (limits.registrations_max,
  /// limits.registered_bytes_max, limits.windows_max, or the device's own), kUnsupported,
  /// kProvider; those of LaneKeyRenewal::renew().
  virtual Result<Grant> grant(const GrantRequest& request) noexcept = 0;
  /// Takes notices that have arrived over the lanes, at most notices.size(); returns how many. The
  /// client waits while its notices are not taken. Control thread; never blocks.
  virtual std::size_t take_notices(std::span<Notice> /*notices*/) noexcept { return 0; }
  /// Empty when the server's CPU takes no part in operations. Any thread.
  [[nodiscard]] virtual std::optional<ServedTotals> served() const noexcept { return std::nullopt; }
  /// Ends the lanes, then the channel. Idempotent: when any call has returned, no lane serves any
  /// more. Blocks for milliseconds at most.
  virtual void shutdown() noexcept = 0;
  /// Null when shutdown() leaves no lanes: shm and tcp. Any thread. The endpoint owns it.
  [[nodiscard]] virtual DelayedDestruction* delayed_destruction() noexcept { return nullptr; }
  /// Null when clients do not map the memory of their grants. Any thread. The endpoint owns it.
  [[nodiscard]] virtual const MappingClient* mapping_client() const noexcept { return nullptr; }
  /// The session of `before` continues on this endpoint: the grants of `before` hold for the lanes
  /// of this endpoint, which has none yet. `before` has been shut down, its lanes are destroyed,
  /// and it makes no more grants. Errors: kUnsupported: `before` uses another transport or device.
  virtual Status take_over(ServerEndpoint& before) noexcept = 0;
};

}  // namespace remora::transport
