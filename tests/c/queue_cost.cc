// Reads in batches of 32 into registered memory over shm, in C++: queue_cost_cc N. queue_cost.c
// does the same through the C API.

#include <array>
#include <cstdlib>
#include <string>

#include <remora/config/load.h>
#include <remora/remora.h>

#include "support/counted.h"

int main(int argc, char** argv) {
  constexpr std::size_t kDepth = 32;
  constexpr std::size_t kBytes = 64;
  static std::array<std::byte, kDepth * kBytes> memory;
  const std::uint64_t times = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  auto config = remora::config::parse_server(
      "listen: {port: 0}\ntransports: {rdma: off}\n"
      "pool: {size: 4MiB, huge_pages: never}\n"
      "regions:\n  - {name: demo, size: 64KiB, shm: true}\nauth: none\n",
      "");
  if (!config) return EXIT_FAILURE;
  const auto server = remora::Server::start(*config).value();
  const auto engine = remora::Engine::open({}).value();
  const auto region = engine
                          .open_region("remora://127.0.0.1:" + std::to_string(server.port()) +
                                           "/demo?transport=shm",
                                       remora::Rights::kAll)
                          .value();
  const auto registered = engine.register_memory(memory).value();
  auto queue = region.queue({.depth = kDepth}).value();
  const remora::test::Counted counted;
  for (std::uint64_t done = 0; done < times;) {
    for (std::uint64_t i = 0; i < kDepth; ++i)
      queue.read(remora::ByteOffset{((i * 37) & 63U) * 1024},
                 remora::Target{registered, i * kBytes, kBytes}, i);
    queue.submit().value();
    for (const remora::Completion& completion : queue.wait(kDepth)) {
      if (!completion.ok() || completion.tag() >= kDepth) return EXIT_FAILURE;
      ++done;
    }
  }
}
