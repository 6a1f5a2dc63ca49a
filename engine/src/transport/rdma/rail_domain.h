#pragma once

/// The client's local memory on several RDMA devices at once, for sessions whose lanes go over
/// them.
///
/// A registration here consists of one registration with each device, and its local key is a
/// *token*: a lane looks up the key of its device when it posts (make_rail_lane()). So an operation
/// that waits while a session is interrupted can continue over another device. When a device goes
/// and returns, its keys change in the table, and the tokens stay.

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

/// One object for all such sessions of this process. Thread-safe.
class RailDomain final : public MemoryDomain, public std::enable_shared_from_this<RailDomain> {
 public:
  static constexpr std::size_t kMaxDevices = RkeyTable::kMaxLanes;

  /// Errors: kOutOfMemory (of address space for the table).
  static Result<std::shared_ptr<RailDomain>> of_process();
  explicit RailDomain(std::shared_ptr<RkeyTable> keys) noexcept : keys_{std::move(keys)} {}

  /// Adds a device, and returns the column of its keys. Registers with it all memory of the domain
  /// that it has not registered yet. **Blocks** while memory is registered. Errors: kLimitExceeded
  /// (kMaxDevices); kUnsupported (an iWARP device); those of ClientDomain::register_bytes(): the
  /// device has no key for some of the memory, and no lane may use it.
  Result<std::size_t> add(const std::shared_ptr<ClientDomain>& device);
  /// The keys, by token and column.
  [[nodiscard]] const std::shared_ptr<RkeyTable>& keys() const noexcept { return keys_; }

  /// Registers with each device. A device that has gone is left out, and registers the memory in
  /// add(). Errors: those of ClientDomain::register_bytes(), but kConnectionLost only if no device
  /// is there; kLimitExceeded (RkeyTable::kMaxTokens).
  Result<std::unique_ptr<Registration>> register_bytes(std::span<std::byte> bytes) override;
  [[nodiscard]] std::uint64_t lockable_bytes() const noexcept override;
  void show_counters(metrics::Registry& registry) noexcept override;
  void look() noexcept override;

 private:
  struct Memory;
  class Handle;
  struct Device {
    std::shared_ptr<ClientDomain> domain;
    std::uint64_t arrivals = 0;  ///< the arrival of the device for which all memory has keys
  };
  [[nodiscard]] std::vector<std::shared_ptr<ClientDomain>> devices() const REMORA_EXCLUDES(mutex_);

  const std::shared_ptr<RkeyTable> keys_;
  /// Held while memory is registered, so that neither add() nor register_bytes() misses what the
  /// other adds. Not on the data path.
  remora::detail::Mutex registering_ REMORA_ACQUIRED_BEFORE(mutex_);
  mutable remora::detail::Mutex mutex_;
  std::vector<Device> devices_ REMORA_GUARDED_BY(mutex_);  ///< by column; entries are never removed
  std::vector<std::weak_ptr<Memory>> memories_ REMORA_GUARDED_BY(registering_);
};

}  // namespace remora::transport::rdma
