#pragma once

/// The words that keys accept.

#include <array>
#include <string_view>

namespace remora::config::key_builders {

using std::string_view_literals::operator""sv;

/// In the order of their enumerators.
inline constexpr std::array kAvailabilityWords{"off"sv, "auto"sv, "required"sv};
inline constexpr std::array kProtectionWords{"auto"sv, "registrations"sv, "windows"sv,
                                             "windows-unchecked"sv};
inline constexpr std::array kAnyDeviceWords{"auto"sv};
inline constexpr std::array kHugePagesWords{"never"sv, "try"sv, "require"sv, "1GiB"sv};
inline constexpr std::array kAuthWords{"none"sv, "keys"sv};
inline constexpr std::array kLogLevelWords{"trace"sv, "debug"sv, "info"sv,
                                           "warn"sv,  "error"sv, "off"sv};
inline constexpr std::array kMtuWords{"256"sv, "512"sv, "1024"sv, "2048"sv, "4096"sv};
inline constexpr std::array kRightWords{"read"sv, "write"sv, "atomic"sv};
inline constexpr std::array kAccessWords{"read"sv, "write"sv, "atomic"sv, "admin"sv};

}  // namespace remora::config::key_builders
