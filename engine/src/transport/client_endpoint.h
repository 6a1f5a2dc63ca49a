#pragma once

/// The client's side of one session's transport: a control channel (bounded messages, both ways)
/// and lanes (data), or memory that is mapped instead of lanes.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "transport/control_message.h"
#include "transport/lane.h"
#include "transport/lane_ticket.h"
#include "transport/wire_extent.h"

namespace remora::transport {

class ConnectionRails;
class MemoryDomain;
class RkeyTable;

/// Remote memory that is mapped into this process: the client's engine copies the bytes itself,
/// without a lane.
struct DirectPath {
  /// Holds `serving_value` while the server serves, any other value when it has stopped. Null: the
  /// server always serves.
  const std::uint32_t* state = nullptr;
  std::uint32_t serving_value = 0;
  std::shared_ptr<void> hold;  ///< keeps `state` mapped

  [[nodiscard]] bool serving() const noexcept {
    // The page may be mapped read-only; reading it atomically needs no write.
    return state == nullptr || __atomic_load_n(state, __ATOMIC_RELAXED) == serving_value;
  }
};

/// A grant as the client uses it: with remote addresses for WorkRequest, valid while `hold` lives.
struct AttachedGrant {
  std::vector<WireExtent> extents;
  std::shared_ptr<void> hold;
};

/// Thread safety: send(), flush(), open_lane(), use_lane_keys() and attach() by any thread, one
/// call at a time; receive() by one other thread, which also waits for event_fd(); shutdown() by
/// any thread at any time.
class ClientEndpoint {
 public:
  virtual ~ClientEndpoint() = default;
  [[nodiscard]] virtual TransportKind kind() const noexcept = 0;
  /// Name of the local device, or empty.
  [[nodiscard]] virtual const std::string& device() const noexcept = 0;

  /// Waits for room until `deadline`. Errors: kTimedOut, kConnectionLost, kLimitExceeded (longer
  /// than kMaxControlMessageBytes), kProvider, kSystem.
  virtual Status send(ControlMessage message, Deadline deadline) noexcept = 0;
  /// Readable when receive() has a message or an error to return. The endpoint owns it.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
  /// The next message; empty: none has arrived; or the error that ended the channel. Never blocks.
  virtual Result<std::optional<ControlMessage>> receive() noexcept = 0;

  /// Waits until all messages passed to send() have left, at most until `deadline`. Call it before
  /// shutdown(), which discards messages that have not left.
  virtual void flush(Deadline deadline) noexcept { (void)deadline; }
  /// Set when grants are mapped memory: the engine then never calls open_lane().
  [[nodiscard]] virtual std::optional<DirectPath> direct_path() const noexcept {
    return std::nullopt;
  }
  /// Opens a lane for the session of `ticket`, with room for at most `depth` requests. Blocks, at
  /// most until `deadline`. Errors: those of connect_rdma() and connect_tcp(), kLimitExceeded (too
  /// many lanes), kUnreachable (the session's device no longer has a route to the server),
  /// kUnsupported (the transport maps memory instead of opening lanes).
  virtual Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                                  Deadline deadline) noexcept = 0;
  /// Switches to one key for each lane. From here on each lane that is opened tells the server its
  /// number, in the order of opening, and WorkRequest::remote_key is a token of `keys`. Call it
  /// before the first lane. Errors: kUnsupported: this transport has one key for all lanes.
  virtual Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept {
    (void)keys;
    return Error{Code::kUnsupported, "keys of lanes"};
  }
  /// Null when all lanes go over one device; otherwise the client tells the server in its hello
  /// that it uses rails. The value does not change. Any thread. The endpoint owns it.
  [[nodiscard]] virtual ConnectionRails* rails() noexcept { return nullptr; }
  /// Null when local memory needs no registration.
  [[nodiscard]] virtual std::shared_ptr<MemoryDomain> memory_domain() const noexcept = 0;
  /// Makes a grant usable: maps the memory whose descriptors the server has sent. Errors: kProtocol
  /// (the descriptors do not match the extents), kOutOfMemory, kSystem.
  virtual Result<AttachedGrant> attach(std::vector<WireExtent> extents,
                                       std::vector<UniqueFd> descriptors,
                                       Rights rights) noexcept = 0;
  /// Releases everything on a device that has gone; receive() then returns an error. The thread
  /// that receives calls it periodically.
  virtual void look() noexcept {}
  /// Ends the control channel and the lanes, and wakes the reader of event_fd(). Never blocks.
  /// Idempotent.
  virtual void shutdown() noexcept = 0;
};

}  // namespace remora::transport
