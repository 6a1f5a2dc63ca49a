#include "server/listener_set.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "server/own_addresses.h"
#include "transport/listen.h"
#include "transport/listener_devices.h"

namespace remora::detail {

using config::Availability;
using transport::Listener;

namespace {

constexpr int kPortTries = 16;

/// Whether `auto` may leave the transport out: only if the machine does not support it, or an iWARP
/// device has the TCP port. Without tcp, for example because its port is in use, only shm would be
/// left, which clients on other machines cannot use. A protection that the configuration names is
/// never left out either, nor is a setting of `rdma` that no device has.
bool may_leave_out(TransportKind kind, const Error& error, bool port_is_of_iwarp) {
  if (port_is_of_iwarp && kind == TransportKind::kTcp) return true;
  if (error.subject().starts_with("transports.rdma_protection")) return false;
  if (error.subject().starts_with("rdma.")) return false;
  switch (error.code()) {
    case Code::kAddressInUse:
    case Code::kAlreadyExists: return false;
    case Code::kUnsupported: return true;
    default: return kind != TransportKind::kTcp;
  }
}

void log_left_out(const config::ServerConfig& config, TransportKind kind, const Error& error) {
  const bool none_here = error.code() == Code::kNotFound || error.code() == Code::kUnsupported;
  const bool named = kind == TransportKind::kRdma && !config.transports.rdma_devices.empty();
  if (none_here && !named)
    log::info({"transport.not_offered", "transport reason"}, "{} is not offered: {}",
              to_string(kind), error.message());
  else
    log::warn({"transport.not_offered", "transport reason"}, "{} is not offered: {}",
              to_string(kind), error.message());
}

Result<ListenerSet> open_once(const config::ServerConfig& config,
                              const transport::ListenAddress& address,
                              const std::shared_ptr<metrics::Registry>& registry,
                              std::vector<RefusedTransport>& refused) {
  ListenerSet set;
  const auto add = [&](Availability wanted, TransportKind kind, auto&& listen) -> Status {
    if (wanted == Availability::kOff) return {};
    // All transports listen at the port of the first one.
    Result<std::unique_ptr<Listener>> listener =
        listen(set.port() != 0 ? set.port() : config.listen.port);
    if (listener) {
      set.add(std::move(*listener));
      return {};
    }
    const Error& error = listener.error();
    const bool port_is_of_iwarp = set.takes_tcp_port() && error.code() == Code::kAddressInUse;
    if (wanted == Availability::kRequired || !may_leave_out(kind, error, port_is_of_iwarp))
      return error;
    log_left_out(config, kind, error);
    refused.push_back({kind, error});
    return {};
  };
  const config::Transports& wanted = config.transports;
  Status status = add(wanted.rdma, TransportKind::kRdma, [&](std::uint16_t /*port*/) {
    return transport::listen_rdma(config, address, registry);
  });
  if (status)
    status = add(wanted.tcp, TransportKind::kTcp, [&](std::uint16_t port) {
      const auto listen = [&](std::uint16_t at) {
        return transport::listen_tcp(config, address, at, registry);
      };
      // A port that the configuration requires is not replaced by another one.
      return set.takes_tcp_port() && wanted.tcp == Availability::kAuto
                 ? listen_beside_iwarp(port, listen)
                 : listen(port);
    });
  if (status)
    status = add(wanted.shm, TransportKind::kShm,
                 [&](std::uint16_t port) { return transport::listen_shm(port, address); });
  if (!status) return status.error();
  return set;
}

}  // namespace

Result<ListenerSet> ListenerSet::open(const config::ServerConfig& config,
                                      const std::shared_ptr<metrics::Registry>& registry,
                                      const std::stop_token& stop,
                                      std::vector<RefusedTransport>& refused) {
  auto own = own_addresses("listen.address", config.listen.address, stop);
  if (!own) return own.error();
  const transport::ListenAddress address{config.listen.address, std::move(*own)};
  std::vector<RefusedTransport> left_out;
  auto set = open_once(config, address, registry, left_out);
  // A port that is free for the first transport may be in use for the next one. Then all transports
  // try another port.
  for (int i = 0; i < kPortTries && config.listen.port == 0 && !set &&
                  set.error().code() == Code::kAddressInUse;
       ++i) {
    left_out.clear();
    set = open_once(config, address, registry, left_out);
  }
  refused.insert(refused.end(), left_out.begin(), left_out.end());
  if (!set) return set;
  if (set->listeners_.empty())
    return Error{Code::kUnsupported, "no transport can be offered"}.with_subject(
        "transports.rdma, transports.tcp, transports.shm");
  return set;
}

Result<std::unique_ptr<Listener>> listen_beside_iwarp(
    std::uint16_t port,
    const std::function<Result<std::unique_ptr<Listener>>(std::uint16_t)>& listen) {
  auto listener = listen(port);
  if (listener || listener.error().code() != Code::kAddressInUse || port == UINT16_MAX)
    return listener;
  auto next = listen(static_cast<std::uint16_t>(port + 1));
  if (!next) return listener;
  log::warn(
      {"listener.other_port", "port iwarp_port"},
      "tcp listens on port {}: the iWARP device has TCP port {}; clients without that device name "
      "port {}",
      port + 1, port, port + 1);
  return next;
}

void ListenerSet::add(std::unique_ptr<Listener> listener) {
  if (listeners_.empty()) port_ = listener->port();
  takes_tcp_port_ = takes_tcp_port_ || listener->takes_tcp_port();
  offered_.push_back(listener->kind());
  descriptions_.push_back(listener->description());
  if (transport::ListenerDevices* const devices = listener->devices()) {
    devices_ = devices->names();
    atomic_domains_ = devices->atomic_domains();
    device_states_ = devices->states();
  }
  listeners_.push_back(std::move(listener));
}

std::vector<transport::DeviceState> ListenerSet::device_states() const {
  return device_states_ == nullptr ? std::vector<transport::DeviceState>{} : device_states_->list();
}

bool ListenerSet::offers(TransportKind kind) const noexcept {
  return std::find(offered_.begin(), offered_.end(), kind) != offered_.end();
}

}  // namespace remora::detail
