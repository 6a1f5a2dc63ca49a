#pragma once

/// The client's local memory on several RDMA devices at once, for sessions whose lanes go over
/// them.
///
/// A registration is one on each device, and its local key is a *token*: a lane looks up the key of
/// its device when it posts (make_rail_lane()). So an operation that waits while a session is
/// interrupted may go on over another device. Where a device goes and returns, its keys change in
/// the table, and the tokens stay.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "transport/memory_domain.h"
#include "transport/rdma/client_domain.h"
#include "transport/rkey_table.h"

namespace remora::transport::rdma {

/// Of all such sessions of this process. Thread-safe.
class RailDomain final : public MemoryDomain, public std::enable_shared_from_this<RailDomain> {
 public:
  static constexpr std::size_t kMaxDevices = RkeyTable::kMaxLanes;

  /// Errors: kOutOfMemory (of address space for the table).
  static Result<std::shared_ptr<RailDomain>> of_process();
  explicit RailDomain(std::shared_ptr<RkeyTable> keys) noexcept : keys_{std::move(keys)} {}

  /// The column of the device's keys. Registers there what is registered already, and what the
  /// device has not taken before. **Blocks** while memory is registered. Errors: kLimitExceeded
  /// (kMaxDevices); kUnsupported (an iWARP device); those of ClientDomain::register_bytes(): the
  /// device has no key for some of the memory, and no lane may use it.
  Result<std::size_t> add(const std::shared_ptr<ClientDomain>& device);
  /// The keys by token and column.
  [[nodiscard]] const std::shared_ptr<RkeyTable>& keys() const noexcept { return keys_; }

  /// Registers with each device. A device that has gone is left out, and gets the memory with
  /// add(). Errors: those of ClientDomain::register_bytes(), but kConnectionLost only where no
  /// device is there; kLimitExceeded (RkeyTable::kMaxTokens).
  Result<std::unique_ptr<Registration>> register_bytes(std::span<std::byte> bytes) override;
  [[nodiscard]] std::uint64_t lockable_bytes() const noexcept override;
  void show_counters(metrics::Registry& registry) noexcept override;
  void look() noexcept override;

 private:
  struct Memory;
  class Handle;
  struct Device {
    std::shared_ptr<ClientDomain> domain;
    std::uint64_t arrivals = 0;  ///< for which all memory has its keys
  };
  [[nodiscard]] std::vector<std::shared_ptr<ClientDomain>> devices() const REMORA_EXCLUDES(mutex_);

  const std::shared_ptr<RkeyTable> keys_;
  /// Held while memory is registered, so that add() and register_bytes() miss nothing of each
  /// other. Not on the data path.
  remora::detail::Mutex registering_ REMORA_ACQUIRED_BEFORE(mutex_);
  mutable remora::detail::Mutex mutex_;
  std::vector<Device> devices_ REMORA_GUARDED_BY(mutex_);  ///< by column; none ever goes
  std::vector<std::weak_ptr<Memory>> memories_ REMORA_GUARDED_BY(registering_);
};

}  // namespace remora::transport::rdma
