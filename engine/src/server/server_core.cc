#include "server/server_core.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>

#include <remora/config/describe.h>
#include <remora/config/units.h>

#include "base/log.h"
#include "base/parallel_steps.h"
#include "base/placement.h"
#include "base/random_id.h"
#include "server/translation_need.h"
#include "transport/listener_devices.h"

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

/// `before`: the bytes that this phase of the start has already populated.
PopulateSteps steps_of(const ServerCore::StartOptions& options, StartProgress::Step step,
                       std::uint64_t before, std::uint64_t total) {
  // The server serves no client yet, so all processors are free for it.
  PopulateSteps steps{.stop = options.stop,
                      .threads_max = std::min(usable_processors(), PopulateSteps::kMaxThreads)};
  if (options.on_progress)
    steps.on_step = [&report = options.on_progress, step, before, total](std::uint64_t done) {
      report({.step = step, .done_bytes = before + done, .total_bytes = total});
    };
  return steps;
}

/// Logs an estimate for the operator: the device does not report how much room it has.
void log_translations(const config::ServerConfig& config, const Pool& pool, bool leased) {
  const std::uint64_t pool_bytes = pool.usage().total_bytes;
  const std::uint64_t page_bytes = config.pool.huge_pages == config::HugePages::kRequire1GiB
                                       ? config::kGibPageBytes
                                       : pool.whole_pages(1);
  const std::uint64_t once = translation_bytes(pool_bytes, page_bytes);
  const std::uint64_t clients = config.limits.sessions_max;
  const std::string pages = config::format_size(page_bytes);
  if (leased)
    return log::info({"pool.translations", "translations pages"},
                     "rdma: the pool takes about {} of a device's translations (pages of {})",
                     config::format_size(once), pages);
  log::info(
      {"pool.translations", "translations pages"},
      "rdma: a client that opens all of the pool takes about {} of a device's translations (pages "
      "of {}) and {} of locked memory; {} clients take {} and {}",
      config::format_size(once), pages, config::format_size(pool_bytes), clients,
      config::format_size(once * clients), config::format_size(pool_bytes * clients));
}

/// Registers the memory of the pool with the devices.
Status register_pool(const config::ServerConfig& config, const ListenerSet& listeners,
                     const std::shared_ptr<Pool>& pool, const ServerCore::StartOptions& options) {
  const std::uint64_t pool_bytes = pool->usage().total_bytes;
  for (const auto& listener : listeners.listeners()) {
    transport::ListenerDevices* const devices = listener->devices();
    if (devices == nullptr) continue;
    const auto tell = [&](std::uint64_t done_bytes) {
      if (options.on_progress)
        options.on_progress({.step = StartProgress::Step::kDevices,
                             .done_bytes = done_bytes,
                             .total_bytes = pool_bytes});
    };
    tell(0);
    const auto registered = devices->register_pool(pool->pieces(), pool, options.stop, tell);
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
      std::make_shared<ServerStatusReport>(std::move(refused), config.rdma), options.stop);
  if (!status) return status.error();
  return start_behind(config, std::move(*metrics), std::move(*listeners), std::move(*status),
                      options);
}

/// The pool of a server, and the regions and sessions that it takes over.
struct ServerCore::TakenOver {
  std::shared_ptr<Pool> pool;
  std::vector<Catalog::Restored> regions{};
  std::vector<KeptSession> sessions{};
  std::uint64_t next_epoch = 1;
};

