/// remora top: shows the live numbers of processes that serve metrics, in a terminal.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <httplib.h>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <signal.h>
#include <stop_token>
#include <string>
#include <strings.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/config/printable.h>
#include <remora/config/server_config.h>
#include <remora/mutex.h>
#include <remora/start_thread.h>
#include <remora/system_file.h>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/top_view.h"

namespace remora::apps {
namespace {

using SteadyClock = std::chrono::steady_clock;

struct TopOptions {
  std::vector<std::string> addresses;
  std::chrono::nanoseconds interval = std::chrono::seconds{2};
  bool once = false;
  std::string token_file;
  std::string user;
  std::string password_file;
};

constexpr std::chrono::nanoseconds kIntervalMin = std::chrono::milliseconds{200};
constexpr std::chrono::nanoseconds kIntervalMax = std::chrono::minutes{1};
constexpr std::size_t kMaxAddresses = 16;
constexpr std::size_t kSecretBytesMax = 1'024;
constexpr std::size_t kAnswerBytesMax = std::size_t{64} << 20;
constexpr int kDepthMax = 16;
// For each list of /status: 100,000 members in all.
constexpr std::size_t kPageLength = 10'000;
constexpr std::size_t kPagesMax = 10;
// Keys and signals are handled in between.
constexpr std::chrono::nanoseconds kLiveTimeoutMax = std::chrono::seconds{2};

double seconds_of(SteadyClock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

tl::expected<std::string, Failure> read_secret(const std::string& path) {
  const auto content = remora::detail::read_file(path.c_str(), kSecretBytesMax + 2);
  if (!content) return fail(ExitCode::kLocal, path + ": cannot be read: " + std::strerror(errno));
  std::string text = content->substr(0, content->find('\n'));
  if (!text.empty() && text.back() == '\r') text.pop_back();
  if (text.empty() || text.size() > kSecretBytesMax)
    return fail(ExitCode::kLocal, path + ": expected one line of 1 to 1024 bytes");
  return text;
}

// --- one process ---------------------------------------------------------------------------------

/// A process and the connection to its endpoint.
class Watched {
 public:
  Watched(const std::string& address, const config::Endpoint& endpoint,
          std::chrono::nanoseconds timeout)
      : client_{endpoint.address, endpoint.port}, timeout_{timeout}, target_{.address = address} {
    client_.set_connection_timeout(std::chrono::duration_cast<std::chrono::microseconds>(timeout));
    client_.set_read_timeout(std::chrono::duration_cast<std::chrono::microseconds>(timeout));
    client_.set_keep_alive(false);
    client_.set_socket_options(leave_no_port);
  }

  void authorize(const std::string& token, const std::string& user, const std::string& password) {
    authorized_ = !token.empty() || !user.empty();
    if (!token.empty()) client_.set_bearer_token_auth(token);
    if (!user.empty()) client_.set_basic_auth(user, password);
  }

  /// Asks for new samples. target().trouble has the reason of a failure.
  void ask() {
    failed_.reset();
    const auto history = fetch("/history?since=" + std::to_string(target_.series.next()));
    auto status = history ? fetch_status() : std::nullopt;
    const auto now = SteadyClock::now();
    if (history && !target_.series.take(*history))
      fail_with(ExitCode::kConnection, "what answers is not an endpoint of Remora");
    if (!failed_ && status && status->is_object()) {
      target_.status_before = std::move(target_.status);
      target_.status = std::move(*status);
      target_.seconds_between =
          answered_at_ == SteadyClock::time_point{} ? 0 : seconds_of(now - answered_at_);
      answered_at_ = now;
    }
    target_.trouble = failed_ ? failed_->text : std::string{};
    target_.silent_seconds = failed_ ? seconds_of(now - std::max(answered_at_, began_)) : 0;
  }

  [[nodiscard]] const TopTarget& target() const noexcept { return target_; }
  [[nodiscard]] const std::optional<Failure>& failed() const noexcept { return failed_; }

 private:
  void fail_with(ExitCode code, std::string text) { failed_.emplace(code, std::move(text)); }

  static std::string explain(bool connected, bool too_long, bool late) {
    if (!connected)
      return "cannot connect: it has to be a server's metrics.address, or what a client was told "
             "by --metrics";
    if (too_long) return "its answer has no end: not an endpoint of Remora";
    if (late) return "no answer in time (--timeout)";
    return "its answer is not HTTP, or ended early: not an endpoint of Remora";
  }

  /// Closes the connection when the time is over: cpp-httplib limits each read, not an answer, and
  /// would read headers without an end. It is repeated, since cpp-httplib ignores it before it has
  /// connected.
  void hang_up_late(const std::stop_token& answered) {
    constexpr auto kAgainAfter = std::chrono::milliseconds{50};
    detail::Mutex mutex;
    detail::MutexLock lock{mutex};
    std::condition_variable_any never;
    const auto is_over = [&answered] { return answered.stop_requested(); };
    for (auto wait = timeout_; !never.wait_for(lock.native(), answered, wait, is_over);
         wait = kAgainAfter)
      client_.stop();
  }

  /// The status with all sessions and regions, page by page; an older server returns the first
  /// 1,000. A list that does not end, or not in time, is cut.
  std::optional<Json> fetch_status() {
    const auto until = SteadyClock::now() + timeout_;
    const std::string length = std::to_string(kPageLength);
    auto status = fetch("/status?limit=" + length);
    for (const char* const list : {"regions", "sessions"})
      for (std::size_t pages = 1; pages < kPagesMax && status; ++pages) {
        const std::string after = next_of(*status, list);
        if (after.empty() || SteadyClock::now() >= until) break;
        auto page = fetch(httplib::append_query_params(
            "/status", {{"limit", length}, {std::string{list} + "_after", after}}));
        if (!page) return std::nullopt;
        if (!page->is_object() || !(*page)[list].is_array()) break;
        for (Json& one : (*page)[list]) (*status)[list].push_back(std::move(one));
        (*status)[std::string{list} + "_next"] = (*page)[std::string{list} + "_next"];
      }
    return status;
  }

  /// Where the list continues; empty: it has ended.
  static std::string next_of(const Json& status, const std::string& list) {
    if (!status.is_object() || !status.contains(list) || !status[list].is_array()) return {};
    const auto next = status.find(list + "_next");
    return next != status.end() && next->is_string() ? next->get<std::string>() : std::string{};
  }

  struct Guard {
    ~Guard() { end(); }
    void end() {
      answered.request_stop();
      if (thread.joinable()) thread.join();
    }
    std::stop_source answered;
    std::thread thread;
  };

  std::optional<Json> fetch(const std::string& path) {
    const auto until = SteadyClock::now() + timeout_;
    std::string body;
    Guard guard;
    auto thread = detail::start_thread(
        "remora-hang-up", [this, over = guard.answered.get_token()] { hang_up_late(over); });
    if (!thread) {
      fail_with(ExitCode::kLocal, thread.error().message());
      return std::nullopt;
    }
    guard.thread = std::move(*thread);
    const httplib::Result answer = client_.Get(path, [&](const char* bytes, std::size_t count) {
      body.append(bytes, count);
      return body.size() <= kAnswerBytesMax && SteadyClock::now() < until;
    });
    guard.end();
    if (!answer) {
      const bool connected = answer.error() != httplib::Error::Connection &&
                             answer.error() != httplib::Error::ConnectionTimeout;
      fail_with(ExitCode::kConnection,
                explain(connected, body.size() > kAnswerBytesMax, SteadyClock::now() >= until));
      return std::nullopt;
    }
    if (answer->status == 401) {
      fail_with(ExitCode::kRefused,
                authorized_
                    ? "it refuses these credentials (401): are they its metrics.token, or its "
                      "metrics.user and password?"
                    : "it wants credentials: --token-file, or --user with --password-file");
      return std::nullopt;
    }
    if (answer->status == 421) {
      fail_with(ExitCode::kRefused,
                "it does not answer to this name (421): ask by its address, or list the name in "
                "its metrics.allowed_hosts");
      return std::nullopt;
    }
    if (answer->status != 200) {
      fail_with(ExitCode::kConnection, path.substr(0, path.find('?')) + " answers " +
                                           std::to_string(answer->status) +
                                           ": not an endpoint of Remora, or one without history");
      return std::nullopt;
    }
    // Values nested deeper than any of Remora's are left out: copying them would recurse as deep.
    const auto shallow = [](int depth, Json::parse_event_t, Json&) { return depth <= kDepthMax; };
    Json parsed = Json::parse(body, shallow, /*allow_exceptions=*/false);
    if (parsed.is_discarded()) {
      fail_with(ExitCode::kConnection, path + " is not JSON: not an endpoint of Remora");
      return std::nullopt;
    }
    return parsed;
  }

  /// Makes its connections, which it closes first, leave no TIME_WAIT: otherwise each refresh would
  /// leave one.
  static void leave_no_port(socket_t socket) {
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(socket, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }

  httplib::Client client_;
  bool authorized_ = false;
  std::chrono::nanoseconds timeout_;
  TopTarget target_;
  std::optional<Failure> failed_;
  SteadyClock::time_point began_ = SteadyClock::now();
  SteadyClock::time_point answered_at_{};
};

// --- the terminal --------------------------------------------------------------------------------

termios g_terminal_before;  // valid while g_keys
volatile std::sig_atomic_t g_keys = 0;

/// Async-signal-safe.
void give_terminal_back() noexcept {
  constexpr std::string_view kBack = "\x1b[?25h\x1b[?1049l";
  (void)!::write(STDOUT_FILENO, kBack.data(), kBack.size());
  if (g_keys != 0) ::tcsetattr(STDIN_FILENO, TCSANOW, &g_terminal_before);
}

/// All signals that end a process by default and can be caught, except SIGPIPE.
constexpr int kEndingSignals[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGABRT,   SIGALRM,
                                  SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ, SIGVTALRM, SIGSEGV,
                                  SIGBUS,  SIGFPE,  SIGILL,  SIGSYS,  SIGTRAP};

void die_in_order(int signal) {
  give_terminal_back();
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

/// The alternate screen, with keys as they are typed; the destructor, or a signal that ends the
/// program, restores the terminal.
class Screen {
 public:
  Screen() {
    keys_ = ::isatty(STDIN_FILENO) == 1 && ::tcgetattr(STDIN_FILENO, &g_terminal_before) == 0;
    g_keys = keys_ ? 1 : 0;
    for (const int signal : kEndingSignals) ::signal(signal, die_in_order);
    ::signal(SIGTSTP, SIG_IGN);  // a stopped program would leave the screen
    ::signal(SIGPIPE, SIG_IGN);  // a process that closes its connection
    if (keys_) {
      termios raw = g_terminal_before;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    put("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() { give_terminal_back(); }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  struct Size {
    std::size_t columns = 80;
    std::size_t rows = 24;
    friend bool operator==(const Size&, const Size&) = default;
  };
  [[nodiscard]] static Size size() {
    winsize found{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &found) != 0 || found.ws_col == 0 || found.ws_row == 0)
      return {};
    return {found.ws_col, found.ws_row};
  }

  /// Draws over the old lines, one by one, so that the screen does not flicker.
  static void draw(const std::vector<std::string>& lines) {
    std::string text = "\x1b[H";
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) text += "\r\n";
      const bool head = !lines[i].empty() && lines[i].find_first_not_of(' ') == 1 &&
                        std::isupper(static_cast<unsigned char>(lines[i][1])) != 0;
      text += head ? "\x1b[1m" + lines[i] + "\x1b[0m" : lines[i];
      text += "\x1b[K";
    }
    put(text + "\x1b[J");
  }

  /// A key, or 0 after `patience`, after a signal, or if standard input is no terminal.
  [[nodiscard]] char key(std::chrono::milliseconds patience) const {
    pollfd input{.fd = keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    char key = 0;
    if (::poll(&input, 1, static_cast<int>(patience.count())) == 1 &&
        ::read(STDIN_FILENO, &key, 1) == 1)
      return key;
    return 0;
  }

 private:
  static void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }

  bool keys_ = false;
};

std::vector<std::string> all_lines(const std::vector<std::unique_ptr<Watched>>& watched,
                                   std::size_t columns, std::size_t rows) {
  std::vector<std::string> lines;
  const std::size_t share = std::max<std::size_t>(rows / watched.size(), 3);
  for (const auto& each : watched) {
    if (!lines.empty()) lines.emplace_back();
    const std::size_t room = watched.size() == 1 ? rows : share - 1;
    for (std::string& line : top_lines(each->target(), columns, room))
      lines.push_back(std::move(line));
  }
  if (lines.size() > rows) lines.resize(rows);
  return lines;
}

Outcome watch(const std::vector<std::unique_ptr<Watched>>& watched, const TopOptions& options) {
  const Screen screen;
  bool paused = false;
  while (true) {
    if (!paused)
      for (const auto& each : watched) each->ask();
    const auto next = SteadyClock::now() + options.interval;
    Screen::Size drawn{0, 0};
    while (SteadyClock::now() < next) {
      if (const Screen::Size size = Screen::size(); !(size == drawn)) {
        drawn = size;
        std::vector<std::string> lines = all_lines(watched, size.columns, size.rows - 1);
        lines.resize(size.rows - 1);
        lines.push_back(paused ? " PAUSED  space: go on  q: quit" : " space: pause  q: quit");
        Screen::draw(lines);
      }
      const char key = screen.key(std::chrono::milliseconds{100});
      if (key == 'q' || key == 'Q') return ExitCode::kOk;
      if (key == ' ') {
        paused = !paused;
        break;
      }
    }
  }
  return ExitCode::kOk;
}

/// Prints once, without colours. Rates of sessions need two samples.
Outcome look_once(const Globals& globals, const std::vector<std::unique_ptr<Watched>>& watched) {
  std::optional<Failure> failure;
  Json document = Json::array();
  for (const auto& each : watched) {
    each->ask();
    if (each->failed()) {
      failure = Failure{each->failed()->exit_code,
                        "top " + each->target().address + ": " + each->failed()->text};
      document.push_back({{"address", each->target().address},
                          {"error", error_json(*failure, to_int(failure->exit_code))}});
      continue;
    }
    if (globals.json)
      document.push_back(top_json(each->target()));
    else
      for (const std::string& line : top_lines(each->target(), 200, 1'000))
        std::cout << line << '\n';
  }
  if (globals.json && (!failure || watched.size() > 1)) {
    print_json(Json{{"processes", std::move(document)}});
    if (failure) std::cerr << "remora: " << config::printable(failure->text) << '\n';
    return failure ? failure->exit_code : ExitCode::kOk;
  }
  if (failure) return tl::make_unexpected(std::move(*failure));
  return ExitCode::kOk;
}

/// HOST:PORT of an address that may be written as a URL, too. The scheme is case-insensitive.
std::string without_scheme(std::string address) {
  constexpr std::string_view kScheme = "http://";
  const bool has_scheme = ::strncasecmp(address.c_str(), kScheme.data(), kScheme.size()) == 0;
  if (!has_scheme) return address;
  address.erase(0, kScheme.size());
  if (address.ends_with('/')) address.pop_back();
  // A zone in a URL: [fe80::1%25eth0]. Source: RFC 6874, section 2.
  if (const std::size_t percent = address.find("%25"); percent != std::string::npos)
    address.erase(percent + 1, 2);
  return address;
}

Outcome top(const Globals& globals, const TopOptions& options) {
  if (options.interval < kIntervalMin || options.interval > kIntervalMax)
    return fail(ExitCode::kUsage, "--interval: must be 200ms to 1m");
  if (options.addresses.size() > kMaxAddresses)
    return fail(ExitCode::kUsage, "top: at most 16 addresses");
  if (options.user.empty() != options.password_file.empty())
    return fail(ExitCode::kUsage, "--user and --password-file come together");
  std::string token;
  std::string password;
  for (const auto& [path, secret] :
       {std::pair{&options.token_file, &token}, std::pair{&options.password_file, &password}}) {
    if (path->empty()) continue;
    auto read = read_secret(*path);
    if (!read) return tl::make_unexpected(read.error());
    *secret = std::move(*read);
  }
  const bool live = !globals.json && !options.once && ::isatty(STDOUT_FILENO) == 1;
  const auto timeout = live ? std::min(globals.timeout, kLiveTimeoutMax) : globals.timeout;
  std::vector<std::unique_ptr<Watched>> watched;
  for (const std::string& given : options.addresses) {
    const std::string address = without_scheme(given);
    const auto endpoint = config::parse_endpoint(address);
    if (!endpoint)
      return fail(ExitCode::kUsage, "top: '" + given +
                                        "' is no HOST:PORT of a metrics endpoint, "
                                        "such as 127.0.0.1:9471");
    watched.push_back(std::make_unique<Watched>(address, *endpoint, timeout));
    watched.back()->authorize(token, options.user, password);
  }
  return live ? watch(watched, options) : look_once(globals, watched);
}

}  // namespace

void add_top_command(Commands& commands) {
  const auto options = std::make_shared<TopOptions>();
  CLI::App* const command = commands.add(
      "top", "Watch servers and clients by their metrics endpoints, live. space pauses, q quits");
  command->add_option("address", options->addresses, "HOST:PORT of a metrics endpoint")
      ->type_name("HOST:PORT")
      ->required();
  add_duration(command, "--interval", options->interval, "Between two looks, 200ms to 1m (2s)");
  command->add_flag("--once", options->once,
                    "Print one look and end; so with --json and in a pipe");
  command->add_option("--token-file", options->token_file, "Its metrics.token, in a file")
      ->type_name("FILE")
      ->check(not_empty());
  command->add_option("--user", options->user, "Its metrics.user")
      ->type_name("NAME")
      ->check(not_empty());
  command->add_option("--password-file", options->password_file, "Its metrics.password, in a file")
      ->type_name("FILE")
      ->check(not_empty());
  Commands::on_run(command, [&commands, options] { return top(commands.globals(), *options); });
}

}  // namespace remora::apps
