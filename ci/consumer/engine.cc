// remora::remora: a server and a client in one program, over shared memory.
#include <array>
#include <cstddef>
#include <iostream>
#include <string>

#include <remora/remora.h>
#include <remora/testing/fault_transport.h>

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

  // As in the unit tests of an application: over tcp, a write whose answer is lost.
  const auto faults = remora::testing::FaultTransport::create({.seed = 1}).value();
  remora::EngineOptions options;
  options.faults = faults.hook();
  const auto tested = remora::Engine::open(options).value();
  const auto same =
      tested
          .open_region("remora://127.0.0.1:" + std::to_string(server.port()) + "/demo",
                       remora::Rights::kAll)
          .value();
  faults.lose_next_lane(remora::testing::Landing::kLanded);
  const auto lost = same.write(remora::Block{8}, out);
  same.read(remora::Block{8}, in).value();
  std::cout << "engine: a write over " << to_string(same.transport()) << " ended as \""
            << (lost ? "ok" : to_string(lost.error().code())) << "\"\n";
  return in == out && !lost && lost.error().code() == remora::Code::kIndeterminate ? 0 : 1;
}
