#include "transport/tcp/served_metrics.h"

#include <cstddef>
#include <string_view>
#include <utility>

namespace remora::transport::tcp {

namespace {

/// Declares a series that stays in the registry, and counts all servers of the process.
Status declare_cpu_time(metrics::Registry& registry) {
  auto made = registry.counter_callback("remora_server_tcp_cpu_seconds_total",
                                        "CPU time of the threads of this process that serve tcp.",
                                        {}, [] { return serving_clocks().seconds(); });
  if (made)
    made->release();
  else if (made.error().code() != Code::kAlreadyExists)
    return made.error();
  return {};
}

}  // namespace

remora::detail::ThreadClocks& serving_clocks() {
  static auto& clocks = *new remora::detail::ThreadClocks;
  return clocks;
}

Result<ServedMetrics> ServedMetrics::create(std::shared_ptr<metrics::Registry> registry) {
  ServedMetrics made;
  Status status;
  const auto keep = [&](metrics::Counter& counter, std::string_view name, std::string_view help,
                        const metrics::Labels& labels) {
    if (!status) return;
    auto registered = registry->counter(name, help, labels);
    if (registered)
      counter = *registered;
    else
      status = registered.error();
  };
  constexpr std::array<const char*, 4> kOps{"read", "write", "cas", "add"};
  for (std::size_t op = 0; op < kOps.size(); ++op)
    keep(made.operations[op], "remora_server_tcp_operations_total", "Operations served over tcp.",
         {{"op", kOps[op]}});
  for (std::size_t op = 0; op < made.bytes.size(); ++op)
    keep(made.bytes[op], "remora_server_tcp_bytes_total", "Bytes read and written over tcp.",
         {{"op", kOps[op]}});
  keep(made.refused, "remora_server_tcp_refused_total",
       "Operations over tcp that no grant allowed; each ended its session.", {});
  keep(made.corrupt, "remora_server_tcp_corrupt_total",
       "Writes over tcp whose bytes did not match their checksum; each ended its session.", {});
  keep(made.rejected_connections, "remora_server_tcp_rejected_connections_total",
       "Connections over tcp that were hung up on before they were a client's.", {});
  if (status) status = declare_cpu_time(*registry);
  if (!status) return status.error();
  made.registry = std::move(registry);
  return made;
}

}  // namespace remora::transport::tcp
