#include "transport/rdma/client_rails.h"

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

#include <remora/assert.h>

#include "base/log.h"
#include "base/placement.h"
#include "transport/rdma/device_addresses.h"
#include "transport/rdma/device_choice.h"

namespace remora::transport::rdma {

namespace {

/// Time for all routes to one address of the server: an address that does not answer in it is no
/// rail now.
constexpr std::chrono::milliseconds kAddressTime{1000};
/// The search of all rails may take one part in so many of the time that is left, since lanes are
/// opened after it.
constexpr int kSearchShare = 4;

/// The deadline at the end of the first of `count` equal shares of the time until `until`.
Deadline share_of(Deadline until, std::size_t count) {
  const Clock::time_point now = Clock::now();
  const Clock::duration left = std::max(until - now, Clock::duration::zero());
  return now + left / static_cast<Clock::rep>(std::max<std::size_t>(count, 1));
}

std::uint32_t port_rate(const verbs::Device& device) {
  constexpr double kMegabits = 1000.0;
  for (std::uint8_t port = 1; port <= device.attributes().port_count; ++port)
    if (const auto attributes = device.query_port(port); attributes && attributes->active())
      return static_cast<std::uint32_t>(attributes->gigabits_per_s() * kMegabits);
  return 0;
}

}  // namespace

Result<ClientRail> ClientRails::make_rail(RailDomain& memory, std::shared_ptr<ClientDomain> device,
                                          const verbs::Address& peer, std::string server_device) {
  const verbs::ProtectionDomain domain = device->domain();
  if (domain.empty())
    return Error{Code::kConnectionLost, "RDMA device"}.with_subject(device->device());
  auto column = memory.add(device);
  if (!column) return column.error();
  const auto node = remora::detail::device_node(device->device());
  auto shown = std::make_shared<LaneRail>();
  shown->device = device->device();
  shown->server_device = std::move(server_device);
  shown->address = peer.host();
  shown->megabits_per_s = port_rate(domain.device());
  if (node) shown->memory_node = static_cast<int>(*node);
  return ClientRail{
      .peer = peer, .domain = std::move(device), .column = *column, .shown = std::move(shown)};
}

Result<std::unique_ptr<ClientRails>> ClientRails::of_connection(
    const std::shared_ptr<RailPlan>& plan, const std::shared_ptr<ClientDomain>& device,
    const verbs::Address& peer, const std::optional<verbs::Address>& source,
    const Options& options) {
  const verbs::ProtectionDomain now = device->domain();
  if (plan == nullptr || now.empty() || now.device().is_iwarp())
    return std::unique_ptr<ClientRails>{};
  auto memory = RailDomain::of_process();
  if (!memory) return memory.error();
  auto first = make_rail(**memory, device, peer, {});
  if (!first && first.error().code() == Code::kLimitExceeded) {
    log::info({"device.no_rails", "device reason"}, "rdma: {}: no rails: {}", device->device(),
              first.error().message());
    return std::unique_ptr<ClientRails>{};
  }
  if (!first) return first.error();
  first->source = source;
  return std::make_unique<ClientRails>(plan, std::move(*memory), std::move(*first), options);
}

bool ClientRails::uses(std::string_view device) const noexcept {
  return std::any_of(rails_.begin(), rails_.end(),
                     [&](const ClientRail& each) { return each.shown->device == device; });
}

bool ClientRails::uses_server_device(std::string_view device) const noexcept {
  return std::any_of(rails_.begin(), rails_.end(),
                     [&](const ClientRail& each) { return each.shown->server_device == device; });
}

std::vector<std::string> ClientRails::usable_devices(const RailChoice& choice,
                                                     const Options& options) {
  std::vector<std::string> names;
  const auto all = verbs::connection_manager_devices(*options.provider);
  if (!all) return names;
  for (const verbs::Device& device : *all)
    if (choice.allows(device.name()) && !device.gone() && !device.is_iwarp() &&
        !(options.hardware_only && device.is_software()) && !why_unusable(device))
      names.emplace_back(device.name());
  return names;
}

std::vector<std::string> ClientRails::unused_devices() const {
  std::vector<std::string> names = usable_devices(plan_->choice(), options_);
  std::erase_if(names, [this](const std::string& name) { return uses(name); });
  return names;
}

Result<ClientRails::Route> ClientRails::route_to(const verbs::Address& peer,
                                                 const RailChoice& choice,
                                                 const std::vector<std::string>& tried,
                                                 Deadline deadline, const Options& options) {
  const auto is_tried = [&](std::string_view name) {
    return std::find(tried.begin(), tried.end(), name) != tried.end();
  };
  auto routed =
      verbs::Connector::resolve(peer, share_of(deadline, 2), options.route, *options.provider);
  if (routed) {
    const std::string_view name = routed->device().name();
    if (choice.allows(name) && !is_tried(name)) return Route{.connector = std::move(*routed)};
  }
  std::vector<std::string> names = usable_devices(choice, options);
  std::erase_if(names, is_tried);
  // One share is left for the connection.
  for (std::size_t i = 0; i < names.size(); ++i)
    if (auto other = resolve_over(names[i], peer, share_of(deadline, names.size() - i + 1),
                                  options.route, *options.provider)) {
      const verbs::Address source = other->local_address().with_port(0);
      return Route{.connector = std::move(*other), .source = source};
    }
  if (!routed) return routed.error();
  return Error{Code::kUnreachable, "no device of the rails reaches the server"}.with_subject(
      peer.host());
}

Result<std::shared_ptr<ClientDomain>> ClientRails::take_device(const verbs::Connector& route,
                                                               const verbs::Address& peer) const {
  const verbs::Device& device = route.device();
  if (!plan_->choice().allows(device.name()))
    return Error{Code::kNotFound, "rails: the route uses a device that is not named"}.with_subject(
        device.name());
  if (device.is_iwarp() || (options_.hardware_only && device.is_software()))
    return Error{Code::kUnsupported, "rails over this device"}.with_subject(device.name());
  if (auto why = why_unusable(device))
    return Error{Code::kUnreachable, "rdma"}.with_subject(std::string{device.name()} + ": " + *why);
  return ClientDomain::of(device, peer);
}

/// The route of the host, if it leads over a device that no rail has; otherwise a route over such a
/// device; if the host's route does not answer, a route over any device.
Result<ClientRails::Route> ClientRails::find_route(const verbs::Address& peer,
                                                   Deadline deadline) const {
  // Half of the time is for the other devices: a host may have many that do not reach the server.
  auto routed =
      verbs::Connector::resolve(peer, share_of(deadline, 2), options_.route, *options_.provider);
  if (routed && !uses(routed->device().name())) return Route{.connector = std::move(*routed)};
  std::vector<std::string> names = unused_devices();
  if (!routed)
    for (const ClientRail& each : rails_) names.push_back(each.shown->device);
  for (std::size_t i = 0; i < names.size(); ++i)
    if (auto other = resolve_over(names[i], peer, share_of(deadline, names.size() - i),
                                  options_.route, *options_.provider)) {
      const verbs::Address source = other->local_address().with_port(0);
      return Route{.connector = std::move(*other), .source = source};
    }
  if (!routed) return routed.error();
  return Route{.connector = std::move(*routed)};
}

/// Errors: those of resolving; kUnsupported: the client's device and the server's device
/// already have a rail each.
Result<ClientRail> ClientRails::find_over(const RailAddress& to, Deadline deadline) const {
  const auto peer = verbs::Address::parse(to.address, options_.port);
  if (!peer) return peer.error();
  const auto route = find_route(*peer, deadline);
  if (!route) return route.error();
  if (uses(route->connector.device().name()) && uses_server_device(to.device))
    return Error{Code::kUnsupported, "rails: both devices have one"}.with_subject(to.address);
  auto device = take_device(route->connector, *peer);
  if (!device) return device.error();
  auto rail = make_rail(*memory_, std::move(*device), *peer, to.device);
  if (rail) rail->source = route->source;
  return rail;
}

std::size_t ClientRails::find(Deadline deadline) {
  const std::vector<RailAddress> addresses = plan_->up();
  rails_.resize(1);
  // The server has told the names of its devices since the first rail was made.
  for (const RailAddress& each : plan_->in_order())
    if (each.address == first_address_) {
      auto shown = std::make_shared<LaneRail>(*rails_.front().shown);
      shown->server_device = each.device;
      rails_.front().shown = std::move(shown);
    }
  const Deadline until = share_of(deadline, kSearchShare);
  std::size_t left = addresses.size();
  for (const RailAddress& each : addresses) {
    const std::size_t with_this = left--;
    if (each.address == first_address_) continue;
    if (rails_.size() >= plan_->choice().max) {
      plan_->set_spare(each.address);
      continue;
    }
    auto rail = find_over(each, std::min(share_of(until, with_this), Clock::now() + kAddressTime));
    if (rail) {
      // From here on a lane over the rail shows whether it works. If no lane is left for the rail,
      // it is not searched again.
      plan_->set_spare(each.address);
      log::debug("rdma: rail {} from {} to {} ({})", rails_.size(), rail->shown->device,
                 each.address, each.device);
      rails_.push_back(std::move(*rail));
      continue;
    }
    log::debug("rdma: no rail to {} ({}): {}", each.address, each.device, rail.error().message());
    if (rail.error().code() == Code::kUnsupported || rail.error().code() == Code::kLimitExceeded)
      plan_->leave_out(each.address);
    else
      plan_->set_failed(each.address, Clock::now());
  }
  take_turns();
  return turns_.size();
}

/// Assigns lanes to the first usable addresses of the plan. While one of them does not answer, its
/// lane goes over another usable address; a lane goes over a left-out address only if there is no
/// other.
void ClientRails::take_turns() {
  homes_ = plan_->usable();
  const auto is_usable = [this](const std::string& address) {
    return std::any_of(homes_.begin(), homes_.end(),
                       [&](const RailAddress& each) { return each.address == address; });
  };
  std::vector<std::string> addresses;
  std::vector<std::size_t> numbers;
  for (std::size_t i = 0; i < rails_.size(); ++i)
    if (std::string address = rails_[i].peer.host(); is_usable(address)) {
      addresses.push_back(std::move(address));
      numbers.push_back(i);
    }
  if (addresses.empty()) {
    addresses.push_back(first_address_);
    numbers.push_back(0);
  }
  if (homes_.size() > plan_->choice().max) homes_.resize(plan_->choice().max);
  std::vector<std::string> homes;
  for (const RailAddress& each : homes_) homes.push_back(each.address);
  turns_ = rails_of_lanes(homes, addresses);
  REMORA_ASSERT(!turns_.empty(), "a session has a rail");
  for (std::size_t& rail : turns_) rail = numbers[rail];
}

std::vector<ClientRail> ClientRails::of_lane(std::size_t lane) const {
  const std::size_t turn = lane % turns_.size();
  std::vector<ClientRail> rails;
  for (std::size_t i = 0; i < rails_.size(); ++i) {
    ClientRail rail = rails_[(turns_[turn] + i) % rails_.size()];
    if (turn < homes_.size() && homes_[turn].device != rail.shown->server_device) {
      auto shown = std::make_shared<LaneRail>(*rail.shown);
      shown->home_device = homes_[turn].device;
      rail.shown = std::move(shown);
    }
    rails.push_back(std::move(rail));
  }
  std::stable_partition(rails.begin(), rails.end(), [this](const ClientRail& each) {
    return !plan_->has_failed(each.peer.host());
  });
  return rails;
}

void ClientRails::set_failed(const ClientRail& rail, bool refused) {
  const std::string address = rail.peer.host();
  if (refused)
    plan_->leave_out(address);
  else
    plan_->set_failed(address, Clock::now());
}

void ClientRails::look(Clock::time_point now) noexcept {
  // The control thread looks once a second if the lease is 10 s or more, and an answer takes
  // several looks.
  constexpr std::chrono::seconds kProbeTime{3};
  if (!probe_) {
    const std::string address = plan_->due(now);
    if (address.empty()) return;
    const auto peer = verbs::Address::parse(address, options_.port);
    auto started =
        peer ? verbs::Resolver::start(*peer, now + kProbeTime, options_.route, *options_.provider)
             : Result<verbs::Resolver>{peer.error()};
    if (started)
      probe_.emplace(Probe{address, std::move(*started)});
    else
      plan_->set_silent(address, now);
    return;
  }
  const auto found = probe_->resolver.advance();
  if (found && !found->has_value() && now < probe_->resolver.deadline()) return;
  if (found && found->has_value() && !why_unusable((*found)->device()))
    plan_->set_answered(probe_->address);
  else
    plan_->set_silent(probe_->address, now);
  probe_.reset();
}

}  // namespace remora::transport::rdma
