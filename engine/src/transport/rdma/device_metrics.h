#pragma once

/// Series of what RDMA devices count by themselves: on the server the device alone sees one-sided
/// operations, and on both sides the device alone sees retransmissions.

#include <cstddef>
#include <string>
#include <string_view>

#include <remora/verbs/port_counters.h>

namespace remora::metrics {
class Registry;
}

namespace remora::transport::rdma {

/// Exports the counters of all ports of `device` that the curated list names, for the life of
/// `registry`; a device that the registry shows already stays as it is. The counters are read at
/// each scrape; NaN once the device has gone. What cannot be shown is missing, and the log says
/// why.
void show_device_counters(metrics::Registry& registry, const std::string& device,
                          std::string_view folder = verbs::kDevicesFolder) noexcept;

}  // namespace remora::transport::rdma
