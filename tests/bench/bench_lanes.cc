/// Large transfers over 2 and 4 lanes beside the same over one, turn by turn:
///
///   bench_lanes [--transport tcp|rdma] [--pairs 15] [--milliseconds 60]
///               [--only alone|queued] [--address 127.0.0.1] [--core 1] [--server-core 0]
///
/// - alone: synchronous calls, which go over all lanes by themselves;
/// - parts: so many operations in flight, each cut into a part for a queue on every lane: what a
///   queue could gain that did so by itself;
/// - in turn: so many in flight, whole ones, on the queue that has fewest. What an application can
///   have that opens a queue for each lane.
///
/// Everything polls: a thread with several queues polls one after the other.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "measured_server.h"
#include "stats.h"

namespace remora::bench {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)
using Steady = std::chrono::steady_clock;

constexpr std::size_t kMiB = std::size_t{1} << 20U;
constexpr std::size_t kRegionBytes = 256 * kMiB;
constexpr std::size_t kMaxSize = 8 * kMiB;
constexpr std::size_t kMaxDepth = 4;
/// No part is shorter.
constexpr std::size_t kPartBytes = kMiB / 4;
constexpr std::array<std::uint32_t, 3> kLanes{1, 2, 4};

enum class How : std::uint8_t { kAlone, kParts, kInTurn };

struct Work {
  How how;
  bool write;
  std::size_t size_bytes;
  std::size_t depth;
};

/// Places in the region, far from each other and all of them in the end.
class Places {
 public:
  explicit Places(std::size_t size_bytes) : size_bytes_{size_bytes} {}
  ByteOffset next() noexcept {
    at_ = (at_ + 7) % (kRegionBytes / size_bytes_);
    return ByteOffset{at_ * size_bytes_};
  }

 private:
  std::size_t size_bytes_;
  std::size_t at_ = 0;
};

/// A session with so many lanes.
class Side {
 public:
  Side(const MeasuredServer& server, std::uint32_t lanes, const std::string& port)
      : lanes_{lanes},
        bytes_(kMaxDepth * kMaxSize, std::byte{1}),
        engine_{open(lanes)},
        region_{server.open(engine_, port)},
        memory_{engine_.register_memory(bytes_).value()} {}

  /// Bytes in a second.
  double rate(const Work& work, std::chrono::milliseconds time) {
    const auto begin = Steady::now();
    std::uint64_t done = 0;
    switch (work.how) {
      case How::kAlone: done = alone(work, begin + time); break;
      case How::kParts: done = in_parts(work, begin + time); break;
      case How::kInTurn: done = in_turn(work, begin + time); break;
    }
    return static_cast<double>(done * work.size_bytes) /
           std::chrono::duration<double>(Steady::now() - begin).count();
  }

 private:
  static Engine open(std::uint32_t lanes) {
    EngineOptions options;
    options.spin = 1s;
    options.lanes = lanes;
    return Engine::open(options).value();
  }

  std::vector<Queue> queues(std::size_t depth) {
    std::vector<Queue> made;
    for (std::uint32_t i = 0; i < lanes_; ++i)
      made.push_back(region_.queue({.depth = depth}).value());
    return made;
  }

  std::uint64_t alone(const Work& work, Steady::time_point until) {
    Places places{work.size_bytes};
    std::uint64_t done = 0;
    for (; Steady::now() < until; ++done) {
      if (work.write)
        region_.write(places.next(), Source{memory_, 0, work.size_bytes}).value();
      else
        region_.read(places.next(), Target{memory_, 0, work.size_bytes}).value();
    }
    return done;
  }

  void begin(Queue& queue, const Work& work, ByteOffset at, std::size_t local, std::size_t length) {
    if (work.write)
      queue.write(at, Source{memory_, local, length});
    else
      queue.read(at, Target{memory_, local, length});
    queue.submit().value();
  }

  std::uint64_t in_parts(const Work& work, Steady::time_point until) {
    std::vector<Queue> queues = this->queues(work.depth);
    const std::size_t parts = std::min<std::size_t>(lanes_, work.size_bytes / kPartBytes);
    const std::size_t part_bytes = work.size_bytes / parts;
    std::vector<std::uint64_t> ended(parts);
    Places places{work.size_bytes};
    std::uint64_t begun = 0;
    std::uint64_t done = 0;
    for (bool over = false; !over || done != begun;) {
      over = over || Steady::now() >= until;
      for (; !over && begun - done < work.depth; ++begun) {
        const std::uint64_t at = places.next().bytes;
        const std::size_t local = begun % work.depth * work.size_bytes;
        for (std::size_t i = 0; i < parts; ++i)
          begin(queues[i], work, ByteOffset{at + i * part_bytes}, local + i * part_bytes,
                part_bytes);
      }
      for (std::size_t i = 0; i < parts && done != begun; ++i)
        ended[i] += successes(queues[i].poll());
      done = *std::min_element(ended.begin(), ended.end());
    }
    return done;
  }

