#pragma once

/// Series of the counters of RDMA devices: on the server only the device sees one-sided operations,
/// and on both sides only the device sees retransmissions.

#include <cstddef>
#include <string>
#include <string_view>

#include <remora/verbs/port_counters.h>

namespace remora::metrics {
class Registry;
}

namespace remora::transport::rdma {

/// Exports the counters of all ports of `device` that are in the list of device_metrics.cc, for the
/// life of `registry`; a device that is already exported stays as it is. The counters are read at
/// each scrape; NaN once the device has gone. A counter that cannot be exported is missing, and the
/// log says why.
void show_device_counters(metrics::Registry& registry, const std::string& device,
                          std::string_view folder = verbs::kDevicesFolder) noexcept;

}  // namespace remora::transport::rdma
