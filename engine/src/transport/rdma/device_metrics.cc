#include "transport/rdma/device_metrics.h"

#include <algorithm>
#include <array>
#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include <remora/metrics/registry.h>

#include "base/log.h"

namespace remora::transport::rdma {

namespace {

/// Counters of trouble and of traffic, under the drivers' own names; each driver has some of them.
/// A fixed list, so that a driver with hundreds of counters adds no further series.
constexpr std::array<std::string_view, 37> kEvents{
    // traffic
    "rcvd_pkts", "rdma_recvs", "rdma_sends", "sent_pkts",
    // loss: packets sent again, received twice or out of order
    "duplicate_request", "implied_nak_seq_err", "local_ack_timeout_err", "out_of_seq_request",
    "out_of_sequence", "packet_seq_err", "rcvd_seq_err", "roce_adp_retrans", "roce_adp_retrans_to",
    "rx_icrc_encapsulated", "completer_retry_err", "retry_exceeded_err",
    // no receive posted
    "out_of_buffer", "rcvd_rnr_err", "retry_rnr_exceeded_err", "rnr_nak_retry_err", "send_rnr_err",
    // congestion
    "ack_deferred", "np_cnp_sent", "np_ecn_marked_roce_packets", "rp_cnp_handled", "rp_cnp_ignored",
    "port_xmit_wait",
    // refused and failed
    "req_cqe_error", "req_remote_access_errors", "resp_cqe_error", "resp_remote_access_errors",
    "send_err",
    // the link
    "link_downed", "port_rcv_errors", "port_xmit_discards", "symbol_error", "link_error_recovery"};

/// The counters of transferred data count units of 4 bytes. Source: the InfiniBand architecture,
/// PortCounters.
constexpr double kDataUnitBytes = 4;

double value_of(const verbs::PortCounter& counter, double unit) {
  const auto value = verbs::read_port_counter(counter);
  return value ? static_cast<double>(*value) * unit : std::numeric_limits<double>::quiet_NaN();
}

Result<metrics::CallbackHandle> show_counter(metrics::Registry& registry, const std::string& device,
                                             const verbs::PortCounter& counter) {
  metrics::Labels labels{{"device", device}, {"port", std::to_string(counter.port)}};
  if (counter.name == "port_xmit_data" || counter.name == "port_rcv_data") {
    labels.push_back({"direction", counter.name == "port_xmit_data" ? "sent" : "received"});
    return registry.counter_callback(
        "remora_nic_bytes_total", "Bytes that the port has sent and received, as the device counts",
        labels, [counter] { return value_of(counter, kDataUnitBytes); });
  }
  labels.push_back({"counter", counter.name});
  return registry.counter_callback("remora_nic_events_total",
                                   "What the device counts, under its driver's name", labels,
                                   [counter] { return value_of(counter, 1); });
}

bool is_shown(const verbs::PortCounter& counter) {
  return counter.name == "port_xmit_data" || counter.name == "port_rcv_data" ||
         std::find(kEvents.begin(), kEvents.end(), counter.name) != kEvents.end();
}

}  // namespace

void show_device_counters(metrics::Registry& registry, const std::string& device,
                          std::string_view folder) noexcept try {
  const auto counters = verbs::port_counters(device, folder);
  if (!counters)
    return log::info({"metrics.no_counters", "device reason"}, "{}: its own counters: {}", device,
                     counters.error().message());
  std::size_t left_out = 0;
  for (const verbs::PortCounter& counter : *counters) {
    if (!is_shown(counter)) continue;
    auto handle = show_counter(registry, device, counter);
    // Another session has exported the device: nothing is read again.
    if (!handle && handle.error().code() == Code::kAlreadyExists) return;
    // A counter that the driver lists but does not have would be a series without a value.
    if (handle && verbs::read_port_counter(counter))
      handle->release();  // the callback captures nothing that ends
    else if (handle)
      handle->reset();
    else if (handle.error().code() == Code::kLimitExceeded)
      ++left_out;
    else
      log::warn({"metrics.no_room", "device counter reason"}, "{}: {}: {}", device, counter.name,
                handle.error().message());
  }
  if (left_out != 0)
    log::warn({"metrics.no_room", "device series"},
              "{}: the registry has no room for {} of its counters: raise "
              "RegistryOptions::series_max",
              device, left_out);
} catch (const std::exception& failed) {  // out of memory
  log::warn({"metrics.no_counters", "device reason"}, "{}: its own counters are not shown: {}",
            device, failed.what());
}

}  // namespace remora::transport::rdma
