#pragma once

#include <string_view>

namespace remora::apps {

/// The version of CMake's project(): "0.1.0".
inline constexpr std::string_view kVersion = REMORA_VERSION;

}  // namespace remora::apps
