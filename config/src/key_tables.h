#pragma once

/// The parts of the table of all keys, by kind. keys() joins them in this order.

#include <span>

#include "keys.h"

namespace remora::config {

/// `listen`, `transports`, `rdma`.
[[nodiscard]] std::span<const Key> network_keys();
/// `pool`, `regions`.
[[nodiscard]] std::span<const Key> memory_keys();
/// `auth`, `clients`.
[[nodiscard]] std::span<const Key> client_keys();
/// `limits`.
[[nodiscard]] std::span<const Key> limit_keys();
/// `log`, `metrics`.
[[nodiscard]] std::span<const Key> report_keys();
/// `cluster`.
[[nodiscard]] std::span<const Key> cluster_keys();

}  // namespace remora::config
