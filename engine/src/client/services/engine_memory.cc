#include "client/services/engine_memory.h"

#include <algorithm>
#include <utility>

#include "client/datapath/memory_releaser.h"

namespace remora::detail {

EngineMemory::EngineMemory(const EngineOptions& options, const Placement& placement)
    : options_{options}, placement_{placement}, releaser_{std::make_shared<MemoryReleaser>()} {}

EngineMemory::~EngineMemory() { releaser_->close(); }

Result<std::size_t> EngineMemory::intern(const std::shared_ptr<transport::MemoryDomain>& domain,
                                         EventLoop& loop) {
  std::vector<std::shared_ptr<LocalMemory>> known;
  std::shared_ptr<transport::MemoryDomain> unused;  // destroyed after the lock
  std::size_t index = 0;
  if (const Status watched = releaser_->watch(loop); !watched) return watched.error();
  {
    const MutexLock lock{mutex_};
    while (index < domains_.size() && domains_[index] != nullptr && domains_[index] != domain)
      ++index;
    if (index == domains_.size()) {
      index = find_unused();
      if (index == domains_.size())
        return Error{Code::kLimitExceeded, "devices of one engine"}.with_limit(index + 1, index);
      for (const auto& memory : all_memory()) memory->forget_key(index);
      caches_[index] = {};
      unused = std::move(domains_[index]);
    }
    domains_[index] = domain;
    known = all_memory();
  }
  for (const auto& memory : known) {
    // The domain may have registered the memory anew for a session of another engine, or for one
    // that has ended since: then the memory still has the key of a device that has gone.
    memory->renew_key(index);
    // If a registration fails, an operation that needs the memory tries it again and reports the
    // failure.
    (void)memory->register_with(*domain, index);
  }
  return index;
}

void EngineMemory::look_at_devices() noexcept {
  constexpr std::chrono::seconds kPause{1};
  if (Clock::now() - looked_at_ < kPause) return;
  looked_at_ = Clock::now();
  std::array<std::shared_ptr<transport::MemoryDomain>, kMaxMemoryDomains> domains;
  {
    const MutexLock lock{mutex_};
    domains = domains_;
  }
  for (const auto& domain : domains)
    if (domain != nullptr) domain->look();
}

void EngineMemory::renew_keys(const transport::MemoryDomain& domain) {
  std::vector<std::shared_ptr<LocalMemory>> known;
  std::size_t index = 0;
  {
    const MutexLock lock{mutex_};
    while (index < domains_.size() && domains_[index].get() != &domain) ++index;
    if (index == domains_.size()) return;
    known = all_memory();
  }
  for (const auto& memory : known) memory->renew_key(index);
}

std::size_t EngineMemory::find_unused() const noexcept {
  const auto unused = std::find_if(domains_.begin(), domains_.end(),
                                   [](const auto& domain) { return domain.use_count() == 1; });
  return static_cast<std::size_t>(unused - domains_.begin());
}

std::vector<std::shared_ptr<LocalMemory>> EngineMemory::all_memory() const {
  std::vector<std::shared_ptr<LocalMemory>> all;
  for (const auto& weak : memories_)
    if (auto memory = weak.lock()) all.push_back(std::move(memory));
  for (const auto& store : {bounce_, zeroes_})
    if (store != nullptr) all.push_back(store->memory());
  return all;
}

Result<std::shared_ptr<LocalMemory>> EngineMemory::zeroes(transport::MemoryDomain& domain,
                                                          std::size_t domain_index) {
  constexpr std::size_t kZeroesBytes = std::size_t{256} << 10U;
  const MutexLock lock{mutex_};
  if (zeroes_ == nullptr) {
    auto store = SlotStore::create(1, kZeroesBytes, slab_options());
    if (!store) return store.error();
    zeroes_ = std::move(*store);
  }
  if (auto status = zeroes_->memory()->register_with(domain, domain_index); !status)
    return status.error();
  // The memory belongs to the store, so a pointer to the memory keeps the store.
  return std::shared_ptr<LocalMemory>{zeroes_, zeroes_->memory().get()};
}

std::shared_ptr<transport::RegistrationCache> EngineMemory::registration_cache(
    std::size_t domain_index) {
  const MutexLock lock{mutex_};
  Cache& known = caches_[domain_index];
  if (!std::exchange(known.asked, true) && options_.mr_cache_bytes != 0)
    known.cache = domains_[domain_index]->make_cache(
        {.bytes_max = options_.mr_cache_bytes, .registry = options_.registry});
  return known.cache;
}

Result<std::shared_ptr<SlotStore>> EngineMemory::bounce_store(transport::MemoryDomain& domain,
                                                              std::size_t domain_index) {
  const MutexLock lock{mutex_};
  if (bounce_ == nullptr) {
    auto store =
        SlotStore::create(options_.bounce_slot_count, options_.bounce_slot_bytes, slab_options());
    if (!store) return store.error();
    bounce_ = std::move(*store);
  }
  if (auto status = bounce_->memory()->register_with(domain, domain_index); !status)
    return status.error();
  return bounce_;
}

void EngineMemory::register_with_all(const std::shared_ptr<LocalMemory>& memory) {
  std::vector<std::pair<std::size_t, std::shared_ptr<transport::MemoryDomain>>> domains;
  {
    const MutexLock lock{mutex_};
    std::erase_if(memories_, [](const auto& weak) { return weak.expired(); });
    memories_.push_back(memory);
    for (std::size_t i = 0; i < domains_.size(); ++i)
      if (domains_[i] != nullptr) domains.emplace_back(i, domains_[i]);
  }
  for (const auto& [index, domain] : domains) (void)memory->register_with(*domain, index);
}

Result<std::shared_ptr<SlotStore>> EngineMemory::allocate_slots(std::size_t count,
                                                                std::size_t slot_bytes) {
  auto store = SlotStore::create(count, slot_bytes, slab_options());
  if (!store) return store.error();
  register_with_all((*store)->memory());
  return store;
}

Result<std::shared_ptr<LocalMemory>> EngineMemory::register_memory(std::span<std::byte> bytes) {
  if (bytes.empty() || bytes.data() == nullptr)
    return Error{Code::kInvalidArgument, "register_memory"}.with_subject("empty span");
  // First deregisters released memory, which counts against the limit of locked memory.
  releaser_->sweep();
  auto memory = releaser_->handle(bytes);
  register_with_all(memory);
  return memory;
}

}  // namespace remora::detail
