#include "processes.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <ctime>
#include <fcntl.h>
#include <fstream>
#include <glob.h>
#include <linux/capability.h>
#include <malloc.h>
#include <mutex>
#include <poll.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sstream>
#include <stdexcept>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include <remora/metrics/registry.h>
#include <remora/remora.h>

#include "base/log.h"
#include "support/resources.h"
#include "support/server.h"
#include "support/stall_watch.h"

namespace remora::fault {
namespace {

using std::chrono::milliseconds;
using test::Child;
using test::HelperArguments;

milliseconds duration_of(const HelperArguments& arguments, const char* key, milliseconds fallback) {
  return milliseconds{arguments.number(key, static_cast<std::uint64_t>(fallback.count()))};
}

bool parent_spoke() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) != 0;
}

std::string in_one_line(std::string text) {
  for (char& c : text)
    if (c == '\n') c = ';';
  return text;
}

/// All but device objects, which all processes share: those are the test's to compare.
std::string counts_of_this_process() {
  std::string text;
  const test::Resources held = test::Resources::settled();
  for (const auto& [key, count] : held.counts())
    if (key.find("device ") != 0) text += key + ": " + std::to_string(count) + "; ";
  return text;
}

TransportKind transport_of(const HelperArguments& arguments) {
  for (const TransportKind kind : {TransportKind::kRdma, TransportKind::kTcp})
    if (arguments.text("transport") == to_string(kind)) return kind;
  return TransportKind::kShm;
}

/// Bytes in live allocations, those with a mapping of their own among them.
std::int64_t heap_bytes() {
  const struct mallinfo2 now = ::mallinfo2();
  return static_cast<std::int64_t>(now.uordblks + now.hblkhd);
}

config::ServerConfig config_of(const HelperArguments& arguments) {
  const TransportKind transport = transport_of(arguments);
  test::ServerOptions options;
  options.port = static_cast<std::uint16_t>(arguments.number("port"));
  options.pool_bytes = 64U << 20U;
  options.piece_bytes = 1U << 20U;
  options.sessions_max = static_cast<std::uint32_t>(arguments.number("sessions_max", 64));
  options.lease = duration_of(arguments, "lease", options.lease);
  options.keep = duration_of(arguments, "keep", options.keep);
  config::ServerConfig made = test::server_config(transport, options);
  if (arguments.number("shm_too") != 0 && transport != TransportKind::kShm)
    made.transports.shm = config::Availability::kAuto;
  made.limits.handshake_timeout = duration_of(arguments, "handshake", std::chrono::seconds{5});
  made.limits.revoke_grace = duration_of(arguments, "grace", std::chrono::seconds{1});
  for (std::uint64_t i = 0; i < arguments.number("regions", 1); ++i) {
    config::RegionConfig region;
    region.name = "t" + std::to_string(i);
    region.size_bytes = kRegionBytes;
    region.shm = transport == TransportKind::kShm;
    made.regions.push_back(region);
  }
  return made;
}

std::string limit(std::istringstream& words) {
  std::string name;
  std::int64_t more = 0;
  words >> name >> more;
  return set_limit(name, more) ? "ok" : "setrlimit failed";
}