Result<ServerCore::TakenOver> ServerCore::take_over(KeptMemory kept, const config::Pool& options,
                                                    const Placement& placement) {
  const auto is_moved = [](const SharedMemory& memory, std::uint64_t address) {
    return reinterpret_cast<std::uint64_t>(memory.bytes().data()) != address;
  };
  const KeptPool& before = kept.catalog.pool;
  config::Pool as_before = options;
  as_before.piece_bytes = before.piece_bytes;
  const bool pool_moved = is_moved(kept.pool, before.address);
  std::vector<PoolExtent> used;
  for (const KeptRegion& region : kept.catalog.regions)
    used.insert(used.end(), region.extents.begin(), region.extents.end());
  auto pool =
      Pool::adopt(std::move(kept.pool), as_before, placement, before.page_bytes, std::move(used));
  if (!pool) return pool.error();
  TakenOver taken_over{.pool = *pool,
                       .sessions = std::move(kept.sessions.sessions),
                       .next_epoch = kept.catalog.next_epoch};
  for (std::size_t i = 0; i < kept.catalog.regions.size(); ++i) {
    KeptRegion& region = kept.catalog.regions[i];
    std::unique_ptr<SharedMemory> own = std::move(kept.own[i]);
    const bool moved = own == nullptr ? pool_moved : is_moved(*own, region.memory_address);
    const std::uint64_t size_bytes = region.info.size_bytes;
    taken_over.regions.push_back(
        {.info = std::move(region.info),
         .session_id = region.session_id,
         .memory = (*pool)->adopt_region(size_bytes, std::move(region.extents), std::move(own)),
         .moved = moved});
  }
  return taken_over;
}

Result<ServerCore::TakenOver> ServerCore::make_pool(const config::ServerConfig& config,
                                                    WarmMemory* warm, const Placement& placement,
                                                    const StartOptions& options) {
  auto kept = warm == nullptr ? std::nullopt : warm->take_kept();
  if (kept) {
    auto taken_over = take_over(std::move(*kept), config.pool, placement);
    if (!taken_over) return taken_over.error();
    if (auto begun = warm->begin(*taken_over->pool); !begun) return begun.error();
    return taken_over;
  }
  auto pool =
      Pool::create(config.pool, placement, config::kPoolPageBytes,
                   steps_of(options, StartProgress::Step::kPool, 0, config.pool.size_bytes));
  if (!pool) return pool.error();
  if (warm != nullptr)
    if (auto begun = warm->begin(**pool); !begun) return begun.error();
  return TakenOver{.pool = std::move(*pool)};
}

void ServerCore::restore(TakenOver taken_over) {
  if (warm_ == nullptr || !warm_->reason().empty()) return;
  const std::size_t sessions = taken_over.sessions.size();
  regions_.apply_access(taken_over.regions, taken_over.next_epoch);
  catalog().restore(std::move(taken_over.regions), taken_over.next_epoch);
  restored_.add(taken_over.sessions, Deadline::max());  // begin() sets the time
  metrics_.regions(catalog().size());
  log::info({"warm.taken_over", "memory:x regions used total sessions"},
            "warm restart: the memory {:x} of the process before is taken over: {} regions, {} of "
            "{}; {} sessions may go on",
            memory_id_, catalog().size(), config::format_size(pool_usage().used_bytes),
            config::format_size(pool_usage().total_bytes), sessions);
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
  if (!placement)
    log::info({"server.no_placement", "reason"}, "placement: {}", placement.error().message());
  std::unique_ptr<WarmMemory> warm;
  if (config.pool.warm_restart) {
    auto opened = WarmMemory::open(options.store, config.pool, metrics.warm_restart_gauge());
    if (!opened) return opened.error();
    warm = std::move(*opened);
  }
  auto made = make_pool(config, warm.get(), placement ? *placement : Placement{}, options);
  if (!made) return made.error();
  const std::shared_ptr<Pool> pool = made->pool;
  if (auto registered = register_pool(config, listeners, pool, options); !registered)
    return registered.error();
  auto pool_metrics = PoolMetrics::create(*metrics.registry(), pool);
  auto core = std::make_unique<ServerCore>(config, std::move(metrics), pool, std::move(listeners),
                                           std::move(status), std::move(warm));
  core->restore(std::move(*made));
  const auto steps_for = [&options](std::uint64_t done_bytes, std::uint64_t total_bytes) {
    return steps_of(options, StartProgress::Step::kRegions, done_bytes, total_bytes);
  };
  if (auto created = core->regions_.create_configured(steps_for, options.stop); !created)
    return created.error();
  core->catalog().record_all();
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
                       std::shared_ptr<Pool> pool, ListenerSet listeners, StatusEndpoint status,
                       std::unique_ptr<WarmMemory> warm)
    : config_{std::move(config)},
      limits_{config_.limits},
      metrics_{std::move(metrics)},
      boot_id_{random_id()},
      warm_{std::move(warm)},
      memory_id_{warm_ == nullptr ? random_id() : warm_->memory_id()},
      sessions_{config_, limits_, metrics_},
      listeners_{std::move(listeners)},
      status_{std::move(status)},
      notifier_{metrics_},
      regions_{config_, limits_, metrics_, listeners_, std::move(pool), worker_, warm_.get()},
      drain_{*this},
      ender_{*this},
      control_{*this} {}

