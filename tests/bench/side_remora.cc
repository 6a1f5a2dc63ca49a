/// Remora, as one of the two programs of a comparison: a server with a region of 1 GiB in a process
/// of its own, and a client that answers jobs (jobs.h).
///
///   side_remora --transport shm|tcp|rdma [--mode polling|blocking] [--region-mib 1024]
///               [--core 1] [--server-core 0] [--address 127.0.0.1] [--batch 1] [--threads 1]
///               [--lanes 1] [--blocks random|shuffled] [--face queue|many]
///
/// Polling: neither side ever sleeps while it is measured. Blocking: both sleep at once. A job of
/// depth 1 uses the synchronous calls, a deeper one a queue, which is filled up when at least
/// `--batch` places are free. Each thread works like that; with several of them no client thread is
/// bound to a processor, and rates are those of all together.
///
/// `--face many`: one thread, calls of read_many() and its neighbours with as many pairs as the
/// job's depth, into slots.
///
/// Shuffled: a queue is filled when it is empty, with neighbouring blocks somewhere in the region,
/// each to its place in a registered copy of them, but in a random order.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "measured_server.h"
#include "support/runtime_dir.h"

namespace remora::bench {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace)

struct Order {
  std::size_t batch = 1;
  bool shuffled = false;
};

class RemoraClient : public Client {
 public:
  RemoraClient(const Engine& engine, Region region, Order order, std::uint64_t seed)
      : engine_{engine}, region_{std::move(region)}, order_{order}, seed_{seed} {}

  bool prepare(const Job& job) override {
    job_ = job;
    const bool transfer = job.op == Op::kRead || job.op == Op::kWrite;
    if (order_.shuffled && (!transfer || job.depth == 1)) return false;
    const std::size_t bytes = transfer ? job.block_bytes : 8;
    const auto key = std::make_pair(bytes, job.depth);
    auto found = lanes_.find(key);
    if (found == lanes_.end()) {
      found = lanes_
                  .emplace(key, Lane{engine_.allocate_slots(job.depth, bytes).value(),
                                     region_.queue({.depth = job.depth}).value()})
                  .first;
    }
    lane_ = &found->second;
    const std::size_t unit_bytes = order_.shuffled ? bytes * job.depth : bytes;
    blocks_ = std::make_unique<RandomBlocks>(region_.size_bytes(), unit_bytes, seed_);
    if (order_.shuffled) shuffle(bytes * job.depth);
    slot_ = {};
    if (job.depth == 1) slot_ = lane_->slots.take();
    return true;
  }

  std::size_t advance() override {
    if (job_.depth == 1) return one();
    const std::size_t batch = order_.shuffled ? job_.depth : std::min(order_.batch, job_.depth);
    if (lane_->queue.size() + batch <= job_.depth) {
      if (order_.shuffled)
        take_shuffled();
      else
        while (!lane_->queue.full()) take();
      lane_->queue.submit().value();
    }
    return collect();
  }

  std::size_t drain() override {
    std::size_t done = 0;
    while (lane_->queue.size() > 0) done += collect();
    return done;
  }

 private:
  struct Lane {
    SlotPool slots;
    Queue queue;
  };

  std::size_t one() {
    const ByteOffset at{blocks_->next()};
    switch (job_.op) {
      case Op::kRead: region_.read(at, slot_).value(); break;
      case Op::kWrite: region_.write(at, slot_).value(); break;
      case Op::kFetchAdd: region_.fetch_add(at, 1).value(); break;
      case Op::kCompareSwap: region_.compare_swap(at, 0, 0).value(); break;
    }
    return 1;
  }

  void take() {
    const ByteOffset at{blocks_->next()};
    switch (job_.op) {
      case Op::kRead: lane_->queue.read(at, lane_->slots.take()); break;
      case Op::kWrite: lane_->queue.write(at, lane_->slots.take()); break;
      case Op::kFetchAdd: lane_->queue.fetch_add(at, 1); break;
      case Op::kCompareSwap: lane_->queue.compare_swap(at, 0, 0); break;
    }
  }

  /// A new order, and memory for so many bytes.
  void shuffle(std::size_t size_bytes) {
    places_.resize(job_.depth);
    std::iota(places_.begin(), places_.end(), std::size_t{0});
    std::shuffle(places_.begin(), places_.end(), std::mt19937_64{seed_});
    if (bytes_.size() == size_bytes) return;
    memory_.reset();
    bytes_ = std::vector<std::byte>(size_bytes);
    memory_ = engine_.register_memory(bytes_).value();
  }

  void take_shuffled() {
    const std::uint64_t first = blocks_->next();
    turn_ = (turn_ + 7) % places_.size();
    for (const std::size_t place : places_) {
      const std::size_t into = (place + turn_) % places_.size() * job_.block_bytes;
      if (job_.op == Op::kRead)
        lane_->queue.read(ByteOffset{first + into}, Target{*memory_, into, job_.block_bytes});
      else
        lane_->queue.write(ByteOffset{first + into}, Source{*memory_, into, job_.block_bytes});
    }
  }

  std::size_t collect() { return successes(lane_->queue.wait(1)); }

  const Engine& engine_;
  Region region_;
  Order order_;
  std::uint64_t seed_;
  std::map<std::pair<std::size_t, std::size_t>, Lane> lanes_;
  Lane* lane_ = nullptr;
  Slot slot_;
  std::unique_ptr<RandomBlocks> blocks_;
  Job job_;
  // Shuffled only.
  std::vector<std::size_t> places_;
  std::size_t turn_ = 0;
  std::vector<std::byte> bytes_;
  std::optional<RegisteredMemory> memory_;
};

