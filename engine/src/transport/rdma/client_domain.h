#pragma once

/// The client's local memory on one RDMA device, which may go and return, or be replaced by another
/// device of the host.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/verbs.h>

#include "base/clock.h"
#include "transport/memory_domain.h"
#include "transport/rdma/device_cache.h"
#include "transport/rdma/leaving_devices.h"
#include "transport/rdma/reaper.h"

namespace remora::transport::rdma {

/// The protection domain of all sessions of this process on the device of one name; on an iWARP
/// device, of the sessions with one server (local_access.h). When the device goes, everything in it
/// is released at once; the registrations stay recorded, and are made again when a session connects
/// over the device again, or over another device. Sessions that may not change their device have a
/// domain of their own. Thread-safe.
class ClientDomain final : public MemoryDomain {
 public:
  /// Whether the memory moves to another device when its device has gone. A domain of an iWARP
  /// device never moves.
  enum class Moves : bool { kNo, kYes };
  /// Returns the same object for a device that has returned under its name. **Blocks** while memory
  /// is registered again. Errors: kProvider, kOutOfMemory.
  static Result<std::shared_ptr<ClientDomain>> of(const verbs::Device& device,
                                                  const verbs::Address& peer,
                                                  Moves moves = Moves::kNo);
  ClientDomain(std::string device, const std::optional<verbs::Address>& server, Moves moves)
      : server_{server}, moves_{moves}, device_{std::move(device)} {}

  /// Whether move_to() may name any device: the memory's device has gone, and the memory moves.
  [[nodiscard]] bool may_move_now() const;
  /// The memory is on `device` from now on, with other keys. It stays where it is if it is there
  /// already. **Blocks** while memory is registered. Errors: kConnectionLost: the memory is on
  /// another device, which has not gone; kUnsupported: the memory cannot leave its device, or
  /// `device` is an iWARP device; those of of().
  Status move_to(const verbs::Device& device);

  /// Errors: those of ProtectionDomain::register_bytes(); kConnectionLost: the device has gone.
  Result<std::unique_ptr<Registration>> register_bytes(std::span<std::byte> bytes) override;
  std::shared_ptr<RegistrationCache> make_cache(const RegistrationCache::Options& options) override;
  [[nodiscard]] std::uint64_t lockable_bytes() const noexcept override;
  void show_counters(metrics::Registry& registry) noexcept override;
  void look() noexcept override;

  /// The protection domain; empty: the device has gone.
  [[nodiscard]] verbs::ProtectionDomain domain() const;
  /// The protection domain of a control channel over `device`. `moves`: the memory need not be
  /// there yet, and is moved when the server has answered; the channel then has a domain of its
  /// own. Errors: kConnectionLost: the device has gone; those of Device::allocate_domain().
  [[nodiscard]] Result<verbs::ProtectionDomain> domain_of_channel(const verbs::Device& device,
                                                                  bool moves) const;
  /// The name of the device on which the memory is, or was last.
  [[nodiscard]] std::string device() const;
  [[nodiscard]] Reaper& reaper() noexcept { return reaper_; }
  /// How often the device has come: a registration that was made before the last arrival has
  /// another key now.
  [[nodiscard]] std::uint64_t arrivals() const noexcept { return arrivals_.load(); }

 private:
  struct Memory;
  class Handle;
  Status arrive(const verbs::Device& device) REMORA_EXCLUDES(arriving_, mutex_);
  void leave() noexcept;
  void leave_if_gone() noexcept;
  bool trim();
  [[nodiscard]] std::vector<std::shared_ptr<DeviceCache>> caches() REMORA_REQUIRES(mutex_);
  [[nodiscard]] Error gone() const;

  const std::optional<verbs::Address> server_;  ///< of an iWARP device's domain
  const Moves moves_;
  remora::detail::Mutex arriving_ REMORA_ACQUIRED_BEFORE(mutex_);  ///< one arrival at a time
  mutable remora::detail::Mutex mutex_;
  std::string device_ REMORA_GUARDED_BY(mutex_);
  verbs::ProtectionDomain domain_ REMORA_GUARDED_BY(mutex_);
  std::optional<verbs::AsyncEvents> events_ REMORA_GUARDED_BY(mutex_);
  LeavingDevices leaving_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Memory>> memories_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<DeviceCache>> caches_ REMORA_GUARDED_BY(mutex_);
  Clock::time_point listed_at_ REMORA_GUARDED_BY(mutex_){};
  std::atomic<std::uint64_t> arrivals_{0};
  Reaper reaper_;
};

}  // namespace remora::transport::rdma
