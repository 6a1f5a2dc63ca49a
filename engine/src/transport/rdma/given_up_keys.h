#pragma once

/// Remote keys that the sessions of a protection domain had and no longer have: none of them may
/// name memory in that domain again.
///
/// A device may give a registration the key that was freed last, and a client's thread that was
/// stopped between its check and its post still carries that key. Without this, its late request
/// would pass on the grant that the same client got after a fence.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/verbs/memory_region.h>
#include <remora/verbs/protection_domain.h>

namespace remora::transport::rdma {

/// Of one session over its connections, or of all sessions of a client that share a domain.
/// Thread-safe.
class GivenUpKeys {
 public:
  /// As many are remembered, the newest: 3 MiB for a client that opens and closes without end.
  static constexpr std::size_t kMax = std::size_t{1} << 15U;
  /// Registrations that register_again() sets aside, because their keys must not be used, until the
  /// device gives another key.
  static constexpr std::size_t kMaxAside = 64;

  /// The registration is about to go. Without memory for it, nothing is remembered.
  void add(const verbs::MemoryRegion& memory) noexcept;
  /// What `other` remembers is remembered here, too. Without memory for it, some of it.
  void add_all(const GivenUpKeys& other) noexcept;
  /// Whether a request of a registration that went would be carried out by this one.
  [[nodiscard]] bool reaches(const verbs::MemoryRegion& memory) const;
  /// Registers `bytes` in `domain` so that no key of before reaches them. `aside` gets the
  /// registrations that keys of before reach, also with an error: the caller deregisters them after
  /// this call, and sees whether the device does that. Errors: those of
  /// verbs::ProtectionDomain::register_bytes() and verbs::MemoryRegion::register_at().
  [[nodiscard]] Result<verbs::MemoryRegion> register_bytes(const verbs::ProtectionDomain& domain,
                                                           std::span<std::byte> bytes,
                                                           verbs::Access access,
                                                           std::vector<verbs::MemoryRegion>& aside);
  /// The same at `address`, which a client has, and at no other one. Where the device gives keys of
  /// before, `bytes` are registered again, and at most kMaxAside + 1 registrations of them exist at
  /// once. Errors: those of register_bytes(); kProvider: more than kMaxAside keys of before return.
  [[nodiscard]] Result<verbs::MemoryRegion> register_again(const verbs::ProtectionDomain& domain,
                                                           std::span<std::byte> bytes,
                                                           std::uint64_t address,
                                                           verbs::Access access,
                                                           std::vector<verbs::MemoryRegion>& aside);

 private:
  struct Range {
    std::uint64_t address;
    std::uint64_t length_bytes;
  };
  using Keys = std::multimap<std::uint32_t, Range>;
  void remember(std::uint32_t key, const Range& range) REMORA_REQUIRES(mutex_);
  mutable remora::detail::Mutex mutex_;
  Keys keys_ REMORA_GUARDED_BY(mutex_);
  std::deque<Keys::iterator> order_ REMORA_GUARDED_BY(mutex_);  ///< the oldest first
  std::uint64_t moved_ REMORA_GUARDED_BY(mutex_) = 0;  ///< registrations at an address of their own
};

}  // namespace remora::transport::rdma
