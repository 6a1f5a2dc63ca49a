#pragma once

/// The series of what RDMA devices count by themselves: one-sided operations are seen by nobody
/// else on the server, and retransmissions by nobody else at all.

#include <cstddef>
#include <string>
#include <string_view>

#include <remora/verbs/port_counters.h>

namespace remora::metrics {
class Registry;
}

namespace remora::transport {

/// Shows the counters of all ports of `device` that are of the curated list, for the life of
/// `registry`; a device that is shown already stays as it is. Read at each scrape; NaN once the
/// device has gone. What cannot be shown is missing, and the log says why.
void show_nic(metrics::Registry& registry, const std::string& device,
              std::string_view folder = verbs::kDevicesFolder) noexcept;

}  // namespace remora::transport
