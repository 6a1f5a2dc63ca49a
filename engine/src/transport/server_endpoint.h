#pragma once

/// The server's side of one session's transport: the control channel, the lanes and the grants.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <remora/config/secret_key.h>
#include <remora/engine/types.h>
#include <remora/result.h>

#include "base/clock.h"
#include "transport/control_message.h"
#include "transport/grant.h"
#include "transport/lane_ticket.h"
#include "transport/notice.h"

namespace remora::transport {

struct DeviceFailure;

/// Keys of grants that end with their lanes or their device.
class LaneKeyRenewal {
 public:
  virtual ~LaneKeyRenewal() = default;
  /// Whether renew() has memory of the grant registered, and so blocks for as long as that is
  /// pinned. Any thread may call it then, for several grants at a time, also while the worker calls
  /// other functions of the endpoint. Worker.
  [[nodiscard]] virtual bool registers_again(const Grant& /*grant*/) noexcept { return false; }
  /// Makes the missing keys of `grant`, one of this session's: those of lanes that were opened
  /// after it was made, or all where the grant has left its device. Other keys stay. Blocks as
  /// ServerEndpoint::grant() does, and for as long as the device takes, 2 s at most and a
  /// millisecond for each key. Worker, unless registers_again(). Errors: those of grant();
  /// kConnectionLost: a lane is about to end, which interrupts the session; kTimedOut.
  virtual Status renew(Grant& grant) noexcept = 0;
};

/// A client that maps the memory it is granted: only the end of its process ends its access.
class MappingClient {
 public:
  virtual ~MappingClient() = default;
  /// True: the process has ended. False: it lives, or the kernel does not tell. Any thread.
  [[nodiscard]] virtual bool has_exited() const noexcept = 0;
  /// As this process sees it; 0: it does not. Any thread.
  [[nodiscard]] virtual std::uint64_t process_id() const noexcept = 0;
};

/// Thread safety: the control thread calls receive() and take_notices(); one thread at a time, a
/// worker where a function says so, calls send(), grant() and the rest; shutdown() and the
/// functions marked so by any thread.
class ServerEndpoint {
 public:
  /// What the server's own processor has carried out for this client.
  struct ServedTotals {
    std::array<std::uint64_t, 4> operations{};  ///< by Opcode; zeroes are writes
    std::array<std::uint64_t, 2> bytes{};       ///< read, written
  };
  virtual ~ServerEndpoint() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  /// The client's address or process, for logs.
  [[nodiscard]] virtual const std::string& peer() const noexcept = 0;
  /// Name of the server's device, or empty.
  [[nodiscard]] virtual const std::string& device() const noexcept = 0;
  /// Readable when receive() or take_notices() has something to return. The endpoint owns it.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// A message, nothing yet, or the error that ended the channel or a lane. Never blocks.
  virtual Result<std::optional<ControlMessage>> receive() noexcept = 0;
  /// Never blocks. Errors: kTimedOut and kLimitExceeded (no room: the client does not take what was
  /// sent), kConnectionLost, kProvider, kSystem.
  virtual Status send(ControlMessage message) noexcept = 0;
  /// Waits until send() has room, at most until `deadline`.
  virtual bool has_room(Deadline /*deadline*/) noexcept { return true; }
  /// Waits until what was sent has left, at most until `deadline`: before a shutdown that would
  /// take it back.
  virtual void flush(Deadline deadline) noexcept = 0;
  /// The client can use keys that differ from lane to lane, and asks for them after each resume.
  /// Where keys end with a lane or a device, the grants of this session get such keys, and the
  /// result renews them; null: one key for all lanes, for good.
  /// Before any grant and before any lane. Worker. The endpoint owns the result.
  virtual LaneKeyRenewal* use_lane_keys() noexcept { return nullptr; }
  /// The client has proven `key` as `name`. Its sessions share registrations where the transport
  /// has any, but for those with rails. After use_rails(), before take_over(), any grant and any
  /// lane. Worker.
  virtual void join_client(std::string_view /*name*/, const config::SecretKey& /*key*/) noexcept {}
  /// Lanes of this session, and connections that resume it, may be of any device that serves: its
  /// grants are registered with each device that it has a lane on. After use_lane_keys(), before
  /// any grant, any lane and take_over(). Worker. False: not over this transport or this device.
  virtual bool use_rails() noexcept { return false; }
  /// From now on a lane that shows this ticket belongs to this session.
  virtual void expect_lanes(const LaneTicket& ticket) noexcept = 0;
  /// Whether grant() has memory registered for the request, and so blocks for as long as that is
  /// pinned. Any thread may call it then, several at a time, also while the worker calls other
  /// functions. Worker.
  [[nodiscard]] virtual bool registers(const GrantRequest& /*request*/) noexcept { return false; }
  /// Blocks while memory is registered. Worker, unless registers().
  /// Errors: kOutOfMemory (see Reason::kMemlock), kLimitExceeded (limits.registrations_max,
  /// limits.registered_bytes_max, limits.windows_max, or the device's own), kUnsupported,
  /// kProvider; those of LaneKeyRenewal::renew().
  virtual Result<Grant> grant(const GrantRequest& request) noexcept = 0;
  /// Takes notices that have come in over the lanes, at most notices.size(); returns how many.
  /// Untaken notices make the client wait. Control thread; never blocks.
  virtual std::size_t take_notices(std::span<Notice> /*notices*/) noexcept { return 0; }
  /// Nothing where the server takes no part in operations. Any thread.
  [[nodiscard]] virtual std::optional<ServedTotals> served() const noexcept { return std::nullopt; }
  /// Ends the lanes, then the channel. Idempotent: when any call has returned, no lane serves any
  /// more. Blocks for milliseconds at most.
  virtual void shutdown() noexcept = 0;
  /// Begins to destroy the lanes that shutdown() has ended, which may take a device seconds. Does
  /// not wait for that. Idempotent; worker. Nothing to do where shutdown() leaves none.
  virtual void destroy_lanes() noexcept {}
  /// Blocks until the lanes that destroy_lanes() was called for are destroyed. Worker.
  virtual void await_destroyed() noexcept {}
  /// shutdown() could not end a lane, which serves until it is destroyed. Any thread.
  [[nodiscard]] virtual bool lanes_may_serve() const noexcept { return false; }
  /// A grant could not be revoked. Ends the lanes of all sessions that can use what it has left,
  /// and blocks until they are destroyed. None of these sessions can be resumed. Worker.
  virtual void end_sharing_sessions() noexcept {}
  /// Whether the failure is of this client's lanes or channel, which are of no use then. Control
  /// thread.
  [[nodiscard]] virtual bool hit_by(const DeviceFailure& /*failure*/) noexcept { return false; }
  /// The device has gone. Any thread.
  [[nodiscard]] virtual bool device_gone() noexcept { return false; }
  /// Gives back all that is left on a device that has gone. The channel and the lanes have ended.
  /// Idempotent; worker.
  virtual void leave_device() noexcept {}
  /// Null where clients do not map the memory they are granted. Any thread. The endpoint owns it.
  [[nodiscard]] virtual const MappingClient* mapping_client() const noexcept { return nullptr; }
  /// The session of `before` goes on here: the grants of `before` hold for the lanes of this
  /// endpoint, which has none yet. `before` has been shut down, its lanes are destroyed, and it
  /// grants nothing more. Errors: kUnsupported: of another transport or device.
  virtual Status take_over(ServerEndpoint& before) noexcept = 0;
};

}  // namespace remora::transport
