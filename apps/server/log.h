#pragma once

/// The daemon's log: lines with their time on standard error, written by a thread of their own
/// (LogWriter), so that no thread that serves ever waits for the reader of the log.

#include <string_view>

#include <remora/config/server_config.h>

namespace remora::apps {

/// Makes spdlog's default logger, which is the library's too.
void log_to_stderr(config::LogLevel level);

/// Waits for half a second at most until what was logged is written: before the process ends on the
/// spot.
void flush_log() noexcept;

/// One line of the program itself on standard error, behind the lines that were logged. Waits for
/// half a second at most.
void complain(std::string_view text);

}  // namespace remora::apps
