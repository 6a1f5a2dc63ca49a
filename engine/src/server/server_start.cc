/// How a server comes to be: its doors, its pool, the regions of its configuration.

#include <utility>

#include "server/server_core.h"
#include "support/log.h"
#include "support/placement.h"
#include "transport/nic_series.h"

namespace remora::detail {

using config::Availability;
using transport::Listener;

namespace {

constexpr int kPortTries = 16;

metrics::HttpOptions http_options(const config::Metrics& metrics,
                                  const std::shared_ptr<ServerStatusDesk>& desk) {
  metrics::HttpOptions options;
  options.address = *metrics.address;
  options.access = {.token = metrics.token, .user = metrics.user, .password = metrics.password};
  options.health = [desk] { return desk->health(); };
  options.unready = [desk] { return desk->unready(); };
  options.status = [desk] { return desk->json(); };
  return options;
}

Rights rights_of(bool read, bool write, bool atomic) {
  Rights rights = Rights::kNone;
  if (read) rights = rights | Rights::kRead;
  if (write) rights = rights | Rights::kWrite;
  if (atomic) rights = rights | Rights::kAtomic;
  return rights;
}

std::vector<RegionAccess> access_of(const config::RegionConfig& region) {
  std::vector<RegionAccess> list;
  list.reserve(region.access.size());
  for (const config::RegionAccess& each : region.access)
    list.push_back({.client = each.client,
                    .rights = rights_of(each.read, each.write, each.atomic),
                    .admin = each.admin});
  return list;
}

}  // namespace

Result<std::unique_ptr<ServerCore>> ServerCore::start(const config::ServerConfig& config,
                                                      std::shared_ptr<metrics::Registry> registry,
                                                      std::vector<RefusedTransport>* refused) {
  if (const config::Diagnostics wrong = config::validate(config); !wrong.empty())
    return Error{Code::kInvalidArgument, "configuration"}.with_subject(wrong[0].message);
  if (registry == nullptr) {
    auto made = metrics::Registry::create();
    if (!made) return made.error();
    registry = std::move(*made);
  }
  auto metrics = ServerMetrics::create(std::move(registry));
  if (!metrics) return metrics.error();
  auto doors = open_doors(config, metrics->registry(), refused);
  if (!doors) return doors.error();
  return start_behind(config, std::move(*metrics), std::move(*doors));
}

Result<std::unique_ptr<ServerCore>> ServerCore::start_behind(const config::ServerConfig& config,
                                                             ServerMetrics metrics, Doors doors) {
  // The pool lies with the device that serves it, where there are several memory nodes and one
  // device, or all of them, on one of them.
  auto placement =
      Placement::create(config.transports.rdma == config::Availability::kOff ? "none" : "auto",
                        config.transports.rdma_device);
  if (!placement) log::info("placement: {}", placement.error().message());
  auto pool = Pool::create(config.pool, placement ? *placement : Placement{});
  if (!pool) return pool.error();
  doors.protection.clear();
  for (const auto& listener : doors.listeners) {
    const auto registered = listener->lend((*pool)->pieces(), *pool);
    if (!registered) return registered.error();
    if (*registered) (*pool)->keep_pages();
    for (auto& each : listener->protection()) doors.protection.push_back(std::move(each));
  }
  auto core =
      std::make_unique<ServerCore>(config, std::move(metrics), std::move(*pool), std::move(doors));
  if (auto status = core->create_configured_regions(); !status) return status.error();
  if (auto status = core->export_pool(); !status) return status.error();
  if (auto status = core->begin(); !status) return status.error();
  return core;
}

Result<ServerCore::Doors> ServerCore::open_listeners(
    const config::ServerConfig& config, const std::shared_ptr<metrics::Registry>& registry,
    std::vector<RefusedTransport>& refused) {
  Doors doors;
  const auto add = [&](Availability wanted, TransportKind kind, auto&& listen) -> Status {
    if (wanted == Availability::kOff) return {};
    // All on one port: that of the first.
    Result<std::unique_ptr<Listener>> listener =
        listen(doors.port != 0 ? doors.port : config.listen.port);
    if (listener) {
      doors.port = (*listener)->port();
      for (std::string& device : (*listener)->devices()) doors.devices.push_back(std::move(device));
      doors.listeners.push_back(std::move(*listener));
      return {};
    }
    // A port that is taken is never what was meant, however little the transport is wanted; nor is
    // an address that is not this host's, and shm alone then; nor a server without the protection
    // that was asked for by its name.
    const Code why = listener.error().code();
    const bool elsewhere = kind == TransportKind::kTcp && why == Code::kUnreachable;
    const bool taken = why == Code::kAddressInUse || why == Code::kAlreadyExists;
    if (wanted == Availability::kRequired || taken || elsewhere ||
        listener.error().subject().starts_with("transports.rdma_protection"))
      return listener.error();
    log::info("{} is not offered: {}", to_string(kind), listener.error().message());
    refused.push_back({kind, listener.error()});
    return {};
  };
  const config::Transports& wanted = config.transports;
  Status status = add(wanted.rdma, TransportKind::kRdma, [&](std::uint16_t /*port*/) {
    return transport::listen_rdma(config, registry);
  });
  if (status)
    status = add(wanted.tcp, TransportKind::kTcp,
                 [&](std::uint16_t port) { return transport::listen_tcp(config, port, registry); });
  if (status)
    status = add(wanted.shm, TransportKind::kShm, [&config](std::uint16_t port) {
      return transport::listen_shm(port, config.listen.address);
    });
  if (!status) return status.error();
  return doors;
}

Result<ServerCore::Doors> ServerCore::open_doors(const config::ServerConfig& config,
                                                 const std::shared_ptr<metrics::Registry>& registry,
                                                 std::vector<RefusedTransport>* refused) {
  std::vector<RefusedTransport> left_out;
  auto doors = open_listeners(config, registry, left_out);
  // The port that was free for the first transport may be taken for the next: another one, then.
  for (int i = 0; i < kPortTries && config.listen.port == 0 && !doors &&
                  doors.error().code() == Code::kAddressInUse;
       ++i) {
    left_out.clear();
    doors = open_listeners(config, registry, left_out);
  }
  if (refused != nullptr) refused->insert(refused->end(), left_out.begin(), left_out.end());
  if (!doors) return doors;
  if (doors->listeners.empty())
    return Error{Code::kUnsupported, "no transport can be offered"}.with_subject(
        "transports.rdma, transports.tcp, transports.shm");
  doors->desk = std::make_shared<ServerStatusDesk>(config.limits, std::move(left_out));
  if (!config.metrics.address) return doors;
  auto endpoint = metrics::HttpEndpoint::start(registry, http_options(config.metrics, doors->desk));
  if (!endpoint) return endpoint.error();
  doors->http = std::move(*endpoint);
  return doors;
}

Status ServerCore::create_configured_regions() {
  for (const config::RegionConfig& region : config_.regions) {
    RegionSpec spec{
        .name = region.name,
        .size_bytes = region.size_bytes,
        .block_bytes = region.block_bytes,
        .rights = rights_of(region.rights.read, region.rights.write, region.rights.atomic),
        .atomic_domain = region.atomics,
        .shm = region.shm,
        .access = access_of(region)};
    auto created = create_region(std::move(spec));
    if (!created) return created.error().with_subject("regions: " + region.name);
  }
  return {};
}

Status ServerCore::export_pool() {
  using Read = std::uint64_t (*)(const PoolUsage&);
  static constexpr std::pair<const char*, Read> kStates[] = {
      {"used", [](const PoolUsage& usage) { return usage.used_bytes; }},
      {"freeing", [](const PoolUsage& usage) { return usage.freeing_bytes; }},
      {"free", [](const PoolUsage& usage) { return usage.free_bytes(); }}};
  for (const auto& [state, read] : kStates) {
    auto handle = metrics_.registry()->gauge_callback(
        "remora_server_pool_bytes", "Bytes of the pool, by what they are.", {{"state", state}},
        [pool = pool_, part = read] { return static_cast<double>(part(pool->usage())); });
    if (!handle) return handle.error();
    pool_series_.push_back(std::move(*handle));
  }
  auto zombies = metrics_.registry()->gauge_callback(
      "remora_server_zombie_bytes", "Bytes of removed regions that other processes still hold.", {},
      [pool = pool_] { return static_cast<double>(pool->zombie_bytes()); });
  if (!zombies) return zombies.error();
  pool_series_.push_back(std::move(*zombies));
  for (const std::string& device : devices_) transport::show_nic(*metrics_.registry(), device);
  return {};
}

}  // namespace remora::detail
