/// How a server comes to be: its listeners, its pool, the regions of its configuration.

#include <utility>

#include "base/log.h"
#include "base/placement.h"
#include "server/listen_address.h"
#include "server/server_core.h"
#include "transport/listen.h"

namespace remora::detail {

using config::Availability;
using transport::Listener;

namespace {

constexpr int kPortTries = 16;

metrics::HttpOptions http_options(const config::Metrics& metrics,
                                  const std::shared_ptr<ServerStatusReport>& desk) {
  metrics::HttpOptions options;
  options.address = *metrics.address;
  options.allowed_hosts = metrics.allowed_hosts;
  options.access = {.token = metrics.token, .user = metrics.user, .password = metrics.password};
  options.health = [desk] { return desk->health(); };
  options.unready = [desk] { return desk->unready(); };
  options.status_page = [desk](const metrics::StatusQuery& query) { return desk->json(query); };
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

namespace {

/// What `stop` ends, between two steps.
Status go_on(const std::stop_token& stop) {
  if (stop.stop_requested()) return Error{Code::kCancelled, "start"};
  return {};
}

/// `before`: bytes that the same step of the start has done already.
PopulateSteps steps_of(const ServerCore::StartOptions& options, StartProgress::Step step,
                       std::uint64_t before, std::uint64_t total) {
  PopulateSteps steps{.stop = options.stop};
  if (options.on_progress)
    steps.on_step = [&report = options.on_progress, step, before, total](std::uint64_t done) {
      report({.step = step, .done_bytes = before + done, .total_bytes = total});
    };
  return steps;
}

}  // namespace

Result<std::unique_ptr<ServerCore>> ServerCore::start(const config::ServerConfig& config,
                                                      StartOptions options) {
  if (const config::Diagnostics wrong = config::validate(config); !wrong.empty())
    return Error{Code::kInvalidArgument, "configuration"}.with_subject(wrong[0].message);
  if (options.registry == nullptr) {
    auto made = metrics::Registry::create();
    if (!made) return made.error();
    options.registry = std::move(*made);
  }
  auto metrics = ServerMetrics::create(options.registry);
  if (!metrics) return metrics.error();
  auto listeners = open_doors(config, metrics->registry(), options);
  if (!listeners) return listeners.error();
  return start_behind(config, std::move(*metrics), std::move(*listeners), options);
}

Result<std::unique_ptr<ServerCore>> ServerCore::start_behind(const config::ServerConfig& config,
                                                             ServerMetrics metrics,
                                                             Listeners listeners,
                                                             const StartOptions& options) {
  // The pool lies with the device that serves it, where there are several memory nodes and one
  // device, or all of them, on one of them.
  auto placement =
      Placement::create(config.transports.rdma == config::Availability::kOff ? "none" : "auto",
                        config.transports.rdma_device);
  if (!placement) log::info("placement: {}", placement.error().message());
  using Step = StartProgress::Step;
  const std::uint64_t pool_bytes = config.pool.size_bytes;
  auto pool = Pool::create(config.pool, placement ? *placement : Placement{},
                           config::kPoolPageBytes, steps_of(options, Step::kPool, 0, pool_bytes));
  if (!pool) return pool.error();
  listeners.protection.clear();
  for (const auto& listener : listeners.listeners) {
    transport::ListenerDevices* const devices = listener->devices();
    if (devices == nullptr) continue;
    if (options.on_progress)
      options.on_progress({.step = Step::kDevices, .done_bytes = 0, .total_bytes = pool_bytes});
    const auto registered = devices->register_pool((*pool)->pieces(), *pool, options.stop);
    if (!registered) return registered.error();
    if (*registered) (*pool)->keep_pages();
    for (auto& each : devices->protection()) listeners.protection.push_back(std::move(each));
  }
  auto core = std::make_unique<ServerCore>(config, std::move(metrics), std::move(*pool),
                                           std::move(listeners));
  if (auto status = core->create_configured_regions(options); !status) return status.error();
  if (auto status = core->export_pool(); !status) return status.error();
  if (auto status = go_on(options.stop); !status) return status.error();
  if (auto status = core->begin(); !status) return status.error();
  return core;
}

namespace {

/// Whether `auto` may leave the transport out: where the machine does not have it. A port that is
/// in use, a port that this user may not have and every other failure of tcp would leave shm alone,
/// which no client on another machine reaches. A protection that the configuration names is never
/// left out either.
bool may_leave_out(TransportKind kind, const Error& error) {
  if (error.subject().starts_with("transports.rdma_protection")) return false;
  switch (error.code()) {
    case Code::kAddressInUse:
    case Code::kAlreadyExists: return false;
    case Code::kUnsupported: return true;
    default: return kind != TransportKind::kTcp;
  }
}

}  // namespace

Result<ServerCore::Listeners> ServerCore::open_listeners(
    const config::ServerConfig& config, const transport::ListenAddress& address,
    const std::shared_ptr<metrics::Registry>& registry, std::vector<RefusedTransport>& refused) {
  Listeners listeners;
  const auto add = [&](Availability wanted, TransportKind kind, auto&& listen) -> Status {
    if (wanted == Availability::kOff) return {};
    // All on one port: that of the first.
    Result<std::unique_ptr<Listener>> listener =
        listen(listeners.port != 0 ? listeners.port : config.listen.port);
    if (listener) {
      listeners.port = (*listener)->port();
      if (transport::ListenerDevices* const devices = (*listener)->devices())
        listeners.devices = devices->names();
      listeners.listeners.push_back(std::move(*listener));
      return {};
    }
    const Error& error = listener.error();
    if (wanted == Availability::kRequired || !may_leave_out(kind, error)) return error;
    const bool none_here = error.code() == Code::kNotFound || error.code() == Code::kUnsupported;
    const bool named = kind == TransportKind::kRdma && !config.transports.rdma_device.empty();
    if (none_here && !named)
      log::info("{} is not offered: {}", to_string(kind), error.message());
    else
      log::warn("{} is not offered: {}", to_string(kind), error.message());
    refused.push_back({kind, error});
    return {};
  };
  const config::Transports& wanted = config.transports;
  Status status = add(wanted.rdma, TransportKind::kRdma, [&](std::uint16_t /*port*/) {
    return transport::listen_rdma(config, address, registry);
  });
  if (status)
    status = add(wanted.tcp, TransportKind::kTcp, [&](std::uint16_t port) {
      return transport::listen_tcp(config, address, port, registry);
    });
  if (status)
    status = add(wanted.shm, TransportKind::kShm,
                 [&](std::uint16_t port) { return transport::listen_shm(port, address); });
  if (!status) return status.error();
  return listeners;
}

Result<ServerCore::Listeners> ServerCore::open_doors(
    const config::ServerConfig& config, const std::shared_ptr<metrics::Registry>& registry,
    const StartOptions& options) {
  auto own = own_addresses("listen.address", config.listen.address, options.stop);
  if (!own) return own.error();
  const transport::ListenAddress address{config.listen.address, std::move(*own)};
  std::vector<RefusedTransport> left_out;
  auto listeners = open_listeners(config, address, registry, left_out);
  // The port that was free for the first transport may be taken for the next: another one, then.
  for (int i = 0; i < kPortTries && config.listen.port == 0 && !listeners &&
                  listeners.error().code() == Code::kAddressInUse;
       ++i) {
    left_out.clear();
    listeners = open_listeners(config, address, registry, left_out);
  }
  if (options.refused != nullptr)
    options.refused->insert(options.refused->end(), left_out.begin(), left_out.end());
  if (!listeners) return listeners;
  if (listeners->listeners.empty())
    return Error{Code::kUnsupported, "no transport can be offered"}.with_subject(
        "transports.rdma, transports.tcp, transports.shm");
  listeners->desk = std::make_shared<ServerStatusReport>(config.limits, std::move(left_out));
  if (!config.metrics.address) return listeners;
  auto endpoint = open_endpoint(config.metrics, registry, listeners->desk, options.stop);
  if (!endpoint) return endpoint.error();
  listeners->http = std::move(*endpoint);
  return listeners;
}

/// A name in `metrics.address` stands for the first address of this machine that it has.
Result<metrics::HttpEndpoint> ServerCore::open_endpoint(
    const config::Metrics& metrics, const std::shared_ptr<metrics::Registry>& registry,
    const std::shared_ptr<ServerStatusReport>& desk, const std::stop_token& stop) {
  const auto configured = config::parse_endpoint(*metrics.address);
  if (!configured) return configured.error().with_subject("metrics.address: " + *metrics.address);
  auto own = own_addresses("metrics.address", configured->address, stop);
  if (!own) return own.error();
  metrics::HttpOptions options = http_options(metrics, desk);
  options.allowed_hosts.push_back(configured->address);
  options.address = own->front().with_port(configured->port).to_string();
  return metrics::HttpEndpoint::start(registry, std::move(options));
}

Status ServerCore::create_configured_regions(const StartOptions& options) {
  std::uint64_t total_bytes = 0;
  for (const config::RegionConfig& region : config_.regions) total_bytes += region.size_bytes;
  std::uint64_t done_bytes = 0;
  for (const config::RegionConfig& region : config_.regions) {
    if (auto status = go_on(options.stop); !status) return status;
    if (!region.shm && !offers(TransportKind::kRdma) && !offers(TransportKind::kTcp))
      return Error{Code::kUnsupported, "region that no transport opens"}.with_subject("regions: " +
                                                                                      region.name);
    RegionSpec spec{
        .name = region.name,
        .size_bytes = region.size_bytes,
        .block_bytes = region.block_bytes,
        .rights = rights_of(region.rights.read, region.rights.write, region.rights.atomic),
        .atomic_domain = region.atomics,
        .shm = region.shm,
        .access = access_of(region)};
    const std::string device = first_device_for(spec);
    auto created =
        create_region(std::move(spec), device, {}, deadline_after(config_.limits.request_timeout),
                      steps_of(options, StartProgress::Step::kRegions, done_bytes, total_bytes));
    if (!created) return created.error().with_subject("regions: " + region.name);
    done_bytes += region.size_bytes;
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
  auto orphaned = metrics_.registry()->gauge_callback(
      "remora_server_orphaned_bytes", "Bytes of removed regions that other processes still hold.",
      {}, [pool = pool_] { return static_cast<double>(pool->orphaned_bytes()); });
  if (!orphaned) return orphaned.error();
  pool_series_.push_back(std::move(*orphaned));
  for (const auto& listener : listeners_)
    if (transport::ListenerDevices* const devices = listener->devices())
      devices->show_counters(*metrics_.registry());
  return {};
}

}  // namespace remora::detail