/// As many clients as threads: one in the caller's thread, the others in threads that work from the
/// first advance() to the next drain().
class ThreadedClient : public Client {
 public:
  ThreadedClient(const Engine& engine, const Region& region, Order order, std::size_t threads) {
    for (std::uint64_t seed = 1; seed <= threads; ++seed)
      clients_.push_back(std::make_unique<RemoraClient>(engine, region, order, seed));
  }
  ~ThreadedClient() override { stop(); }

  bool prepare(const Job& job) override {
    return std::all_of(clients_.begin(), clients_.end(),
                       [&job](const auto& client) { return client->prepare(job); });
  }
  std::size_t advance() override {
    while (threads_.size() + 1 < clients_.size())
      threads_.emplace_back([this, client = clients_[threads_.size() + 1].get()] {
        while (!stop_.load(std::memory_order_relaxed))
          others_.fetch_add(client->advance(), std::memory_order_relaxed);
        others_.fetch_add(client->drain(), std::memory_order_relaxed);
      });
    return clients_.front()->advance() + others_.exchange(0, std::memory_order_relaxed);
  }
  std::size_t drain() override {
    stop();
    return clients_.front()->drain() + others_.exchange(0);
  }

 private:
  void stop() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    stop_ = false;
  }

  std::vector<std::unique_ptr<RemoraClient>> clients_;
  std::vector<std::thread> threads_;
  std::atomic<bool> stop_{false};
  std::atomic<std::size_t> others_{0};
};

/// Calls with many pairs; each is over when it returns.
class ManyClient : public Client {
 public:
  ManyClient(const Engine& engine, Region region) : engine_{engine}, region_{std::move(region)} {}

  bool prepare(const Job& job) override {
    job_ = job;
    const bool transfer = job.op == Op::kRead || job.op == Op::kWrite;
    const std::size_t bytes = transfer ? job.block_bytes : 8;
    blocks_ = std::make_unique<RandomBlocks>(region_.size_bytes(), bytes);
    reads_.clear();
    writes_.clear();
    taken_.clear();
    adds_.assign(job.depth, {});
    swaps_.assign(job.depth, {});
    if (!transfer) return true;
    SlotPool slots = engine_.allocate_slots(job.depth, bytes).value();
    for (std::size_t i = 0; i < job.depth; ++i) {
      taken_.push_back(slots.take());
      reads_.push_back({ByteOffset{0}, Target{taken_.back()}});
      writes_.push_back({ByteOffset{0}, Source{taken_.back()}});
    }
    return true;
  }

  std::size_t advance() override {
    switch (job_.op) {
      case Op::kRead:
        for (ReadPair& pair : reads_) pair.from = ByteOffset{blocks_->next()};
        region_.read_many(reads_).value();
        break;
      case Op::kWrite:
        for (WritePair& pair : writes_) pair.to = ByteOffset{blocks_->next()};
        region_.write_many(writes_).value();
        break;
      case Op::kFetchAdd:
        for (FetchAddPair& pair : adds_) pair = {ByteOffset{blocks_->next()}, 1};
        region_.fetch_add_many(adds_).value();
        break;
      case Op::kCompareSwap:
        for (CompareSwapPair& pair : swaps_) pair = {ByteOffset{blocks_->next()}, 0, 0};
        region_.compare_swap_many(swaps_).value();
        break;
    }
    return job_.depth;
  }

  std::size_t drain() override { return 0; }

 private:
  const Engine& engine_;
  Region region_;
  Job job_;
  std::unique_ptr<RandomBlocks> blocks_;
  std::vector<Slot> taken_;  ///< their pool lives as long as they do
  std::vector<ReadPair> reads_;
  std::vector<WritePair> writes_;
  std::vector<FetchAddPair> adds_;
  std::vector<CompareSwapPair> swaps_;
};

/// Every page of the region is there, in both processes, before anything is timed.
void touch(const Engine& engine, const Region& region) {
  constexpr std::size_t kPiece = 1U << 20U;
  SlotPool slots = engine.allocate_slots(1, kPiece).value();
  Slot slot = slots.take();
  for (std::uint64_t at = 0; at < region.size_bytes(); at += kPiece) {
    region.write(ByteOffset{at}, slot).value();
    region.read(ByteOffset{at}, slot).value();
  }
}

int run(const Arguments& arguments) {
  const bool polling = arguments.polling();
  const MeasuredServer server{.transport = arguments.text("--transport", "shm"),
                              .address = arguments.text("--address", "127.0.0.1"),
                              .region_bytes = arguments.region_bytes(),
                              .tcp_spin = polling ? kPollingServerSpin : 0ns};
  const test::RuntimeDir folder;
  const auto process = ServerProcess::start(arguments.number("--server-core", 0),
                                            [&server](int where) { server.serve(where); });
  const int threads = arguments.number("--threads", 1);
  pin_to_core(threads == 1 ? arguments.number("--core", 1) : -1);
  EngineOptions options;
  options.spin = polling ? 1s : 0s;
  options.copy_threads = 1;
  options.lanes = static_cast<std::uint32_t>(arguments.number("--lanes", 1));
  const Engine engine = Engine::open(options).value();
  const Region region = server.open(engine, process->told());
  touch(engine, region);
  const Order order{.batch = static_cast<std::size_t>(arguments.number("--batch", 1)),
                    .shuffled = arguments.text("--blocks", "random") == "shuffled"};
  if (arguments.text("--face", "queue") == "many") {
    ManyClient client{engine, region};
    return answer_jobs(client, nullptr);
  }
  ThreadedClient client{engine, region, order, static_cast<std::size_t>(threads)};
  return answer_jobs(client, nullptr);  // its server sleeps by itself
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  return remora::bench::run_program(argc, argv, remora::bench::run);
}
