#pragma once

/// The library's logger: "remora" of spdlog's registry. An application that registers a logger of
/// that name before it uses the library receives its lines; otherwise they go to stderr from level
/// warn on.

#include <spdlog/spdlog.h>

namespace remora::log {

[[nodiscard]] spdlog::logger& logger();

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  logger().debug(format, std::forward<Args>(args)...);
}
template <typename... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  logger().info(format, std::forward<Args>(args)...);
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  logger().warn(format, std::forward<Args>(args)...);
}

}  // namespace remora::log