ServerCore::~ServerCore() {
  stop();
  notifier_.stop();  // a second time, in case a handler has stopped the server
}

Status ServerCore::begin() {
  // Memory that is being registered returns to the worker as a job.
  const auto before_end = [this] { return registrations_.drain() || regions_.drop_waiting(); };
  if (auto status = worker_.start(before_end); !status) return status;
  regions_.start();
  regions_.pool().accept();
  remove_orphans();
  const Clock::time_point now = Clock::now();
  if (restored_.size() != 0) catalog().hold_all(now + limits().session_keep);
  renew_restored(now);
  if (auto status = control_.start(); !status) return status;
  begun_.store(true);
  status_.report().open(*this);
  metrics_.warm_restart_ready(warm_ != nullptr && warm_->ready());
  metrics_.memory_taken_over(warm_ != nullptr && warm_->reason().empty());
  return {};
}

/// Removes the regions of sessions that had ended when the previous process ended, before it could
/// remove them.
void ServerCore::remove_orphans() {
  for (const RegionInfo& info : catalog().list("", SIZE_MAX)) {
    const auto region = catalog().find(info.name);
    if (!region) continue;
    const std::uint64_t id = (*region)->session_id();
    if (id != 0 && !restored_.has(id)) catalog().retire(**region);
  }
  metrics_.regions(catalog().size());
}

void ServerCore::end(End how) noexcept {
  if (stopped_.exchange(true)) return;
  // A failed start leaves the memory of the previous process unchanged.
  const bool untouched = !begun_.load() && warm_ != nullptr && warm_->reason().empty();
  const bool leaves =
      untouched || (how == End::kHandOver && begun_.load() && warm_ != nullptr && warm_->ready());
  sessions_.stop_keeping();
  // First the server accepts no new sessions, then it ends all sessions, and the worker releases
  // them before it ends. The status endpoint serves until that point.
  status_.report().drain();
  control_.stop_accepting();
  if (!leaves) drain_.await_clients();
  regions_.cancel_populating();
  status_.close();
  notifier_.stop();
  control_.stop();
  if (leaves) leave_memory();
  // A session that the worker is resuming changes its id: the next round of this loop finds it.
  using SessionEnd = ServerMetrics::SessionEnd;
  while (ender_.end_all(leaves ? SessionEnd::kHandedOver : SessionEnd::kStopped)) {
  }
  for (auto& session : sessions_.take_all_kept()) ender_.release_later(std::move(session));
  // No client waits for memory that is being registered, nor is a device that has returned served.
  registrations_.cancel();
  listeners_.close();
  regions_.stop();
  control_.close();
  worker_.stop();
  registrations_.stop();
  pool_metrics_.close();
  if (warm_ != nullptr) warm_->give_up();  // changes nothing if the memory was handed over
  ended_.store(true, std::memory_order_release);
}

/// The order matters: when the channels have ended, no client gets an acknowledgement any more, so
/// no change is acknowledged that is not recorded.
void ServerCore::leave_memory() noexcept {
  for (const auto& session : sessions_.all()) session->endpoint().shutdown();
  for (const auto& listener : listeners_.listeners()) listener->hand_over();
  // First, so that the pool zeroes no bytes of a region whose removal is not recorded any more.
  regions_.pool().hand_over();
  warm_->freeze();
  log::info({"warm.left", "memory:x regions"},
            "warm restart: the memory {:x} is left to the next process: {} regions", memory_id_,
            catalog().size());
}

