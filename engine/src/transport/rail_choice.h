#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <remora/result.h>

namespace remora::transport {

/// The rails that EngineOptions::rails or `rails=` of a URI asks for.
struct RailChoice {
  static constexpr std::uint32_t kMaxRails = 8;
  std::uint32_t max = 1;               ///< rails of one session; 1: the session stays on one device
  std::vector<std::string> devices{};  ///< names of the client's devices; empty: any

  /// "auto" (kMaxRails), a number from 1 to kMaxRails, or names of devices with commas between
  /// them. Errors: kInvalidArgument, with the text as subject.
  [[nodiscard]] static Result<RailChoice> parse(std::string_view text);
  [[nodiscard]] bool several() const noexcept { return max > 1; }
  [[nodiscard]] bool allows(std::string_view device) const noexcept;
};

}  // namespace remora::transport
