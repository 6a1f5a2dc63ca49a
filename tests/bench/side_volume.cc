/// A volume, or one region, as one of the two programs of a comparison: servers in processes of
/// their own, and a client that answers jobs of reads and writes (jobs.h).
///
///   side_volume --shape region|striped|mirror [--servers 3] [--writer shared|exclusive]
///               [--volume-mib 240] [--core 1] [--server-core 0]
///
/// All shapes have the same bytes to work on, the same client and the same kind of servers: over
/// tcp, all on one processor, none of them polls. A region has one server. A mirror has two copies;
/// `--writer exclusive` claims it so that no other client reads it. A job of depth 1 uses the
/// synchronous calls, a deeper one a queue.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <remora/remora.h>
#include <remora/volume/management.h>
#include <remora/volume/volume.h>

#include "measured_server.h"
#include "volume_servers.h"

namespace remora::bench {
namespace {

constexpr std::uint64_t kMib = 1U << 20U;

/// Reads and writes of a Region or a Volume.
template <typename Store, typename StoreQueue>
class StoreClient : public Client {
 public:
  StoreClient(const Engine& engine, const Store& store) : engine_{engine}, store_{store} {}

  bool prepare(const Job& job) override {
    if (job.op != Op::kRead && job.op != Op::kWrite) return false;
    job_ = job;
    slot_ = {};
    const auto key = std::make_pair(job.block_bytes, job.depth);
    auto found = lanes_.find(key);
    if (found == lanes_.end()) {
      Lane lane{.slots = engine_.allocate_slots(job.depth, job.block_bytes).value()};
      if (job.depth > 1) {
        auto made = store_.queue({.depth = job.depth});
        if (!made && made.error().code() == Code::kUnsupported) return false;
        lane.queue.emplace(std::move(made).value());
      }
      found = lanes_.emplace(key, std::move(lane)).first;
    }
    lane_ = &found->second;
    blocks_ = std::make_unique<RandomBlocks>(store_.size_bytes(), job.block_bytes);
    if (job.depth == 1) slot_ = lane_->slots.take();
    while (job.depth > 1 && lane_->buffers.size() < job.depth) {
      lane_->free.push_back(lane_->buffers.size());
      lane_->buffers.push_back(lane_->slots.take());
    }
    return true;
  }

  std::size_t advance() override {
    if (job_.depth == 1) return one();
    while (!lane_->free.empty()) take();
    lane_->queue->submit().value();
    return collect();
  }

  std::size_t drain() override {
    std::size_t done = 0;
    while (lane_->queue && lane_->queue->size() > 0) done += collect();
    return done;
  }

 private:
  struct Lane {
    SlotPool slots;
    std::vector<Slot> buffers{};        ///< of the queue's operations, by tag
    std::vector<std::size_t> free{};    ///< tags without an operation
    std::optional<StoreQueue> queue{};  // its operations use the buffers: ends before them
  };

  std::size_t one() {
    const ByteOffset at{blocks_->next()};
    if (job_.op == Op::kRead)
      store_.read(at, Target{slot_}).value();
    else
      store_.write(at, Source{slot_}).value();
    return 1;
  }

  void take() {
    const ByteOffset at{blocks_->next()};
    const std::size_t tag = lane_->free.back();
    lane_->free.pop_back();
    if (job_.op == Op::kRead)
      lane_->queue->read(at, Target{lane_->buffers[tag]}, tag);
    else
      lane_->queue->write(at, Source{lane_->buffers[tag]}, tag);
  }

  std::size_t collect() {
    const auto& found = lane_->queue->wait(1);
    for (const auto& completion : found) {
      if (!completion.ok()) throw Exception{completion.error()};
      lane_->free.push_back(completion.tag());
    }
    return found.size();
  }

  const Engine& engine_;
  const Store store_;
  std::map<std::pair<std::size_t, std::size_t>, Lane> lanes_;
  Lane* lane_ = nullptr;
  Slot slot_;
  std::unique_ptr<RandomBlocks> blocks_;
  Job job_;
};

/// Every page is there, in all processes, before anything is timed.
template <typename Store>
void touch(const Engine& engine, const Store& store) {
  SlotPool slots = engine.allocate_slots(1, kMib).value();
  Slot slot = slots.take();
  for (std::uint64_t at = 0; at < store.size_bytes(); at += kMib) {
    store.write(ByteOffset{at}, Source{slot}).value();
    store.read(ByteOffset{at}, Target{slot}).value();
  }
}

int run_region(const Engine& engine, const VolumeServers& servers, std::uint64_t size_bytes) {
  const Region region = servers.create_region(engine, 0, "bench", size_bytes);
  touch(engine, region);
  StoreClient<Region, Queue> client{engine, region};
  return answer_jobs(client, nullptr);  // the servers sleep by themselves
}

int run_volume(const Engine& engine, const volume::Cluster& cluster, const volume::VolumeSpec& spec,
               bool exclusive) {
  value_of(volume::create_volume(cluster, engine, spec));
  const auto opened = volume::Volume::open(engine, cluster, spec.name).value();
  if (spec.kind == volume::Kind::kMirror) opened.claim({.exclusive = exclusive}).value();
  touch(engine, opened);
  StoreClient<volume::Volume, volume::VolumeQueue> client{engine, opened};
  return answer_jobs(client, nullptr);
}

int run(const Arguments& arguments) {
  arguments.expect({"--shape", "--servers", "--writer", "--volume-mib", "--core", "--server-core"});
  const std::string shape = arguments.text("--shape", "striped");
  const bool mirror = shape == "mirror";
  const int count = shape == "region" ? 1 : arguments.number("--servers", 3);
  volume::VolumeSpec spec;
  spec.name = "bench";
  spec.width = static_cast<std::uint32_t>(count);
  spec.size_bytes = static_cast<std::uint64_t>(arguments.number("--volume-mib", 240)) * kMib;
  spec.group_bytes = spec.size_bytes / spec.width;
  if (spec.group_bytes % kMib != 0) give_up("--volume-mib is no multiple of --servers");
  spec.kind = mirror ? volume::Kind::kMirror : volume::Kind::kStriped;
  spec.copies = mirror ? 2 : 1;
  constexpr std::uint64_t kRoom = 16 * kMib;  // headers and bitmaps of the members
  const VolumeServers servers{count, spec.group_bytes * spec.copies + kRoom,
                              arguments.number("--server-core", 0)};
  pin_to_core(arguments.number("--core", 1));
  EngineOptions options;
  options.copy_threads = 1;
  const Engine engine = Engine::open(options).value();
  if (shape == "region") return run_region(engine, servers, spec.size_bytes);
  if (shape != "striped" && !mirror) give_up("--shape is region, striped or mirror");
  return run_volume(engine, servers.open(engine), spec,
                    arguments.text("--writer", "shared") == "exclusive");
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  return remora::bench::run_program(argc, argv, remora::bench::run);
}
