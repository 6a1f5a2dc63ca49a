#pragma once

/// The protection domain that holds the lanes of a client and the registrations of its grants. All
/// sessions of a client that prove the same key share one domain on each device, and in it one
/// registration for each region. A session that proves no key has a domain of its own, and its
/// grants share nothing.

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>
#include <remora/verbs/device.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/protection_domain.h>

#include "transport/grant.h"
#include "transport/rdma/given_up_keys.h"
#include "transport/rdma/grant_share.h"

namespace remora::transport::rdma {

class RegistrationHold;

/// Thread-safe.
class GrantDomain : public std::enable_shared_from_this<GrantDomain> {
 public:
  /// A session whose lanes are in the domain.
  class Member {
   public:
    virtual ~Member() = default;
    /// Ends the lanes and the channel. The result waits until the lanes are destroyed, and may be
    /// called after the member is destroyed. Any thread.
    virtual std::function<void()> end_lanes() = 0;
  };
  enum class Sharing : std::uint8_t { kNone, kOneClient };

  GrantDomain(verbs::Device device, Sharing sharing, GrantBudgets budgets,
              std::shared_ptr<GivenUpKeys> given_up = std::make_shared<GivenUpKeys>()) noexcept
      : device_{std::move(device)},
        sharing_{sharing},
        budgets_{std::move(budgets)},
        given_up_{std::move(given_up)} {}
  GrantDomain(const GrantDomain&) = delete;
  GrantDomain& operator=(const GrantDomain&) = delete;
  ~GrantDomain();

  /// Allocated by the first call: a session that resumes another continues in that one's domain,
  /// and needs none before. **Blocks** until the device has answered. Errors: those of
  /// verbs::Device::allocate_domain(); a later call tries again.
  [[nodiscard]] Result<verbs::ProtectionDomain> domain() REMORA_EXCLUDES(allocating_);
  [[nodiscard]] const verbs::Device& device() const noexcept { return device_; }
  [[nodiscard]] const std::shared_ptr<GivenUpKeys>& given_up() const noexcept { return given_up_; }

  /// The registration of the request's memory with the request's rights: one that another session
  /// of the client holds, or a new one. A registration of an older epoch is never shared. `kept`:
  /// the share of the budgets that the grant held on a device that has gone, used instead of a new
  /// share. `former`: the extents that the grant had on that device. Its client continues with
  /// their addresses, so the registration gets these; empty: any addresses. **Blocks** while pages
  /// are pinned. Errors: kLimitExceeded, before the device is asked; kCancelled (request.stop);
  /// those of domain(), GivenUpKeys::register_bytes() and register_again(); kProvider (errno kept).
  /// After an error key_left() says whether the device has released all registrations.
  [[nodiscard]] Result<RegistrationHold> acquire(const GrantRequest& request,
                                                 const std::shared_ptr<GrantShare>& kept,
                                                 std::span<const WireExtent> former = {});

  /// From now on end_members() also ends the lanes of `member`. False: the domain is retired, and
  /// takes no more members.
  [[nodiscard]] bool enter(Member& member);
  /// Removes the member. Its lanes may still be ending, but it adds none. Idempotent.
  void leave(Member& member) noexcept;
  /// A key of the domain could not be revoked. Ends the lanes of all members, and **blocks** until
  /// the devices have destroyed them. The domain takes no more members. Idempotent.
  void end_members() noexcept;
  [[nodiscard]] bool retired() const;
  /// Errors: kProvider (errno kept): an acquire() has left a key that the device did not release.
  /// The key works in the domain as long as the domain has lanes.
  [[nodiscard]] Status key_left() const;

 private:
  friend class RegistrationHold;
  /// The key by which a registration is found.
  struct Key {
    std::vector<std::pair<std::uintptr_t, std::uint64_t>> stretches;
    std::uint32_t access = 0;
    std::uint64_t epoch = 0;
    std::uint64_t serial = 0;  ///< 0: the registration may be shared
    /// The addresses at which clients reach the ranges. Last, so that registrations that differ
    /// only in it are neighbours in the map.
    std::vector<std::uint64_t> addresses;
    [[nodiscard]] bool differs_in_addresses_alone(const Key& other) const;
    // The compiler generates the zero that the check reports.
    auto operator<=>(const Key&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  struct Entry;
  using Entries = std::multimap<Key, std::shared_ptr<Entry>>;
  struct Entry {
    remora::detail::Mutex mutex;
    std::shared_ptr<GrantShare> share REMORA_GUARDED_BY(mutex);
    std::vector<WireExtent> extents REMORA_GUARDED_BY(mutex);
    std::vector<verbs::MemoryRegion> memory REMORA_GUARDED_BY(mutex);  ///< empty: not registered
  };

  /// The use of an entry by grants.
  struct Use {
    std::size_t holders = 0;
    Entries::iterator place{};
  };

  /// The key with the addresses of `former`; if that is empty, with the addresses of the memory
  /// itself.
  [[nodiscard]] Key key_of(const GrantRequest& request, verbs::Access access,
                           std::span<const WireExtent> former) REMORA_REQUIRES(mutex_);
  /// The entry with `key`, or with `key` and any addresses; a new entry, not registered yet, if
  /// there is none.
  [[nodiscard]] std::shared_ptr<Entry> entry_of(Key key, bool any_address) REMORA_REQUIRES(mutex_);
  Status register_memory(Entry& entry, const GrantRequest& request, verbs::Access access,
                         std::shared_ptr<GrantShare> kept, std::span<const WireExtent> former)
      REMORA_REQUIRES(entry.mutex) REMORA_EXCLUDES(mutex_);
  /// Registers each range of the request. After an error nothing is registered, or key_left()
  /// reports the key that is left.
  [[nodiscard]] Result<std::vector<verbs::MemoryRegion>> register_stretches(
      const GrantRequest& request, verbs::Access access, GrantShare& share,
      std::span<const WireExtent> former) REMORA_EXCLUDES(mutex_);
  /// Deregisters `memory`, and empties it. `share`: its share of the budgets; null: it is not
  /// counted. Errors: kProvider (errno kept).
  Status deregister(std::vector<verbs::MemoryRegion>& memory, GrantShare* share) noexcept;
  void note_key_left(const Status& deregistered) noexcept REMORA_EXCLUDES(mutex_);
  /// Deregisters the memory if no other grant holds it.
  Status release(const std::shared_ptr<Entry>& entry) noexcept;

  const verbs::Device device_;
  const Sharing sharing_;
  const GrantBudgets budgets_;
  const std::shared_ptr<GivenUpKeys> given_up_;
  remora::detail::Mutex allocating_;  ///< no other mutex is locked after it
  verbs::ProtectionDomain domain_ REMORA_GUARDED_BY(allocating_);  ///< empty: not needed yet
  /// Not held during calls that wait for a device, except in end_members(). Locked after an entry's
  /// mutex, never before it.
  mutable remora::detail::Mutex mutex_;
  Entries entries_ REMORA_GUARDED_BY(mutex_);
  std::map<const Entry*, Use> uses_ REMORA_GUARDED_BY(mutex_);  ///< of each registration
  std::set<Member*> members_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t last_serial_ REMORA_GUARDED_BY(mutex_) = 0;
  bool retired_ REMORA_GUARDED_BY(mutex_) = false;
  Status key_left_ REMORA_GUARDED_BY(mutex_);
};

/// The access of a registration for a grant that has these rights on this device.
[[nodiscard]] verbs::Access registration_access(Rights rights,
                                                const verbs::Device& device) noexcept;

}  // namespace remora::transport::rdma
