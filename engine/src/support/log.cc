#include "support/log.h"

#include <memory>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

namespace remora::log {
spdlog::logger& logger() {
  // Never destroyed: a control thread that ends with its engine may be at its last line while the
  // process's static objects go.
  static const auto& shared = *new std::shared_ptr<spdlog::logger>{[] {
    if (auto registered = spdlog::get("remora")) return registered;
    auto made = std::make_shared<spdlog::logger>("remora",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::warn);
    return made;
  }()};
  return *shared;
}

namespace {

spdlog::level::level_enum level_of(Level level) noexcept {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
  }
  return spdlog::level::warn;
}

}  // namespace

bool enabled(Level level) noexcept { return logger().should_log(level_of(level)); }

void write(Level level, fmt::string_view format, fmt::format_args arguments) {
  if (!enabled(level)) return;
  fmt::memory_buffer text;
  fmt::vformat_to(fmt::appender(text), format, arguments);
  logger().log(level_of(level), spdlog::string_view_t{text.data(), text.size()});
}

}  // namespace remora::log
