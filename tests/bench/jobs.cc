#include "jobs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <optional>
#include <sched.h>
#include <sstream>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace remora::bench {
namespace {

using Clock = std::chrono::steady_clock;

/// Operations between two looks at the clock, so that it costs the fast ones nothing.
constexpr std::size_t kClockEvery = 64;
/// Parts of the time of a job that asks for the steady rate.
constexpr double kParts = 200;

std::optional<Job> parse(const std::string& line) {
  std::istringstream words{line};
  std::string op;
  std::string unit;
  Job job;
  if (!(words >> op >> job.block_bytes >> job.depth >> unit >> job.milliseconds)) return {};
  if (unit == "ops/s")
    job.unit = Unit::kRate;
  else if (unit == "steady/s")
    job.unit = Unit::kSteadyRate;
  else if (unit == "ns")
    job.unit = Unit::kNanoseconds;
  else
    return {};
  if (op == "read")
    job.op = Op::kRead;
  else if (op == "write")
    job.op = Op::kWrite;
  else if (op == "add")
    job.op = Op::kFetchAdd;
  else if (op == "cas")
    job.op = Op::kCompareSwap;
  else
    return {};
  if (job.block_bytes == 0 || job.depth == 0 || (job.unit == Unit::kNanoseconds && job.depth != 1))
    return {};
  return job;
}

Clock::duration of_milliseconds(double value) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double, std::milli>{value});
}

void warm_up(Client& client, const Job& job) {
  const auto end = Clock::now() + of_milliseconds(job.milliseconds / 10);
  do {
    client.advance();
  } while (Clock::now() < end);
  client.drain();
}

/// The value below which `part` of `values` lie; at least one value.
double quantile(std::vector<double>& values, double part) {
  const auto place = static_cast<std::ptrdiff_t>(static_cast<double>(values.size()) * part);
  const auto at = std::min(values.begin() + place, values.end() - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

/// Works for `time`, and for at least `least` operations. Operations a second; the clock is moved
/// on.
double rate_of_part(Client& client, Clock::duration time, std::size_t clock_every,
                    std::size_t least, Clock::time_point& began, std::size_t& done) {
  const auto end = began + time;
  const std::size_t before = done;
  Clock::time_point now;
  do {
    for (std::size_t batch = 0; batch < clock_every;) {
      const std::size_t completed = client.advance();
      batch += completed;
      done += completed;
    }
    now = Clock::now();
  } while (now < end || done - before < least);
  const std::chrono::duration<double> took = now - began;
  began = now;
  return static_cast<double>(done - before) / took.count();
}

double rate(Client& client, const Job& job) {
  const std::size_t clock_every = job.block_bytes < 32768 ? kClockEvery : 1;
  const auto began = Clock::now();
  auto now = began;
  std::size_t done = 0;
  if (job.unit == Unit::kSteadyRate) {
    std::vector<double> parts;
    const auto part = of_milliseconds(job.milliseconds / kParts);
    for (const auto end = began + of_milliseconds(job.milliseconds); now < end;)
      parts.push_back(rate_of_part(client, part, clock_every, 2 * job.depth, now, done));
    client.drain();
    return quantile(parts, 0.9);
  }
  rate_of_part(client, of_milliseconds(job.milliseconds), clock_every, 1, now, done);
  done += client.drain();
  const std::chrono::duration<double> took = Clock::now() - began;
  return static_cast<double>(done) / took.count();
}

/// Median nanoseconds of one operation.
double latency(Client& client, const Job& job) {
  std::vector<double> samples;
  samples.reserve(1U << 20U);
  const auto end = Clock::now() + of_milliseconds(job.milliseconds);
  auto before = Clock::now();
  while (before < end && samples.size() < samples.capacity()) {
    client.advance();
    const auto after = Clock::now();
    samples.push_back(std::chrono::duration<double, std::nano>{after - before}.count());
    before = after;
  }
  client.drain();
  return quantile(samples, 0.5);
}

}  // namespace

void pin_to_core(int core) {
  if (core < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(core), &set);
  require(::sched_setaffinity(0, sizeof set, &set) == 0, "sched_setaffinity");
}

std::byte* populated_pages(std::size_t bytes) {
  void* const pages = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  require(pages != MAP_FAILED, "mmap");
  return static_cast<std::byte*>(pages);
}

namespace {

/// The process that serves, while it is to live.
volatile pid_t serving = 0;

/// That it has died is said at once, by its own name: else its client says that it gave up waiting.
void tell_of_dead_server(int /*signal*/) {
  int status = 0;
  const pid_t child = serving;
  if (child == 0 || ::waitpid(child, &status, WNOHANG) != child) return;
  constexpr std::string_view kKilled =
      "the server process was killed by SIGKILL: out of memory, unless it was ended by hand "
      "(dmesg)\n";
  constexpr std::string_view kEnded = "the server process ended\n";
  const std::string_view text =
      WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL ? kKilled : kEnded;
  [[maybe_unused]] const ssize_t wrote = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(1);
}

void watch_server(pid_t child) {
  serving = child;
  struct sigaction action {};
  action.sa_handler = child != 0 ? tell_of_dead_server : SIG_DFL;
  action.sa_flags = SA_NOCLDSTOP | SA_RESTART;  // it is stopped between jobs
  require(::sigaction(SIGCHLD, &action, nullptr) == 0, "sigaction");
  if (child != 0) tell_of_dead_server(SIGCHLD);  // it may have been before
}

}  // namespace

std::unique_ptr<ServerProcess> ServerProcess::start(int core,
                                                    const std::function<void(int)>& serve) {
  std::array<int, 2> ends{};
  require(::pipe(ends.data()) == 0, "pipe");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  require(child >= 0, "fork");
  if (child == 0) {
    ::close(ends[0]);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) std::_Exit(1);
    pin_to_core(core);
    serve(ends[1]);
    std::_Exit(1);
  }
  ::close(ends[1]);
  std::string told;
  std::array<char, 4096> part{};
  // The child's line ends with a line feed; its end of the pipe may stay open in programs it
  // starts.
  for (;;) {
    const ssize_t got = ::read(ends[0], part.data(), part.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) give_up("the server process ended before it was ready");
    told.append(part.data(), static_cast<std::size_t>(got));
    if (told.back() == '\n') break;
  }
  ::close(ends[0]);
  told.pop_back();
  watch_server(child);
  return std::unique_ptr<ServerProcess>{new ServerProcess{child, told}};
}

