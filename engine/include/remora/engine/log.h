#pragma once

/// The library's log, handed to the application.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace remora {

enum class LogLevel : std::uint8_t {
  kDebug,    ///< each attempt and each choice, for the search for a fault
  kInfo,     ///< sessions that are interrupted and resumed, transports that are chosen
  kWarning,  ///< what an operator should look at
  kError     ///< of programs such as remora-server: the library itself logs none
};

/// The fields that a line has at most.
inline constexpr std::size_t kMaxLogFields = 16;

/// A value that a line tells besides its text, such as `session` or `peer`.
struct LogField {
  std::string_view name{};
  std::string_view value{};
  bool quoted = true;  ///< false: a number, `true` or `false`
};

/// Views are valid during the call of the sink.
struct LogLine {
  LogLevel level = LogLevel::kWarning;
  std::chrono::system_clock::time_point at{};  ///< when it was logged; lines come in their order
  std::string_view text{};                     ///< one line of UTF-8, without a line feed
  /// The name of what happened, such as `session.silent`. Names are stable:
  /// engine/docs/log-events.md lists them with their fields. Lines of level debug are all `detail`.
  std::string_view event{};
  std::span<const LogField> fields{};
};

/// The line as a JSON object in one line, without a line feed: `time` (UTC, to the microsecond),
/// `level` (debug, info, warning or error), `event`, `text`, and each field by its name. Fields
/// that are not quoted are numbers or truth values. Bytes that are not UTF-8 become U+FFFD. A text
/// of more than 8192 bytes and a value of more than 1024, each as JSON escapes it, is cut and ends
/// with an ellipsis; so an object has less than 32 KiB.
[[nodiscard]] std::string to_json(const LogLine& line);

/// For a sink of the application's spdlog logger "remora", in the thread that logs: the line that
/// it is called for, with event and fields. Null elsewhere, and for lines that the library did not
/// log.
[[nodiscard]] const LogLine* logged_line() noexcept;

using LogSink = std::function<void(const LogLine&)>;

/// From now on all lines of the library in this process from level `from` on go to `sink`, and
/// nowhere else. An empty one: as before the first call, which is: warnings go to standard error
/// through LogWriter::of_stderr(), or to the spdlog logger "remora" where the application has
/// registered one.
///
/// The sink is called on a thread of its own, `remora-log`, which lives while there are lines: one
/// line at a time, with no lock of the library held. So it may block, log by other means, call the
/// library, and replace itself. A thread of the library never waits for it: lines wait in a queue
/// of 8192 lines and 1 MiB; those that find no room, those for which no thread can be had, and
/// those for which it throws are lost. The next line that comes then tells how many were; a
/// server's and an engine's `remora_log_lines_lost_total` counts them. In a child of fork(2) all
/// are lost.
///
/// Any thread, at any time, also before the first Engine or Server. On return the sink before is
/// not running and never will again: that waits for it, unless it is the caller. When the process
/// ends, lines that wait are still handed over, for a second at most; afterwards the sink is not
/// called.
void set_log_sink(LogSink sink, LogLevel from = LogLevel::kWarning);

/// Waits until the lines that were logged before are with the sink, for `timeout_ms` at most.
/// False: the time is over, or it is called by the sink itself. True at once where there is no
/// sink.
bool flush_log_sink(std::chrono::milliseconds timeout_ms);

}  // namespace remora
