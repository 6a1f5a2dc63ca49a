#pragma once

#include <spdlog/common.h>

#include <remora/config/server_config.h>

namespace remora::apps {

[[nodiscard]] constexpr spdlog::level::level_enum level_of(config::LogLevel level) noexcept {
  switch (level) {
    case config::LogLevel::kTrace: return spdlog::level::trace;
    case config::LogLevel::kDebug: return spdlog::level::debug;
    case config::LogLevel::kInfo: return spdlog::level::info;
    case config::LogLevel::kWarn: return spdlog::level::warn;
    case config::LogLevel::kError: return spdlog::level::err;
    case config::LogLevel::kOff: return spdlog::level::off;
  }
  return spdlog::level::info;
}

}  // namespace remora::apps
