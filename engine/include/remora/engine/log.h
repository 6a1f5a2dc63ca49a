#pragma once

/// The library's log, passed to the application.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace remora {

/// How important a line is.
enum class LogLevel : std::uint8_t {
  kDebug,    ///< each attempt and each choice, for finding a fault
  kInfo,     ///< sessions that are interrupted and resumed, transports that are chosen
  kWarning,  ///< a state that an operator should look at
  kError     ///< of programs such as remora-server; the library logs none
};

/// The most fields of a line.
inline constexpr std::size_t kMaxLogFields = 16;

/// A value of a line beside its text, such as `session` or `peer`.
struct LogField {
  std::string_view name{};
  std::string_view value{};
  bool quoted = true;  ///< false: a number, `true` or `false`
};

/// One line. Views are valid during the call of the sink.
struct LogLine {
  LogLevel level = LogLevel::kWarning;
  std::chrono::system_clock::time_point at{};  ///< when it was logged; lines come in their order
  std::string_view text{};                     ///< one line of UTF-8, without a line feed
  /// The name of the event, such as `session.silent`. Names are stable: engine/docs/log-events.md
  /// lists them with their fields. All lines of level debug have the name `detail`.
  std::string_view event{};
  std::span<const LogField> fields{};
};

/// The line as a JSON object in one line, without a line feed: `time` (UTC, to the microsecond),
/// `level` (debug, info, warning or error), `event`, `text`, and each field by its name. Fields
/// that are not quoted are numbers or truth values. Bytes that are not UTF-8 become U+FFFD. A text
/// of more than 8192 bytes, or a value of more than 1024, both counted with JSON's escapes, is cut
/// and ends with an ellipsis; so an object has less than 32 KiB.
[[nodiscard]] std::string to_json(const LogLine& line);

/// For a sink of the application's spdlog logger "remora", in the thread that logs: the present
/// line, with event and fields. Null elsewhere, and for lines that the library did not log.
[[nodiscard]] const LogLine* logged_line() noexcept;

/// The application's function for lines; see set_log_sink() for its thread and its rules.
using LogSink = std::function<void(const LogLine&)>;

/// From now on all lines of the library in this process from level `from` on go to `sink` only. An
/// empty sink restores the state before the first call: warnings go to standard error through
/// LogWriter::of_stderr(), or to the spdlog logger "remora" if the application has registered one.
///
/// The thread `remora-log`, which exists while there are lines, calls the sink: one line at a time,
/// with no lock of the library held. So the sink may block, log by other means, call the library,
/// and replace itself. A thread of the library never waits for it: lines wait in a queue of 8192
/// lines and 1 MiB. A line is lost if the queue has no room, if the thread cannot be started, or if
/// the sink throws. The next line then tells how many were lost; `remora_log_lines_lost_total` of a
/// server and an engine counts them. In a child of fork(2) all lines are lost.
///
/// Any thread, at any time, also before the first Engine or Server. On return the former sink is
/// not running and will not run again: the call waits for it, unless the former sink is the caller.
/// When the process ends, waiting lines are still passed to the sink, for a second at most; after
/// that the sink is not called.
void set_log_sink(LogSink sink, LogLevel from = LogLevel::kWarning);

/// Waits until the sink has got all lines that were logged before, for `timeout_ms` at most. False:
/// the time is over, or the sink itself is the caller. True at once if there is no sink.
bool flush_log_sink(std::chrono::milliseconds timeout_ms);

namespace detail {

/// For components above the engine: logs a line as the library logs its own, at the present time.
/// kError counts as kWarning. Thread-safe.
void write_log_line(LogLine line);

}  // namespace detail

}  // namespace remora
