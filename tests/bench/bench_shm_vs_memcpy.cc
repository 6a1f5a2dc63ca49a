/// Random blocks of a region over shared memory, batched or by calls with many pairs, against
/// memcpy of the same blocks in the same order from the same pages in this process. Interleaved
/// pairs; see docs/method.md.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <remora/remora.h>

#include "stats.h"
#include "support/pattern.h"
#include "support/runtime_dir.h"

namespace remora::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::size_t region_mib = 1024;
  std::size_t block_bytes = 4096;
  std::size_t depth = 32;
  std::size_t pairs = 25;
  std::size_t blocks = 100'000;  ///< of one side of one pair
  std::size_t copy_threads = 1;  ///< of remora; memcpy has one
  bool writes = false;
  bool many = false;  ///< calls of read_many() or write_many() with `depth` pairs, no queue
  std::string goal = "-";
  bool lines = false;  ///< for ratio_table instead of a table
};

Options parse(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::size_t*> numbers{
      {"--region-mib", &options.region_mib}, {"--block", &options.block_bytes},
      {"--depth", &options.depth},           {"--pairs", &options.pairs},
      {"--blocks", &options.blocks},         {"--copy-threads", &options.copy_threads}};
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = numbers.find(word);
    if (word == "--write") {
      options.writes = true;
    } else if (word == "--many") {
      options.many = true;
    } else if (word == "--lines") {
      options.lines = true;
    } else if (word == "--goal" && i + 1 < argc) {
      options.goal = argv[++i];
    } else if (number != numbers.end() && i + 1 < argc) {
      *number->second = std::strtoull(argv[++i], nullptr, 10);
    } else {
      std::fprintf(
          stderr,
          "usage: bench_shm_vs_memcpy [--write] [--many] [--region-mib 1024] [--block 4096] "
          "[--depth 32] [--pairs 25] [--blocks 100000] [--copy-threads 1] [--goal '>=0.9'] "
          "[--lines]\n");
      std::exit(2);
    }
  }
  return options;
}

Result<Server> start_server(const Options& options) {
  config::ServerConfig config;
  config.listen.port = 0;
  config.transports.rdma = config::Availability::kOff;
  config.transports.shm = config::Availability::kRequired;
  config.pool.size_bytes = options.region_mib << 20U;
  config.pool.huge_pages = config::HugePages::kNever;
  config.log.level = config::LogLevel::kWarn;
  config.regions.push_back({.name = "bench",
                            .size_bytes = options.region_mib << 20U,
                            .block_bytes = options.block_bytes,
                            .rights = {},
                            .atomics = "auto",
                            .shm = true});
  return Server::start(config);
}

/// Nanoseconds a block.
double per_block(Clock::time_point began, std::size_t blocks) {
  const std::chrono::duration<double, std::nano> took = Clock::now() - began;
  return took.count() / static_cast<double>(blocks);
}

double run_remora(Queue& queue, SlotPool& slots, const std::vector<std::uint32_t>& order,
                  bool writes) {
  const auto began = Clock::now();
  for (std::size_t sent = 0, done = 0; done < order.size();) {
    for (; sent < order.size() && !queue.full(); ++sent) {
      if (writes)
        queue.write(Block{order[sent]}, slots.take());
      else
        queue.read(Block{order[sent]}, slots.take());
    }
    queue.submit().value();
    for (Completion& completion : queue.wait(1)) {
      if (!completion.ok()) throw Exception{completion.error()};
      ++done;
    }
  }
  return per_block(began, order.size());
}

/// The pairs of the calls; their places in the region are set before each call.
struct Pairs {
  std::vector<ReadPair> reads{};
  std::vector<WritePair> writes{};
};

Pairs pairs_of(std::byte* buffers, const Options& options) {
  Pairs pairs;
  for (std::size_t i = 0; i < options.depth; ++i) {
    const std::span bytes{buffers + i * options.block_bytes, options.block_bytes};
    pairs.reads.push_back({ByteOffset{0}, bytes});
    pairs.writes.push_back({ByteOffset{0}, bytes});
  }
  return pairs;
}

double run_many(const Region& region, Pairs& pairs, const std::vector<std::uint32_t>& order,
                const Options& options) {
  const auto began = Clock::now();
  for (std::size_t done = 0; done < order.size();) {
    const std::size_t count = std::min(options.depth, order.size() - done);
    for (std::size_t i = 0; i < count; ++i) {
      const ByteOffset at{order[done + i] * options.block_bytes};
      if (options.writes)
        pairs.writes[i].to = at;
      else
        pairs.reads[i].from = at;
    }
    if (options.writes)
      region.write_many(std::span{pairs.writes}.first(count)).value();
    else
      region.read_many(std::span{pairs.reads}.first(count)).value();
    done += count;
  }
  return per_block(began, order.size());
}

