#pragma once

/// The RDMA devices of the host that a server serves, and why it leaves the others out.

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

/// Why the connection manager cannot make reliable connections (RC) over the device; nothing where
/// it can.
[[nodiscard]] std::optional<std::string> why_unusable(const verbs::Device& device);
/// Whether the device carries out atomics.
[[nodiscard]] bool has_atomics(const verbs::Device& device) noexcept;

/// `bound`: the device that has the address of the listener, which is taken if `wanted` allows it.
/// Empty: the address is every device's, and all are taken that can serve. `wanted`: names; empty:
/// any. Errors: kNotFound: none is taken, and the subject says why.
[[nodiscard]] Result<DeviceChoice> choose_devices(
    const std::vector<std::string>& wanted, const verbs::Device& bound,
    const verbs::Provider& provider = verbs::Provider::system());

}  // namespace remora::transport::rdma
