#include "route.h"

#include <cerrno>
#include <string>

namespace remora::verbs {

Reason diagnose_route(const Gid& from, const Gid& to) noexcept {
  if (from.is_zero() || to.is_zero()) return Reason::kGidUnset;
  if (from.is_ipv4_mapped() != to.is_ipv4_mapped()) return Reason::kGidFamily;
  if (from.is_link_local() != to.is_link_local() || from.is_loopback() != to.is_loopback())
    return Reason::kGidScope;
  return Reason::kNone;
}

namespace detail {

Error route_error(const Device& device, const Error& error, Operation operation, std::uint8_t port,
                  std::uint32_t source_index, const Gid& destination) {
  const int number = error.system_errno();
  // Errors of the kernel when it looks for the peer's Ethernet address.
  const bool lookup = number == ETIMEDOUT || number == EHOSTUNREACH || number == ENETUNREACH ||
                      number == EADDRNOTAVAIL || number == ENODEV;
  if (!lookup && number != EINVAL) return error;
  const auto entry = device.query_gid(port, source_index);
  const Gid source = entry ? entry->gid : Gid{};
  const Reason reason = diagnose_route(source, destination);
  // EINVAL may have another cause.
  if (!lookup && reason == Reason::kNone) return error;
  return Error{Code::kUnreachable, operation}
      .with_errno(number)
      .with_subject(source.to_string() + " to " + destination.to_string())
      .with_reason(reason == Reason::kNone ? Reason::kNoNeighbour : reason);
}

}  // namespace detail
}  // namespace remora::verbs