double run_memcpy(std::byte* region, std::byte* buffers, const std::vector<std::uint32_t>& order,
                  const Options& options) {
  const std::size_t block = options.block_bytes;
  const auto began = Clock::now();
  for (std::size_t i = 0; i < order.size(); ++i) {
    std::byte* local = buffers + i % options.depth * block;
    std::byte* remote = region + std::size_t{order[i]} * block;
    if (options.writes)
      std::memcpy(remote, local, block);
    else
      std::memcpy(local, remote, block);
    asm volatile("" : : "r"(local), "r"(remote) : "memory");
  }
  return per_block(began, order.size());
}

std::string row_name(const Options& options) {
  const std::size_t bytes = options.block_bytes;
  const std::string size = bytes < 1024 ? std::to_string(bytes) + " B"
                           : bytes < (std::size_t{1} << 20U)
                               ? std::to_string(bytes / 1024) + " KiB"
                               : std::to_string(bytes >> 20U) + " MiB";
  std::string name = options.writes ? "write" : "read";
  if (options.many)
    name += "_many " + size + ", of " + std::to_string(options.depth);
  else
    name += " " + size + ", depth " + std::to_string(options.depth);
  if (options.copy_threads > 1)
    name += ", " + std::to_string(options.copy_threads) + " copying threads";
  return name;
}

int print(const Options& options, const std::vector<Pair>& pairs_ns) {
  Row row{row_name(options), "memcpy", "blocks/s", {}, {}};
  if (!Goal::parse(options.goal, row.goal)) throw std::runtime_error("--goal: '>=RATIO' or '-'");
  for (const Pair& pair : pairs_ns) row.pairs.push_back({1e9 / pair.ours, 1e9 / pair.peer});
  if (!options.lines) {
    std::printf("%zu MiB, %zu blocks a side; spin round trip %.0f ns\n\n%s", options.region_mib,
                options.blocks, spin_round_trip_ns(), table({row}).c_str());
    return 0;
  }
  for (const Pair& pair : row.pairs)
    std::printf("%s\t%s\t%s\t%s\t%.1f\t%.1f\n", row.name.c_str(), row.peer.c_str(),
                row.unit.c_str(), options.goal.c_str(), pair.ours, pair.peer);
  return 0;
}

int run(const Options& options) {
  const test::RuntimeDir folder;
  const Server server = start_server(options).value();
  EngineOptions engine_options;
  engine_options.copy_threads = static_cast<std::uint32_t>(options.copy_threads);
  const Engine engine = Engine::open(engine_options).value();
  const Region region = engine
                            .open_region("remora://127.0.0.1:" + std::to_string(server.port()) +
                                             "/bench?transport=shm",
                                         Rights::kReadWrite)
                            .value();
  const RegionView view = server.view("bench").value();
  const auto extents = view.extents();
  if (extents.size() != 1) throw std::runtime_error("the region is in more than one piece");
  test::fill(extents[0], 1);

  Queue queue = region.queue({.depth = options.depth}).value();
  SlotPool slots = engine.allocate_slots(options.depth, options.block_bytes).value();
  std::vector<std::byte> unaligned((options.depth + 1) * options.block_bytes);
  void* start = unaligned.data();
  std::size_t space = unaligned.size();
  auto* buffers =
      static_cast<std::byte*>(std::align(64, options.depth * options.block_bytes, start, space));

  // Memory of our own side: as far apart as that of memcpy.
  std::vector<std::byte> own((options.depth + 1) * options.block_bytes);
  void* own_start = own.data();
  std::size_t own_space = own.size();
  Pairs pairs = pairs_of(static_cast<std::byte*>(std::align(64, options.depth * options.block_bytes,
                                                            own_start, own_space)),
                         options);
  const auto run_ours = [&](const std::vector<std::uint32_t>& blocks) {
    return options.many ? run_many(region, pairs, blocks, options)
                        : run_remora(queue, slots, blocks, options.writes);
  };

  // Both mappings have all their pages before anything is timed.
  std::vector<std::uint32_t> order(region.block_count());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  run_ours(order);
  run_memcpy(extents[0].data(), buffers, order, options);

  test::Random random{2};
  order.resize(options.blocks);
  std::vector<Pair> pairs_ns;
  for (std::size_t pair = 0; pair < options.pairs; ++pair) {
    for (std::uint32_t& block : order)
      block = static_cast<std::uint32_t>(random.below(region.block_count()));
    const bool ours_first = pair % 2 == 0;
    double ours = 0;
    if (ours_first) ours = run_ours(order);
    const double peer = run_memcpy(extents[0].data(), buffers, order, options);
    if (!ours_first) ours = run_ours(order);
    pairs_ns.push_back({ours, peer});
  }
  return print(options, pairs_ns);
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  const remora::bench::Options options = remora::bench::parse(argc, argv);
  try {
    return remora::bench::run(options);
  } catch (const std::exception& thrown) {
    std::fprintf(stderr, "bench_shm_vs_memcpy: %s\n", thrown.what());
    return 1;
  }
}
