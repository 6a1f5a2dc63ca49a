#include "transport/rdma/client_domain.h"

#include <algorithm>
#include <limits>
#include <sstream>
#include <utility>

#include <remora/assert.h>
#include <remora/owned.h>

#include "base/log.h"
#include "transport/rdma/device_metrics.h"
#include "transport/rdma/local_access.h"

namespace remora::transport::rdma {

/// Memory that is registered with the device while the device is there.
struct ClientDomain::Memory {
  explicit Memory(std::span<std::byte> registered) noexcept : bytes{registered} {}
  const std::span<std::byte> bytes;
  remora::detail::Mutex mutex;
  std::optional<verbs::MemoryRegion> region REMORA_GUARDED_BY(mutex);
  bool over REMORA_GUARDED_BY(mutex) = false;  ///< its handle is destroyed

  std::optional<verbs::MemoryRegion> take(bool for_good) {
    const remora::detail::MutexLock lock{mutex};
    over = over || for_good;
    return std::exchange(region, std::nullopt);
  }
  /// Errors: those of ProtectionDomain::register_bytes().
  Status register_in(const verbs::ProtectionDomain& domain) {
    const remora::detail::MutexLock lock{mutex};
    if (over) return {};
    auto made = domain.register_bytes(bytes, local_access(domain.device()));
    if (!made) return made.error();
    region.emplace(std::move(*made));
    return {};
  }
};

class ClientDomain::Handle final : public Registration {
 public:
  explicit Handle(std::shared_ptr<Memory> memory) noexcept : memory_{std::move(memory)} {}
  ~Handle() override { (void)memory_->take(true); }
  [[nodiscard]] std::uint32_t local_key() const noexcept override {
    const remora::detail::MutexLock lock{memory_->mutex};
    return memory_->region ? memory_->region->lkey() : 0;
  }
  [[nodiscard]] bool lost() const noexcept override {
    const remora::detail::MutexLock lock{memory_->mutex};
    return !memory_->region;
  }

