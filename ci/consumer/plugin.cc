// A plugin with all of Remora in it: a server and a client of its own.
#include <array>
#include <cstddef>
#include <iostream>
#include <string>

#include <remora/remora.h>

extern "C" int plugin_run() {
  using namespace remora::literals;
  remora::config::ServerConfig config;
  config.listen.port = 0;
  config.transports.rdma = remora::config::Availability::kOff;
  config.pool.size_bytes = 4_MiB;
  config.regions.push_back({.name = "demo", .size_bytes = 64_KiB, .shm = true});
  const auto server = remora::Server::start(config).value();
  const auto engine = remora::Engine::open({}).value();
  const std::string host = "remora://127.0.0.1:" + std::to_string(server.port());
  for (const char* transport : {"shm", "tcp"}) {
    const auto region =
        engine.open_region(host + "/demo?transport=" + transport, remora::Rights::kAll).value();
    const std::array<std::byte, 8> out{std::byte{5}};
    std::array<std::byte, 8> in{};
    region.write(remora::ByteOffset{0}, out).value();
    region.read(remora::ByteOffset{0}, in).value();
    if (in != out) return 1;
  }
  return 0;
}
