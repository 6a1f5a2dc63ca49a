/// The server's side of the rdma transport. One listener accepts control channels and lanes; the
/// private data of a request says which of the two it asks for. Each client that proves a key has a
/// protection domain of its own, and so has each session that proves none (grant_domain.h): a key
/// of one domain is useless on the queue pairs of another. The control channels of a device share a
/// domain, which has no memory with remote rights. If windows isolate clients on a device
/// and the client can use them (window_grant.h), all lanes share one domain instead.

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include <remora/metrics/registry.h>
#include <remora/verbs/verbs.h>

#include "base/log.h"
#include "base/log_rate_limiter.h"
#include "transport/device_watch.h"
#include "transport/listen.h"
#include "transport/listener_devices.h"
#include "transport/rdma/device_budgets.h"
#include "transport/rdma/device_listener.h"
#include "transport/rdma/device_metrics.h"
#include "transport/rdma/fabric_settings.h"
#include "transport/rdma/grant_domains.h"
#include "transport/rdma/lane_registry.h"
#include "transport/rdma/rejection.h"
#include "transport/rdma/server_endpoint.h"
#include "transport/rdma/serving_state.h"
#include "transport/rdma/session_probe.h"
#include "transport/rdma/wire.h"

namespace remora::transport {

namespace {

using rdma::ControlBuffers;
using rdma::Introduction;
using rdma::LaneRegistry;
using rdma::RdmaServerEndpoint;

/// The most ended lanes and control channels that wait for the device to destroy them, each of
/// which pins its buffers. Beyond this bound the worker destroys them itself, and connecting waits.
constexpr std::size_t kMaxEnded = 256;
/// The most control channels, and lanes over a link that is down, that wait to be destroyed: they
/// may wait as long as the link is down.
constexpr std::size_t kMaxUnawaited = 1024;

class RdmaListener final : public Listener, private ListenerDevices, private DeviceWatch {
 public:
  /// The resources of its devices that a server may use, and the series that show how much it uses.
  struct Budgets {
    std::shared_ptr<rdma::RegistrationBudgets> registrations;
    std::shared_ptr<rdma::WindowBudgets> windows;
    std::shared_ptr<rdma::Budget> bytes;  ///< of all registrations of grants
    std::vector<metrics::CallbackHandle> series;
    std::shared_ptr<metrics::Registry> registry;
    metrics::Counter rejected_connections;
    /// Errors: those of Registry::gauge_callback().
    static Result<Budgets> create(const config::Limits& limits,
                                  std::shared_ptr<metrics::Registry> registry);
  };
  RdmaListener(std::shared_ptr<rdma::DeviceListener> devices, std::shared_ptr<Reaper> reaper,
               Budgets budgets, const config::RdmaSettings& settings)
      : devices_{std::move(devices)},
        reaper_{std::move(reaper)},
        budgets_{std::move(budgets)},
        domains_{std::make_shared<rdma::GrantDomains>(budgets_.registrations, budgets_.bytes)},
        settings_{settings} {}

  [[nodiscard]] TransportKind kind() const noexcept override { return TransportKind::kRdma; }
  [[nodiscard]] int event_fd() const noexcept override { return devices_->event_fd(); }
  [[nodiscard]] std::uint16_t port() const noexcept override { return devices_->address().port(); }
  [[nodiscard]] ListenerDevices* devices() noexcept override { return this; }
  [[nodiscard]] DeviceWatch* device_watch() noexcept override { return this; }
  [[nodiscard]] bool takes_tcp_port() const noexcept override {
    const std::vector<std::string>& names = devices_->names();
    const auto found = verbs::devices();
    return found && std::any_of(found->begin(), found->end(), [&](const auto& entry) {
             return entry.transport() == verbs::TransportType::kIwarp &&
                    std::find(names.begin(), names.end(), entry.name()) != names.end();
           });
  }
  [[nodiscard]] Status serving() noexcept override { return serving_.check(devices_->devices()); }
  [[nodiscard]] std::string description() const override {
    std::string text = "rdma " + devices_->address().to_string() + " on";
    for (const std::string& device : devices_->names()) text += " " + device;
    if (const std::string settings = to_string(settings_); !settings.empty())
      text += " with " + settings;
    return text;
  }

  /// Takes one request: the objects of a connection take a device its time, and the control thread
  /// serves connected clients before it takes the next one.
  Result<std::vector<std::unique_ptr<ServerEndpoint>>> accept() noexcept override {
    std::vector<std::unique_ptr<ServerEndpoint>> arrived;
    devices_->look();
    auto request = devices_->next_request();
    if (!request) return request.error();
    if (request->has_value())
      if (auto endpoint = serve(std::move(**request))) arrived.push_back(std::move(endpoint));
    return arrived;
  }
  [[nodiscard]] bool accept_lane() noexcept override {
    devices_->look();
    auto request = devices_->next_request(rdma::WhichRequest::kLane);
    if (!request || !request->has_value()) return false;
    (void)serve(std::move(**request));  // a lane goes to its session
    return true;
  }
  [[nodiscard]] bool more_to_accept() const noexcept override { return devices_->any_waits(); }

