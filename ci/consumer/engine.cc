// remora::remora: a server and a client in one program, over shared memory.
#include <array>
#include <cstddef>
#include <iostream>
#include <string>

#include <remora/remora.h>

int main() {
  using namespace remora::literals;
  remora::config::ServerConfig config;
  config.listen.port = 0;
  config.transports.rdma = remora::config::Availability::kOff;
  config.pool.size_bytes = 16_MiB;
  config.pool.huge_pages = remora::config::HugePages::kNever;
  config.regions.push_back({.name = "demo", .size_bytes = 1_MiB, .shm = true});

  const auto server = remora::Server::start(config).value();
  const auto engine = remora::Engine::open({}).value();
  const std::string uri =
      "remora://127.0.0.1:" + std::to_string(server.port()) + "/demo?transport=shm";
  const auto region = engine.open_region(uri, remora::Rights::kAll).value();

  std::array<std::byte, 4096> out{};
  out.fill(std::byte{0x5a});
  std::array<std::byte, 4096> in{};
  region.write(remora::Block{7}, out).value();
  region.read(remora::Block{7}, in).value();
  region.fetch_add(remora::ByteOffset{64}, 1).value();
  std::cout << "engine: " << region.block_count() << " blocks over "
            << to_string(region.transport()) << '\n';
  return in == out ? 0 : 1;
}
