/// The log, handed to the application: see remora/engine/log.h.

#include "base/log_sink_queue.h"

#include <arpa/inet.h>
#include <atomic>
#include <chrono>
#include <future>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/log.h>
#include <remora/engine/log_writer.h>

#include "base/log.h"

namespace remora {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Takes the lines of this process while it lives.
class Taken {
 public:
  explicit Taken(LogLevel from) {
    set_log_sink([this](const LogLine& line) { add(line); }, from);
  }
  ~Taken() { set_log_sink({}); }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;

  [[nodiscard]] std::vector<std::string> lines() const {
    EXPECT_TRUE(flush_log_sink(seconds{30}));
    const std::lock_guard lock{mutex_};
    return lines_;
  }

 private:
  void add(const LogLine& line) {
    const std::lock_guard lock{mutex_};
    lines_.emplace_back(line.text);
  }
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST(LogSink, TakesLinesFromItsLevelOnAndStandardErrorNone) {
  ::testing::internal::CaptureStderr();
  {
    const Taken taken{LogLevel::kInfo};
    log::debug("not {}", "this");
    log::info({"test.one", "number"}, "one {}", 1);
    log::warn({"test.line"}, "two");
    EXPECT_THAT(taken.lines(), ElementsAre("one 1", "two"));
    EXPECT_FALSE(log::enabled(log::Level::kDebug));
    EXPECT_TRUE(log::enabled(log::Level::kInfo));
  }
  (void)LogWriter::of_stderr().flush(seconds{30});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST(LogSink, TakesLinesOfComponentsAboveTheEngine) {
  const Taken taken{LogLevel::kWarning};
  detail::write_log_line({.level = LogLevel::kInfo, .text = "not this", .event = "test.line"});
  detail::write_log_line({.level = LogLevel::kWarning, .text = "this", .event = "test.line"});
  detail::write_log_line({.level = LogLevel::kError, .text = "and this", .event = "test.line"});
  EXPECT_THAT(taken.lines(), ElementsAre("this", "and this"));
}

/// Names and values of a line, with what JSON makes of them.
std::vector<std::string> told_by(const LogLine& line) {
  std::vector<std::string> told{std::string{line.event}};
  for (const LogField& field : line.fields)
    told.push_back(std::string{field.name} + (field.quoted ? "='" : "=") +
                   std::string{field.value} + (field.quoted ? "'" : ""));
  return told;
}

TEST(LogSink, LineHasItsEventAndFieldsOfItsArguments) {
  std::vector<std::vector<std::string>> told;
  set_log_sink([&](const LogLine& line) { told.push_back(told_by(line)); }, LogLevel::kDebug);
  log::warn({"test.fields", "session:x peer - load good"}, "session {:x} ({}){} {:.1f} {} {}",
            0xabU, std::string{"10.0.0.1"}, "; more", 0.25, true, "no field");
  log::info({"test.bare"}, "text {}", 1);
  log::debug("detail {}", 2);
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  set_log_sink({});
  ASSERT_EQ(told.size(), 3U);
  EXPECT_THAT(told[0], ElementsAre("test.fields", "session='ab'", "peer='10.0.0.1'", "load=0.25",
                                   "good=true"));
  EXPECT_THAT(told[1], ElementsAre("test.bare"));
  EXPECT_THAT(told[2], ElementsAre("detail"));
}

TEST(LogSink, MoreFieldsThanALineHasAreLeftOut) {
  std::size_t count = 0;
  set_log_sink([&](const LogLine& line) { count = line.fields.size(); });
  log::warn({"test.many", "a b c d e f g h i j k l m n o p q"},
            "{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}{}", 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
            16, 17);
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  set_log_sink({});
  EXPECT_EQ(count, kMaxLogFields);
}

TEST(LogSink, ThereIsNoLoggedLineBesideTheLoggerOfSpdlog) {
  bool found = true;
  set_log_sink([&](const LogLine&) { found = logged_line() != nullptr; });
  log::warn({"test.line"}, "text");
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  set_log_sink({});
  EXPECT_FALSE(found);
  EXPECT_EQ(logged_line(), nullptr);
}

TEST(LogSink, WithoutOneWarningsGoToStandardErrorAndNothingElse) {
  { const Taken taken{LogLevel::kDebug}; }
  ::testing::internal::CaptureStderr();
  log::info({"test.line"}, "quiet");
  log::warn({"test.line"}, "loud");
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  (void)LogWriter::of_stderr().flush(seconds{30});
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("loud"));
  EXPECT_THAT(text, Not(HasSubstr("quiet")));
}

TEST(LogSink, OneThatBlocksLosesLinesAndNoThreadWaits) {
  constexpr std::uint64_t kLines = 20'000;
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  std::atomic<std::uint64_t> got{0};
  std::atomic<bool> told{false};
  set_log_sink([&](const LogLine& line) {
    open.wait();
    if (line.event == "log.lines_lost")
      told = line.text.find("lines of the log were lost") != std::string_view::npos &&
             line.fields.size() == 1;
    else
      ++got;
  });
  const std::uint64_t lost_before = log::LogSinkQueue::shared().lost();
  for (std::uint64_t i = 0; i < kLines; ++i)
    log::warn({"test.line"}, "line {}", i);  // a wait would be for ever
  EXPECT_FALSE(flush_log_sink(std::chrono::milliseconds{1}));
  gate.set_value();
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  log::warn({"test.line"}, "the next one");
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  set_log_sink({});
  const std::uint64_t lost = log::LogSinkQueue::shared().lost() - lost_before;
  EXPECT_GT(lost, 0U);
  EXPECT_EQ(got + lost, kLines + 1) << "each is handed over or counted";
  EXPECT_TRUE(told);
}

TEST(LogSink, OneThatThrowsLosesItsLine) {
  const std::uint64_t before = log::LogSinkQueue::shared().lost();
  set_log_sink([](const LogLine&) { throw 1; });
  log::warn({"test.line"}, "thrown away");
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  set_log_sink({});
  EXPECT_EQ(log::LogSinkQueue::shared().lost(), before + 1);
}

TEST(LogSink, MayLogUseTheLibraryAndReplaceItself) {
  std::atomic<int> first{0};
  std::atomic<int> second{0};
  set_log_sink([&](const LogLine&) {
    ++first;
    EXPECT_TRUE(Engine::open({}).ok());
    EXPECT_FALSE(flush_log_sink(seconds{30})) << "it is called by the sink";
    set_log_sink([&](const LogLine&) { ++second; });
    log::warn({"test.line"}, "from within");
  });
  log::warn({"test.line"}, "begin");
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  EXPECT_TRUE(flush_log_sink(seconds{30}));
  set_log_sink({});
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 1);
}

/// A port of this host at which no program listens.
std::uint16_t unused_port() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
  ::close(socket);
  return ::ntohs(address.sin_port);
}

TEST(LogSink, ConnectForLogsItsFirstFailureAndItsEndNotEachAttempt) {
  const Taken taken{LogLevel::kWarning};
  const Engine engine = Engine::open({.connect_for = std::chrono::milliseconds{500}}).value();
  const std::string server = "remora://127.0.0.1:" + std::to_string(unused_port());
  EXPECT_EQ(engine.open_region(server + "/any?transport=tcp", Rights::kRead).error().code(),
            Code::kConnectionRefused);
  EXPECT_LE(taken.lines().size(), 2U);
  EXPECT_THAT(taken.lines().front(), HasSubstr("trying for"));
  EXPECT_THAT(taken.lines().back(), HasSubstr("attempt"));
  EXPECT_EQ(engine.connect(server + "?transport=tcp").error().code(), Code::kConnectionRefused);
  EXPECT_LE(taken.lines().size(), 4U);
}

}  // namespace
}  // namespace remora