 private:
  const std::shared_ptr<Memory> memory_;
};

Result<std::shared_ptr<ClientDomain>> ClientDomain::of(const verbs::Device& device,
                                                       const verbs::Address& peer, Moves moves) {
  const auto server = device.is_iwarp() ? std::optional{peer} : std::nullopt;
  struct Known {
    remora::detail::Mutex mutex;
    std::vector<std::weak_ptr<ClientDomain>> domains REMORA_GUARDED_BY(mutex);
  };
  static remora::detail::PerProcess<Known> all;
  Known& known = all.get();
  while (true) {
    std::shared_ptr<ClientDomain> found;
    {
      const remora::detail::MutexLock lock{known.mutex};
      std::erase_if(known.domains, [](const auto& weak) { return weak.expired(); });
      for (const auto& weak : known.domains)
        if (auto alive = weak.lock(); alive != nullptr && alive->moves_ == moves &&
                                      alive->server_ == server && alive->device() == device.name())
          found = std::move(alive);
      if (found == nullptr) {
        found = std::make_shared<ClientDomain>(std::string{device.name()}, server, moves);
        known.domains.push_back(found);
      }
    }
    const Status arrived = found->arrive(device);
    if (arrived) return found;
    // If the memory was moving to another device meanwhile, this device needs another domain.
    if (found->device() == device.name()) return arrived.error();
  }
}

bool ClientDomain::may_move_now() const {
  if (moves_ == Moves::kNo || server_) return false;
  const verbs::ProtectionDomain now = domain();
  return now.empty() || now.device().gone();
}

Status ClientDomain::move_to(const verbs::Device& device) {
  const bool other = this->device() != device.name();
  if (other && (moves_ == Moves::kNo || server_ || device.is_iwarp()))
    return Error{Code::kUnsupported, "a session's memory on another device"}.with_subject(
        device.name());
  return arrive(device);
}

Status ClientDomain::arrive(const verbs::Device& device) {
  const remora::detail::MutexLock arriving{arriving_};
  if (const verbs::ProtectionDomain now = domain(); !now.empty()) {
    if (now.device() == device) return {};
    if (now.device().name() != device.name() && !now.device().gone())
      return Error{Code::kConnectionLost, "memory on another device"}.with_subject(
          now.device().name());
    now.device().mark_gone();  // it has returned before its loss was noticed
    leave();
  }
  auto made = device.allocate_domain();
  if (!made) return made.error();
  auto events = verbs::AsyncEvents::open(device);
  if (!events) return events.error();
  std::vector<std::shared_ptr<Memory>> memories;
  std::vector<std::shared_ptr<DeviceCache>> caches;
  std::string name{device.name()};
  std::string before;
  {
    const remora::detail::MutexLock lock{mutex_};
    REMORA_ASSERT(domain_.empty(), "a device arrives when the one before has left");
    before = std::exchange(device_, name);
    domain_ = *made;
    events_ = std::move(*events);
    caches = this->caches();
    for (const auto& weak : memories_)
      if (auto memory = weak.lock()) memories.push_back(std::move(memory));
  }
  if (before != name)
    log::warn({"device.replaced", "device other"},
              "rdma: {} has gone; sessions over it continue over {}", before, name);
  for (const auto& memory : memories)
    if (auto registered = memory->register_in(*made); !registered)
      log::warn({"device.not_registered", "device bytes reason"},
                "{}: {} bytes could not be registered again: {}", name, memory->bytes.size(),
                registered.error().message());
  for (const auto& cache : caches) cache->arrive(*made);
  arrivals_.fetch_add(1);
  if (domain() == *made) return {};
  // The device has gone again meanwhile: release the registrations that leave() has not seen.
  for (const auto& memory : memories) (void)memory->take(false);
  for (const auto& cache : caches) cache->leave();
  return gone();
}

/// The reaper destroys the device's objects, since destruction may be slow.
void ClientDomain::leave() noexcept {
  struct Left {
    std::vector<verbs::MemoryRegion> regions;
    verbs::ProtectionDomain domain;
    std::optional<verbs::AsyncEvents> events;
  };
  Left left;
  std::vector<std::shared_ptr<DeviceCache>> caches;
  {
    const remora::detail::MutexLock lock{mutex_};
    if (domain_.empty()) return;
    leaving_.add(domain_.device(), reaper_);
    std::erase_if(memories_, [](const auto& weak) { return weak.expired(); });
    for (const auto& weak : memories_)
      if (const auto memory = weak.lock())
        if (auto region = memory->take(false)) left.regions.push_back(std::move(*region));
    left.domain = std::exchange(domain_, {});
    left.events = std::exchange(events_, std::nullopt);
    caches = this->caches();
  }
  for (const auto& cache : caches) cache->leave();
  log::warn({"device.gone", "device"}, "rdma: {} has gone; sessions over it wait for {}", device(),
            moves_ == Moves::kYes && !server_
                ? "it, or for another device that reaches their server"
                : "it");
  reaper_.take(std::move(left));
}

void ClientDomain::leave_if_gone() noexcept {
  const verbs::ProtectionDomain now = domain();
  if (!now.empty() && now.device().gone()) leave();
}

void ClientDomain::look() noexcept {
  constexpr std::chrono::seconds kHostLookPause{1};
  {
    const remora::detail::MutexLock lock{mutex_};
    leaving_.look(reaper_);
    while (events_) {
      const auto event = events_->next_event();
      if (!event) domain_.device().mark_gone();
      if (!event || !event->has_value()) break;
      std::ostringstream text;
      text << **event;
      log::debug("rdma: {}: {}", device_, text.str());
    }
    if (const auto now = Clock::now(); now - listed_at_ >= kHostLookPause) {
      listed_at_ = now;
      verbs::look_for_gone_devices();
    }
  }
  leave_if_gone();
}

verbs::ProtectionDomain ClientDomain::domain() const {
  const remora::detail::MutexLock lock{mutex_};
  return domain_;
}

Result<verbs::ProtectionDomain> ClientDomain::domain_of_channel(const verbs::Device& device,
                                                                bool moves) const {
  verbs::ProtectionDomain now = domain();
  if (!now.empty() && (!moves || now.device() == device)) return now;
  if (!moves) return Error{Code::kConnectionLost, "RDMA device"}.with_subject(device.name());
  return device.allocate_domain();
}

std::string ClientDomain::device() const {
  const remora::detail::MutexLock lock{mutex_};
  return device_;
}

Error ClientDomain::gone() const {
  return Error{Code::kConnectionLost, "RDMA device"}.with_subject(device()).with_reason(
      Reason::kLaneBroken);
}

Result<std::unique_ptr<Registration>> ClientDomain::register_bytes(std::span<std::byte> bytes) {
  const verbs::ProtectionDomain domain = this->domain();
  if (domain.empty()) return gone();
  const auto memory = std::make_shared<Memory>(bytes);
  Status made = memory->register_in(domain);
  // Deregister idle cached registrations and try once more.
  if (!made && made.error().code() == Code::kOutOfMemory && trim())
    made = memory->register_in(domain);
  if (!made) return made.error();
  auto handle = std::make_unique<Handle>(memory);
  {
    const remora::detail::MutexLock lock{mutex_};
    if (domain_ == domain) {
      std::erase_if(memories_, [](const auto& weak) { return weak.expired(); });
      memories_.push_back(memory);
      return std::unique_ptr<Registration>{std::move(handle)};
    }
  }
  return gone();
}

std::shared_ptr<RegistrationCache> ClientDomain::make_cache(
    const RegistrationCache::Options& options) {
  const verbs::ProtectionDomain domain = this->domain();
  if (domain.empty()) return nullptr;
  auto made = rdma::make_cache(domain, options);
  if (made == nullptr) return nullptr;
  const remora::detail::MutexLock lock{mutex_};
  caches_.emplace_back(made);
  return made;
}

std::uint64_t ClientDomain::lockable_bytes() const noexcept {
  const verbs::ProtectionDomain now = domain();
  const verbs::Provider& provider =
      now.empty() ? verbs::Provider::system() : now.device().provider();
  const verbs::MemlockState state = provider.memlock_state();
  if (state.exempt) return std::numeric_limits<std::uint64_t>::max();
  return state.limit_bytes - std::min(state.pinned_bytes, state.limit_bytes);
}

void ClientDomain::show_counters(metrics::Registry& registry) noexcept {
  show_device_counters(registry, device());
}

std::vector<std::shared_ptr<DeviceCache>> ClientDomain::caches() {
  std::vector<std::shared_ptr<DeviceCache>> alive;
  std::erase_if(caches_, [](const auto& weak) { return weak.expired(); });
  for (const auto& weak : caches_)
    if (auto cache = weak.lock()) alive.push_back(std::move(cache));
  return alive;
}

bool ClientDomain::trim() {
  std::vector<std::shared_ptr<DeviceCache>> caches;
  {
    const remora::detail::MutexLock lock{mutex_};
    caches = this->caches();
  }
  bool any = false;
  for (const auto& cache : caches) any = cache->trim() || any;
  return any;
}

}  // namespace remora::transport::rdma
