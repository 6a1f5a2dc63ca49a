#include "base/log.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <mutex>
#include <span>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <remora/engine/log.h>
#include <remora/engine/log_writer.h>
#include <remora/metrics/registry.h>
#include <remora/owned.h>

#include "base/log_sink_queue.h"

namespace remora::log {
namespace {

/// Writes to stderr through a thread. spdlog's own sink writes in the calling thread: a full pipe
/// would stop that thread, and a pipe without a reader would end the process by SIGPIPE.
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
  // Never destroyed: a control thread that ends with its engine may write its last line while the
  // process destroys static objects. A child of fork(2) has its own sink, whose lock is free.
  static remora::detail::PerProcess<Shared> shared;
  return *shared.get().logger;
}

Status count_lost_lines(metrics::Registry& registry) {
  auto handle = registry.counter_callback(
      "remora_log_lines_lost_total",
      "Lines of the log that could not be written, or handed to the application, in time.", {}, [] {
        return static_cast<double>(LogWriter::of_stderr().lost() + LogSinkQueue::shared().lost());
      });
  // Another engine or server of this process uses the same registry, and has declared the metric.
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

/// The level as the application's sink and the parameter `from` of set_log_sink() know it.
LogLevel public_level(Level level) noexcept {
  switch (level) {
    case Level::kDebug: return LogLevel::kDebug;
    case Level::kInfo: return LogLevel::kInfo;
    case Level::kWarn: return LogLevel::kWarning;
  }
  return LogLevel::kWarning;
}

/// What logged_line() returns while the logger of spdlog takes a line.
class CurrentLine {
 public:
  explicit CurrentLine(const LogLine& line) noexcept : before_{std::exchange(t_line, &line)} {}
  ~CurrentLine() { t_line = before_; }
  CurrentLine(const CurrentLine&) = delete;
  CurrentLine& operator=(const CurrentLine&) = delete;

  [[nodiscard]] static const LogLine* line() noexcept { return t_line; }

 private:
  static thread_local const LogLine* t_line;
  const LogLine* before_;
};

thread_local const LogLine* CurrentLine::t_line = nullptr;

/// The fields of a line: its arguments by the names that its event has for them.
class EventFields {
 public:
  EventFields(std::string_view names, const fmt::format_args& arguments) {
    std::array<std::size_t, kMaxLogFields> ends{};
    for (int index = 0; !names.empty() && count_ < kMaxLogFields; ++index) {
      std::string_view name = names.substr(0, names.find(' '));
      names.remove_prefix(std::min(names.size(), name.size() + 1));
      if (name == "-") continue;
      const bool hexadecimal = name.ends_with(":x");
      if (hexadecimal) name.remove_suffix(2);
      const std::string format = '{' + std::to_string(index) + (hexadecimal ? ":x}" : "}");
      fmt::vformat_to(fmt::appender(values_), fmt::string_view{format}, arguments);
      fields_[count_] = {
          .name = name, .value = {}, .quoted = hexadecimal || !is_number(arguments, index)};
      ends[count_++] = values_.size();
    }
    std::size_t begin = 0;  // the buffer stays where it is from now on
    for (std::size_t i = 0; i < count_; begin = ends[i++])
      fields_[i].value = {values_.data() + begin, ends[i] - begin};
  }
  EventFields(const EventFields&) = delete;
  EventFields& operator=(const EventFields&) = delete;

  [[nodiscard]] std::span<const LogField> all() const noexcept {
    return std::span{fields_}.first(count_);
  }

 private:
  /// Or a truth value.
  static bool is_number(const fmt::format_args& arguments, int index) {
    return fmt::visit_format_arg(
        [](const auto& value) {
          using Value = std::remove_cvref_t<decltype(value)>;
          return std::is_arithmetic_v<Value> && !std::is_same_v<Value, char>;
        },
        arguments.get(index));
  }

  std::array<LogField, kMaxLogFields> fields_{};
  std::size_t count_ = 0;
  fmt::memory_buffer values_;
};

void hand_over(Level level, const LogLine& line) {
  if (LogSinkQueue::shared().used()) return LogSinkQueue::shared().put(line);
  const CurrentLine current{line};
  logger().log(level_of(level), spdlog::string_view_t{line.text.data(), line.text.size()});
}

}  // namespace

bool enabled(Level level) noexcept {
  const LogSinkQueue& sink = LogSinkQueue::shared();
  if (sink.used()) return sink.takes(public_level(level));
  return logger().should_log(level_of(level));
}

void write(Level level, Event event, fmt::string_view format, fmt::format_args arguments) {
  if (!enabled(level)) return;
  fmt::memory_buffer text;
  fmt::vformat_to(fmt::appender(text), format, arguments);
  const EventFields fields{event.fields, arguments};
  hand_over(level, {.level = public_level(level),
                    .at = std::chrono::system_clock::now(),
                    .text = {text.data(), text.size()},
                    .event = event.name,
                    .fields = fields.all()});
}

namespace {

Level internal_level(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::kDebug: return Level::kDebug;
    case LogLevel::kInfo: return Level::kInfo;
    case LogLevel::kWarning:
    case LogLevel::kError: return Level::kWarn;
  }
  return Level::kWarn;
}

}  // namespace

}  // namespace remora::log

namespace remora {

const LogLine* logged_line() noexcept { return log::CurrentLine::line(); }

namespace detail {

void write_log_line(LogLine line) {
  const log::Level level = log::internal_level(line.level);
  if (!log::enabled(level)) return;
  line.level = log::public_level(level);
  line.at = std::chrono::system_clock::now();
  log::hand_over(level, line);
}

}  // namespace detail

}  // namespace remora