 private:
  // DeviceWatch
  [[nodiscard]] std::function<void()> tick(const std::stop_token& stop) noexcept override {
    devices_->look();
    if (!devices_->must_restore()) return {};
    return [devices = devices_, stop] { devices->restore(stop); };
  }
  [[nodiscard]] std::vector<DeviceFailure> take_failures() noexcept override {
    return devices_->take_failures();
  }
  // ListenerDevices
  [[nodiscard]] DeviceTotals totals() const override {
    return {.registrations = budgets_.registrations->used(),
            .registered_bytes = budgets_.bytes->used(),
            .windows = budgets_.windows->used(),
            .client_domains = domains_->count()};
  }
  [[nodiscard]] std::vector<std::string> names() const override { return devices_->names(); }
  [[nodiscard]] std::vector<std::string> atomic_domains() const override {
    return devices_->atomic_domains();
  }
  [[nodiscard]] std::shared_ptr<const DeviceStates> states() const override {
    return devices_->states();
  }
  Result<bool> register_pool(std::span<const MemoryStretch> pieces, std::shared_ptr<void> hold,
                             const std::stop_token& stop, const PoolProgress& on_step) override {
    auto registered = devices_->register_pool(pieces, std::move(hold), stop, on_step);
    if (!registered) return registered;
    // The pool may have taken memory that clients need.
    if (const Status served = rdma::probe_session(devices_->devices()); !served)
      serving_.note(served.error());
    return registered;
  }
  void show_counters(metrics::Registry& registry) noexcept override {
    for (const std::string& device : devices_->names())
      rdma::show_device_counters(registry, device);
  }

  /// Counts a refused connection request, tells the client why, and logs it within a rate limit.
  void reject(verbs::ConnectionRequest request, const Error& why) {
    serving_.note(why);
    budgets_.registry->recorder().add(budgets_.rejected_connections);  // before it is told
    // A request that is spent, or whose client has gone meanwhile, cannot be answered.
    (void)std::move(request).reject(rdma::Rejection::to_wire(why));
    if (!rejections_logged_.allows(Clock::now())) return;
    log::warn({"connection.refused", "reason"}, "rdma: {}{}", why.message(),
              rejections_logged_.take_left_out());
  }

  /// Null: a lane, which goes to its session, or the request is rejected.
  std::unique_ptr<ServerEndpoint> serve(verbs::ConnectionRequest request) {
    auto endpoint = admit(request);
    if (endpoint) return std::move(*endpoint);
    reject(std::move(request), endpoint.error());
    return nullptr;
  }

  /// Null for a lane, which goes to its session. After an error the caller rejects the request.
  Result<std::unique_ptr<ServerEndpoint>> admit(verbs::ConnectionRequest& request) {
    const std::string peer = request.peer_address().to_string();
    const auto introduction = Introduction::from_wire(request.private_data());
    if (!introduction)
      return Error{Code::kProtocol, "connection request that is not ours"}.with_subject(peer);
    if (!devices_->serves(request.device()))
      return Error{Code::kNotFound, "request over a device that is not served"}.with_subject(
          request.device().name());
    const auto half =
        rdma::server_half(settings_, introduction->mtu_bytes, request.device(), request.port());
    if (!half) return half.error();
    if (introduction->purpose == rdma::Purpose::kLane) {
      Status added;
      const rdma::GrantBudgets budgets = domains_->budgets_of(request.device());
      const bool known =
          lane_registry_->with(introduction->ticket, [&](RdmaServerEndpoint& endpoint) {
            added = endpoint.add_lane(request, introduction->lane, *half, budgets);
          });
      if (!known) return Error{Code::kProtocol, "lane without a session"}.with_subject(peer);
      if (!added) {
        const Error why = added.error();
        const std::string about{why.subject()};
        if (about.empty() || about == peer) return why.with_subject(peer);
        return why.with_subject(about + "; " + peer);
      }
      return std::unique_ptr<ServerEndpoint>{};
    }
    return begin(request, *half);
  }

