// A plugin that has a whole copy of the library in it, linked statically.

#include "copy.h"

#include <array>
#include <cstddef>
#include <dlfcn.h>
#include <optional>
#include <string>

#include <remora/metrics/http_endpoint.h>
#include <remora/metrics/registry.h>
#include <remora/remora.h>

namespace {

using namespace remora::literals;

struct Serving {
  remora::Server server;
  remora::metrics::HttpEndpoint endpoint;
};
std::optional<Serving> g_serving;
std::string g_text;

const char* told(const remora::Error& error) {
  g_text = error.message();
  return g_text.c_str();
}

remora::Result<Serving> serve() {
  remora::config::ServerConfig config;
  config.listen.port = 0;
  config.transports.rdma = remora::config::Availability::kOff;
  config.pool.size_bytes = 8_MiB;
  config.pool.huge_pages = remora::config::HugePages::kNever;
  config.regions.push_back({.name = "demo", .size_bytes = 64_KiB, .shm = true});
  auto server = remora::Server::start(config);
  if (!server) return server.error();
  auto registry = remora::metrics::Registry::create();
  if (!registry) return registry.error();
  auto endpoint = remora::metrics::HttpEndpoint::start(*registry, {.address = "127.0.0.1:0"});
  if (!endpoint) return endpoint.error();
  return Serving{.server = std::move(*server), .endpoint = std::move(*endpoint)};
}

}  // namespace

const char* copy_start_server(unsigned short* port) {
  auto serving = serve();
  if (!serving) return told(serving.error());
  *port = serving->server.port();
  g_serving.emplace(std::move(*serving));
  return nullptr;
}

void copy_stop_server() { g_serving.reset(); }

const char* copy_exchange(unsigned short port, const char* transport, unsigned char value,
                          unsigned char theirs) {
  auto engine = remora::Engine::open({});
  if (!engine) return told(engine.error());
  const auto region = engine->open_region(
      "remora://127.0.0.1:" + std::to_string(port) + "/demo?transport=" + transport,
      remora::Rights::kAll);
  if (!region) return told(region.error());
  std::array<std::byte, 4096> page{};
  page.fill(std::byte{value});
  if (auto written = region->write(remora::Block{value}, page); !written)
    return told(written.error());
  for (const unsigned char block : {value, theirs}) {
    if (block == 0) continue;
    std::array<std::byte, 4096> found{};
    if (auto read = region->read(remora::Block{block}, found); !read) return told(read.error());
    page.fill(std::byte{block});
    if (found != page) return "read other bytes than were written";
  }
  if (auto added = region->fetch_add(remora::ByteOffset{0}, 1); !added) return told(added.error());
  return nullptr;
}

const char* copy_file() {
  Dl_info found{};
  if (::dladdr(reinterpret_cast<const void*>(&remora::Engine::open), &found) == 0) return "";
  return found.dli_fname;
}
