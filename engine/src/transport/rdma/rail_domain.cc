#include "transport/rdma/rail_domain.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <remora/assert.h>
#include <remora/owned.h>

namespace remora::transport::rdma {

/// Memory with a token, and its registration on each device, by column.
struct RailDomain::Memory {
  Memory(std::shared_ptr<RkeyTable> of, std::uint32_t number, std::span<std::byte> registered)
      : keys{std::move(of)}, token{number}, bytes{registered} {}
  ~Memory() { keys->give_back({&token, 1}); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Registers with a device, unless that is done already. Errors: those of
  /// ClientDomain::register_bytes().
  Status register_with(ClientDomain& device, std::size_t column) {
    REMORA_ASSERT(column < parts.size(), "a device has a column of the table");
    auto& part = parts[column];
    if (part != nullptr && part->lost()) part.reset();
    if (part == nullptr) {
      auto made = device.register_bytes(bytes);
      if (!made) {
        keys->set(token, column, RkeyTable::kNoKey);
        return made.error();
      }
      part = std::move(*made);
    }
    keys->set(token, column, part->local_key());
    return {};
  }

  const std::shared_ptr<RkeyTable> keys;
  const std::uint32_t token;
  const std::span<std::byte> bytes;
  /// Changed with RailDomain::registering_ locked.
  std::array<std::unique_ptr<Registration>, kMaxDevices> parts{};
};

class RailDomain::Handle final : public Registration {
 public:
  Handle(std::shared_ptr<RailDomain> domain, std::shared_ptr<Memory> memory) noexcept
      : domain_{std::move(domain)}, memory_{std::move(memory)} {}
  [[nodiscard]] std::uint32_t local_key() const noexcept override { return memory_->token; }

 private:
  const std::shared_ptr<RailDomain> domain_;  ///< keeps the devices
  const std::shared_ptr<Memory> memory_;
};

Result<std::shared_ptr<RailDomain>> RailDomain::of_process() {
  struct Known {
    remora::detail::Mutex mutex;
    std::weak_ptr<RailDomain> domain REMORA_GUARDED_BY(mutex);
  };
  static remora::detail::PerProcess<Known> all;
  Known& known = all.get();
  const remora::detail::MutexLock lock{known.mutex};
  if (auto alive = known.domain.lock()) return alive;
  auto keys = RkeyTable::create();
  if (!keys) return keys.error();
  auto made = std::make_shared<RailDomain>(std::move(*keys));
  known.domain = made;
  return made;
}

std::vector<std::shared_ptr<ClientDomain>> RailDomain::devices() const {
  const remora::detail::MutexLock lock{mutex_};
  std::vector<std::shared_ptr<ClientDomain>> all;
  for (const Device& each : devices_) all.push_back(each.domain);
  return all;
}

Result<std::size_t> RailDomain::add(const std::shared_ptr<ClientDomain>& device) {
  const verbs::ProtectionDomain now = device->domain();
  if (!now.empty() && now.device().is_iwarp())
    return Error{Code::kUnsupported, "rails over an iWARP device"}.with_subject(device->device());
  const remora::detail::MutexLock registering{registering_};
  const std::uint64_t arrivals = device->arrivals();
  std::size_t column = 0;
  {
    const remora::detail::MutexLock lock{mutex_};
    while (column < devices_.size() && devices_[column].domain != device) ++column;
    if (column == kMaxDevices)
      return Error{Code::kLimitExceeded, "devices of rails"}.with_limit(column + 1, kMaxDevices);
    if (column == devices_.size()) devices_.push_back({.domain = device});
    REMORA_ASSERT(devices_[column].arrivals <= arrivals, "arrivals are counted upwards");
    if (devices_[column].arrivals == arrivals) return column;
  }
  std::erase_if(memories_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : memories_)
    if (const auto memory = weak.lock())
      if (auto status = memory->register_with(*device, column); !status) return status.error();
  const remora::detail::MutexLock lock{mutex_};
  devices_[column].arrivals = arrivals;
  return column;
}

Result<std::unique_ptr<Registration>> RailDomain::register_bytes(std::span<std::byte> bytes) {
  auto token = keys_->take(1);
  if (!token) return token.error();
  const auto memory = std::make_shared<Memory>(keys_, token->front(), bytes);
  const remora::detail::MutexLock registering{registering_};
  const auto all = devices();
  Status lost;
  std::size_t registered = 0;
  for (std::size_t column = 0; column < all.size(); ++column) {
    const Status made = memory->register_with(*all[column], column);
    if (made) {
      ++registered;
      continue;
    }
    if (made.error().code() != Code::kConnectionLost) return made.error();
    lost = made;
  }
  if (registered == 0 && !lost) return lost.error();
  std::erase_if(memories_, [](const auto& weak) { return weak.expired(); });
  memories_.push_back(memory);
  return std::unique_ptr<Registration>{std::make_unique<Handle>(shared_from_this(), memory)};
}

std::uint64_t RailDomain::lockable_bytes() const noexcept {
  const auto all = devices();
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  for (const auto& each : all) least = std::min(least, each->lockable_bytes());
  // Each device pins the memory once more.
  return all.empty() || least == std::numeric_limits<std::uint64_t>::max() ? least
                                                                           : least / all.size();
}

void RailDomain::show_counters(metrics::Registry& registry) noexcept {
  for (const auto& each : devices()) each->show_counters(registry);
}

void RailDomain::look() noexcept {
  for (const auto& each : devices()) each->look();
}

}  // namespace remora::transport::rdma
