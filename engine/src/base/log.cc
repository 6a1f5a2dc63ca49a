#include "base/log.h"

#include <memory>
#include <mutex>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <remora/engine/log_writer.h>
#include <remora/metrics/registry.h>
#include <remora/owned.h>

#include "base/log_sink_queue.h"

namespace remora::log {
namespace {

/// spdlog's own stderr sink writes in the thread that logs: a full pipe stops it, and a pipe
/// without a reader ends the process by SIGPIPE.
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    LogWriter::of_stderr().write({text.data(), text.size()});
  }
  void flush_() override {}
};

}  // namespace

spdlog::logger& logger() {
  struct Shared {
    std::shared_ptr<spdlog::logger> logger = [] {
      if (auto registered = spdlog::get("remora")) return registered;
      auto made = std::make_shared<spdlog::logger>("remora", std::make_shared<StderrSink>());
      made->set_level(spdlog::level::warn);
      return made;
    }();
  };
  // Never destroyed: a control thread that ends with its engine may be at its last line while the
  // process's static objects go. A child of fork(2) has a sink of its own, whose lock is free.
  static remora::detail::PerProcess<Shared> shared;
  return *shared.get().logger;
}

Status count_lost_lines(metrics::Registry& registry) {
  auto handle = registry.counter_callback(
      "remora_log_lines_lost_total",
      "Lines of the log that could not be written, or handed to the application, in time.", {}, [] {
        return static_cast<double>(LogWriter::of_stderr().lost() + LogSinkQueue::shared().lost());
      });
  // Another engine or server of this process has the same registry.
  if (!handle && handle.error().code() == Code::kAlreadyExists) return {};
  if (!handle) return handle.error();
  handle->release();
  return {};
}

namespace {

spdlog::level::level_enum level_of(Level level) noexcept {
  switch (level) {
    case Level::kDebug: return spdlog::level::debug;
    case Level::kInfo: return spdlog::level::info;
    case Level::kWarn: return spdlog::level::warn;
  }
  return spdlog::level::warn;
}

/// `from` of set_log_sink() says what is taken.
LogLevel public_level(Level level) noexcept {
  switch (level) {
    case Level::kDebug: return LogLevel::kDebug;
    case Level::kInfo: return LogLevel::kInfo;
    case Level::kWarn: return LogLevel::kWarning;
  }
  return LogLevel::kWarning;
}

}  // namespace

bool enabled(Level level) noexcept {
  const LogSinkQueue& sink = LogSinkQueue::shared();
  if (sink.used()) return sink.takes(public_level(level));
  return logger().should_log(level_of(level));
}

void write(Level level, fmt::string_view format, fmt::format_args arguments) {
  if (!enabled(level)) return;
  fmt::memory_buffer text;
  fmt::vformat_to(fmt::appender(text), format, arguments);
  if (LogSinkQueue::shared().used())
    return LogSinkQueue::shared().put(public_level(level), {text.data(), text.size()});
  logger().log(level_of(level), spdlog::string_view_t{text.data(), text.size()});
}

}  // namespace remora::log
