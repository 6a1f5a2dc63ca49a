/// Callbacks: 16 reads in flight, each of which calls back; counts the blocks that are not empty.
///
///   callbacks remora://localhost/queue

#include <algorithm>
#include <atomic>
#include <iostream>
#include <semaphore>

#include <remora/remora.h>

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: callbacks URI\n", 2;
  auto engine = remora::Engine::open({}).value();
  auto region = engine.open_region(argv[1], remora::Rights::kRead).value();
  // One more than in flight: that of the callback that runs.
  auto slots = engine.allocate_slots(17, region.block_bytes()).value();
  std::atomic<std::uint64_t> used{0};
  std::atomic<std::uint64_t> failed{0};
  std::counting_semaphore<16> room{16};
  {
    auto queue = region.callback_queue({.depth = 16}).value();
    // Any number of threads may submit; here it is one.
    for (std::uint64_t i = 0; i < region.block_count(); ++i) {
      room.acquire();
      const auto count = [&](remora::Completion& ended) {  // on a thread of the engine's
        const auto bytes = ended.slot().bytes();
        const auto nonzero = [](std::byte byte) { return byte != std::byte{0}; };
        if (!ended.ok()) ++failed;
        if (ended.ok() && std::any_of(bytes.begin(), bytes.end(), nonzero)) ++used;
        room.release();
      };
      queue.read(remora::Block{i}, slots.take(), count).value();
    }
  }  // waits for what is in flight
  std::cout << used << " of " << region.block_count() << " blocks hold something, read over "
            << to_string(region.transport()) << '\n';
  return failed == 0 ? 0 : 1;
} catch (const std::exception& error) {  // from value(), the only throw in the library
  return std::cerr << error.what() << '\n', 1;
}
