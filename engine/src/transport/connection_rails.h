#pragma once

/// The part of a client's connection that exists when its lanes may go over several devices.

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/rails.h"

namespace remora::transport {

/// The rails of one connection of a session: see ClientEndpoint::rails(). The connections of a
/// session share their knowledge of each rail, so that the next connection uses what this
/// connection learns.
///
/// Thread safety: as ClientEndpoint::open_lane(), unless a function names another thread.
class ConnectionRails {
 public:
  virtual ~ConnectionRails() = default;
  /// Stores the server's answer to the hello: the name of its device on this connection, and the
  /// addresses of the devices that serve, or none. Called before find_rails().
  virtual void learn_rails(const std::string& device, const std::vector<RailAddress>& told) = 0;
  /// Looks for the rails that the next lanes use in turn; when a rail fails, a lane uses another
  /// one. Blocks, at most until `deadline`. Returns the number of rails, counting those that do not
  /// answer now: at least 1. Called before the first lane.
  virtual std::size_t find_rails(Deadline deadline) = 0;
  /// A grant of the session has no key for the lane of that number, because the server's device of
  /// that lane has no room. The lanes of the next connection use other rails. False: there is no
  /// such lane.
  virtual bool leave_rail_of(std::size_t lane) = 0;
  /// The server refuses the session for good. True: the connection may have reached another server,
  /// at an address that the URI does not name; that address is not used any more.
  virtual bool leave_other_server() = 0;
  /// The path of that lane no longer carries data, even if the connection manager reports no error:
  /// other rails are preferred until this one has answered again. Any thread, once the lanes are
  /// open.
  virtual void rail_failed(std::size_t lane) = 0;
  /// A rail without a lane can be reached again: the lanes of a new connection would use it. Any
  /// thread.
  [[nodiscard]] virtual bool rail_returned() const noexcept = 0;
};

}  // namespace remora::transport
