/// Kills a member of a mirror under a load that verifies what it reads, and prints the milliseconds
/// from the kill to the first acknowledged write without the member. One measurement, then it ends.
///
///   side_failover --member primary|backup [--threads 2] [--load-ms 300] [--core 1]
///                 [--server-core 0]
///
/// A write counts that began after the process of the member had ended: since a write needs all
/// members that are in sync, it is acknowledged only after the member was removed. At the end all
/// blocks are read, and must be as their last acknowledged write has left them.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <remora/remora.h>
#include <remora/volume/management.h>
#include <remora/volume/volume.h>

#include "measured_server.h"
#include "volume_servers.h"

namespace remora::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::uint64_t>;

constexpr std::uint64_t kGroupBytes = 16U << 20U;
constexpr std::uint64_t kBlockBytes = 4096;
/// Blocks of one thread, each in another zone than its neighbour.
constexpr std::uint64_t kBlocks = 16;
constexpr std::uint64_t kZoneBytes = 1U << 20U;
constexpr std::chrono::seconds kPatience{60};

/// Writes its own blocks one after the other, and reads each back.
class VerifyingThread {
 public:
  /// `dead`: the member has ended.
  VerifyingThread(volume::Volume opened, std::uint64_t number, const std::atomic<bool>& dead)
      : volume_{std::move(opened)}, number_{number}, dead_{dead} {}

  void run(const std::atomic<bool>& stop) {
    for (std::uint64_t stamp = 1; !stop.load(); ++stamp) {
      const std::uint64_t block = stamp % kBlocks;
      if (!write(block, stamp)) continue;
      check(block);
    }
  }

  /// All blocks are as they were acknowledged.
  void check_all() {
    for (std::uint64_t block = 0; block < kBlocks; ++block)
      if (acknowledged_[block] != 0) check(block);
  }

  /// When the first write was acknowledged that began after the end of the member; the epoch: none.
  [[nodiscard]] Clock::time_point first_without_member() const { return first_.load(); }

 private:
  [[nodiscard]] ByteOffset place(std::uint64_t block) const {
    return ByteOffset{block * kZoneBytes + number_ * kBlockBytes};
  }
  [[nodiscard]] std::uint64_t word(std::uint64_t block, std::uint64_t stamp) const {
    return (stamp << 16U) | (number_ << 8U) | block;
  }

  /// False: its outcome is unknown. The block is checked again after its next write.
  bool write(std::uint64_t block, std::uint64_t stamp) {
    const bool without = dead_.load();
    words_.assign(kBlockBytes / sizeof(std::uint64_t), word(block, stamp));
    const Status written = volume_.write(place(block), std::as_bytes(std::span{words_}), kPatience);
    if (!written && written.error().code() != Code::kIndeterminate)
      throw Exception{written.error()};
    acknowledged_[block] = written ? stamp : 0;
    if (written && without && first_.load() == Clock::time_point{}) first_ = Clock::now();
    return written.ok();
  }

  void check(std::uint64_t block) {
    volume_.read(place(block), std::as_writable_bytes(std::span{words_}), kPatience).value();
    for (const std::uint64_t found : words_)
      if (found != word(block, acknowledged_[block]))
        give_up("block " + std::to_string(block) + " of thread " + std::to_string(number_) +
                " is not as its last write was acknowledged");
  }

  const volume::Volume volume_;
  const std::uint64_t number_;
  const std::atomic<bool>& dead_;
  std::vector<std::uint64_t> acknowledged_ = std::vector<std::uint64_t>(kBlocks);
  Words words_;
  std::atomic<Clock::time_point> first_{Clock::time_point{}};
};

std::string server_of(const volume::Cluster& cluster, const std::string& member) {
  const volume::VolumeLayout layout = cluster.layout("bench").value();
  const auto& members = layout.groups.front().members;
  if (member == "primary") return members.front().server;
  if (member != "backup") give_up("--member is primary or backup");
  return members.back().server;
}

/// Waits until any of the threads has such a write; the earliest.
Clock::time_point await_first(const std::vector<std::unique_ptr<VerifyingThread>>& load,
                              Clock::time_point killed) {
  while (Clock::now() < killed + kPatience) {
    Clock::time_point first = Clock::time_point::max();
    for (const auto& each : load)
      if (each->first_without_member() != Clock::time_point{})
        first = std::min(first, each->first_without_member());
    if (first != Clock::time_point::max()) return first;
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  give_up("no write was acknowledged a minute after the member was killed");
}

int run(const Arguments& arguments) {
  arguments.expect({"--member", "--threads", "--load-ms", "--core", "--server-core"});
  VolumeServers servers{3, 2 * kGroupBytes, arguments.number("--server-core", 0)};
  pin_to_core(arguments.number("--core", 1));
  EngineOptions options;
  options.copy_threads = 1;
  const Engine engine = Engine::open(options).value();
  const volume::Cluster cluster = servers.open(engine);
  volume::VolumeSpec spec;
  spec.name = "bench";
  spec.kind = volume::Kind::kMirror;
  spec.copies = 2;
  spec.width = 1;
  spec.size_bytes = spec.group_bytes = kGroupBytes;
  value_of(volume::create_volume(cluster, engine, spec));
  const auto opened = volume::Volume::open(engine, cluster, spec.name).value();
  opened.claim().value();

  std::atomic<bool> dead{false};
  std::atomic<bool> stop{false};
  std::vector<std::unique_ptr<VerifyingThread>> load;
  for (int i = 0; i < arguments.number("--threads", 2); ++i)
    load.push_back(std::make_unique<VerifyingThread>(opened, static_cast<std::uint64_t>(i), dead));
  std::vector<std::thread> threads;
  for (const auto& each : load)
    threads.emplace_back([&stop, thread = each.get()] {
      try {
        thread->run(stop);
      } catch (const std::exception& thrown) {
        give_up(thrown.what());
      }
    });
  std::this_thread::sleep_for(std::chrono::milliseconds{arguments.number("--load-ms", 300)});
  const std::string victim = server_of(cluster, arguments.text("--member", "backup"));
  const auto killed = Clock::now();
  servers.kill(victim);
  dead = true;
  const std::chrono::duration<double, std::milli> took = await_first(load, killed) - killed;
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const auto& each : load) each->check_all();
  std::printf("%.3f\n", took.count());
  return 0;
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  return remora::bench::run_program(argc, argv, remora::bench::run);
}