std::unique_ptr<ServerProcess> ServerProcess::start(const Arguments& arguments,
                                                    const std::function<void(int)>& serve) {
  auto started = start(arguments.number("--server-core", 0), serve);
  pin_to_core(arguments.number("--core", 1));
  return started;
}

ServerProcess::~ServerProcess() {
  watch_server(0);
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, 0);
}

void ServerProcess::tell(int where, std::string_view text) {
  std::string line{text};
  line += '\n';
  for (std::size_t sent = 0; sent < line.size();) {
    const ssize_t wrote = ::write(where, line.data() + sent, line.size() - sent);
    require(wrote > 0, "write to the parent");
    sent += static_cast<std::size_t>(wrote);
  }
}

void ServerProcess::stop() const noexcept { ::kill(child_, SIGSTOP); }
void ServerProcess::go_on() const noexcept { ::kill(child_, SIGCONT); }

int answer_jobs(Client& client, const ServerProcess* server) {
  if (server != nullptr) server->stop();
  for (std::string line; std::getline(std::cin, line);) {
    const std::optional<Job> job = parse(line);
    if (!job) give_up("not a job: " + line);
    if (server != nullptr) server->go_on();
    if (client.prepare(*job)) {
      warm_up(client, *job);
      std::printf("%.3f\n",
                  job->unit == Unit::kNanoseconds ? latency(client, *job) : rate(client, *job));
    } else {
      std::puts("unsupported");
    }
    if (server != nullptr) server->stop();
    std::fflush(stdout);
  }
  return 0;
}

std::string Arguments::text(std::string_view name, std::string_view otherwise) const {
  for (int i = 1; i + 1 < argc_; i += 2)
    if (name == argv_[i]) return argv_[i + 1];
  return std::string{otherwise};
}

int Arguments::number(std::string_view name, int otherwise) const {
  const std::string found = text(name, "");
  return found.empty() ? otherwise : std::atoi(found.c_str());
}

std::size_t Arguments::region_bytes() const {
  return static_cast<std::size_t>(number("--region-mib", 1024)) << 20U;
}

bool Arguments::polling() const { return text("--mode", "polling") == "polling"; }

void Arguments::expect(std::initializer_list<std::string_view> names) const {
  for (int i = 1; i < argc_; i += 2) {
    if (std::find(names.begin(), names.end(), argv_[i]) != names.end() && i + 1 < argc_) continue;
    std::string all;
    for (const std::string_view name : names) all += " [" + std::string{name} + " VALUE]";
    give_up(std::string{argv_[i]} + " is no option, or lacks its value; there are" + all);
  }
}

void give_up(const std::string& what) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, what.c_str());
  std::_Exit(1);
}

void require(bool good, const char* what) {
  if (!good) give_up(std::string{what} + ": " + std::strerror(errno));
}

}  // namespace remora::bench