/// An application that does not take notices while it is told so.
class NoticeGate {
 public:
  void hold(bool held) {
    const std::lock_guard lock{mutex_};
    held_ = held;
    opened_.notify_all();
  }
  void handle(std::uint32_t notice) {
    std::unique_lock lock{mutex_};
    opened_.wait(lock, [this] { return !held_; });
    if (notice < kMax) handled_[notice] = std::min(handled_[notice] + 1, 9);
  }
  /// How often each of [first, first + count) was handled, a digit each.
  [[nodiscard]] std::string handled(std::uint64_t first, std::uint64_t count) {
    const std::lock_guard lock{mutex_};
    std::string digits;
    for (std::uint64_t i = first; i < std::min(first + count, kMax); ++i)
      digits += static_cast<char>('0' + handled_[i]);
    return digits;
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool held_ = false;
  static constexpr std::uint64_t kMax = std::uint64_t{1} << 20U;
  std::vector<int> handled_ = std::vector<int>(kMax);
};

NoticeGate& notice_gate() {
  static NoticeGate gate;
  return gate;
}

std::string notices(std::istringstream& words, const std::string& verb) {
  if (verb == "handled") {
    std::uint64_t first = 0;
    std::uint64_t count = 0;
    words >> first >> count;
    return notice_gate().handled(first, count);
  }
  notice_gate().hold(verb == "hold");
  return "ok";
}

/// What the kernel does not say whose it is: windows, by the server's own count (without rdma
/// none); and what it still counts of regions that are gone.
std::string counts_of(Server& server) {
  std::string text;
  for (const char* const name :
       {"remora_server_registrations", "remora_server_windows", "remora_server_orphaned_bytes"})
    if (const auto sum = server.registry().sum(name, {}))
      text += std::string{name} + ": " + std::to_string(static_cast<std::uint64_t>(*sum)) + "; ";
  return text;
}

/// Another limits.handshake_timeout, in milliseconds.
Status set_handshake(const Server& server, const HelperArguments& arguments,
                     const std::string& timeout_ms) {
  config::Limits limits = config_of(arguments).limits;
  limits.handshake_timeout = std::chrono::milliseconds{std::stoul(timeout_ms)};
  return server.set_limits(limits);
}

std::string answer(Server& server, const HelperArguments& arguments, const std::string& line) {
  std::istringstream words{line};
  std::string verb;
  std::string name;
  words >> verb;
  if (verb == "limit") return limit(words);
  if (verb == "clock") return std::to_string(std::time(nullptr));
  if (verb == "lapsed") {
    const auto sum =
        server.registry().sum("remora_server_sessions_ended_total", {{"reason", "lapsed"}});
    return sum ? std::to_string(static_cast<std::uint64_t>(*sum)) : "no such series";
  }
  if (verb == "unwritten") {
    static std::uint64_t known = 0;
    LogWriter::of_stderr().flush(std::chrono::seconds{10});
    const std::uint64_t before = std::exchange(known, LogWriter::of_stderr().lost());
    return known > before ? "1" : "0";
  }
  if (verb == "heap") return std::to_string(heap_bytes());
  words >> name;
  if (verb == "notices") return notices(words, name);
  if (verb == "counts") {
    // The server's own behind the kernel's, which it waits for.
    const std::string settled = counts_of_this_process();
    return settled + counts_of(server);
  }
  if (verb == "status") {
    const ServerStatus now = server.status();
    return "sessions " + std::to_string(now.sessions) + " grants " + std::to_string(now.grants) +
           " regions " + std::to_string(now.regions) + " freeing " +
           std::to_string(now.pool_freeing_bytes);
  }
  Status done;
  if (verb == "handshake") {
    done = set_handshake(server, arguments, name);
  } else if (verb == "remove") {
    done = server.remove_region(name, Removal::kNow);
  } else if (verb == "create" || verb == "create-shm") {
    const auto made = server.create_region(
        {.name = name,
         .size_bytes = kRegionBytes,
         .shm = verb == "create-shm" || transport_of(arguments) == TransportKind::kShm});
    if (!made) done = made.error();
  } else {
    return "unknown line";
  }
  return done ? "ok" : in_one_line(done.error().message());
}

}  // namespace

bool give_up_ipc_lock() noexcept {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, 2> sets{};
  if (::syscall(SYS_capget, &header, sets.data()) != 0) return false;
  sets[CAP_TO_INDEX(CAP_IPC_LOCK)].effective &= ~CAP_TO_MASK(CAP_IPC_LOCK);
  return ::syscall(SYS_capset, &header, sets.data()) == 0;
}

bool set_limit(const std::string& name, std::int64_t more) {
  const auto resource = name == "nofile"    ? RLIMIT_NOFILE
                        : name == "memlock" ? RLIMIT_MEMLOCK
                                            : RLIMIT_AS;
  rlimit now{};
  ::getrlimit(resource, &now);
  std::uint64_t used = 0;
  if (resource == RLIMIT_NOFILE) {
    // The lowest that is free, which is what the next one would be.
    const int next = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    used = static_cast<std::uint64_t>(next);
    ::close(next);
  } else if (resource == RLIMIT_MEMLOCK) {
    used = static_cast<std::uint64_t>(test::Resources::settled().counts().at("pinned KiB")) * 1024;
  } else {
    // What is on its way out would make room below the limit.
    for (std::uint64_t before = 1; used != before;) {
      before = used;
      std::this_thread::sleep_for(std::chrono::milliseconds{50});
      std::ifstream{"/proc/self/statm"} >> used;
    }
    used *= static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  }
  now.rlim_cur = more < 0 ? now.rlim_max : used + static_cast<std::uint64_t>(more);
  return ::setrlimit(resource, &now) == 0;
}

