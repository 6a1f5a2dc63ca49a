#pragma once

/// The daemon's log: lines with their time on standard error, written by a thread of their own
/// (LogWriter), so that no thread that serves ever waits for the reader of the log.

#include <initializer_list>
#include <string_view>

#include <remora/config/server_config.h>
#include <remora/engine/log.h>

namespace remora::apps {

/// Makes spdlog's default logger, which is the library's too.
void log_to_stderr(const config::Log& log);

/// A line of the program itself. `event` is one of engine/docs/log-events.md, and so are the names
/// of the fields. The text stands alone: the fields are for JSON lines.
using LogFields = std::initializer_list<LogField>;
void log_info(std::string_view event, std::string_view text, LogFields fields = {}) noexcept;
void log_warn(std::string_view event, std::string_view text, LogFields fields = {}) noexcept;
void log_error(std::string_view event, std::string_view text, LogFields fields = {}) noexcept;

/// Waits for half a second at most until what was logged is written: before the process ends on the
/// spot.
void flush_log() noexcept;

/// Why the program ends, on standard error, behind the lines that were logged: a line of the
/// program itself, or with JSON lines the event server.not_started. Waits for half a second at
/// most.
void complain(std::string_view text);

}  // namespace remora::apps
