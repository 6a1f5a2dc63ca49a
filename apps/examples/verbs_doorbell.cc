// verbs_doorbell [DEVICE [REQUESTS]]: the same writes, posted one by one and in chains. A chain is
// one call and one doorbell, and only its last request completes.
#include <array>
#include <chrono>
#include <iostream>
#include <string>

#include <remora/verbs/verbs.h>

namespace verbs = remora::verbs;
using remora::Exception;
using verbs::Access;

namespace {

struct Loop {
  verbs::CompletionQueue queue;
  verbs::MemoryRegion memory;
  verbs::QueuePair<verbs::Rc> pair;
};

Loop make(const verbs::DeviceEntry& entry) {
  const auto device = entry.open().value();
  const auto domain = device.allocate_domain().value();
  auto queue = device.create_completion_queue({.depth = 256, .events = true}).value();
  auto memory =
      verbs::MemoryRegion::allocate(domain, 8192, Access::kLocalWrite | Access::kRemoteWrite)
          .value();
  auto prepared = verbs::QueuePairBuilder<verbs::Rc>{domain, queue, queue}
                      .send_depth(128)
                      .timeout(18)
                      .build()
                      .value();
  const auto self = prepared.endpoint();
  return {queue, std::move(memory), std::move(prepared).connect(self).value()};
}

void wait_one(const Loop& loop) {
  std::array<verbs::Completion, 1> storage;
  const auto deadline = verbs::deadline_in(std::chrono::seconds{30});
  for (const auto& done : loop.queue.wait(storage, deadline).value())
    if (!done.ok()) throw Exception{done.error()};
}

double operations_per_s(Loop& loop, std::size_t requests, std::size_t chain) {
  const auto started = std::chrono::steady_clock::now();
  auto batch = loop.pair.start();
  for (std::size_t posted = 0; posted < requests; posted += chain) {
    for (std::size_t i = 0; i < chain; ++i)
      batch.write(i, loop.memory.slice(0, 8), loop.memory.remote(4096 + i * 8, 8))
          .signaled(i + 1 == chain);
    batch.post().value();
    wait_one(loop);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  return static_cast<double>(requests) / took.count();
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto list = verbs::devices().value();
    Loop loop = make(argc > 1 ? list.find(argv[1]).value() : list[0]);
    const std::size_t requests = argc > 2 ? std::stoul(argv[2]) : 2048;
    for (const std::size_t chain : {std::size_t{1}, std::size_t{8}, std::size_t{64}})
      std::cout << "chains of " << chain << ": "
                << static_cast<std::uint64_t>(operations_per_s(loop, requests, chain))
                << " writes a second\n";
  } catch (const std::exception& failed) {
    std::cerr << failed.what() << '\n';
    return 1;
  }
}