int fault_pinner(const HelperArguments& arguments) {
  if (!give_up_ipc_lock()) return 4;
  EngineOptions options;
  options.reconnect_for = std::chrono::seconds{0};
  const Engine engine = Engine::open(options).value();
  const Region region = engine.open_region(arguments.text("uri"), Rights::kAll).value();
  std::vector<std::byte> bytes(arguments.number("bytes"));
  test::say("ready");
  while (const auto line = test::hear()) {
    std::istringstream words{*line};
    std::string verb;
    std::int64_t more = 0;
    words >> verb >> more;
    if (verb == "limit") {
      test::say(set_limit("memlock", more) ? "ok" : "setrlimit failed");
      continue;
    }
    // A read by memory that is registered for it, and let go of.
    const auto memory = engine.register_memory(bytes);
    const Status read =
        memory ? region.read(ByteOffset{0}, Target{*memory, 0, bytes.size()}) : memory.error();
    test::say(read ? "ok" : in_one_line(read.error().message()));
  }
  return 0;
}

int fault_poor(const HelperArguments& arguments) {
  // What is large is mapped anew each time, and found neither in what was let go of nor in the
  // address space that malloc sets aside for each thread.
  ::mallopt(M_MMAP_THRESHOLD, 128 << 10);
  ::mallopt(M_ARENA_MAX, 1);
  EngineOptions options;
  options.reconnect_for = std::chrono::seconds{0};
  const std::string uri = arguments.text("uri");
  const Engine engine = Engine::open(options).value();
  const Region region = engine.open_region(uri, Rights::kAll).value();
  std::vector<std::byte> bytes(1U << 20U);
  test::say("ready");
  while (const auto line = test::hear()) {
    std::istringstream words{*line};
    std::string verb;
    std::int64_t more = 0;
    words >> verb >> more;
    Status done;
    const auto note = [&done](const auto& made) {
      if (!made) done = made.error();
    };
    if (verb == "limit") {
      test::say(set_limit("as", more) ? "ok" : "setrlimit failed");
      continue;
    }
    try {
      if (verb == "slots") {
        note(engine.allocate_slots(64, 1U << 20U));
      } else if (verb == "queue") {
        note(region.queue({.depth = 1U << 16U}));
      } else if (verb == "connect") {
        if (const auto other = Engine::open(options); other)
          note(other->open_region(uri, Rights::kAll));
        else
          note(other);
      } else if (verb == "open") {
        note(engine.open_region(arguments.text("other"), Rights::kAll));
      } else if (verb == "work") {
        const auto memory = engine.register_memory(bytes);
        done = memory ? region.write(ByteOffset{0}, Source{*memory, 0, bytes.size()})
                      : Status{memory.error()};
        if (done) done = region.read(ByteOffset{0}, bytes);
        if (done) note(region.fetch_add(ByteOffset{0}, 1));
      }
    } catch (const std::exception& thrown) {
      test::say(std::string{"thrown: "} + thrown.what());
      continue;
    }
    test::say(done ? "ok" : in_one_line(done.error().message()));
  }
  return 0;
}

std::string faketime_library() {
  glob_t found{};
  std::string path;
  if (::glob("/usr/lib/*/faketime/libfaketime.so.1", 0, nullptr, &found) == 0 && found.gl_pathc > 0)
    path = found.gl_pathv[0];
  ::globfree(&found);
  return path;
}

int fault_server(const HelperArguments& arguments) {
  if (const std::string log = arguments.text("log"); !log.empty()) {
    const int file = ::open(log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0 || ::dup2(file, STDERR_FILENO) < 0) return 4;
    ::close(file);
    // Of the configuration a program takes the level, not the library.
    log::logger().set_level(spdlog::level::debug);
  }
  if (arguments.number("unprivileged") != 0 && !give_up_ipc_lock()) return 4;
  if (arguments.number("apart") != 0 && ::setsid() < 0) return 4;
  auto server = Server::start(config_of(arguments));
  if (!server) {
    std::fprintf(stderr, "fault-server: %s\n", server.error().message().c_str());
    return 1;
  }
  if (const std::string region = arguments.text("notices"); !region.empty())
    server->on_notify(region, [](const Notification& told) { notice_gate().handle(told.tag); })
        .value();
  test::say("listening " + std::to_string(server->port()));
  while (const auto line = test::hear()) test::say(answer(*server, arguments, *line));
  notice_gate().hold(false);
  server->stop();
  return 0;
}

