#pragma once

/// What a client's connection has beside its lanes where these may go over several devices.

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/rails.h"

namespace remora::transport {

/// The rails of one connection of a session: see ClientEndpoint::rails(). The connections of a
/// session share what is known of each rail, so that the next connection uses what this one learns.
///
/// Thread safety: as ClientEndpoint::open_lane(), where a function names no other thread.
class ConnectionRails {
 public:
  virtual ~ConnectionRails() = default;
  /// What the server has told: its device on this connection, and the addresses of the devices that
  /// serve, or none. Before find_rails().
  virtual void learn_rails(const std::string& device, const std::vector<RailAddress>& told) = 0;
  /// Looks for the rails that the next lanes go over, in turn; where a rail fails, a lane goes over
  /// another one. Blocks, at most until `deadline`. Returns how many there may be, also of those
  /// that do not answer now: at least 1. Before the first lane.
  virtual std::size_t find_rails(Deadline deadline) = 0;
  /// A grant of the session has no key for that lane, by its number: its device of the server has
  /// no room. The lanes of the next connection go over other rails. False: there is no such lane.
  virtual bool leave_rail_of(std::size_t lane) = 0;
  /// The server refuses the session for good. True: it may be another server, at an address that
  /// the URI does not name; the address is left from now on.
  virtual bool leave_other_server() = 0;
  /// The path of that lane does not carry data any more, whatever the connection manager says:
  /// other rails go before it, until it is asked again. Any thread, once the lanes are open.
  virtual void rail_failed(std::size_t lane) = 0;
  /// A rail that no lane is on can be reached again: the lanes of a new connection would use it.
  /// Any thread.
  [[nodiscard]] virtual bool rail_returned() const noexcept = 0;
};

}  // namespace remora::transport
