/// Lines of the log as JSON: see to_json() in remora/engine/log.h.

#include <array>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <memory>
#include <mutex>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/engine/log.h>

#include "base/log.h"

namespace remora {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// 2026-11-26 23:05:46.000123 UTC.
constexpr std::chrono::system_clock::time_point kTime{std::chrono::microseconds{1795734346000123}};

/// The JSON string that a text becomes, with its quotes.
std::string json_of(std::string_view text) {
  const std::string json =
      to_json({.level = LogLevel::kInfo, .at = kTime, .text = text, .event = "a.b"});
  const std::string before = "\"text\":";
  const std::size_t at = json.find(before) + before.size();
  return json.substr(at, json.size() - at - 1);
}

TEST(LogJson, LineIsAnObject) {
  const std::array fields{LogField{.name = "peer", .value = "10.0.0.1:7"},
                          LogField{.name = "bytes", .value = "4096", .quoted = false},
                          LogField{.name = "good", .value = "true", .quoted = false}};
  EXPECT_EQ(to_json({.level = LogLevel::kWarning,
                     .at = kTime,
                     .text = "a \"text\"",
                     .event = "session.silent",
                     .fields = fields}),
            R"({"time":"2026-11-26T23:05:46.000123Z","level":"warning","event":"session.silent",)"
            R"("text":"a \"text\"","peer":"10.0.0.1:7","bytes":4096,"good":true})");
}

TEST(LogJson, EachLevelHasItsWord) {
  std::vector<std::string> words;
  for (const LogLevel level :
       {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarning, LogLevel::kError}) {
    const std::string json = to_json({.level = level, .at = kTime, .text = "", .event = "a.b"});
    const std::size_t at = json.find("\"level\":\"") + 9;
    words.push_back(json.substr(at, json.find('"', at) - at));
  }
  EXPECT_THAT(words, ElementsAre("debug", "info", "warning", "error"));
}

TEST(LogJson, TextIsEscaped) {
  EXPECT_EQ(json_of(""), R"("")");
  EXPECT_EQ(json_of("a/b'c"), R"("a/b'c")");
  EXPECT_EQ(json_of("\"\\\n\r\t"), R"("\"\\\n\r\t")");
  EXPECT_EQ(json_of(std::string_view{"\0\x01\x1f\x7f", 4}), R"("\u0000\u0001\u001f\u007f")");
  EXPECT_EQ(json_of("gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80"),
            "\"gr\xc3\xbc\xc3\x9f \xe2\x82\xac \xf0\x9f\x98\x80\"");
}

TEST(LogJson, BytesThatAreNotUtf8AreReplaced) {
  EXPECT_EQ(json_of("a\xff"
                    "b"),
            "\"a\xef\xbf\xbd"
            "b\"");
  EXPECT_EQ(json_of("\xc3"), "\"\xef\xbf\xbd\"") << "half of a character";
  EXPECT_EQ(json_of("\xc0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\"") << "a longer form";
  EXPECT_EQ(json_of("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"") << "a surrogate";
}

TEST(LogJson, ValuesThatAreNoNumbersAreQuoted) {
  const auto value_of = [](std::string_view value) {
    const LogField field{.name = "v", .value = value, .quoted = false};
    const std::string json = to_json(
        {.level = LogLevel::kInfo, .at = kTime, .text = "", .event = "a.b", .fields = {&field, 1}});
    const std::size_t at = json.find("\"v\":") + 4;
    return json.substr(at, json.size() - at - 1);
  };
  for (const char* const number : {"0", "-1", "18446744073709551615", "0.25", "1e-05", "false"})
    EXPECT_EQ(value_of(number), number);
  for (const char* const other : {"", "-", "inf", "-inf", "nan", "0x1f", "1,2"})
    EXPECT_EQ(value_of(other), '"' + std::string{other} + '"');
}

TEST(LogJson, LongTextIsCutBetweenCharacters) {
  EXPECT_EQ(json_of(std::string(8192, 'x')), '"' + std::string(8192, 'x') + '"');
  EXPECT_EQ(json_of(std::string(8193, 'x')), '"' + std::string(8192, 'x') + "\xe2\x80\xa6\"");
  std::string wide = "x";  // the character of three bytes that crosses the end is left out
  for (int i = 0; i < 3000; ++i) wide += "\xe2\x82\xac";
  EXPECT_EQ(json_of(wide), '"' + wide.substr(0, 8191) + "\xe2\x80\xa6\"");
  const std::string controls = json_of(std::string(10'000, '\x01'));  // six bytes each
  EXPECT_EQ(controls.size(), 2 + 8190 + 3U);
  EXPECT_THAT(controls, EndsWith("\\u0001\xe2\x80\xa6\""));
}

TEST(LogJson, LineIsBounded) {
  const std::string value(100'000, '"');
  std::vector<LogField> fields(100, LogField{.name = "name", .value = value});
  const std::string json = to_json(
      {.level = LogLevel::kInfo, .at = kTime, .text = value, .event = "a.b", .fields = fields});
  EXPECT_LT(json.size(), 32U << 10U);
  EXPECT_THAT(json, StartsWith("{\"time\":"));
  EXPECT_THAT(json, EndsWith("\xe2\x80\xa6\"}"));
  EXPECT_EQ(json.find('\n'), std::string::npos);
}

/// A sink of spdlog that takes the structure of lines: what an application's logger "remora" has.
class StructureSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::vector<std::string> lines;

 protected:
  void sink_it_(const spdlog::details::log_msg& /*message*/) override {
    const LogLine* const line = logged_line();
    lines.push_back(line == nullptr ? "none" : to_json(*line));
  }
  void flush_() override {}
};

TEST(LogJson, SinkOfSpdlogFindsTheLine) {
  auto sink = std::make_shared<StructureSink>();
  auto& sinks = log::logger().sinks();
  const auto before = std::exchange(sinks, {sink});
  log::warn({"test.line", "bytes"}, "{} bytes", 7);
  log::logger().warn("of another program");
  sinks = before;
  ASSERT_EQ(sink->lines.size(), 2U);
  EXPECT_THAT(sink->lines[0], HasSubstr(R"("event":"test.line","text":"7 bytes","bytes":7})"));
  EXPECT_EQ(sink->lines[1], "none");
  EXPECT_EQ(logged_line(), nullptr);
}

}  // namespace
}  // namespace remora