int fault_load(const HelperArguments& arguments) {
  LoadOptions options;
  options.uri = arguments.text("uri");
  options.duration = duration_of(arguments, "duration", std::chrono::minutes{10});
  options.seed = arguments.number("seed", 1);
  const auto number = [&](const char* key, std::uint32_t& value) {
    value = static_cast<std::uint32_t>(arguments.number(key, value));
  };
  number("queues", options.queue_workers);
  number("threads", options.sync_workers);
  number("depth", options.depth);
  number("lanes", options.lanes);
  number("reads", options.reads);
  number("writes", options.writes);
  number("swaps", options.swaps);
  number("adds", options.adds);
  options.varied = arguments.number("varied") != 0;
  options.first_block = arguments.number("first", options.first_block);
  options.rate = arguments.number("rate", options.rate);
  options.records = arguments.number("records", options.records);
  options.deadline = duration_of(arguments, "deadline", options.deadline);
  options.control_deadline = duration_of(arguments, "control", options.control_deadline);
  options.reconnect_for = duration_of(arguments, "reconnect", options.reconnect_for);
  options.paused = duration_of(arguments, "paused", options.paused);
  options.fresh = arguments.number("fresh") != 0;
  options.reopen = arguments.number("reopen", 1) != 0;
  options.page = arguments.text("page");

  {  // What libraries make once and keep.
    const Engine warm = Engine::open({}).value();
    const Region region = warm.open_region(options.uri, Rights::kAll).value();
    std::vector<std::byte> bytes(64U << 10U);
    region.read(ByteOffset{0}, bytes).value();
  }
  const std::string baseline = counts_of_this_process();
  const std::int64_t heap = heap_bytes();
  LoadReport report;
  {
    const test::StallWatch stalls;
    if (arguments.number("excuse", 1) != 0) options.stalls = &stalls;
    report = run_load(options, parent_spoke, [] { test::say("ready"); });
    report.longest_stall_ms = static_cast<std::uint64_t>(stalls.longest().count());
  }
  std::string after = counts_of_this_process();
  for (int i = 0; i < 50 && after != baseline; ++i, after = counts_of_this_process())
    std::this_thread::sleep_for(milliseconds{100});
  report.heap_growth_bytes = heap_bytes() - heap;
  if (after != baseline) {
    ++report.violations_total;
    report.violations.push_back("I8: the client held " + baseline + "and now holds " + after);
  }
  test::say(report.json());
  return 0;
}

namespace {

/// Starts a helper whose wall clock is in the file `faketime`; empty: the real one.
Child started(const std::string& faketime, const std::string& helper,
              const std::vector<std::string>& words) {
  const std::array<std::pair<const char*, std::string>, 4> environment{
      {{"LD_PRELOAD", faketime_library()},
       {"FAKETIME_TIMESTAMP_FILE", faketime},
       {"FAKETIME_NO_CACHE", "1"},
       {"FAKETIME_DONT_FAKE_MONOTONIC", "1"}}};
  if (faketime.empty()) return Child{helper, words};
  for (const auto& [name, value] : environment) ::setenv(name, value.c_str(), 1);
  Child made{helper, words};
  for (const auto& [name, value] : environment) ::unsetenv(name);
  return made;
}

}  // namespace

FaultServer::FaultServer(TransportKind transport, const FaultServerOptions& options)
    : child_{started(
          options.faketime, "fault-server",
          {"transport=" + std::string{to_string(transport)}, "port=" + std::to_string(options.port),
           "regions=" + std::to_string(options.regions),
           "sessions_max=" + std::to_string(options.sessions_max),
           "lease=" + std::to_string(options.lease.count()),
           "keep=" + std::to_string(options.keep.count()),
           "handshake=" + std::to_string(options.handshake.count()),
           "grace=" + std::to_string(options.grace.count()), "log=" + options.log,
           std::string{"shm_too="} + (options.shm_too ? "1" : "0"),
           std::string{"unprivileged="} + (options.unprivileged ? "1" : "0"),
           std::string{"apart="} + (options.apart ? "1" : "0"), "notices=" + options.notices})} {
  const auto line = child_.read_line();
  if (!line || line->rfind("listening ", 0) != 0)
    throw std::runtime_error("the server process does not listen");
  port_ = static_cast<std::uint16_t>(std::stoul(line->substr(10)));
}

std::string FaultServer::ask(const std::string& line) {
  child_.write_line(line);
  return child_.read_line(std::chrono::seconds{20}).value_or("no answer");
}

bool FaultServer::soon_sessions(std::uint64_t wanted) {
  const std::string start = "sessions " + std::to_string(wanted) + " ";
  for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(milliseconds{10}))
    if (ask("status").rfind(start, 0) == 0) return true;
  return false;
}

int FaultServer::stop() {
  child_.close_input();
  return child_.wait().value_or(-1);
}

LoadProcess::LoadProcess(const std::vector<std::string>& words, const std::string& faketime)
    : child_{started(faketime, "load", words)} {
  if (child_.read_line(std::chrono::seconds{90}) != "ready")
    throw std::runtime_error("a load did not get under way");
}

std::optional<LoadReport> LoadProcess::finish() {
  child_.write_line("enough");
  const auto line = child_.read_line(std::chrono::seconds{60});
  if (!line || child_.wait() != 0) return std::nullopt;
  return LoadReport::from_json(*line);
}

}  // namespace remora::fault
