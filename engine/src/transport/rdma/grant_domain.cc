#include "transport/rdma/grant_domain.h"

#include <algorithm>
#include <utility>

#include <remora/assert.h>

#include "transport/rdma/registration_hold.h"
#include "transport/rdma/remote_access.h"

namespace remora::transport::rdma {

namespace {

bool are_at(std::span<const WireExtent> extents, std::span<const WireExtent> former) {
  return std::equal(extents.begin(), extents.end(), former.begin(), former.end(),
                    [](const WireExtent& left, const WireExtent& right) {
                      return left.remote_address == right.remote_address;
                    });
}

}  // namespace

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

Result<verbs::ProtectionDomain> GrantDomain::domain() {
  const remora::detail::MutexLock lock{allocating_};
  if (!domain_.empty()) return domain_;
  auto allocated = device_.allocate_domain();
  if (allocated) domain_ = *allocated;
  return allocated;
}

bool GrantDomain::Key::differs_in_addresses_alone(const Key& other) const {
  return stretches == other.stretches && access == other.access && epoch == other.epoch &&
         serial == other.serial;
}

GrantDomain::Key GrantDomain::key_of(const GrantRequest& request, verbs::Access access,
                                     std::span<const WireExtent> former) {
  Key key;
  key.stretches.reserve(request.extents.size());
  for (const MemoryStretch& stretch : request.extents) {
    const auto address = reinterpret_cast<std::uintptr_t>(stretch.address);
    key.stretches.emplace_back(address, stretch.length_bytes);
    if (former.empty()) key.addresses.push_back(address);
  }
  for (const WireExtent& extent : former) key.addresses.push_back(extent.remote_address);
  key.access = static_cast<std::uint32_t>(access);
  key.epoch = request.epoch;
  if (sharing_ == Sharing::kNone) key.serial = ++last_serial_;
  return key;
}

std::shared_ptr<GrantDomain::Entry> GrantDomain::entry_of(Key key, bool any_address) {
  auto found = entries_.find(key);
  if (found == entries_.end() && any_address) {
    Key first = key;
    first.addresses.clear();
    found = entries_.lower_bound(first);
    if (found != entries_.end() && !found->first.differs_in_addresses_alone(key))
      found = entries_.end();
  }
  if (found != entries_.end()) return found->second;
  auto made = std::make_shared<Entry>();
  Use& use = uses_[made.get()];
  use.place = entries_.emplace(std::move(key), made);
  return made;
}

Result<RegistrationHold> GrantDomain::acquire(const GrantRequest& request,
                                              const std::shared_ptr<GrantShare>& kept,
                                              std::span<const WireExtent> former) {
  REMORA_ASSERT(former.empty() || former.size() == request.extents.size(),
                "a grant has an address for each stretch of its memory");
  const verbs::Access access = registration_access(request.rights, device());
  while (true) {
    std::shared_ptr<Entry> entry;
    {
      const remora::detail::MutexLock lock{mutex_};
      entry = entry_of(key_of(request, access, former), former.empty());
      ++uses_.at(entry.get()).holders;
    }
    // From here on an error releases the entry.
    RegistrationHold hold{shared_from_this(), entry};
    Entry& wanted = *entry;
    const remora::detail::MutexLock lock{wanted.mutex};
    // The memory is also empty if another thread has tried and failed.
    if (wanted.memory.empty())
      if (auto status = register_memory(wanted, request, access, kept, former); !status)
        return status.error();
    // Another thread may have had to register the memory at other addresses, which are now in its
    // key: the next round does not find that entry.
    if (former.empty() || are_at(wanted.extents, former))
      return Result<RegistrationHold>{std::move(hold)};
  }
}

Status GrantDomain::register_memory(Entry& entry, const GrantRequest& request, verbs::Access access,
                                    std::shared_ptr<GrantShare> kept,
                                    std::span<const WireExtent> former) {
  if (kept == nullptr) {
    auto share = take_share(budgets_, request.extents);
    if (!share) return share.error();
    kept = std::make_shared<GrantShare>(std::move(*share));
  }
  auto registered = register_stretches(request, access, *kept, former);
  if (!registered) return registered.error();
  std::vector<WireExtent> extents;
  std::uint64_t start = 0;
  for (const verbs::MemoryRegion& memory : *registered) {
    extents.push_back({.start_bytes = start,
                       .length_bytes = memory.length_bytes(),
                       .remote_address = memory.address(),
                       .remote_key = memory.rkey()});
    start += memory.length_bytes();
  }
  entry.share = std::move(kept);
  entry.extents = std::move(extents);
  entry.memory = std::move(*registered);
  // From here on acquire() finds the entry by its addresses.
  const remora::detail::MutexLock lock{mutex_};
  Use& use = uses_.at(&entry);
  auto node = entries_.extract(use.place);
  REMORA_ASSERT(!node.empty() && node.key().addresses.size() == entry.extents.size(),
                "a registration has an address for each stretch of its memory");
  for (std::size_t i = 0; i < entry.extents.size(); ++i)
    node.key().addresses[i] = entry.extents[i].remote_address;
  use.place = entries_.insert(std::move(node));
  return {};
}

Result<std::vector<verbs::MemoryRegion>> GrantDomain::register_stretches(
    const GrantRequest& request, verbs::Access access, GrantShare& share,
    std::span<const WireExtent> former) {
  const auto domain = this->domain();
  if (!domain) return domain.error();
  std::vector<verbs::MemoryRegion> registered;
  std::vector<verbs::MemoryRegion> aside;  // registrations whose keys were given up before
  Status status;
  for (const MemoryStretch& stretch : request.extents) {
    if (request.stop.stop_requested()) {
      status = Error{Code::kCancelled, "register memory"};
      break;
    }
    const std::span<std::byte> bytes{stretch.address, stretch.length_bytes};
    auto memory = former.empty() ? given_up_->register_bytes(*domain, bytes, access, aside)
                                 : given_up_->register_again(
                                       *domain, bytes, former[registered.size()].remote_address,
                                       access, aside);
    // Requests that clients have posted late reach the memory by the keys of these registrations.
    status = deregister(aside, nullptr);
    note_key_left(status);
    if (memory)
      registered.push_back(std::move(*memory));
    else
      status = memory.error();
    if (!status) break;
  }
  if (status) return Result<std::vector<verbs::MemoryRegion>>{std::move(registered)};
  note_key_left(deregister(registered, &share));
  return status.error();
}

Status GrantDomain::deregister(std::vector<verbs::MemoryRegion>& memory,
                               GrantShare* share) noexcept {
  Status status;
  for (verbs::MemoryRegion& each : memory) {
    const std::uint64_t length_bytes = each.length_bytes();
    const Status deregistered = std::move(each).deregister();
    if (deregistered || device().gone()) continue;  // the registration has gone with the device
    status = deregistered;
    if (share != nullptr) share->lose_one(length_bytes);
  }
  memory.clear();
  return status;
}

void GrantDomain::note_key_left(const Status& deregistered) noexcept {
  if (deregistered) return;
  const remora::detail::MutexLock lock{mutex_};
  key_left_ = deregistered;
}

Status GrantDomain::key_left() const {
  const remora::detail::MutexLock lock{mutex_};
  return key_left_;
}

Status GrantDomain::release(const std::shared_ptr<Entry>& entry) noexcept {
  {
    const remora::detail::MutexLock lock{mutex_};
    const auto use = uses_.find(entry.get());
    REMORA_ASSERT(use != uses_.end() && use->second.holders > 0,
                  "each grant releases its registration once");
    if (--use->second.holders > 0) return {};
    REMORA_ASSERT(use->second.place->second == entry, "a registration knows its place");
    // From here on acquire() makes a new entry.
    entries_.erase(use->second.place);
    uses_.erase(use);
  }
  Entry& last = *entry;
  const remora::detail::MutexLock lock{last.mutex};
  // Before the memory is deregistered, so that a registration made meanwhile cannot get one of
  // these keys unnoticed.
  for (const verbs::MemoryRegion& memory : last.memory) given_up_->add(memory);
  const Status status = deregister(last.memory, last.share.get());
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
    // With the lock held, so that no member is destroyed meanwhile.
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

}  // namespace remora::transport::rdma
