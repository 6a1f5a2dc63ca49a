#include "server/log.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <utility>

#include <remora/config/printable.h>
#include <remora/engine/log_writer.h>

#include "server/log_level.h"

namespace remora::apps {
namespace {

constexpr const char* kPattern = "%Y-%m-%dT%H:%M:%S.%e%z %l: %v";
constexpr std::chrono::milliseconds kFlush{500};

std::atomic<bool> json_lines{false};

LogLevel level_of_line(spdlog::level::level_enum level) noexcept {
  switch (level) {
    case spdlog::level::trace:
    case spdlog::level::debug: return LogLevel::kDebug;
    case spdlog::level::info: return LogLevel::kInfo;
    case spdlog::level::warn: return LogLevel::kWarning;
    default: return LogLevel::kError;
  }
}

void write_json(const LogLine& line) { LogWriter::of_stderr().write(to_json(line) + '\n'); }

void log_line(spdlog::level::level_enum level, std::string_view event, std::string_view text,
              LogFields fields) noexcept try {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  if (!json_lines) return logger.log(level, spdlog::string_view_t{text.data(), text.size()});
  if (!logger.should_log(level)) return;
  write_json({.level = level_of_line(level),
              .at = std::chrono::system_clock::now(),
              .text = text,
              .event = event,
              .fields = {fields.begin(), fields.size()}});
} catch (const std::exception&) {  // no memory for the line
}

class WriterSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (json_lines) {
      const LogLine* const line = logged_line();
      return write_json(line != nullptr
                            ? *line
                            : LogLine{.level = level_of_line(message.level),
                                      .at = message.time,
                                      .text = {message.payload.data(), message.payload.size()},
                                      .event = "detail"});
    }
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    LogWriter::of_stderr().write({text.data(), text.size()});
  }
  void flush_() override {}
};

std::string lost_line(std::uint64_t lost) {
  const std::string text = std::to_string(lost) +
                           (lost == 1 ? " line of the log was" : " lines of the log were") +
                           " lost: standard error did not take them (remora_log_lines_lost_total)";
  if (json_lines) {
    const std::string count = std::to_string(lost);
    const LogField field{.name = "lines", .value = count, .quoted = false};
    return to_json({.level = LogLevel::kWarning,
                    .at = std::chrono::system_clock::now(),
                    .text = text,
                    .event = "log.lines_lost",
                    .fields = {&field, 1}}) +
           '\n';
  }
  spdlog::memory_buf_t line;
  spdlog::pattern_formatter{kPattern}.format({"remora", spdlog::level::warn, text}, line);
  return {line.data(), line.size()};
}

}  // namespace

void log_to_stderr(const config::Log& log) {
  json_lines = log.format == config::LogFormat::kJson;
  auto logger = std::make_shared<spdlog::logger>("remora", std::make_shared<WriterSink>());
  logger->set_pattern(kPattern);
  logger->set_level(level_of(log.level));
  // spdlog's own handler prints to stderr in the thread that logs.
  logger->set_error_handler([](const std::string& /*what*/) {});
  spdlog::set_default_logger(std::move(logger));
  LogWriter::of_stderr().set_lost_line(lost_line);
}

void log_info(std::string_view event, std::string_view text, LogFields fields) noexcept {
  log_line(spdlog::level::info, event, text, fields);
}
void log_warn(std::string_view event, std::string_view text, LogFields fields) noexcept {
  log_line(spdlog::level::warn, event, text, fields);
}
void log_error(std::string_view event, std::string_view text, LogFields fields) noexcept {
  log_line(spdlog::level::err, event, text, fields);
}

void flush_log() noexcept { LogWriter::of_stderr().flush(kFlush); }

void complain(std::string_view text) {
  if (json_lines)
    write_json({.level = LogLevel::kError,
                .at = std::chrono::system_clock::now(),
                .text = text,
                .event = "server.not_started"});
  else
    LogWriter::of_stderr().write("remora-server: " + config::printable(text) + '\n');
  flush_log();
}

}  // namespace remora::apps