  std::uint64_t in_turn(const Work& work, Steady::time_point until) {
    std::vector<Queue> queues = this->queues(work.depth);
    Places places{work.size_bytes};
    std::uint64_t begun = 0;
    std::uint64_t done = 0;
    for (bool over = false; !over || done != begun;) {
      over = over || Steady::now() >= until;
      for (; !over && begun - done < work.depth; ++begun) {
        Queue& queue = *std::min_element(
            queues.begin(), queues.end(),
            [](const Queue& one, const Queue& other) { return one.size() < other.size(); });
        begin(queue, work, places.next(), begun % work.depth * work.size_bytes, work.size_bytes);
      }
      for (Queue& queue : queues)
        if (queue.size() != 0) done += successes(queue.poll());
    }
    return done;
  }

  std::uint32_t lanes_;
  std::vector<std::byte> bytes_;
  Engine engine_;
  Region region_;
  RegisteredMemory memory_;
};

using Sides = std::array<std::unique_ptr<Side>, kLanes.size()>;

/// One line of the table: the rate over one lane, and those over more as ratios of it.
void measure(const Sides& sides, const Work& work, int pairs, std::chrono::milliseconds time) {
  std::vector<double> one;
  std::array<std::vector<double>, kLanes.size() - 1> more;
  for (int turn = 0; turn < pairs; ++turn) {
    std::array<double, kLanes.size()> rates{};
    for (std::size_t i = 0; i < kLanes.size(); ++i) {
      const std::size_t side = turn % 2 == 0 ? i : kLanes.size() - 1 - i;
      rates[side] = sides[side]->rate(work, time);
    }
    one.push_back(rates[0]);
    for (std::size_t i = 1; i < kLanes.size(); ++i) more[i - 1].push_back(rates[i] / rates[0]);
  }
  constexpr std::array<const char*, 3> kNames{"alone", "parts", "in turn"};
  std::printf("| %s %zu KiB, %s, depth %zu | %.0f MB/s |", work.write ? "write" : "read",
              work.size_bytes >> 10U, kNames[static_cast<std::size_t>(work.how)], work.depth,
              estimate(one).median / 1e6);
  for (const std::vector<double>& ratios : more) {
    const Estimate found = estimate(ratios);
    std::printf(" %.2f (%.2f - %.2f) |", found.median, found.low, found.high);
  }
  std::printf("\n");
  std::fflush(stdout);
}

std::vector<Work> works() {
  std::vector<Work> all;
  for (const bool write : {false, true}) {
    for (const std::size_t size : {kMiB / 2, kMiB, 2 * kMiB, kMaxSize})
      all.push_back({How::kAlone, write, size, 1});
    for (const std::size_t size : {kMiB, kMaxSize}) {
      for (const std::size_t depth : {std::size_t{1}, std::size_t{2}, kMaxDepth})
        all.push_back({How::kParts, write, size, depth});
      for (const std::size_t depth : {std::size_t{2}, kMaxDepth})
        all.push_back({How::kInTurn, write, size, depth});
    }
  }
  return all;
}

int run(const Arguments& arguments) {
  arguments.expect({"--transport", "--pairs", "--milliseconds", "--only", "--address", "--core",
                    "--server-core"});
  const MeasuredServer server{.transport = arguments.text("--transport", "tcp"),
                              .address = arguments.text("--address", "127.0.0.1"),
                              .region_bytes = kRegionBytes,
                              .tcp_spin = 2ms};
  const auto process =
      ServerProcess::start(arguments, [&server](int where) { server.serve(where); });
  Sides sides;
  for (std::size_t i = 0; i < kLanes.size(); ++i) {
    sides[i] = std::make_unique<Side>(server, kLanes[i], process->told());
    // Until every page of the region is there.
    sides[i]->rate({How::kAlone, true, kMiB, 1}, 200ms);
  }
  const int pairs = arguments.number("--pairs", 15);
  const std::chrono::milliseconds time{arguments.number("--milliseconds", 60)};
  std::printf("| %s | 1 lane | 2 lanes | 4 lanes |\n|---|---|---|---|\n", server.transport.c_str());
  const std::string only = arguments.text("--only", "");
  for (const Work& work : works())
    if (only.empty() || (only == "alone") == (work.how == How::kAlone))
      measure(sides, work, pairs, time);
  return 0;
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  return remora::bench::run_program(argc, argv, remora::bench::run);
}
