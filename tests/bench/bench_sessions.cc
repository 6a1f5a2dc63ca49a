/// What a session costs a server: memory while it is idle and after traffic, memory when all
/// sessions have gone, and the time in which a client connects.
///
///   bench_sessions --uri URI --pid PID [--sessions 400] [--opens 0] [--within 0]
///
/// URI: a region of at least 64 KiB with all rights, of the remora-server that is process PID on
/// this host. Memory is the server's own (RssAnon of /proc/PID/status): not the pool, not the
/// program. --opens COUNT: then all sessions at once open the region so many times each, by a
/// thread each. --within PERCENT: when all sessions have gone, waits for at most 90 s until the
/// server has no more than so many percent of its memory before them; exit status 1: it has more.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "measured_server.h"
#include "stats.h"

namespace remora::bench {
namespace {

using Steady = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::size_t kBlockBytes = 64U << 10U;
constexpr std::size_t kDepth = 32;

/// A process of a client, as the server sees it: engines share no session.
struct SessionClient {
  Engine engine;
  Region region;
};

/// `connected_ms`: how long the session took, without opening the region.
SessionClient connect(const std::string& uri, std::vector<double>& connected_ms) {
  EngineOptions options;
  options.control_deadline = std::chrono::seconds{60};
  options.mr_cache_bytes = 0;  // of which a process has fewer than sessions
  Engine engine = Engine::open(options).value();
  const auto began = Steady::now();
  const Session session = engine.connect(uri).value();
  connected_ms.push_back(std::chrono::duration<double, std::milli>(Steady::now() - began).count());
  Region region = engine.open_region(uri, Rights::kAll).value();
  return {std::move(engine), std::move(region)};
}

/// Writes and reads that fill the buffers of the session's lane in the server.
void make_traffic(const Region& region) {
  std::vector<std::byte> bytes(kBlockBytes, std::byte{0x5a});
  Queue queue = region.queue({.depth = kDepth}).value();
  for (const bool writing : {true, false}) {
    for (std::size_t i = 0; i < kDepth; ++i) {
      if (writing)
        queue.write(ByteOffset{0}, std::span{bytes});
      else
        queue.read(ByteOffset{0}, std::span{bytes});
    }
    queue.submit().value();
    for (std::size_t done = 0; done < kDepth;) done += successes(queue.wait(1));
  }
}

/// All sessions open the region `opens` times, at the same time. The milliseconds of each open.
std::vector<double> open_at_once(const std::vector<SessionClient>& clients, const std::string& uri,
                                 int opens) {
  std::vector<std::vector<double>> took(clients.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < clients.size(); ++i)
    threads.emplace_back([&clients, &uri, &took, opens, i] {
      std::vector<Region> regions;
      for (int left = opens; left > 0; --left) {
        const auto began = Steady::now();
        auto region = clients[i].engine.open_region(uri, Rights::kAll);
        if (!region) give_up(region.error().message());
        took[i].push_back(std::chrono::duration<double, std::milli>(Steady::now() - began).count());
        regions.push_back(std::move(*region));
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::vector<double> all;
  for (const std::vector<double>& each : took) all.insert(all.end(), each.begin(), each.end());
  return all;
}

double own_kib(int pid) {
  std::ifstream status{"/proc/" + std::to_string(pid) + "/status"};
  for (std::string line; std::getline(status, line);)
    if (line.rfind("RssAnon:", 0) == 0) return std::strtod(line.c_str() + 8, nullptr);
  give_up("there is no process " + std::to_string(pid) + " (--pid), or it is another user's");
}

/// Once it has stayed the same for a moment.
double settled_kib(int pid) {
  double found = own_kib(pid);
  for (int same = 0, tries = 0; same < 5 && tries < 100; ++tries) {
    std::this_thread::sleep_for(milliseconds{20});
    const double next = own_kib(pid);
    same = next == found ? same + 1 : 0;
    found = next;
  }
  return found;
}

void allow_descriptors() {
  rlimit limit{};
  require(::getrlimit(RLIMIT_NOFILE, &limit) == 0, "getrlimit");
  limit.rlim_cur = limit.rlim_max;
  require(::setrlimit(RLIMIT_NOFILE, &limit) == 0, "setrlimit");
}

void print(const char* what, double value, const char* unit) {
  std::printf("| %s | %.1f %s |\n", what, value, unit);
}

int run(const Arguments& arguments) {
  arguments.expect({"--uri", "--pid", "--sessions", "--opens", "--within"});
  const std::string uri = arguments.text("--uri", "");
  const int pid = arguments.number("--pid", 0);
  const int count = arguments.number("--sessions", 400);
  const int opens = arguments.number("--opens", 0);
  const int percent = arguments.number("--within", 0);
  if (uri.empty() || pid <= 0 || count <= 0)
    give_up("give it --uri, --pid, and --sessions above 0");
  allow_descriptors();
  std::vector<double> connected_ms;
  // Libraries and the server make some things once.
  make_traffic(connect(uri, connected_ms).region);
  connected_ms.clear();

  const double before = settled_kib(pid);
  std::vector<SessionClient> clients;
  for (int i = 0; i < count; ++i) clients.push_back(connect(uri, connected_ms));
  const double idle = settled_kib(pid);
  for (const SessionClient& client : clients) make_traffic(client.region);
  const double busy = settled_kib(pid);
  const auto opening = Steady::now();
  const std::vector<double> opened_ms =
      opens > 0 ? open_at_once(clients, uri, opens) : std::vector<double>{};
  const double opening_s = std::chrono::duration<double>(Steady::now() - opening).count();
  clients.clear();

  const double most = before * percent / 100;
  const auto left = Steady::now();
  double after = settled_kib(pid);
  while (percent != 0 && after > most && Steady::now() - left < std::chrono::seconds{90}) {
    std::this_thread::sleep_for(milliseconds{200});
    after = own_kib(pid);
  }
  const double waited = std::chrono::duration<double>(Steady::now() - left).count();

  std::printf("| %d sessions | |\n|---|---|\n", count);
  print("memory of the server before them", before, "KiB");
  print("a session that is idle", (idle - before) / count, "KiB");
  print("a session after traffic", (busy - before) / count, "KiB");
  print("memory when all have gone, beside before", after / before * 100, "%");
  print("that long after they have gone", waited, "s");
  print("connecting, median", estimate(std::move(connected_ms)).median, "ms");
  if (!opened_ms.empty()) {
    print("all opens, at once", opening_s, "s");
    print("the slowest of them", *std::max_element(opened_ms.begin(), opened_ms.end()), "ms");
  }
  return percent == 0 || after <= most ? 0 : 1;
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  return remora::bench::run_program(argc, argv, remora::bench::run);
}
