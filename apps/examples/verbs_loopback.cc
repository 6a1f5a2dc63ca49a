// verbs_loopback [DEVICE]: a queue pair connected to itself writes, reads and counts.
#include <array>
#include <iostream>

#include <remora/verbs/verbs.h>

namespace verbs = remora::verbs;
using remora::Exception;
using verbs::Access;

namespace {

void run(const verbs::DeviceEntry& entry) {
  const auto device = entry.open().value();
  const auto domain = device.allocate_domain().value();
  const auto memory =
      verbs::MemoryRegion::allocate(
          domain, 4096,
          Access::kLocalWrite | Access::kRemoteRead | Access::kRemoteWrite | Access::kRemoteAtomic)
          .value();
  const auto queue = device.create_completion_queue({.depth = 64, .events = true}).value();
  auto prepared = verbs::QueuePairBuilder<verbs::Rc>{domain, queue, queue}
                      .send_depth(16)
                      .inline_bytes(32)
                      .timeout(18)
                      .build()
                      .value();
  std::cout << prepared.endpoint() << '\n';
  const auto self = prepared.endpoint();  // two processes exchange self.to_wire()
  auto pair = std::move(prepared).connect(self).value();

  auto batch = pair.start();
  batch.write_inline(1, std::as_bytes(std::span{"written"}), memory.remote(1024, 8)).unsignaled();
  batch.read(2, memory.slice(0, 8), memory.remote(1024, 8)).unsignaled();
  batch.fetch_add(3, memory.slice(64, 8), memory.remote(2048, 8), 5);
  batch.post().value();

  std::array<verbs::Completion, 16> storage;
  const auto deadline = verbs::deadline_in(std::chrono::seconds{10});
  for (const auto& done : queue.wait(storage, deadline).value()) {
    std::cout << done << '\n';
    if (!done.ok()) throw Exception{done.error()};
  }
  std::cout << "read back: " << reinterpret_cast<const char*>(memory.bytes().data()) << '\n';
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto list = verbs::devices().value();
    run(argc > 1 ? list.find(argv[1]).value() : list[0]);
  } catch (const Exception& failed) {
    std::cerr << failed.what() << '\n';
    return 1;
  }
}
