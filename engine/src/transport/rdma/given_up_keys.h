#pragma once

/// Remote keys that the sessions of a protection domain had and no longer have: none of them may
/// name memory in that domain again.
///
/// A device may give a new registration the key that was freed last. A client's thread that was
/// stopped between its check and its post still holds that key. Without this class the device would
/// execute its late request on the grant that the same client got after a fence.

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

/// The keys of one session over its connections, or of all sessions of a client that share a
/// domain. Thread-safe.
class GivenUpKeys {
 public:
  /// The number of keys that are remembered, the newest: 3 MiB for a client that opens and closes
  /// without end.
  static constexpr std::size_t kMax = std::size_t{1} << 15U;
  /// The most registrations that register_again() sets aside because their keys must not be used,
  /// until the device gives another key.
  static constexpr std::size_t kMaxAside = 64;

  /// Remembers the key of a registration that is about to be deregistered. Without memory for it,
  /// nothing is remembered.
  void add(const verbs::MemoryRegion& memory) noexcept;
  /// Also remembers the keys that `other` remembers; only some of them when memory is short.
  void add_all(const GivenUpKeys& other) noexcept;
  /// Whether this registration would execute a request with a remembered key.
  [[nodiscard]] bool reaches(const verbs::MemoryRegion& memory) const;
  /// Registers `bytes` in `domain` so that no remembered key reaches them. `aside` gets the
  /// registrations that a remembered key reaches, also after an error: the caller deregisters them
  /// after this call, and checks whether the device does so. Errors: those of
  /// verbs::ProtectionDomain::register_bytes() and verbs::MemoryRegion::register_at().
  [[nodiscard]] Result<verbs::MemoryRegion> register_bytes(const verbs::ProtectionDomain& domain,
                                                           std::span<std::byte> bytes,
                                                           verbs::Access access,
                                                           std::vector<verbs::MemoryRegion>& aside);
  /// As register_bytes(), at `address`, which a client holds, and at no other address. While the
  /// device gives remembered keys, `bytes` are registered again, at most kMaxAside + 1 times at
  /// once. Errors: those of register_bytes(); kProvider: the device gives more than kMaxAside
  /// remembered keys.
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
  std::uint64_t moved_ REMORA_GUARDED_BY(mutex_) = 0;           ///< number of addresses used
};

}  // namespace remora::transport::rdma
