#include "server/server_core.h"

#include <utility>

#include <remora/config/units.h>

#include "base/log.h"
#include "base/placement.h"
#include "server/random_id.h"
#include "server/translation_need.h"

namespace remora::detail {

namespace {

std::string_view words_for(ServerMetrics::Refusal why) noexcept {
  switch (why) {
    case ServerMetrics::Refusal::kVersion: return "an older protocol version, which has no keys";
    case ServerMetrics::Refusal::kAuthentication: return "it wants keys, and auth is none";
    case ServerMetrics::Refusal::kNoKey: return "it shows no key";
    case ServerMetrics::Refusal::kUnknownClient: return "no client of that name";
    case ServerMetrics::Refusal::kWrongKey: return "its key is not one of the client's";
    default: return "refused";
  }
}

/// `before`: bytes that this step of the start has populated already.
PopulateSteps steps_of(const ServerCore::StartOptions& options, StartProgress::Step step,
                       std::uint64_t before, std::uint64_t total) {
  PopulateSteps steps{.stop = options.stop};
  if (options.on_progress)
    steps.on_step = [&report = options.on_progress, step, before, total](std::uint64_t done) {
      report({.step = step, .done_bytes = before + done, .total_bytes = total});
    };
  return steps;
}

/// An estimate, for the operator: the device does not say how much room it has.
void log_translations(const config::ServerConfig& config, const Pool& pool, bool leased) {
  const std::uint64_t pool_bytes = pool.usage().total_bytes;
  const std::uint64_t page_bytes = config.pool.huge_pages == config::HugePages::kRequire1GiB
                                       ? config::kGibPageBytes
                                       : pool.whole_pages(1);
  const std::uint64_t once = translation_bytes(pool_bytes, page_bytes);
  const std::uint64_t clients = config.limits.sessions_max;
  const std::string pages = config::format_size(page_bytes);
  if (leased)
    return log::info("rdma: the pool takes about {} of a device's translations (pages of {})",
                     config::format_size(once), pages);
  log::info(
      "rdma: a client that opens all of the pool takes about {} of a device's translations (pages "
      "of {}) and {} of locked memory; {} clients take {} and {}",
      config::format_size(once), pages, config::format_size(pool_bytes), clients,
      config::format_size(once * clients), config::format_size(pool_bytes * clients));
}

/// Gives the devices the memory of the pool.
Status register_pool(const config::ServerConfig& config, const ListenerSet& listeners,
                     const std::shared_ptr<Pool>& pool, const ServerCore::StartOptions& options) {
  const std::uint64_t pool_bytes = pool->usage().total_bytes;
  for (const auto& listener : listeners.listeners()) {
    transport::ListenerDevices* const devices = listener->devices();
    if (devices == nullptr) continue;
    if (options.on_progress)
      options.on_progress(
          {.step = StartProgress::Step::kDevices, .done_bytes = 0, .total_bytes = pool_bytes});
    const auto registered = devices->register_pool(pool->pieces(), pool, options.stop);
    if (!registered) return registered.error();
    if (*registered) pool->keep_pages();
    log_translations(config, *pool, *registered);
  }
  return {};
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
  std::vector<RefusedTransport> refused;
  auto listeners = ListenerSet::open(config, metrics->registry(), options.stop, refused);
  if (options.refused != nullptr)
    options.refused->insert(options.refused->end(), refused.begin(), refused.end());
  if (!listeners) return listeners.error();
  auto status = StatusEndpoint::open(
      config.metrics, metrics->registry(),
      std::make_shared<ServerStatusReport>(config.limits, std::move(refused), config.rdma),
      options.stop);
  if (!status) return status.error();
  return start_behind(config, std::move(*metrics), std::move(*listeners), std::move(*status),
                      options);
}

Result<std::unique_ptr<ServerCore>> ServerCore::start_behind(const config::ServerConfig& config,
                                                             ServerMetrics metrics,
                                                             ListenerSet listeners,
                                                             StatusEndpoint status,
                                                             const StartOptions& options) {
  // On a machine with several memory nodes, the pool lies on the node of the devices, if all
  // devices are on the same node.
  const std::vector<std::string>& served = listeners.devices();
  auto placement =
      Placement::create(config.transports.rdma == config::Availability::kOff ? "none" : "auto",
                        served.size() == 1 ? served.front() : std::string{});
  if (!placement) log::info("placement: {}", placement.error().message());
  using Step = StartProgress::Step;
  auto pool =
      Pool::create(config.pool, placement ? *placement : Placement{}, config::kPoolPageBytes,
                   steps_of(options, Step::kPool, 0, config.pool.size_bytes));
  if (!pool) return pool.error();
  if (auto registered = register_pool(config, listeners, *pool, options); !registered)
    return registered.error();
  auto pool_metrics = PoolMetrics::create(*metrics.registry(), *pool);
  auto core = std::make_unique<ServerCore>(config, std::move(metrics), std::move(*pool),
                                           std::move(listeners), std::move(status));
  const auto steps_for = [&options](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    return steps_of(options, Step::kRegions, done_bytes, total_bytes);
  };
  if (auto created = core->regions_.create_configured(steps_for, options.stop); !created)
    return created.error();
  if (!pool_metrics) return pool_metrics.error();
  core->pool_metrics_ = std::move(*pool_metrics);
  for (const auto& listener : core->listeners_.listeners())
    if (transport::ListenerDevices* const devices = listener->devices())
      devices->show_counters(*core->metrics_.registry());
  if (options.stop.stop_requested()) return Error{Code::kCancelled, "start"};
  if (auto begun = core->begin(); !begun) return begun.error();
  return core;
}

ServerCore::ServerCore(config::ServerConfig config, ServerMetrics metrics,
                       std::shared_ptr<Pool> pool, ListenerSet listeners, StatusEndpoint status)
    : config_{std::move(config)},
      metrics_{std::move(metrics)},
      boot_id_{random_id()},
      memory_id_{random_id()},
      sessions_{config_, metrics_},
      listeners_{std::move(listeners)},
      status_{std::move(status)},
      notifier_{metrics_},
      regions_{config_, metrics_, listeners_, std::move(pool), worker_},
      drain_{*this},
      ender_{*this},
      control_{*this} {}

ServerCore::~ServerCore() {
  stop();
  notifier_.stop();  // a second time, in case a handler has stopped the server
}

Status ServerCore::begin() {
  // Memory that is being registered comes back to the worker as a job.
  const auto before_end = [this] { return registrations_.drain() || regions_.drop_waiting(); };
  if (auto status = worker_.start(before_end); !status) return status;
  regions_.start();
  if (auto status = control_.start(); !status) return status;
  status_.report().open(*this);
  return {};
}

void ServerCore::stop() noexcept {
  if (stopped_.exchange(true)) return;
  sessions_.stop_keeping();
  // First the server accepts no new sessions, then it ends all sessions, and the worker releases
  // them before it ends. The status endpoint serves until then.
  status_.report().drain();
  control_.stop_accepting();
  drain_.await_clients();
  regions_.cancel_populating();
  status_.close();
  notifier_.stop();
  control_.stop();
  // A session that the worker is resuming changes its id: the next round of this loop finds it.
  while (ender_.end_all()) {
  }
  for (auto& session : sessions_.take_all_kept()) ender_.release_later(std::move(session));
  listeners_.close();
  regions_.stop();
  control_.close();
  worker_.stop();
  registrations_.stop();
  pool_metrics_.close();
  ended_.store(true, std::memory_order_release);
}

Status ServerCore::set_clients(const std::vector<config::ClientConfig>& clients) {
  if (!asks_for_keys())
    return Error{Code::kUnsupported, "set_clients: the server was started without 'auth: keys'"};
  config::ServerConfig checked;
  checked.pool.size_bytes = config::kPoolPageBytes;
  checked.auth = config::Auth::kKeys;
  checked.clients = clients;
  if (const config::Diagnostics wrong = config::validate(checked); !wrong.empty())
    return Error{Code::kInvalidArgument, "clients"}.with_subject(wrong[0].key + ": " +
                                                                 wrong[0].message);
  ender_.end_removed(sessions_.set_clients(std::make_shared<const ClientRegistry>(clients)));
  return {};
}

void ServerCore::note_refused(ServerMetrics::Refusal why, const ServerSession& session,
                              std::string_view client_name) {
  metrics_.session_refused(why);
  if (!refused_lines_.allows(Clock::now())) return;
  log::warn("session {:x}: '{}' over {} ({}) is refused: {}{}", session.id(),
            Error{Code::kInternal}.with_subject(client_name).subject(),
            to_string(session.endpoint().kind()), session.endpoint().peer(), words_for(why),
            refused_lines_.take_left_out());
}

void ServerCore::note_limit(const Error& error, const ServerSession& session) {
  const auto limit = ServerMetrics::limit_of(error);
  if (!limit) return;
  metrics_.request_refused(*limit);
  if (!limit_lines_.allows(Clock::now())) return;
  log::warn("session {:x}: a request of '{}' over {} ({}) is refused: {}{}", session.id(),
            Error{Code::kInternal}.with_subject(session.handshake().client_name()).subject(),
            to_string(session.endpoint().kind()), session.endpoint().peer(), error.message(),
            limit_lines_.take_left_out());
}

}  // namespace remora::detail
