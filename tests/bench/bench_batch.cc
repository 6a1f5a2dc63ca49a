// Chains of 32 writes of 8 bytes on a queue pair connected to itself: posted by verbs::Batch and
// polled by CompletionQueue, against ibv_post_send and ibv_poll_cq by hand, in turn.
//
//   bench_batch DEVICE [PAIRS] | ratio_table

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include <remora/verbs/verbs.h>

namespace remora::bench {
namespace {

constexpr std::uint32_t kChain = 32;
constexpr std::uint64_t kBytes = 8;
constexpr int kChainsATurn = 400;

struct Rig {
  explicit Rig(const char* name)
      : device{verbs::devices().value().find(name).value().open().value()},
        domain{device.allocate_domain().value()},
        bytes(kBytes * kChain * 2),
        memory{
            domain.register_bytes(bytes, verbs::Access::kLocalWrite | verbs::Access::kRemoteWrite)
                .value()},
        queue{device.create_completion_queue({.depth = 2 * kChain}).value()},
        pair{connect()} {}

  verbs::QueuePair<verbs::Rc> connect() {
    auto prepared = verbs::QueuePairBuilder<verbs::Rc>{domain, queue, queue}
                        .send_depth(2 * kChain)
                        .access(verbs::Access::kRemoteWrite)
                        .timeout(18)
                        .build()
                        .value();
    const auto self = prepared.endpoint();
    return std::move(prepared).connect(self).value();
  }

  verbs::Device device;
  verbs::ProtectionDomain domain;
  std::vector<std::byte> bytes;
  verbs::MemoryRegion memory;
  verbs::CompletionQueue queue;
  verbs::QueuePair<verbs::Rc> pair;
};

void by_batch(Rig& rig) {
  auto batch = rig.pair.start();
  for (std::uint32_t i = 0; i < kChain; ++i) {
    auto request = batch.write(i, rig.memory.slice(i * kBytes, kBytes),
                               rig.memory.remote((kChain + i) * kBytes, kBytes));
    if (i + 1 < kChain) request.unsignaled();
  }
  batch.post().value();
  std::array<verbs::Completion, 4> found;
  while (rig.queue.poll(found).value().empty()) {
  }
}

void by_hand(Rig& rig) {
  std::array<ibv_send_wr, kChain> requests{};
  std::array<ibv_sge, kChain> pieces{};
  const auto base = reinterpret_cast<std::uint64_t>(rig.bytes.data());
  for (std::uint32_t i = 0; i < kChain; ++i) {
    pieces[i] = {
        .addr = base + i * kBytes, .length = std::uint32_t{kBytes}, .lkey = rig.memory.raw()->lkey};
    ibv_send_wr& request = requests[i];
    request.wr_id = i;
    request.sg_list = &pieces[i];
    request.num_sge = 1;
    request.opcode = IBV_WR_RDMA_WRITE;
    request.wr.rdma.remote_addr = base + (kChain + i) * kBytes;
    request.wr.rdma.rkey = rig.memory.raw()->rkey;
    if (i + 1 < kChain)
      request.next = &requests[i + 1];
    else
      request.send_flags = IBV_SEND_SIGNALED;
  }
  ibv_send_wr* bad = nullptr;
  if (::ibv_post_send(rig.pair.raw(), requests.data(), &bad) != 0) std::abort();
  ibv_wc found{};
  while (::ibv_poll_cq(rig.queue.raw(), 1, &found) == 0) {
  }
  if (found.status != IBV_WC_SUCCESS) std::abort();
}

double rate(Rig& rig, void (*chain)(Rig&)) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kChainsATurn; ++i) chain(rig);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return double{kChainsATurn} * kChain / took.count();
}

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  using namespace remora::bench;  // NOLINT(google-build-using-namespace): main's own
  if (argc < 2) {
    std::fprintf(stderr, "usage: bench_batch DEVICE [PAIRS] | ratio_table\n");
    return 2;
  }
  Rig rig{argv[1]};
  const auto pairs = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 31;
  rate(rig, &by_batch);
  rate(rig, &by_hand);
  for (std::int64_t i = 0; i < pairs; ++i) {
    const bool ours_first = i % 2 == 0;
    const double first = rate(rig, ours_first ? &by_batch : &by_hand);
    const double second = rate(rig, ours_first ? &by_hand : &by_batch);
    std::printf("write 8 B, chains of 32\tverbs by hand\trequests/s\t-\t%.0f\t%.0f\n",
                ours_first ? first : second, ours_first ? second : first);
  }
}
