#include "support/log.h"

#include <memory>
#include <spdlog/sinks/stdout_sinks.h>

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

}  // namespace remora::log
