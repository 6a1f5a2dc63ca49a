#include "measured_server.h"

#include <exception>
#include <unistd.h>

namespace remora::bench {

void MeasuredServer::serve(int where) const {
  config::ServerConfig config;
  config.listen.address = address;
  config.listen.port = 0;
  config.auth = config::Auth::kNone;
  const auto wanted = [this](const char* name) {
    return transport == name ? config::Availability::kRequired : config::Availability::kOff;
  };
  config.transports.rdma = wanted("rdma");
  config.transports.shm = wanted("shm");
  config.transports.tcp = wanted("tcp");
  config.transports.tcp_spin = tcp_spin;
  config.pool.size_bytes = region_bytes;
  config.pool.huge_pages = config::HugePages::kNever;
  config.log.level = config::LogLevel::kWarn;
  config.regions.push_back({.name = "bench",
                            .size_bytes = region_bytes,
                            .block_bytes = block_bytes,
                            .rights = {},
                            .atomics = "auto",
                            .shm = transport == "shm"});
  const Server server = Server::start(config).value();
  ServerProcess::tell(where, std::to_string(server.port()));
  for (;;) ::pause();
}

Region MeasuredServer::open(const Engine& engine, const std::string& port) const {
  return engine
      .open_region("remora://" + address + ":" + port + "/bench?transport=" + transport,
                   Rights::kAll)
      .value();
}

std::size_t successes(const Completions& found) {
  for (const Completion& completion : found)
    if (!completion.ok()) throw Exception{completion.error()};
  return found.size();
}

int run_program(int argc, char** argv, int (*run)(const Arguments&)) {
  try {
    return run(Arguments{argc, argv});
  } catch (const std::exception& thrown) {
    give_up(thrown.what());
  }
}

}  // namespace remora::bench
