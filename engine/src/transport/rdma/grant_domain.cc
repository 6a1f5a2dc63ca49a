#include "transport/rdma/grant_domain.h"

#include <remora/assert.h>

#include "transport/rdma/windows.h"

namespace remora::transport::rdma {

verbs::Access registration_access(Rights rights, const verbs::Device& device) noexcept {
  const verbs::Access access = remote_access(rights, device);
  const bool changes = contains(access, verbs::Access::kRemoteWrite) ||
                       contains(access, verbs::Access::kRemoteAtomic);
  return changes ? access | verbs::Access::kLocalWrite : access;
}

GrantDomain::~GrantDomain() {
  const remora::detail::MutexLock lock{mutex_};
  REMORA_ASSERT(entries_.empty() && members_.empty(),
                "grants and members hold the domain that they are in");
}

GrantDomain::Key GrantDomain::key_of(const GrantRequest& request, verbs::Access access) {
  Key key;
  key.stretches.reserve(request.extents.size());
  for (const MemoryStretch& stretch : request.extents)
    key.stretches.emplace_back(reinterpret_cast<std::uintptr_t>(stretch.address),
                               stretch.length_bytes);
  key.access = static_cast<std::uint32_t>(access);
  key.epoch = request.epoch;
  if (sharing_ == Sharing::kNone) key.serial = ++last_serial_;
  return key;
}

Result<RegistrationHold> GrantDomain::acquire(const GrantRequest& request,
                                              std::shared_ptr<GrantShare> kept) {
  const verbs::Access access = registration_access(request.rights, device());
  Key key;
  std::shared_ptr<Entry> entry;
  {
    const remora::detail::MutexLock lock{mutex_};
    key = key_of(request, access);
    std::shared_ptr<Entry>& found = entries_[key];
    if (found == nullptr) found = std::make_shared<Entry>();
    ++found->holders;
    entry = found;
  }
  // From here on an error releases it.
  RegistrationHold hold{shared_from_this(), std::move(key), entry};
  Entry& wanted = *entry;
  const remora::detail::MutexLock lock{wanted.mutex};
  // Empty as well where another thread has tried and failed.
  if (wanted.memory.empty())
    if (auto status = register_memory(wanted, request, access, std::move(kept)); !status)
      return status.error();
  return Result<RegistrationHold>{std::move(hold)};
}

Result<std::shared_ptr<GrantShare>> GrantDomain::admit(const GrantRequest& request) const {
  auto registrations = BudgetShare::take(budgets_.registrations, request.extents.size());
  if (!registrations) return registrations.error();
  std::optional<BudgetShare> bytes;
  if (budgets_.bytes != nullptr) {
    std::uint64_t sum = 0;
    for (const MemoryStretch& stretch : request.extents) sum += stretch.length_bytes;
    auto share = BudgetShare::take(budgets_.bytes, sum);
    if (!share) return share.error();
    bytes.emplace(std::move(*share));
  }
  return std::make_shared<GrantShare>(GrantShare{std::move(*registrations), std::move(bytes)});
}

Status GrantDomain::register_memory(Entry& entry, const GrantRequest& request, verbs::Access access,
                                    std::shared_ptr<GrantShare> kept) {
  // Before the device is asked: what others need is left to them.
  if (kept == nullptr) {
    auto share = admit(request);
    if (!share) return share.error();
    kept = std::move(*share);
  }
  std::vector<verbs::MemoryRegion> registered;
  std::vector<WireExtent> extents;
  std::uint64_t start = 0;
  for (const MemoryStretch& stretch : request.extents) {
    auto memory =
        given_up_->register_bytes(domain_, {stretch.address, stretch.length_bytes}, access);
    if (!memory) return memory.error();
    extents.push_back({.start_bytes = start,
                       .length_bytes = stretch.length_bytes,
                       .remote_address = memory->address(),
                       .remote_key = memory->rkey()});
    start += stretch.length_bytes;
    registered.push_back(std::move(*memory));
  }
  entry.share = std::move(kept);
  entry.extents = std::move(extents);
  entry.memory = std::move(registered);
  return {};
}

Status GrantDomain::release(const Key& key, const std::shared_ptr<Entry>& entry) noexcept {
  {
    const remora::detail::MutexLock lock{mutex_};
    REMORA_ASSERT(entry->holders > 0, "each grant releases its registration once");
    if (--entry->holders > 0) return {};
    // From here on acquire() makes a new one.
    entries_.erase(key);
  }
  Entry& last = *entry;
  const remora::detail::MutexLock lock{last.mutex};
  Status status;
  for (verbs::MemoryRegion& memory : last.memory) {
    // First, so that a registration which is made meanwhile does not get the key unnoticed.
    given_up_->add(memory);
    const std::uint64_t length_bytes = memory.length_bytes();
    const Status deregistered = std::move(memory).deregister();
    if (deregistered || device().gone()) continue;  // it has taken the registration with it
    status = deregistered;
    last.share->registrations.lose(1);
    if (last.share->bytes) last.share->bytes->lose(length_bytes);
  }
  last.memory.clear();
  last.share.reset();
  return status;
}

bool GrantDomain::enter(Member& member) {
  const remora::detail::MutexLock lock{mutex_};
  if (retired_) return false;
  members_.insert(&member);
  return true;
}

void GrantDomain::leave(Member& member) noexcept {
  const remora::detail::MutexLock lock{mutex_};
  members_.erase(&member);
}

void GrantDomain::end_members() noexcept {
  std::vector<std::function<void()>> endings;
  {
    // With the lock, so that no member goes away meanwhile.
    const remora::detail::MutexLock lock{mutex_};
    retired_ = true;
    for (Member* const member : members_) endings.push_back(member->end_lanes());
  }
  for (const auto& wait : endings) wait();
}

bool GrantDomain::retired() const {
  const remora::detail::MutexLock lock{mutex_};
  return retired_;
}

std::vector<WireExtent> RegistrationHold::extents() const {
  GrantDomain::Entry& entry = *entry_;
  const remora::detail::MutexLock lock{entry.mutex};
  return entry.extents;
}

std::shared_ptr<GrantShare> RegistrationHold::share() const {
  GrantDomain::Entry& entry = *entry_;
  const remora::detail::MutexLock lock{entry.mutex};
  return entry.share;
}

RegistrationHold& RegistrationHold::operator=(RegistrationHold&& other) noexcept {
  if (this == &other) return *this;
  (void)release();
  domain_ = std::move(other.domain_);
  key_ = std::move(other.key_);
  entry_ = std::move(other.entry_);
  return *this;
}

Status RegistrationHold::release() noexcept {
  if (entry_ == nullptr) return {};
  const std::shared_ptr<GrantDomain::Entry> entry = std::exchange(entry_, nullptr);
  return domain_->release(key_, entry);
}

}  // namespace remora::transport::rdma
