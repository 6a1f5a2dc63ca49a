// What belongs to the application stays as the application has left it, whatever the library does:
// a server with its endpoint, sessions over each transport, errors, and the end of all of them.

#include <array>
#include <cfenv>
#include <clocale>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <exception>
#include <gtest/gtest.h>
#include <locale>
#include <map>
#include <new>
#include <spdlog/spdlog.h>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tbb/global_control.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/config/load.h>
#include <remora/config/units.h>
#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>
#include <remora/remora.h>

#include "support/runtime_dir.h"
#include "support/server.h"

namespace remora::test {
namespace {

using State = std::map<std::string, std::string>;

template <typename Value>
void put(State& state, const std::string& name, const Value& value) {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << value;
  state[name] = text.str();
}

void put_signals(State& state) {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now {};
    if (::sigaction(signal, nullptr, &now) != 0) continue;
    const std::string name = "signal " + std::to_string(signal);
    put(state, name, reinterpret_cast<const void*>(now.sa_handler));
    constexpr int kRestorer = 0x04000000;  // by libc, for whatever was set through it
    put(state, name + " flags", now.sa_flags & ~kRestorer);
  }
  sigset_t blocked;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  std::string text;
  for (int signal = 1; signal < NSIG; ++signal) text += ::sigismember(&blocked, signal) == 1;
  state["signal mask"] = text;
}

void put_limits(State& state) {
  for (int resource = 0; resource < static_cast<int>(RLIM_NLIMITS); ++resource) {
    rlimit limit{};
    ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
    put(state, "soft limit " + std::to_string(resource), limit.rlim_cur);
    put(state, "hard limit " + std::to_string(resource), limit.rlim_max);
  }
}

State process_state() {
  State state;
  put_signals(state);
  put_limits(state);
  put(state, "C locale", std::setlocale(LC_ALL, nullptr));
  put(state, "C++ locale", std::locale{}.name());
  for (char** each = environ; *each != nullptr; ++each)
    state["environment"] += *each + std::string{"\n"};
  const mode_t mask = ::umask(0);
  ::umask(mask);
  put(state, "umask", mask);
  put(state, "optind", optind);
  put(state, "opterr", opterr);
  std::array<char, 4096> folder{};
  state["working folder"] = ::getcwd(folder.data(), folder.size());
  put(state, "terminate handler", reinterpret_cast<const void*>(std::get_terminate()));
  put(state, "new handler", reinterpret_cast<const void*>(std::get_new_handler()));
  put(state, "rounding", std::fegetround());
  put(state, "floating exceptions", std::fetestexcept(0));
  put(state, "dumpable", ::prctl(PR_GET_DUMPABLE));
  put(state, "death signal", [] {
    int signal = 0;
    ::prctl(PR_GET_PDEATHSIG, &signal);
    return signal;
  }());
  put(state, "timer slack", ::prctl(PR_GET_TIMERSLACK));
  std::array<char, 17> name{};
  ::prctl(PR_GET_NAME, name.data());
  state["thread's name"] = name.data();
  put(state, "niceness", ::getpriority(PRIO_PROCESS, 0));
  put(state, "oneTBB parallelism",
      tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism));
  put(state, "spdlog's default", static_cast<const void*>(spdlog::default_logger().get()));
  put(state, "spdlog's level", static_cast<int>(spdlog::get_level()));
  spdlog::apply_all([&](const std::shared_ptr<spdlog::logger>& logger) {
    state["spdlog's loggers"] += logger->name() + "\n";
  });
  return state;
}

/// Everything the library has: a server with its endpoint, sessions, errors.
void use_the_library() {
  auto config = server_config(TransportKind::kTcp, {.all_transports = true});
  config.transports.rdma = config::Availability::kOff;
  config.regions.push_back({.name = "demo", .size_bytes = 65536, .shm = true});
  const auto registry = metrics::Registry::create().value();
  const auto server = Server::start(config, registry).value();
  const auto endpoint = metrics::HttpEndpoint::start(registry, {.address = "127.0.0.1:0"}).value();
  const auto engine = Engine::open({.pollers = 1, .arena_threads = 1}).value();
  const std::string uri =
      "remora://127.0.0.1:" + std::to_string(server.port()) + "/demo?transport=";
  for (const char* transport : {"tcp", "shm"}) {
    const auto region = engine.open_region(uri + transport, Rights::kAll).value();
    const std::vector<std::byte> out(32768, std::byte{9});
    std::vector<std::byte> in(out.size());
    region.write(ByteOffset{0}, out).value();
    region.read(ByteOffset{0}, in).value();
    EXPECT_EQ(in, out);
    EXPECT_FALSE(region.read(ByteOffset{65536}, in));
  }
  EXPECT_FALSE(engine.open_region(uri + "rdma", Rights::kAll));
  EXPECT_FALSE(config::load_server("/nonexistent/server.yaml"));
}

TEST(ProcessStateTest, StaysAsTheApplicationHasLeftIt) {
  const RuntimeDir runtime_dir;
  const State before = process_state();
  use_the_library();
  const State after = process_state();
  for (const auto& [name, value] : before) EXPECT_EQ(after.at(name), value) << name;
  EXPECT_EQ(after.size(), before.size());
}

// cpp-httplib's server ignores SIGPIPE when it is made; what was there before is put back, also
// where several endpoints start at once.
TEST(ProcessStateTest, EndpointsThatStartAtOnceLeaveSigpipeAlone) {
  const auto registry = metrics::Registry::create().value();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) {
        const auto endpoint = metrics::HttpEndpoint::start(
            registry, {.address = "127.0.0.1:0", .history = std::chrono::minutes{0}});
        EXPECT_TRUE(endpoint);
      }
    });
  for (std::thread& thread : threads) thread.join();
  struct sigaction now {};
  ASSERT_EQ(::sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_EQ(now.sa_handler, SIG_DFL);
}

/// Groups digits, and writes a comma for the point.
class Grouping final : public std::numpunct<char> {
 protected:
  [[nodiscard]] char do_decimal_point() const override { return ','; }
  [[nodiscard]] char do_thousands_sep() const override { return '.'; }
  [[nodiscard]] std::string do_grouping() const override { return "\3"; }
};

/// Sets the application's locale, until it is destroyed.
class SetLocale {
 public:
  SetLocale() : before_{std::locale::global({std::locale{}, new Grouping})} {}
  ~SetLocale() { std::locale::global(before_); }
  SetLocale(const SetLocale&) = delete;
  SetLocale& operator=(const SetLocale&) = delete;

 private:
  std::locale before_;
};

// Metrics, sizes and errors read the same in every locale that the application may set.
TEST(ProcessStateTest, LocaleOfTheApplicationChangesNoText) {
  const auto text = [] {
    const auto registry = metrics::Registry::create().value();
    registry->recorder().add(registry->counter("many_total", "Many.").value(), 1'234'567);
    registry->gauge_callback("half", "Half.", {}, [] { return 1234.5; }).value().release();
    const auto read = config::parse_server("pool: {size: 64MiB}\n", "file.yaml");
    return registry->text() + (read ? config::format_size(read->pool.size_bytes) : "wrong") +
           Error{Code::kLimitExceeded, "call"}.with_limit(1'234'567, 1).message() +
           (Uri::parse("remora://h:17471/r") ? "" : "no URI");
  };
  const std::string before = text();
  const SetLocale set;
  EXPECT_EQ(text(), before);
}

}  // namespace
}  // namespace remora::test