void ServerCore::renew_restored(Clock::time_point now) noexcept {
  const Deadline until = now + limits().session_keep;
  restored_.renew(until);
  if (restored_.size() != 0) catalog().hold_longer(until);
}

void ServerCore::end_lapsed_restored(Clock::time_point now, bool behind) noexcept {
  // Longer than the time until the next call: regions that these sessions may have open stay.
  constexpr std::chrono::seconds kHold{1};
  const auto lapsed =
      restored_.take_lapsed(now, behind ? SessionTable::kMaxBehind : std::chrono::seconds{0});
  if (behind && restored_.size() != 0) catalog().hold_longer(now + kHold);
  std::set<std::uint64_t> ended{lapsed.ended.begin(), lapsed.ended.end()};
  for (const KeptSession& session : lapsed.sessions) {
    log::info({"session.given_up", "session:x"},
              "session {:x}: its client has not come back since the process before; what it had "
              "open is given up",
              session.id);
    // The next process must also know of a stopped process.
    enqueue([this, id = session.id, maps = ended.erase(session.id) == 0] {
      maps ? warm_->forbid_resumption(id) : warm_->forget(id);
      restored_.gave_up();
      for (const auto& region : catalog().of_session(id)) regions_.remove_now(region, [] {});
    });
  }
  for (const std::uint64_t id : ended) enqueue([this, id] { warm_->forget(id); });
}

Status ServerCore::alive() const {
  constexpr int kRequestTimeouts = 10;
  const Error stands{Code::kTimedOut, "progress of the server"};
  if (const metrics::Health control = status_.report().health(); !control.ok)
    return stands.with_subject(control.text);
  if (const auto age = worker_.progress_age(); age >= kRequestTimeouts * limits().request_timeout)
    return stands.with_subject("a request is at work without a step for " +
                               std::to_string(age.count()) + " s");
  return {};
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

Status ServerCore::set_limits(const config::Limits& limits) {
  config::ServerConfig before;
  before.pool.size_bytes = config::kPoolPageBytes;
  before.limits = limits_.get();
  config::ServerConfig after = before;
  after.limits = limits;
  if (const config::Diagnostics wrong = config::validate(after); !wrong.empty())
    return Error{Code::kInvalidArgument, "limits"}.with_subject(wrong[0].key + ": " +
                                                                wrong[0].message);
  for (const std::string& key : config::differing_keys(before, after))
    if (!config::reload_rule(key).taken)
      return Error{Code::kUnsupported, "set_limits: a running server keeps it"}.with_subject(key);
  limits_.set(limits);
  regions_.take_limits();
  return {};
}

void ServerCore::note_refused(ServerMetrics::Refusal why, const ServerSession& session,
                              std::string_view client_name) {
  metrics_.session_refused(why);
  if (!refused_lines_.allows(Clock::now())) return;
  log::warn({"session.refused", "session:x client transport peer reason"},
            "session {:x}: '{}' over {} ({}) is refused: {}{}", session.id(),
            Error{Code::kInternal}.with_subject(client_name).subject(),
            to_string(session.endpoint().kind()), session.endpoint().peer(), words_for(why),
            refused_lines_.take_left_out());
}

void ServerCore::note_limit(const Error& error, const ServerSession& session) {
  const auto limit = ServerMetrics::limit_of(error);
  if (!limit) return;
  metrics_.request_refused(*limit);
  if (!limit_lines_.allows(Clock::now())) return;
  log::warn({"request.refused", "session:x client transport peer reason"},
            "session {:x}: a request of '{}' over {} ({}) is refused: {}{}", session.id(),
            Error{Code::kInternal}.with_subject(session.handshake().client_name()).subject(),
            to_string(session.endpoint().kind()), session.endpoint().peer(), error.message(),
            limit_lines_.take_left_out());
}

}  // namespace remora::detail
