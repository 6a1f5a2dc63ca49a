// batch_cost hand|batch|batch-cut|hand-gather|batch-gather|hand-poll|batch-poll COUNT: COUNT
// requests, or completions, with a provider that does nothing. Run under callgrind by
// batch_cost_test.cc: what the objects cost over the same calls written by hand.
#include <cstdlib>
#include <string_view>

#include "fake_verbs.h"
#include "support/counted.h"

namespace remora::test {
namespace {

constexpr std::size_t kChain = 64;

int post_nothing(ibv_qp*, ibv_send_wr*, ibv_send_wr**) { return 0; }
int poll_all(ibv_cq*, int count, ibv_wc*) { return count; }

// What a careful C program does: arrays made and linked once, and every request's fields set.
struct ByHand {
  ibv_send_wr requests[kChain]{};
  ibv_sge elements[kChain][2]{};
  ByHand() {
    for (std::size_t i = 0; i < kChain; ++i) {
      requests[i].sg_list = elements[i];
      requests[i].next = i + 1 < kChain ? &requests[i + 1] : nullptr;
    }
  }
};

// Where from and where to, known beforehand.
struct Target {
  ibv_sge local;
  std::uint64_t remote_address;
  std::uint32_t rkey;
};
using Targets = std::array<Target, kChain>;
struct Slice {
  verbs::LocalSlice local;
  verbs::RemoteSlice remote;
};
using Slices = std::array<Slice, kChain>;

template <int kElements>  // of each request: 1 or 2
[[gnu::noinline]] int post_by_hand(ByHand& hand, ibv_qp* pair,
                                   int (*post)(ibv_qp*, ibv_send_wr*, ibv_send_wr**),
                                   const Targets& targets) {
  for (std::size_t i = 0; i < kChain; ++i) {
    ibv_send_wr& wr = hand.requests[i];
    wr.wr_id = i;
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.send_flags = i + 1 == kChain ? unsigned{IBV_SEND_SIGNALED} : 0U;
    wr.num_sge = kElements;
    hand.elements[i][0] = targets[i].local;
    if constexpr (kElements == 2) hand.elements[i][1] = targets[kChain - 1 - i].local;
    wr.wr.rdma.remote_addr = targets[i].remote_address;
    wr.wr.rdma.rkey = targets[i].rkey;
  }
  ibv_send_wr* bad = nullptr;
  return post(pair, hand.requests, &bad);
}

[[gnu::noinline]] bool post_batch(verbs::QueuePair<verbs::Rc>& pair, const Slices& slices) {
  auto batch = pair.start();
  for (std::size_t i = 0; i < kChain; ++i)
    batch.write(i, slices[i].local, slices[i].remote).signaled(i + 1 == kChain);
  return batch.post().ok();
}

[[gnu::noinline]] bool post_gather(verbs::QueuePair<verbs::Rc>& pair, const Slices& slices) {
  auto batch = pair.start();
  for (std::size_t i = 0; i < kChain; ++i) {
    const std::array<verbs::LocalSlice, 2> pieces{slices[i].local, slices[kChain - 1 - i].local};
    batch.write(i, pieces, slices[i].remote).signaled(i + 1 == kChain);
  }
  return batch.post().ok();
}

// With every slice cut, and its bounds checked, as it is needed.
[[gnu::noinline]] bool post_cut(verbs::QueuePair<verbs::Rc>& pair,
                                const verbs::MemoryRegion& memory,
                                const verbs::RemoteSlice& remote) {
  auto batch = pair.start();
  for (std::size_t i = 0; i < kChain; ++i)
    batch.write(i, memory.slice(i * 64, 64), remote.slice(i * 64, 64)).signaled(i + 1 == kChain);
  return batch.post().ok();
}

[[gnu::noinline]] std::uint64_t poll_by_hand(ibv_cq* queue, int (*poll)(ibv_cq*, int, ibv_wc*),
                                             ibv_wc* storage) {
  std::uint64_t sum = 0;
  const int count = poll(queue, kChain, storage);
  if (count < 0) std::abort();
  for (int i = 0; i < count; ++i) {
    if (storage[i].status != IBV_WC_SUCCESS) std::abort();
    sum += storage[i].wr_id;
  }
  return sum;
}

[[gnu::noinline]] std::uint64_t poll_queue(const verbs::CompletionQueue& queue,
                                           std::span<verbs::Completion> storage) {
  std::uint64_t sum = 0;
  const auto some = queue.poll(storage);
  if (!some) std::abort();
  for (const verbs::Completion& done : *some) {
    if (!done.ok()) std::abort();
    sum += done.id();
  }
  return sum;
}

int run(std::string_view mode, std::size_t rounds) {
  FakeVerbs fake;
  fake.table.post_send = &post_nothing;
  fake.table.poll_cq = &poll_all;
  const FakeRig rig{verbs::devices(fake.provider()).value()[0].open().value()};
  auto pair = rig.connected();
  const verbs::RemoteSlice remote = rig.memory.remote();
  Targets targets{};
  Slices slices;
  for (std::size_t i = 0; i < kChain; ++i) {
    slices[i].local = rig.memory.slice(i * 64, 64);
    slices[i].remote = remote.slice(i * 32, 128);
    targets[i] = {slices[i].local.raw(), slices[i].remote.address(), remote.rkey()};
  }
  ByHand hand;
  std::array<ibv_wc, kChain> raw{};
  std::array<verbs::Completion, kChain> storage;
  const auto post = fake.table.post_send;
  std::uint64_t sum = 0;
  const auto repeat = [&](auto&& round) {
    const Counted counted;
    for (std::size_t i = 0; i < rounds; ++i) sum += static_cast<std::uint64_t>(round());
    return 0;
  };
  int result = 2;
  if (mode == "hand")
    result = repeat([&] { return post_by_hand<1>(hand, pair.raw(), post, targets); });
  if (mode == "hand-gather")
    result = repeat([&] { return post_by_hand<2>(hand, pair.raw(), post, targets); });
  if (mode == "batch") result = repeat([&] { return post_batch(pair, slices); });
  if (mode == "batch-gather") result = repeat([&] { return post_gather(pair, slices); });
  if (mode == "batch-cut") result = repeat([&] { return post_cut(pair, rig.memory, remote); });
  if (mode == "hand-poll")
    result = repeat([&] { return poll_by_hand(rig.queue.raw(), fake.table.poll_cq, raw.data()); });
  if (mode == "batch-poll") result = repeat([&] { return poll_queue(rig.queue, storage); });
  return sum == ~std::uint64_t{0} ? 1 : result;
}

}  // namespace
}  // namespace remora::test

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const auto count = std::strtoul(argv[2], nullptr, 10);
  return remora::test::run(argv[1], count / 64);
}
