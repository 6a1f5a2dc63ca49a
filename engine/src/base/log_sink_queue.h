#pragma once

/// Log lines between the library's threads and the application's sink: see remora/engine/log.h.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <thread>
#include <vector>

#include <remora/engine/log.h>
#include <remora/mutex.h>

namespace remora::log {

/// A bounded queue of lines, and the thread that calls the sink. Thread-safe.
class LogSinkQueue {
 public:
  /// The queue of this process. Never destroyed.
  static LogSinkQueue& shared();
  LogSinkQueue() = default;
  ~LogSinkQueue() = delete;
  LogSinkQueue(const LogSinkQueue&) = delete;
  LogSinkQueue& operator=(const LogSinkQueue&) = delete;

  /// Whether there is a sink.
  [[nodiscard]] bool used() const noexcept { return from_.load(std::memory_order_acquire) >= 0; }
  /// Whether the sink receives lines of that level.
  [[nodiscard]] bool takes(LogLevel level) const noexcept {
    const int from = from_.load(std::memory_order_acquire);
    return from >= 0 && static_cast<int>(level) >= from;
  }
  void set(LogSink sink, LogLevel from);
  /// Queues the line, or counts it as lost. Never waits for the sink.
  void put(const LogLine& line) noexcept;
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout_ms) noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return lost_.load(std::memory_order_relaxed);
  }

 private:
  struct Field {
    std::string_view name;  ///< of a literal
    std::string value;
    bool quoted;
  };
  struct Line {
    LogLevel level;
    std::chrono::system_clock::time_point at;
    std::string text;
    std::string_view event;  ///< of a literal
    std::vector<Field> fields;

    [[nodiscard]] std::size_t bytes() const noexcept;
  };
  /// Starts the thread that calls the sink. False: the system refuses a thread.
  bool start() noexcept REMORA_REQUIRES(mutex_);
  void run() noexcept;
  /// Calls the sink with `line`; unlocks the mutex for that time.
  void hand_over(const Line& line) noexcept REMORA_REQUIRES(mutex_);
  void end() noexcept;
  [[nodiscard]] bool is_sink_thread() const noexcept REMORA_REQUIRES(mutex_);

  std::atomic<int> from_{-1};  ///< the lowest level that the sink receives; -1: there is no sink
  std::atomic<std::uint64_t> lost_{0};
  remora::detail::Mutex mutex_;
  remora::detail::Condition changed_;
  std::shared_ptr<LogSink> sink_ REMORA_GUARDED_BY(mutex_);
  std::deque<Line> lines_ REMORA_GUARDED_BY(mutex_);
  std::size_t queued_bytes_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint64_t taken_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint64_t done_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint64_t lost_untold_ REMORA_GUARDED_BY(mutex_) = 0;
  bool handing_over_ REMORA_GUARDED_BY(mutex_) = false;
  bool running_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread thread_ REMORA_GUARDED_BY(mutex_);
  std::thread::id thread_id_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::log
