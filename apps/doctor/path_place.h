#pragma once

/// The step of the path to a server, and the side, at which an error arose.

#include <cstdint>
#include <string>
#include <string_view>

#include <remora/engine/types.h>
#include <remora/result.h>

#include "doctor/finding.h"

namespace remora::apps::doctor {

/// The steps, in their order.
enum class Step : std::uint8_t {
  kName,
  kRoute,
  kOffer,  ///< whether both hosts have the transport
  kConnect,
  kHandshake,
  kKey,
  kRights,
  kMemory,  ///< registering and mapping memory
  kOperation,
};
[[nodiscard]] std::string_view to_string(Step step) noexcept;

enum class Side : std::uint8_t { kClient, kNetwork, kServer };
/// "this host", "the network between", "the server".
[[nodiscard]] std::string_view to_string(Side side) noexcept;

struct Place {
  Step step;
  Side side;
};

/// The place of an error of connecting, creating or opening. A pure function.
[[nodiscard]] Place place_of(const Error& error) noexcept;

/// Whether this pair of hosts does not have the transport, which is no fault if the user has named
/// none: shm to another host, rdma without a device on one of the two.
[[nodiscard]] bool is_absent(const Error& error) noexcept;

/// A finding for a path that breaks: the step, the side, the error with its remedy. `named`: the
/// URI names the transport. A pure function.
[[nodiscard]] Finding broken_path(TransportKind transport, const Error& error, bool named);

}  // namespace remora::apps::doctor
