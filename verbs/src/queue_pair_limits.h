#pragma once

/// Defaults that depend on the device, shared by both ways of connecting. Internal.

#include <cstdint>

#include <remora/verbs/access.h>
#include <remora/verbs/device.h>
#include <remora/verbs/queue_pair.h>

namespace remora::verbs::detail {

/// 0.64 ms. The connection manager sets none and would leave it at 0, which means 655 ms.
inline constexpr std::uint8_t kDefaultMinRnrTimer = 12;
/// For connections without the connection manager, whose routes have their own limit.
inline constexpr std::uint8_t kDefaultHopLimit = 64;

[[nodiscard]] Access default_access(const Device& device) noexcept;
[[nodiscard]] std::uint8_t responder_depth(const Device& device,
                                           const QueuePairOptions& options) noexcept;
[[nodiscard]] std::uint8_t initiator_depth(const Device& device,
                                           const QueuePairOptions& options) noexcept;
/// This end of every path; the destination is empty.
[[nodiscard]] AddressVector source_of(const QueuePairOptions& options, bool global) noexcept;

}  // namespace remora::verbs::detail
