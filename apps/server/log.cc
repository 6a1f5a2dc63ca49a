#include "server/log.h"

#include <chrono>
#include <cstdint>
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

class WriterSink final : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
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
  spdlog::memory_buf_t line;
  spdlog::pattern_formatter{kPattern}.format({"remora", spdlog::level::warn, text}, line);
  return {line.data(), line.size()};
}

}  // namespace

void log_to_stderr(config::LogLevel level) {
  auto logger = std::make_shared<spdlog::logger>("remora", std::make_shared<WriterSink>());
  logger->set_pattern(kPattern);
  logger->set_level(level_of(level));
  // spdlog's own handler prints to stderr in the thread that logs.
  logger->set_error_handler([](const std::string& /*what*/) {});
  spdlog::set_default_logger(std::move(logger));
  LogWriter::of_stderr().set_lost_line(lost_line);
}

void flush_log() noexcept { LogWriter::of_stderr().flush(kFlush); }

void complain(std::string_view text) {
  LogWriter::of_stderr().write("remora-server: " + config::printable(text) + '\n');
  flush_log();
}

}  // namespace remora::apps
