#pragma once

/// Lines of the log on their way to the application's sink: see remora/engine/log.h.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <thread>

#include <remora/engine/log.h>

namespace remora::log {

class SinkQueue {
 public:
  /// The one of this process. Never destroyed.
  static SinkQueue& shared();
  SinkQueue() = default;
  ~SinkQueue() = delete;
  SinkQueue(const SinkQueue&) = delete;
  SinkQueue& operator=(const SinkQueue&) = delete;

  /// There is a sink.
  [[nodiscard]] bool used() const noexcept { return from_.load(std::memory_order_acquire) >= 0; }
  /// It takes lines of that level.
  [[nodiscard]] bool takes(LogLevel level) const noexcept {
    const int from = from_.load(std::memory_order_acquire);
    return from >= 0 && static_cast<int>(level) >= from;
  }
  void set(LogSink sink, LogLevel from);
  /// Never blocks for the sink.
  void put(LogLevel level, std::string_view text) noexcept;
  [[nodiscard]] bool flush(std::chrono::milliseconds timeout_ms) noexcept;
  [[nodiscard]] std::uint64_t lost() const noexcept {
    return lost_.load(std::memory_order_relaxed);
  }

 private:
  struct Line {
    LogLevel level;
    std::chrono::system_clock::time_point at;
    std::string text;
  };
  bool start() noexcept;
  void run() noexcept;
  void hand_over(std::unique_lock<std::mutex>& lock, const Line& line) noexcept;
  void end() noexcept;
  [[nodiscard]] bool is_sink_thread() const noexcept;

  std::atomic<int> from_{-1};  ///< the least level that is taken; -1: there is no sink
  std::atomic<std::uint64_t> lost_{0};
  std::mutex mutex_;  // what follows
  std::condition_variable changed_;
  std::shared_ptr<LogSink> sink_;
  std::deque<Line> lines_;
  std::size_t queued_bytes_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t lost_untold_ = 0;
  bool handing_over_ = false;
  bool running_ = false;
  std::thread thread_;
  std::thread::id thread_id_;
};

}  // namespace remora::log
