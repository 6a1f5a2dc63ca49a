#pragma once

/// The library's log. Its lines go to the sink of set_log_sink() while there is one; else to the
/// logger "remora" of spdlog's registry. An application that registers a logger of that name before
/// it uses the library receives them; otherwise they go to stderr from level warn on, through
/// LogWriter::of_stderr(): no thread of the library waits for them. spdlog stays in log.cc.
///
/// Each line of level info and above names its event, which engine/docs/log-events.md lists.

#include <cstdint>
#include <fmt/format.h>
#include <type_traits>

#include <remora/result.h>

#include "base/log_event.h"

namespace spdlog {
class logger;
}  // namespace spdlog

namespace remora::metrics {
class Registry;
}  // namespace remora::metrics

namespace remora::log {

/// For code that sets the logger's level or sinks, and includes <spdlog/spdlog.h>.
[[nodiscard]] spdlog::logger& logger();

/// Registers `remora_log_lines_lost_total` once for each registry. Errors: as
/// Registry::counter_callback().
Status count_lost_lines(metrics::Registry& registry);

enum class Level : std::uint8_t { kDebug, kInfo, kWarn };

/// Whether lines of that level are written or handed to a sink. Ask before computing arguments that
/// cost time.
[[nodiscard]] bool enabled(Level level) noexcept;

/// Writes a line; formats it only if the level is enabled. Thread-safe.
void write(Level level, Event event, fmt::string_view format, fmt::format_args arguments);

/// The event of a line, with the names of its first arguments: {"session.silent", "session:x"}.
template <typename... Args>
using EventFor = LogEvent<std::type_identity_t<Args>...>;

template <typename... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kDebug, kDetail, format, fmt::make_format_args(args...));
}
template <typename... Args>
void info(EventFor<Args...> event, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kInfo, event.get(), format, fmt::make_format_args(args...));
}
template <typename... Args>
void warn(EventFor<Args...> event, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::kWarn, event.get(), format, fmt::make_format_args(args...));
}

}  // namespace remora::log
