#pragma once

/// The daemon's log: lines with their time on standard error, written by their own thread
/// (LogWriter), so that no serving thread ever waits for the reader of the log.

#include <initializer_list>
#include <string_view>

#include <remora/config/server_config.h>
#include <remora/engine/log.h>

namespace remora::apps {

/// Makes spdlog's default logger, which the library uses, too.
void log_to_stderr(const config::Log& log);

/// A line of the program itself. `event` and the names of the fields are in
/// engine/docs/log-events.md. The text is complete by itself: the fields are for JSON lines.
using LogFields = std::initializer_list<LogField>;
void log_info(std::string_view event, std::string_view text, LogFields fields = {}) noexcept;
void log_warn(std::string_view event, std::string_view text, LogFields fields = {}) noexcept;
void log_error(std::string_view event, std::string_view text, LogFields fields = {}) noexcept;

/// Waits, for half a second at most, until all logged lines are written: called before the process
/// ends at once.
void flush_log() noexcept;

/// Prints why the program ends on standard error, after the logged lines: a line of the program
/// itself, or with JSON lines the event server.not_started. Waits for half a second at most.
void complain(std::string_view text);

}  // namespace remora::apps
