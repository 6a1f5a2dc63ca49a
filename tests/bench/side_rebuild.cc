/// Copies of large regions between two servers, as one of the two programs of a comparison: servers
/// in processes of their own, and a client that answers jobs of writes of 1 MiB (jobs.h), whose
/// depth is the number of pieces that are copied at once.
///
///   side_rebuild --how plain|rebuild [--group-mib 128] [--core 1] [--server-core 0]
///
/// plain: threads read pieces from the region of one server, and write them to that of another.
///
/// rebuild: a mirror of two copies and one group is moved from one server to a third by
/// drain_server(), which claims the volume, creates a region, copies it as a rebuild does, makes it
/// in sync and removes the old one. All of that counts. Then the server may have members again, and
/// the next job moves the member back.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <remora/remora.h>
#include <remora/volume/maintenance.h>
#include <remora/volume/management.h>

#include "measured_server.h"
#include "volume_servers.h"

namespace remora::bench {
namespace {

constexpr std::uint64_t kPiece = 1U << 20U;
constexpr const char* kVolume = "bench";

bool is_copy(const Job& job) { return job.op == Op::kWrite && job.block_bytes == kPiece; }

class PlainCopy : public Client {
 public:
  PlainCopy(const Engine& engine, Region from, Region to)
      : engine_{engine}, from_{std::move(from)}, to_{std::move(to)} {}

  bool prepare(const Job& job) override {
    threads_ = job.depth;
    return is_copy(job);
  }

  std::size_t advance() override {
    const std::uint64_t pieces = from_.size_bytes() / kPiece;
    std::atomic<std::uint64_t> next{0};
    const auto copy = [&] {
      SlotPool slots = engine_.allocate_slots(1, kPiece).value();
      Slot slot = slots.take();
      for (std::uint64_t piece = next++; piece < pieces; piece = next++) {
        from_.read(ByteOffset{piece * kPiece}, Target{slot}).value();
        to_.write(ByteOffset{piece * kPiece}, Source{slot}).value();
      }
    };
    std::vector<std::thread> helpers;
    for (std::size_t i = 1; i < threads_; ++i) helpers.emplace_back(copy);
    copy();
    for (std::thread& helper : helpers) helper.join();
    return pieces;
  }

  std::size_t drain() override { return 0; }

 private:
  const Engine& engine_;
  const Region from_;
  const Region to_;
  std::size_t threads_ = 1;
};

class Rebuild : public Client {
 public:
  Rebuild(const Engine& engine, volume::Cluster cluster)
      : engine_{engine}, cluster_{std::move(cluster)} {}

  bool prepare(const Job& job) override {
    options_.zones_at_once = static_cast<std::uint32_t>(job.depth);
    return is_copy(job);
  }

  std::size_t advance() override {
    const volume::VolumeLayout layout = cluster_.layout(kVolume).value();
    const std::string server = layout.groups.front().members.back().server;  // of the backup
    const auto report = value_of(volume::drain_server(cluster_, engine_, server, options_));
    if (!report.left.empty()) give_up(report.left.front());
    value_of(volume::end_drain_server(cluster_, server));
    return report.bytes_copied / kPiece;
  }

  std::size_t drain() override { return 0; }

 private:
  const Engine& engine_;
  const volume::Cluster cluster_;
  volume::MaintenanceOptions options_;
};

int run(const Arguments& arguments) {
  arguments.expect({"--how", "--group-mib", "--core", "--server-core"});
  const std::string how = arguments.text("--how", "rebuild");
  const auto bytes = static_cast<std::uint64_t>(arguments.number("--group-mib", 128)) * kPiece;
  // Room for a member beside the one that is removed: its memory may come back a little later.
  VolumeServers servers{how == "plain" ? 2 : 3, 2 * bytes + 16 * kPiece,
                        arguments.number("--server-core", 0)};
  pin_to_core(arguments.number("--core", 1));
  EngineOptions options;
  options.copy_threads = 1;
  const Engine engine = Engine::open(options).value();
  if (how == "plain") {
    PlainCopy client{engine, servers.create_region(engine, 0, "from", bytes),
                     servers.create_region(engine, 1, "to", bytes)};
    return answer_jobs(client, nullptr);
  }
  if (how != "rebuild") give_up("--how is plain or rebuild");
  volume::VolumeSpec spec;
  spec.name = kVolume;
  spec.kind = volume::Kind::kMirror;
  spec.copies = 2;
  spec.width = 1;
  spec.size_bytes = spec.group_bytes = bytes;
  const volume::Cluster cluster = servers.open(engine);
  value_of(volume::create_volume(cluster, engine, spec));
  Rebuild client{engine, cluster};
  return answer_jobs(client, nullptr);
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  return remora::bench::run_program(argc, argv, remora::bench::run);
}
