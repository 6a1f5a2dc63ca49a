#pragma once

/// The RDMA devices of the host that a server uses, and why it leaves the others out.

#include <optional>
#include <string>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/device.h>
#include <remora/verbs/provider.h>

namespace remora::transport::rdma {

struct LeftOutDevice {
  std::string device;
  std::string reason;
};

struct DeviceChoice {
  std::vector<verbs::Device> devices;  ///< at least one
  std::vector<LeftOutDevice> left_out;
};

/// The reason why the connection manager cannot make reliable connections (RC) over the device;
/// empty: it can.
[[nodiscard]] std::optional<std::string> why_unusable(const verbs::Device& device);
/// Whether the device carries out atomics.
[[nodiscard]] bool has_atomics(const verbs::Device& device) noexcept;

/// `bound`: the device that has the address of the listener, which is taken if `wanted` allows it.
/// Empty: the listener is bound to all devices, and all that can serve are taken. `wanted`: names;
/// empty: any device. Errors: kNotFound: no device is taken, and the subject says why.
[[nodiscard]] Result<DeviceChoice> choose_devices(
    const std::vector<std::string>& wanted, const verbs::Device& bound,
    const verbs::Provider& provider = verbs::Provider::system());

}  // namespace remora::transport::rdma
