#include "transport/device_states.h"

#include <utility>

#include "base/log.h"

namespace remora::transport {

std::string_view to_string(DeviceUse use) noexcept {
  switch (use) {
    case DeviceUse::kServing: return "serving";
    case DeviceUse::kLeftOut: return "left out";
    case DeviceUse::kGone: return "gone";
  }
  return "unknown";
}

void DeviceStates::set(DeviceState state) {
  bool lost = false;
  {
    const remora::detail::MutexLock lock{mutex_};
    const auto before = states_.find(state.device);
    const bool known = before != states_.end();
    const bool same = known && before->second.use == state.use;
    lost = known && !same && state.use == DeviceUse::kGone;
    if (state.use == DeviceUse::kLeftOut && (!same || before->second.reason != state.reason))
      log::info({"device.left_out", "device reason"}, "rdma: {} is left out: {}", state.device,
                state.reason);
    if (lost)
      log::warn({"device.gone", "device reason"}, "rdma: {} has gone: {}; the server looks for it",
                state.device, state.reason);
    if (known && !same && state.use == DeviceUse::kServing)
      log::info({"device.serves_again", "device"}, "rdma: {} serves again", state.device);
    if (known && state.use == DeviceUse::kServing && state.addresses.empty())
      state.addresses = before->second.addresses;
    states_[state.device] = state;
  }
  show(state, lost);
}

void DeviceStates::set_addresses(std::string_view device, std::vector<std::string> addresses) {
  const remora::detail::MutexLock lock{mutex_};
  const auto found = states_.find(device);
  if (found == states_.end() || found->second.addresses == addresses) return;
  found->second.addresses = std::move(addresses);
}

std::vector<DeviceState> DeviceStates::list() const {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<DeviceState> all;
  all.reserve(states_.size());
  for (const auto& [name, state] : states_) all.push_back(state);
  return all;
}

void DeviceStates::show(const DeviceState& state, bool lost) noexcept {
  if (registry_ == nullptr) return;
  const auto serving = registry_->gauge("remora_server_rdma_device_serving", kServingHelp,
                                        {{"device", state.device}});
  if (serving) serving->set(state.use == DeviceUse::kServing ? 1 : 0);
  const auto losses = registry_->counter("remora_server_rdma_device_losses_total",
                                         "How often an RDMA device that served has gone.",
                                         {{"device", state.device}});
  if (losses && lost) registry_->recorder().add(*losses);
}

}  // namespace remora::transport
