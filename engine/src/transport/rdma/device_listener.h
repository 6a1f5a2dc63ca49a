#pragma once

/// A listener of the connection manager and the devices that it serves; follows devices that go and
/// come back.
///
/// A device goes when its driver is removed or it fails for good. The listener learns that from the
/// device's asynchronous events, from the events of its connections, and from the list of the
/// host's devices, which it reads once a second. Then it releases everything on the device, since
/// the removal of a driver may wait for that. Another thread searches for the device with growing
/// pauses; when the device is back, it binds the address again, and registers the pool again if
/// grants are windows.

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include <remora/config/server_config.h>
#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/verbs.h>

#include "base/clock.h"
#include "base/fd_set.h"
#include "transport/device_failure.h"
#include "transport/device_states.h"
#include "transport/listener.h"
#include "transport/listener_devices.h"
#include "transport/rdma/budget.h"
#include "transport/rdma/device_budgets.h"
#include "transport/rdma/leased_memory.h"
#include "transport/rdma/leaving_devices.h"
#include "transport/rdma/reaper.h"
#include "transport/rdma/waiting_requests.h"

namespace remora::transport::rdma {

/// The control thread calls all functions, another thread only those that say so. exception: Plan
/// has options, Served and Remains are records of single devices.
class DeviceListener {
 public:
  struct Plan {
    std::vector<verbs::Address> addresses;  ///< the first address that a device has is used
    std::vector<std::string> wanted;        ///< names of devices; empty: any
    config::RdmaProtection protection = config::RdmaProtection::kAuto;
    std::shared_ptr<RegistrationBudgets> registrations;
    std::shared_ptr<WindowBudgets> windows;
    std::shared_ptr<Budget> bytes{};  ///< see LeasedMemory::Budgets
    config::RdmaSettings settings{};  ///< devices whose ports do not have them are left out
    const verbs::Provider* provider = &verbs::Provider::system();
  };
  /// Errors: those of ConnectionListener::bind(), choose_devices(), probe_session(),
  /// choose_protection() and verbs::Device::allocate_domain(); those of check_ports(), if no device
  /// fits the settings.
  static Result<std::unique_ptr<DeviceListener>> open(Plan plan,
                                                      std::shared_ptr<DeviceStates> states,
                                                      std::shared_ptr<Reaper> reaper);

  /// Readable when next_request() or look() has an event to handle.
  [[nodiscard]] int event_fd() const noexcept { return events_.get(); }
  /// The address, with the port that was taken. Any thread.
  [[nodiscard]] const verbs::Address& address() const noexcept { return address_; }
  /// The devices that serve at the start, and those of them with atomics. Any thread.
  [[nodiscard]] const std::vector<std::string>& names() const noexcept { return names_; }
  [[nodiscard]] const std::vector<std::string>& atomic_domains() const noexcept {
    return atomic_domains_;
  }
  [[nodiscard]] const std::shared_ptr<DeviceStates>& states() const noexcept { return states_; }

  /// See ListenerDevices::register_pool(). Called while the server starts.
  Result<bool> register_pool(std::span<const MemoryStretch> pieces, std::shared_ptr<void> hold,
                             const std::stop_token& stop, const PoolProgress& on_step = {});

  /// The request to serve next; see WaitingRequests. Errors: those of
  /// ConnectionListener::next_waiting() and WaitingRequest::take(), except the errors of a device
  /// that goes.
  Result<std::optional<verbs::ConnectionRequest>> next_request(
      WhichRequest which = WhichRequest::kAny);
  /// Whether a request waits that next_request() has read.
  [[nodiscard]] bool any_waits() const;
  [[nodiscard]] bool serves(const verbs::Device& device) const;
  /// The devices that serve now. Any thread.
  [[nodiscard]] std::vector<verbs::Device> devices() const;
  /// The pool's memory on the device; null: grants there are registrations.
  [[nodiscard]] std::shared_ptr<const LeasedMemory> leased(const verbs::Device& device) const;
  /// The protection domain of all control channels on the device. Peers have no remote right to its
  /// memory, and its queue pairs take messages only. Errors: kNotFound: the device is not served.
  [[nodiscard]] Result<verbs::ProtectionDomain> control_domain(const verbs::Device& device) const;
  /// Takes the events of all devices. take_failures() returns the failures of connections among
  /// them.
  void look();
  [[nodiscard]] std::vector<DeviceFailure> take_failures();
  /// True: another thread must call restore().
  [[nodiscard]] bool must_restore();
  /// Searches for devices that are missing. Any thread. **Blocks** while the pool is registered;
  /// `stop` ends that between two pieces, and the device is not served.
  void restore(const std::stop_token& stop);

 private:
  struct Served {
    verbs::Device device;
    verbs::AsyncEvents events;
    DeviceProtection protection;
    verbs::ProtectionDomain control_domain;
    std::shared_ptr<const LeasedMemory> leased{};
  };
  /// The objects that are released with a device.
  struct Remains {
    std::optional<verbs::ConnectionListener> listener;
    std::optional<Served> served;
  };
  DeviceListener(Plan plan, std::shared_ptr<DeviceStates> states, std::shared_ptr<Reaper> reaper,
                 FdSet events, WaitingRequests waiting) noexcept;

  Result<verbs::ConnectionListener> bind() const;
  Result<Served> prepare(const verbs::Device& device) const;
  Status lease_pool(Served& served, const std::stop_token& stop,
                    const PoolProgress& on_step = {}) const;
  Status add(std::optional<verbs::ConnectionListener> listener, std::vector<Served> served)
      REMORA_EXCLUDES(mutex_);
  Status try_restore(const std::stop_token& stop);
  [[nodiscard]] bool any_missing() const REMORA_REQUIRES(mutex_);
  void take_event(const Served& served, const verbs::AsyncEvent& event) REMORA_REQUIRES(mutex_);
  void show_addresses() REMORA_REQUIRES(mutex_);
  void lose_gone() REMORA_REQUIRES(mutex_);
  void lose(Served served) REMORA_REQUIRES(mutex_);
  Status read_requests() REMORA_REQUIRES(mutex_);

  Plan plan_;
  const std::shared_ptr<DeviceStates> states_;
  const std::shared_ptr<Reaper> reaper_;
  FdSet events_;
  verbs::Address address_;
  bool every_address_ = false;  ///< the listener is not bound to one device
  std::vector<std::string> names_;
  std::vector<std::string> atomic_domains_;
  /// Set while the server starts.
  std::vector<MemoryStretch> pool_;
  std::shared_ptr<void> hold_;
  bool leases_ = false;

  mutable remora::detail::Mutex mutex_;
  std::vector<Served> served_ REMORA_GUARDED_BY(mutex_);
  std::optional<verbs::ConnectionListener> listener_ REMORA_GUARDED_BY(mutex_);
  LeavingDevices leaving_ REMORA_GUARDED_BY(mutex_);
  WaitingRequests waiting_ REMORA_GUARDED_BY(mutex_);
  std::vector<DeviceFailure> failures_ REMORA_GUARDED_BY(mutex_);
  Clock::time_point listed_at_ REMORA_GUARDED_BY(mutex_){};
  Clock::time_point restore_at_ REMORA_GUARDED_BY(mutex_){};
  std::chrono::milliseconds pause_ REMORA_GUARDED_BY(mutex_){0};
  bool restoring_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::transport::rdma
