#pragma once

#include <cstdint>

namespace remora::transport {

/// Memory registered with a device; deregistered on destruction. Owns the registration, not the
/// bytes.
class Registration {
 public:
  virtual ~Registration() = default;
  [[nodiscard]] virtual std::uint32_t local_key() const noexcept = 0;
  /// True: the device has gone and has not registered the memory again: there is no key.
  [[nodiscard]] virtual bool lost() const noexcept { return false; }
};

}  // namespace remora::transport
