#include "base/log_sink_queue.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <exception>
#include <pthread.h>
#include <span>
#include <unistd.h>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

namespace remora::log {

namespace {
constexpr std::size_t kMaxLines = 8192;
constexpr std::size_t kMaxBytes = std::size_t{1} << 20U;
constexpr std::chrono::milliseconds kEndTime{1000};
const pid_t started_in = ::getpid();

void report_lost(const LogSink& sink, std::uint64_t lost,
                 std::chrono::system_clock::time_point at) {
  const std::string count = std::to_string(lost);
  const std::string text = count + " lines of the log were lost before this one";
  const LogField field{.name = "lines", .value = count, .quoted = false};
  sink({.level = LogLevel::kWarning,
        .at = at,
        .text = text,
        .event = "log.lines_lost",
        .fields = {&field, 1}});
}
}  // namespace

LogSinkQueue& LogSinkQueue::shared() {
  // Never destroyed: a thread of the library may write its last line while the process destroys
  // static objects.
  static LogSinkQueue& shared = *new LogSinkQueue;
  return shared;
}

bool LogSinkQueue::is_sink_thread() const noexcept {
  return running_ && std::this_thread::get_id() == thread_id_;
}

void LogSinkQueue::set(LogSink sink, LogLevel from) {
  struct AtEnd {
    ~AtEnd() { shared().end(); }
  };
  static const AtEnd at_end;  // destroyed before older static objects
  auto made = sink ? std::make_shared<LogSink>(std::move(sink)) : nullptr;
  std::shared_ptr<LogSink> before;
  remora::detail::MutexLock lock{mutex_};
  before = std::exchange(sink_, std::move(made));
  lost_untold_ = 0;  // those that the sink before has lost
  from_.store(sink_ == nullptr ? -1 : static_cast<int>(from), std::memory_order_release);
  if (!is_sink_thread())
    changed_.wait(lock, [this] {
      mutex_.assert_held();
      return !handing_over_;
    });
  lock.unlock();  // the captures of the sink before are destroyed without the lock
}

std::size_t LogSinkQueue::Line::bytes() const noexcept {
  std::size_t sum = text.size();
  for (const Field& field : fields) sum += sizeof field + field.value.size();
  return sum;
}

void LogSinkQueue::put(const LogLine& logged) noexcept {
  // In a child of fork(2), a thread that does not exist there may hold the mutex.
  if (::getpid() != started_in) {
    ++lost_;
    return;
  }
  try {
    Line line{.level = logged.level,
              .at = logged.at,
              .text = std::string{logged.text},
              .event = logged.event,
              .fields = {}};
    line.fields.reserve(logged.fields.size());
    for (const LogField& each : logged.fields)
      line.fields.push_back(
          {.name = each.name, .value = std::string{each.value}, .quoted = each.quoted});
    const std::size_t bytes = line.bytes();
    const remora::detail::MutexLock lock{mutex_};
    if (sink_ == nullptr) return;  // the sink was removed meanwhile
    if (lines_.size() >= kMaxLines || queued_bytes_ + bytes > kMaxBytes || !start()) {
      ++lost_;
      ++lost_untold_;
      return;
    }
    queued_bytes_ += bytes;
    lines_.push_back(std::move(line));
    ++taken_;
  } catch (const std::exception&) {  // out of memory
    ++lost_;
  }
}

bool LogSinkQueue::start() noexcept {
  if (running_) return true;
  if (thread_.joinable()) thread_.join();  // the thread has returned, or is about to
  sigset_t all{};
  sigset_t before{};
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // the thread inherits the mask
  if (auto thread = remora::detail::start_thread("remora-log", [this] { run(); })) {
    thread_ = std::move(*thread);
    thread_id_ = thread_.get_id();
    running_ = true;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return running_;
}

void LogSinkQueue::run() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  while (!lines_.empty()) {
    const Line line = std::move(lines_.front());
    lines_.pop_front();
    REMORA_ASSERT(line.bytes() <= queued_bytes_ && done_ < taken_, "each line was counted");
    queued_bytes_ -= line.bytes();
    hand_over(line);
    ++done_;
    changed_.notify_all();
  }
  running_ = false;
  changed_.notify_all();
}

void LogSinkQueue::hand_over(const Line& line) noexcept {
  const std::shared_ptr<LogSink> sink = sink_;
  if (sink == nullptr) return;
  const std::uint64_t lost = std::exchange(lost_untold_, 0);
  handing_over_ = true;
  mutex_.unlock();
  bool good = true;
  try {
    if (lost != 0) report_lost(*sink, lost, line.at);
    std::array<LogField, kMaxLogFields> fields{};
    const std::size_t count = std::min(line.fields.size(), fields.size());
    for (std::size_t i = 0; i < count; ++i)
      fields[i] = {.name = line.fields[i].name,
                   .value = line.fields[i].value,
                   .quoted = line.fields[i].quoted};
    (*sink)({.level = line.level,
             .at = line.at,
             .text = line.text,
             .event = line.event,
             .fields = std::span{fields}.first(count)});
  } catch (...) {
    good = false;
  }
  mutex_.lock();
  handing_over_ = false;
  if (good) return;
  ++lost_;
  ++lost_untold_;
}

bool LogSinkQueue::flush(std::chrono::milliseconds timeout_ms) noexcept {
  if (::getpid() != started_in) return true;
  remora::detail::MutexLock lock{mutex_};
  if (is_sink_thread()) return false;
  const std::uint64_t target = taken_;
  return changed_.wait_for(lock, timeout_ms, [&] {
    mutex_.assert_held();
    return done_ >= target || (lines_.empty() && !running_);
  });
}

/// Called while the process ends: gives the sink the lines that are left.
void LogSinkQueue::end() noexcept {
  if (::getpid() != started_in) return;
  (void)flush(kEndTime);
  remora::detail::MutexLock lock{mutex_};
  from_.store(-1, std::memory_order_release);
  sink_ = nullptr;
  lines_.clear();
  const bool ended = is_sink_thread() || changed_.wait_for(lock, kEndTime, [this] {
    mutex_.assert_held();
    return !running_;
  });
  std::thread thread = std::move(thread_);
  lock.unlock();
  if (!thread.joinable()) return;
  if (ended && thread.get_id() != std::this_thread::get_id())
    thread.join();
  else
    thread.detach();
}

}  // namespace remora::log

namespace remora {

void set_log_sink(LogSink sink, LogLevel from) {
  log::LogSinkQueue::shared().set(std::move(sink), from);
}

bool flush_log_sink(std::chrono::milliseconds timeout_ms) {
  return log::LogSinkQueue::shared().flush(timeout_ms);
}

}  // namespace remora
