#include "support/log.h"

#include <memory>
#include <spdlog/sinks/stdout_sinks.h>

namespace remora::log {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> shared = [] {
    if (auto registered = spdlog::get("remora")) return registered;
    auto made = std::make_shared<spdlog::logger>("remora",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_level(spdlog::level::warn);
    return made;
  }();
  return *shared;
}

}  // namespace remora::log
