#include "transport/rdma/device_choice.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace remora::transport::rdma {

namespace {

constexpr std::string_view kKey = "transports.rdma_device";

bool is_one_of(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_active_port(const verbs::Device& device) {
  for (std::uint8_t port = 1; port <= device.attributes().port_count; ++port) {
    const auto attributes = device.query_port(port);
    if (attributes && attributes->active()) return true;
  }
  return false;
}

std::string one_after_another(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

/// The reason why the device is left out; empty: it is taken. `open`: null if the connection
/// manager does not know the device.
std::optional<std::string> why_left_out(std::string_view name, const verbs::Device* open,
                                        const std::vector<std::string>& wanted,
                                        const verbs::Device& bound) {
  if (!wanted.empty() && !is_one_of(wanted, name)) return std::string{kKey} + " names others";
  if (!bound.empty()) {
    if (name == bound.name()) return why_unusable(bound);
    return "listen.address is an address of " + std::string{bound.name()};
  }
  if (open == nullptr) return "the connection manager does not know it";
  return why_unusable(*open);
}

}  // namespace

std::optional<std::string> why_unusable(const verbs::Device& device) {
  using verbs::TransportType;
  const TransportType transport = device.transport();
  if (transport != TransportType::kInfiniBand && transport != TransportType::kIwarp)
    return "it has no reliable connections (RC)";
  if (!has_active_port(device)) return "it has no active port";
  return std::nullopt;
}

bool has_atomics(const verbs::Device& device) noexcept {
  return device.attributes().atomics != verbs::AtomicSupport::kNone;
}

Result<DeviceChoice> choose_devices(const std::vector<std::string>& wanted,
                                    const verbs::Device& bound, const verbs::Provider& provider) {
  const auto listed = verbs::devices(provider);
  if (!listed)
    return wanted.empty() ? listed.error() : listed.error().with_subject(one_after_another(wanted));
  // A listener on one address needs to open no other device.
  std::vector<verbs::Device> open{bound};
  if (bound.empty()) {
    auto known = verbs::connection_manager_devices(provider);
    if (!known) return known.error();
    open = std::move(*known);
  }
  DeviceChoice choice;
  for (const verbs::DeviceEntry& entry : *listed) {
    const auto found = std::find_if(open.begin(), open.end(), [&](const verbs::Device& each) {
      return each.name() == entry.name();
    });
    const verbs::Device* const device = found == open.end() ? nullptr : &*found;
    if (auto why = why_left_out(entry.name(), device, wanted, bound))
      choice.left_out.push_back({std::string{entry.name()}, std::move(*why)});
    else
      choice.devices.push_back(*device);
  }
  for (const std::string& name : wanted)
    if (!listed->find(name)) choice.left_out.push_back({name, "there is no such device"});
  if (!choice.devices.empty()) return choice;
  std::string why;
  for (const LeftOutDevice& each : choice.left_out)
    why.append(why.empty() ? "" : "; ").append(each.device).append(": ").append(each.reason);
  if (wanted.empty()) return Error{Code::kNotFound, "RDMA device that can serve"}.with_subject(why);
  return Error{Code::kNotFound, "transports.rdma_device"}.with_subject(why);
}

}  // namespace remora::transport::rdma