  Result<std::unique_ptr<ServerEndpoint>> begin(verbs::ConnectionRequest& request,
                                                const config::RdmaSettings& half) {
    const verbs::Device& device = request.device();
    auto budget = budgets_.registrations->of(device.name(), device.attributes().max_mr_count);
    // The session's grants and lanes have a domain of their own: see GrantDomains.
    const auto domain = devices_->control_domain(device);
    if (!domain) return domain.error();
    auto buffers = ControlBuffers::create(*domain);
    if (!buffers) return buffers.error();
    auto builder = buffers->builder();
    if (auto status = rdma::apply(half, device, request.port(), builder); !status)
      return status.error();
    if (auto status = request.create_queue_pair(builder); !status) return status.error();
    if (auto status = buffers->post_receives(request.queue_pair()); !status) return status.error();
    auto events = FdSet::create();
    if (!events) return events.error();
    auto connection = std::move(request).accept();
    if (!connection) return connection.error();
    for (const int fd : {buffers->event_fd(), connection->event_fd()})
      if (auto status = events->add(fd); !status) return status.error();
    auto leased = devices_->leased(device);
    return std::unique_ptr<ServerEndpoint>{std::make_unique<RdmaServerEndpoint>(
        lane_registry_, reaper_, domains_, std::move(budget), std::move(leased),
        std::move(*buffers), std::move(*connection), std::move(*events))};
  }

  std::shared_ptr<rdma::DeviceListener> devices_;
  std::shared_ptr<Reaper> reaper_;
  Budgets budgets_;
  const std::shared_ptr<rdma::GrantDomains> domains_;
  rdma::ServingState serving_;
  const config::RdmaSettings settings_;  ///< the server's half of every connection
  std::shared_ptr<LaneRegistry> lane_registry_ = std::make_shared<LaneRegistry>();
  log::LogRateLimiter rejections_logged_{1};
};

Result<RdmaListener::Budgets> RdmaListener::Budgets::create(
    const config::Limits& limits, std::shared_ptr<metrics::Registry> registry) {
  auto rejected_connections = registry->counter(
      "remora_server_rdma_rejected_connections_total",
      "Connection requests over rdma that were refused before they were a client's.");
  if (!rejected_connections) return rejected_connections.error();
  Budgets made{std::make_shared<rdma::RegistrationBudgets>(limits.registrations_max),
               std::make_shared<rdma::WindowBudgets>(limits.windows_max),
               rdma::registered_bytes_budget(limits.registered_bytes_max),
               {},
               registry,
               *rejected_connections};
  auto registrations = registry->gauge_callback(
      "remora_server_registrations", "Registrations of memory with RDMA devices.", {},
      [budgets = made.registrations] { return static_cast<double>(budgets->used()); });
  if (!registrations) return registrations.error();
  auto windows = registry->gauge_callback(
      "remora_server_windows", "Memory windows of RDMA devices.", {},
      [budgets = made.windows] { return static_cast<double>(budgets->used()); });
  if (!windows) return windows.error();
  auto bytes = registry->gauge_callback(
      "remora_server_registered_bytes", "Bytes of regions registered with RDMA devices for grants.",
      {}, [budget = made.bytes] { return static_cast<double>(budget->used()); });
  if (!bytes) return bytes.error();
  made.series.push_back(std::move(*registrations));
  made.series.push_back(std::move(*bytes));
  made.series.push_back(std::move(*windows));
  return made;
}

}  // namespace

Result<std::unique_ptr<Listener>> listen_rdma(const config::ServerConfig& config,
                                              const ListenAddress& address,
                                              const std::shared_ptr<metrics::Registry>& registry) {
  const std::vector<std::string>& wanted = config.transports.rdma_devices;
  const auto found = verbs::devices();
  if (!found) return wanted.empty() ? found.error() : found.error().with_subject(wanted.front());
  for (const std::string& name : wanted)
    if (!found->find(name))
      return Error{Code::kNotFound, "transports.rdma_device"}.with_subject(name);
  (void)verbs::initialize_fork_safety();
  auto budgets = RdmaListener::Budgets::create(config.limits, registry);
  if (!budgets) return budgets.error();
  rdma::DeviceListener::Plan plan{.addresses = {},
                                  .wanted = wanted,
                                  .protection = config.transports.rdma_protection,
                                  .registrations = budgets->registrations,
                                  .windows = budgets->windows,
                                  .bytes = budgets->bytes,
                                  .settings = config.rdma};
  for (const verbs::Address& each : address.addresses)
    plan.addresses.push_back(each.with_port(config.listen.port));
  auto reaper = std::make_shared<Reaper>(kMaxEnded, kMaxUnawaited);
  auto devices =
      rdma::DeviceListener::open(std::move(plan), std::make_shared<DeviceStates>(registry), reaper);
  if (!devices) return devices.error();
  return std::unique_ptr<Listener>{std::make_unique<RdmaListener>(
      std::move(*devices), std::move(reaper), std::move(*budgets), config.rdma)};
}

}  // namespace remora::transport
