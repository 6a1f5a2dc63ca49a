/// The key-value cache of apps/examples/kv_cache.h, as one of the two programs of a comparison: a
/// server in a process of its own, and a client that answers jobs of reads (jobs.h).
///
///   side_kv_cache --transport shm|tcp|rdma [--mode polling|blocking] [--region-mib 64] [--core 1]
///                 [--server-core 0] [--address 127.0.0.1] [--value-bytes 1024]
///
/// A job of depth 100 is one multi-get of 100 random keys after the other. `--region-mib` says how
/// much the values have together, as for peer_kv; the region is eight times as large, so that its
/// index has room for all keys. Values that were found count.

#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "examples/kv_cache.h"
#include "measured_server.h"
#include "support/runtime_dir.h"

namespace remora::bench {
namespace {

/// Keys of one length, as the peers have.
std::string key_of(std::uint64_t value) { return "b" + std::to_string(10000000 + value); }

class CacheClient : public Client {
 public:
  CacheClient(Region region, std::size_t total_bytes, std::size_t value_bytes)
      : cache_{std::move(region)}, total_bytes_{total_bytes}, value_bytes_{value_bytes} {
    const std::vector<std::byte> value(value_bytes, std::byte{'x'});
    const std::uint64_t values = total_bytes / value_bytes;
    for (std::uint64_t i = 0; i < values; ++i) cache_.put(key_of(i), value);
    std::uint64_t present = 0;
    for (std::uint64_t i = 0; i < values; ++i) {
      keys_.assign(1, key_of(i));
      present += get();
    }
    if (present < values / 100 * 99) give_up("more than a hundredth of the values is not there");
  }

  bool prepare(const Job& job) override {
    if (job.op != Op::kRead || job.block_bytes != value_bytes_) return false;
    keys_.resize(job.depth);
    places_ = std::make_unique<RandomBlocks>(total_bytes_, value_bytes_);
    return true;
  }

  std::size_t advance() override {
    for (std::string& key : keys_) key = key_of(places_->next() / value_bytes_);
    return get();
  }

  std::size_t drain() override { return 0; }

 private:
  /// How many of the keys have a value.
  std::size_t get() {
    std::size_t found = 0;
    cache_.get(keys_, [&](std::size_t /*index*/, std::span<const std::byte> value) {
      if (value.size() == value_bytes_) ++found;
    });
    return found;
  }

  KvCache cache_;
  std::size_t total_bytes_;
  std::size_t value_bytes_;
  std::vector<std::string> keys_;
  std::unique_ptr<RandomBlocks> places_;
};

int run(const Arguments& arguments) {
  const bool polling = arguments.polling();
  const auto total_bytes = static_cast<std::size_t>(arguments.number("--region-mib", 64)) << 20U;
  const auto value_bytes = static_cast<std::size_t>(arguments.number("--value-bytes", 1024));
  const std::size_t block_bytes = std::bit_ceil(value_bytes + 64);  // lengths, the key, the seal
  const MeasuredServer server{
      .transport = arguments.text("--transport", "tcp"),
      .address = arguments.text("--address", "127.0.0.1"),
      .region_bytes = total_bytes / value_bytes * block_bytes * 4,
      .block_bytes = block_bytes,
      .tcp_spin = polling ? kPollingServerSpin : std::chrono::nanoseconds{0}};
  const test::RuntimeDir folder;
  const auto process =
      ServerProcess::start(arguments, [&server](int where) { server.serve(where); });
  EngineOptions options;
  options.spin = polling ? std::chrono::seconds{1} : std::chrono::seconds{0};
  options.copy_threads = 1;
  const Engine engine = Engine::open(options).value();
  CacheClient client{server.open(engine, process->told()), total_bytes, value_bytes};
  return answer_jobs(client, nullptr);  // its server sleeps by itself
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  return remora::bench::run_program(argc, argv, remora::bench::run);
}
