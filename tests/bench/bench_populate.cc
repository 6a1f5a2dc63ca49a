// What it costs to populate a pool, by one thread and by several, and to enter its pages in the
// page table of a client over shm, beside memset: seconds for a GiB.
//
//   bench_populate [GIB [ROUNDS]]      default: 4 GiB, 3 rounds; so much memory must be free
//
// Each round makes every row once, in turn; a row is the least of its rounds. memset writes memory
// that is not there yet, as populating does, and then memory that is.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

#include "base/parallel_steps.h"
#include "server/memory/shared_memory.h"
#include "transport/shm/mapping.h"

namespace remora::detail {
namespace {

using SteadyClock = std::chrono::steady_clock;

double seconds_of(const std::function<void()>& what) {
  const auto begin = SteadyClock::now();
  what();
  return std::chrono::duration<double>(SteadyClock::now() - begin).count();
}

/// Of memory that is made for it; negative: there is not so much.
double populate(std::uint64_t bytes, config::HugePages pages, std::size_t threads) {
  auto memory = SharedMemory::create("bench-populate", bytes, pages, false);
  if (!memory) return -1;
  // Where huge pages are asked for, create() has populated the memory already.
  if (memory->huge() && !memory->punch(0, bytes).ok()) return -1;
  bool good = true;
  const double seconds = seconds_of(
      [&] { good = memory->populate(0, bytes, {.threads_max = threads, .thread_bytes = 1}).ok(); });
  return good ? seconds : -1;
}

/// A client over shm enters the pages of a region that is there (EngineOptions::populate, kNow);
/// negative: not possible here.
double enter(std::uint64_t bytes, config::HugePages pages) {
  const auto memory = SharedMemory::create("bench-populate", bytes, pages, true);
  if (!memory) return -1;
  const auto mapping = transport::Mapping::map(memory->fd(), bytes, PROT_READ | PROT_WRITE);
  if (!mapping) return -1;
  return seconds_of([&] { (*mapping)->populate(Populate::kNow, true); });
}

/// memset of anonymous memory, the first time and again.
std::pair<double, double> set_memory(std::uint64_t bytes) {
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return {-1, -1};
  ::madvise(memory, bytes, MADV_NOHUGEPAGE);
  const double first = seconds_of([&] { std::memset(memory, 1, bytes); });
  const double again = seconds_of([&] { std::memset(memory, 2, bytes); });
  ::munmap(memory, bytes);
  return {first, again};
}

struct Row {
  std::string name;
  double least = std::numeric_limits<double>::max();
  void take(double seconds) { least = std::min(least, seconds); }
};

int run(std::uint64_t gib, int rounds) {
  const std::uint64_t bytes = gib << 30U;
  std::vector<std::size_t> threads;
  const std::size_t processors = usable_processors();
  for (std::size_t each = 1; each < processors; each *= 2) threads.push_back(each);
  threads.push_back(processors);
  std::vector<Row> rows{{"memset, memory that is not there yet"}, {"memset again"}};
  for (const std::size_t each : threads)
    rows.push_back({"populate, ordinary pages, threads: " + std::to_string(each)});
  for (const std::size_t each : threads)
    rows.push_back({"populate, huge pages, threads: " + std::to_string(each)});
  const std::size_t entered = rows.size();
  rows.push_back({"open over shm, ordinary pages"});
  rows.push_back({"open over shm, huge pages"});
  for (int round = 0; round < rounds; ++round) {
    const auto [first, again] = set_memory(bytes);
    rows[0].take(first);
    rows[1].take(again);
    for (std::size_t i = 0; i < threads.size(); ++i) {
      rows[2 + i].take(populate(bytes, config::HugePages::kNever, threads[i]));
      rows[2 + threads.size() + i].take(populate(bytes, config::HugePages::kRequire, threads[i]));
    }
    rows[entered].take(enter(bytes, config::HugePages::kNever));
    rows[entered + 1].take(enter(bytes, config::HugePages::kRequire));
  }
  std::printf("| what, %lu GiB | seconds for a GiB |\n|---|---|\n",
              static_cast<unsigned long>(gib));
  for (const Row& row : rows) {
    if (row.least < 0)
      std::printf("| %s | not to be had here |\n", row.name.c_str());
    else
      std::printf("| %s | %.3f |\n", row.name.c_str(), row.least / static_cast<double>(gib));
  }
  return 0;
}

}  // namespace
}  // namespace remora::detail

int main(int argc, char** argv) {
  const int gib = argc > 1 ? std::atoi(argv[1]) : 4;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 3;
  if (argc > 3 || gib < 1 || rounds < 1) {
    std::fputs("usage: bench_populate [GIB [ROUNDS]]\n", stderr);
    return 2;
  }
  return remora::detail::run(static_cast<std::uint64_t>(gib), rounds);
}
