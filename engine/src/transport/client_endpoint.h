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

/// Remote memory that is mapped into this process: the engine copies by itself, without a lane.
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
  /// A message, nothing yet, or the error that ended the channel. Never blocks.
  virtual Result<std::optional<ControlMessage>> receive() noexcept = 0;

  /// Waits until what was sent has left, at most until `deadline`: before a shutdown that would
  /// take it back.
  virtual void flush(Deadline deadline) noexcept { (void)deadline; }
  /// Set where grants are mapped: open_lane() is then never called.
  [[nodiscard]] virtual std::optional<DirectPath> direct_path() const noexcept {
    return std::nullopt;
  }
  /// Opens a lane for the session of `ticket`, with room for at most `depth` requests. Blocks, at
  /// most until `deadline`. Errors: those of connect_rdma() and connect_tcp(), kLimitExceeded (too
  /// many lanes), kUnreachable (the session's device has no route to the server any more),
  /// kUnsupported (the transport maps instead).
  virtual Result<std::unique_ptr<Lane>> open_lane(const LaneTicket& ticket, std::uint32_t depth,
                                                  Deadline deadline) noexcept = 0;
  /// The server has a key for each lane: those opened from here on tell it which they are, in the
  /// order in which they are opened, and WorkRequest::remote_key is a token of `keys`. Before the
  /// first lane. Errors: kUnsupported: there is one key for all lanes here.
  virtual Status use_lane_keys(std::shared_ptr<RkeyTable> keys) noexcept {
    (void)keys;
    return Error{Code::kUnsupported, "keys of lanes"};
  }
  /// Null where all lanes go over one device; else the client tells the server of it in its hello.
  /// Does not change. Any thread. The endpoint owns it.
  [[nodiscard]] virtual ConnectionRails* rails() noexcept { return nullptr; }
  /// Null where local memory needs no registration.
  [[nodiscard]] virtual std::shared_ptr<MemoryDomain> memory_domain() const noexcept = 0;
  /// Makes a grant usable: maps the memory whose descriptors the server has sent. Errors: kProtocol
  /// (extents and descriptors that do not fit together), kOutOfMemory, kSystem.
  virtual Result<AttachedGrant> attach(std::vector<WireExtent> extents,
                                       std::vector<UniqueFd> descriptors,
                                       Rights rights) noexcept = 0;
  /// Gives back all that is on a device which has gone: receive() ends with an error then. By the
  /// thread that receives, every so often.
  virtual void look() noexcept {}
  /// Ends control channel and lanes, and wakes the reader of event_fd(). Never blocks. Idempotent.
  virtual void shutdown() noexcept = 0;
};

}  // namespace remora::transport
