#pragma once

/// Writes lines of a log to a descriptor; the thread that logs does not wait.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace remora {

/// Writes lines to a descriptor on a thread of its own, through a bounded queue.
///
/// The reader of a log may end (a broken pipe), stop reading (a full pipe, a terminal after Ctrl-S)
/// or be slow. The thread that logs never waits for the reader: a line for which the queue has no
/// room, or that cannot be written, is lost and counted. When writing works again, one line tells
/// how many were lost, at the place where they are missing.
///
/// The writer's thread exists while there are lines to write. It blocks all signals, including
/// SIGPIPE, in itself only: no signal disposition of the process changes. If no thread can be
/// started, after stop(), and in a child of fork(2), a line is written at once if the descriptor
/// takes it without blocking, otherwise it is lost.
///
/// Thread safety: every function may be called from any thread. The library's own logger writes to
/// of_stderr() unless the application registers a logger of its own.
class LogWriter {
 public:
  /// Limits of the queue.
  struct Limits {
    std::size_t lines_max = 8192;                   ///< lines that wait to be written
    std::size_t bytes_max = std::size_t{1} << 20U;  ///< of these lines
  };
  /// Makes the line that tells how many lines were lost, with its line feed. Called on the writer's
  /// thread.
  using LostLine = std::function<std::string(std::uint64_t lost)>;

  /// `descriptor` is borrowed and must stay open as long as the process may log.
  explicit LogWriter(int descriptor);
  /// The same with a queue of another size.
  LogWriter(int descriptor, Limits limits);
  /// As stop() with 1 s.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// The writer for standard error that the whole process shares. Never destroyed; it is stopped
  /// when the process ends, or when the library is unloaded.
  static LogWriter& of_stderr();

  /// Takes one line with its line feed. Never blocks for the descriptor.
  void write(std::string_view line) noexcept;
  /// Waits until all lines taken before are written or lost, for `timeout_ms` at most. False: the
  /// time is over.
  bool flush(std::chrono::milliseconds timeout_ms) noexcept;
  /// Writes the queued lines while the descriptor takes them (a pause of 200 ms ends that), for
  /// `timeout_ms` at most, and ends the thread. Lines that are left are lost. Idempotent.
  void stop(std::chrono::milliseconds timeout_ms) noexcept;
  /// Replaces the function that makes the line for lost lines; `make` is not empty.
  void set_lost_line(LostLine make);

  /// Lines lost so far.
  [[nodiscard]] std::uint64_t lost() const noexcept;

 private:
  struct State;
  /// Shared with the thread, which outlives this object if its write(2) hangs.
  std::shared_ptr<State> state_;
};

}  // namespace remora
