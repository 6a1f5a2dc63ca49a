#include "transport/rdma/device_listener.h"

#include <algorithm>
#include <sstream>
#include <sys/socket.h>
#include <utility>

#include "base/log.h"
#include "transport/rdma/client_isolation.h"
#include "transport/rdma/device_addresses.h"
#include "transport/rdma/device_choice.h"
#include "transport/rdma/fabric_settings.h"
#include "transport/rdma/session_probe.h"

namespace remora::transport::rdma {

namespace {

/// The first pause between two searches for a device that has gone; the pause doubles.
constexpr std::chrono::milliseconds kFirstPause{100};
constexpr std::chrono::milliseconds kMaxPause{2000};
/// The pause between two reads of the list of the host's devices.
constexpr std::chrono::seconds kListPause{1};

void note_left_out(DeviceStates& states, const DeviceChoice& choice) {
  for (const LeftOutDevice& each : choice.left_out)
    states.set({.device = each.device, .use = DeviceUse::kLeftOut, .reason = each.reason});
}

/// Leaves out devices whose ports lack the settings. Errors: those of check_ports() for the first
/// of them, where no device is left.
Status leave_out_unfit(const config::RdmaSettings& settings, DeviceChoice& choice) {
  std::optional<Error> first;
  std::vector<verbs::Device> fit;
  for (const verbs::Device& device : choice.devices) {
    const Status checked = check_ports(settings, device);
    if (checked) {
      fit.push_back(device);
      continue;
    }
    choice.left_out.push_back({std::string{device.name()}, checked.error().message()});
    if (!first) first = checked.error();
  }
  choice.devices = std::move(fit);
  return first && choice.devices.empty() ? Status{*first} : Status{};
}

}  // namespace

DeviceListener::DeviceListener(Plan plan, std::shared_ptr<DeviceStates> states,
                               std::shared_ptr<Reaper> reaper, FdSet events,
                               WaitingRequests waiting) noexcept
    : plan_{std::move(plan)},
      states_{std::move(states)},
      reaper_{std::move(reaper)},
      events_{std::move(events)},
      address_{plan_.addresses.front()},
      waiting_{std::move(waiting)} {}

Result<std::unique_ptr<DeviceListener>> DeviceListener::open(Plan plan,
                                                             std::shared_ptr<DeviceStates> states,
                                                             std::shared_ptr<Reaper> reaper) {
  auto events = FdSet::create();
  if (!events) return events.error();
  auto waiting = WaitingRequests::create();
  if (!waiting) return waiting.error();
  if (auto status = events->add(waiting->event_fd()); !status) return status.error();
  std::unique_ptr<DeviceListener> made{new DeviceListener{std::move(plan), std::move(states),
                                                          std::move(reaper), std::move(*events),
                                                          std::move(*waiting)}};
  auto listener = made->bind();
  if (!listener) return listener.error();
  made->address_ = listener->local_address();
  made->plan_.addresses = {made->address_};
  made->every_address_ = listener->device().empty();
  auto choice = choose_devices(made->plan_.wanted, listener->device(), *made->plan_.provider);
  if (!choice) return choice.error();
  const Status fits = leave_out_unfit(made->plan_.settings, *choice);
  note_left_out(*made->states_, *choice);
  if (!fits) return fits.error();
  if (auto probed = probe_session(choice->devices); !probed) return probed.error();
  std::vector<Served> served;
  for (const verbs::Device& device : choice->devices) {
    auto prepared = made->prepare(device);
    if (!prepared) return prepared.error();
    made->names_.emplace_back(device.name());
    if (has_atomics(device)) made->atomic_domains_.emplace_back(device.name());
    served.push_back(std::move(*prepared));
  }
  if (auto status = made->add(std::move(*listener), std::move(served)); !status)
    return status.error();
  return made;
}

/// A name may resolve to addresses of other interfaces, too.
Result<verbs::ConnectionListener> DeviceListener::bind() const {
  Result<verbs::ConnectionListener> listener = Error{Code::kNotFound, "rdma_bind_addr"};
  for (const verbs::Address& each : plan_.addresses) {
    // Clients of a server that has gone and returned reconnect at the same time.
    constexpr int kBacklog = 1024;
    listener = verbs::ConnectionListener::bind(each, kBacklog, *plan_.provider);
    if (listener || listener.error().code() == Code::kAddressInUse) break;
  }
  return listener;
}

Result<DeviceListener::Served> DeviceListener::prepare(const verbs::Device& device) const {
  auto protection = choose_protection(plan_.protection, {device});
  if (!protection) return protection.error();
  auto events = verbs::AsyncEvents::open(device);
  if (!events) return events.error();
  auto control_domain = device.allocate_domain();
  if (!control_domain) return control_domain.error();
  return Served{device, std::move(*events), std::move(protection->front()),
                std::move(*control_domain)};
}

Status DeviceListener::lease_pool(Served& served, const std::stop_token& stop,
                                  const PoolProgress& on_step) const {
  DeviceProtection& chosen = served.protection;
  if (chosen.mechanism == kWindows) {
    const std::string_view name = served.device.name();
    const verbs::DeviceAttributes& can = served.device.attributes();
    auto leased = LeasedMemory::create(served.device, pool_, hold_,
                                       {plan_.registrations->of(name, can.max_mr_count),
                                        plan_.windows->of(name, can.max_mw_count), plan_.bytes},
                                       stop, on_step);
    if (leased) {
      served.leased = std::move(*leased);
    } else if (plan_.protection == config::RdmaProtection::kAuto && !stop.stop_requested()) {
      chosen.mechanism = kRegistrations;
      chosen.reason = "the pool could not be registered: " + leased.error().message();
    } else {
      return leased.error();
    }
  }
  log_protection(plan_.protection, chosen);
  return {};
}

Result<bool> DeviceListener::register_pool(std::span<const MemoryStretch> pieces,
                                           std::shared_ptr<void> hold, const std::stop_token& stop,
                                           const PoolProgress& on_step) {
  pool_.assign(pieces.begin(), pieces.end());
  hold_ = std::move(hold);
  leases_ = true;
  bool any = false;
  std::uint64_t all_bytes = 0;
  for (const MemoryStretch& piece : pool_) all_bytes += piece.length_bytes;
  const remora::detail::MutexLock lock{mutex_};
  std::uint64_t before = 0;  // devices that have registered it
  const PoolProgress tell = [&, devices = served_.size()](std::uint64_t done_bytes) {
    if (on_step) on_step((before * all_bytes + done_bytes) / devices);
  };
  for (Served& served : served_) {
    if (auto status = lease_pool(served, stop, tell); !status) return status.error();
    ++before;
    any = any || served.leased != nullptr;
    states_->set({.device = std::string{served.device.name()},
                  .atomics = has_atomics(served.device),
                  .protection = served.protection});
  }
  return any;
}

Status DeviceListener::add(std::optional<verbs::ConnectionListener> listener,
                           std::vector<Served> served) {
  const remora::detail::MutexLock lock{mutex_};
  if (listener) {
    if (auto status = events_.add(listener->event_fd()); !status) return status;
    listener_ = std::move(listener);
  }
  for (Served& each : served) {
    if (auto status = events_.add(each.events.event_fd()); !status) return status;
    states_->set({.device = std::string{each.device.name()},
                  .atomics = has_atomics(each.device),
                  .protection = each.protection});
    served_.push_back(std::move(each));
  }
  return {};
}

Result<std::optional<verbs::ConnectionRequest>> DeviceListener::next_request(WhichRequest which) {
  const remora::detail::MutexLock lock{mutex_};
  if (auto status = read_requests(); !status && waiting_.empty()) return status.error();
  auto waiting = waiting_.take(which);
  if (!waiting) return std::optional<verbs::ConnectionRequest>{};
  auto request = std::move(*waiting).take();
  if (!request) return request.error();
  return std::optional{std::move(*request)};
}

/// Reads all requests that have come: only so are the newest known.
Status DeviceListener::read_requests() {
  while (listener_ && !waiting_.full()) {
    auto request = listener_->next_waiting();
    if (!request) {
      const verbs::Device& device = listener_->device();
      if (device.empty() || !device.gone()) return request.error();
      lose_gone();
      return {};
    }
    if (!request->has_value()) return {};
    waiting_.add(std::move(**request));
  }
  return {};
}

bool DeviceListener::any_waits() const {
  const remora::detail::MutexLock lock{mutex_};
  return !waiting_.empty();
}

bool DeviceListener::serves(const verbs::Device& device) const {
  const remora::detail::MutexLock lock{mutex_};
  return std::any_of(served_.begin(), served_.end(),
                     [&](const Served& each) { return each.device == device; });
}

std::vector<verbs::Device> DeviceListener::devices() const {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<verbs::Device> devices;
  for (const Served& each : served_) devices.push_back(each.device);
  return devices;
}

std::shared_ptr<const LeasedMemory> DeviceListener::leased(const verbs::Device& device) const {
  const remora::detail::MutexLock lock{mutex_};
  const auto found = std::find_if(served_.begin(), served_.end(),
                                  [&](const Served& each) { return each.device == device; });
  return found == served_.end() ? nullptr : found->leased;
}

Result<verbs::ProtectionDomain> DeviceListener::control_domain(const verbs::Device& device) const {
  const remora::detail::MutexLock lock{mutex_};
  const auto found = std::find_if(served_.begin(), served_.end(),
                                  [&](const Served& each) { return each.device == device; });
  if (found != served_.end()) return found->control_domain;
  return Error{Code::kNotFound, "request over a device that is not served"}.with_subject(
      device.name());
}

void DeviceListener::look() {
  const remora::detail::MutexLock lock{mutex_};
  for (Served& served : served_) {
    while (true) {
      const auto event = served.events.next_event();
      if (!event) served.device.mark_gone();
      if (!event || !event->has_value()) break;
      take_event(served, **event);
    }
  }
  if (const auto now = Clock::now(); now - listed_at_ >= kListPause) {
    listed_at_ = now;
    verbs::look_for_gone_devices(*plan_.provider);
    show_addresses();
  }
  lose_gone();
  leaving_.look(*reaper_);
}

/// Addresses come and go while the server runs.
void DeviceListener::show_addresses() {
  if (!every_address_) return;
  for (const Served& served : served_) {
    if (served.device.gone()) continue;
    std::vector<std::string> addresses;
    for (const verbs::Address& each : addresses_of(served.device))
      if (each.family() == address_.family() || address_.family() == AF_INET6)
        addresses.push_back(each.host());
    states_->set_addresses(served.device.name(), std::move(addresses));
  }
}

void DeviceListener::take_event(const Served& served, const verbs::AsyncEvent& event) {
  using Kind = verbs::AsyncEvent::Kind;
  std::ostringstream text;
  text << event;
  const std::string_view name = served.device.name();
  switch (event.kind) {
    case Kind::kQueuePairFatal:
    case Kind::kQueuePairRequestError:
    case Kind::kQueuePairAccessError:
    case Kind::kWorkQueueFatal:
      failures_.push_back({.device = std::string{name}, .queue_pair = event.qp_number});
      log::debug("rdma: {}: {}; its session's lanes end", name, text.str());
      return;
    case Kind::kCompletionQueueError:
      failures_.push_back({.device = std::string{name}, .queue = event.object});
      log::warn({"device.event", "device reason"}, "rdma: {}: {}; its session's lanes end", name,
                text.str());
      return;
    case Kind::kPortError:
      listed_at_ = {};
      return log::warn({"device.event", "device reason"},
                       "rdma: {}: {}: clients do not reach it meanwhile", name, text.str());
    case Kind::kPortActive:
    case Kind::kGidChange:
      // Clients are told the addresses that the port has now.
      listed_at_ = {};
      return log::debug("rdma: {}: {}", name, text.str());
    case Kind::kDeviceFatal:
      return log::warn({"device.event", "device reason"}, "rdma: {}: {}", name, text.str());
    default: return log::debug("rdma: {}: {}", name, text.str());
  }
}

void DeviceListener::lose_gone() {
  for (std::size_t i = served_.size(); i-- > 0;) {
    if (!served_[i].device.gone()) continue;
    Served gone = std::move(served_[i]);
    served_.erase(served_.begin() + static_cast<std::ptrdiff_t>(i));
    lose(std::move(gone));
  }
}

/// Destroying the objects of a device may take long, so the control thread hands them over.
void DeviceListener::lose(Served served) {
  const std::string name{served.device.name()};
  states_->set({.device = name,
                .use = DeviceUse::kGone,
                .reason = "the host has it no longer, or it has failed",
                .atomics = has_atomics(served.device)});
  failures_.push_back({.device = name});
  leaving_.add(served.device, *reaper_);
  waiting_.drop(name);  // they hold the device
  events_.remove(served.events.event_fd());
  Remains remains;
  if (!every_address_ && listener_) {
    events_.remove(listener_->event_fd());
    remains.listener = std::exchange(listener_, std::nullopt);
  }
  remains.served = std::move(served);
  reaper_->take(std::move(remains));
  pause_ = kFirstPause;
  restore_at_ = Clock::now() + pause_;
}

std::vector<DeviceFailure> DeviceListener::take_failures() {
  const remora::detail::MutexLock lock{mutex_};
  return std::exchange(failures_, {});
}

bool DeviceListener::any_missing() const {
  if (!listener_) return true;
  const std::vector<DeviceState> states = states_->list();
  return std::any_of(states.begin(), states.end(), [this](const DeviceState& state) {
    return state.use == DeviceUse::kGone || (every_address_ && state.use == DeviceUse::kLeftOut);
  });
}

bool DeviceListener::must_restore() {
  const remora::detail::MutexLock lock{mutex_};
  if (restoring_ || Clock::now() < restore_at_) return false;
  restore_at_ = Clock::now() + kMaxPause;
  if (!any_missing()) return false;
  restoring_ = true;
  return true;
}

void DeviceListener::restore(const std::stop_token& stop) {
  const Status restored = try_restore(stop);
  if (!restored) log::debug("rdma: {}", restored.error().message());
  const remora::detail::MutexLock lock{mutex_};
  restoring_ = false;
  pause_ = std::min(2 * std::max(pause_, kFirstPause), kMaxPause);
  restore_at_ = Clock::now() + pause_;
}

Status DeviceListener::try_restore(const std::stop_token& stop) {
  std::optional<verbs::ConnectionListener> listener;
  if (!every_address_) {
    {
      const remora::detail::MutexLock lock{mutex_};
      if (listener_) return {};
    }
    auto bound = bind();
    if (!bound) return bound.error();
    if (bound->device().empty() || bound->device().gone())
      return Error{Code::kNotFound, "rdma_bind_addr"}.with_subject(address_.to_string());
    listener = std::move(*bound);
  }
  auto choice = choose_devices(plan_.wanted, listener ? listener->device() : verbs::Device{},
                               *plan_.provider);
  if (!choice) return choice.error();
  // A device that has just returned may get its addresses, and so its GIDs, later.
  const Status fits = leave_out_unfit(plan_.settings, *choice);
  if (!fits) return fits;
  if (!every_address_) note_left_out(*states_, *choice);
  std::vector<Served> served;
  for (const verbs::Device& device : choice->devices) {
    if (device.gone() || serves(device)) continue;
    auto prepared = prepare(device);
    if (!prepared) return prepared.error();
    if (leases_)
      if (auto status = lease_pool(*prepared, stop); !status) return status;
    served.push_back(std::move(*prepared));
  }
  return add(std::move(listener), std::move(served));
}

}  // namespace remora::transport::rdma
