#pragma once

#include <string_view>

namespace remora::apps {

/// How a program that was built without remora::volume refuses clusters and volumes.
inline constexpr std::string_view kWithoutVolumes =
    "this program was built without volumes (REMORA_BUILD_VOLUMES)";

}  // namespace remora::apps
