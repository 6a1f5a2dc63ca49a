#pragma once

/// MemoryRegion: memory pinned and known to the NIC. Owns the registration, not the bytes.
///
/// The bytes must outlive the region, and the region every posted request that names its keys.
/// Thread safety: const calls are safe concurrently.

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <span>

#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/slice.h>

namespace remora::verbs {

class MemoryRegion {
 public:
  /// Registers `bytes` (non-empty) for `access`. Blocks while pages are pinned: control path only.
  ///
  /// Remote write and remote atomic need local write, as the specification has it.
  /// Errors: kInvalidArgument (empty, wraps around, access without kLocalWrite where it is
  /// needed); kLimitExceeded (longer than the device's max_mr_bytes); kOutOfMemory, with
  /// Reason::kMemlock and asked() and allowed() in bytes where RLIMIT_MEMLOCK is the cause;
  /// kProvider (errno kept). Source: ibv_reg_mr(3).
  [[nodiscard]] static Result<MemoryRegion> register_bytes(const ProtectionDomain& domain,
                                                           std::span<std::byte> bytes,
                                                           Access access);

  [[nodiscard]] std::uint32_t lkey() const noexcept { return mr_->lkey; }
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mr_->rkey; }
  [[nodiscard]] std::uint64_t address() const noexcept {
    return reinterpret_cast<std::uintptr_t>(mr_->addr);
  }
  [[nodiscard]] std::uint64_t length_bytes() const noexcept { return mr_->length; }
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    return {static_cast<std::byte*>(mr_->addr), mr_->length};
  }
  [[nodiscard]] Access access() const noexcept { return access_; }
  [[nodiscard]] const ProtectionDomain& domain() const noexcept { return mr_.get_deleter().domain; }

  /// `length_bytes` (at most 4 GiB - 1) from `offset_bytes`. Bytes that are not all inside give an
  /// invalid slice, which every post refuses with kOutOfRange.
  [[nodiscard]] LocalSlice slice(std::uint64_t offset_bytes,
                                 std::uint64_t length_bytes) const noexcept {
    const std::uint64_t whole = mr_->length;
    if (offset_bytes > whole || length_bytes > whole - offset_bytes || length_bytes >= UINT32_MAX)
      return LocalSlice::invalid();
    return LocalSlice::unchecked(address() + offset_bytes, static_cast<std::uint32_t>(length_bytes),
                                 mr_->lkey);
  }
  /// slice(), with the bounds checked at once. Errors: kOutOfRange.
  [[nodiscard]] Result<LocalSlice> checked_slice(std::uint64_t offset_bytes,
                                                 std::uint64_t length_bytes) const;

  /// What a peer needs to reach these bytes; it must carry remote rights to be of use.
  [[nodiscard]] RemoteSlice remote(std::uint64_t offset_bytes,
                                   std::uint64_t length_bytes) const noexcept {
    return remote().slice(offset_bytes, length_bytes);
  }
  [[nodiscard]] RemoteSlice remote() const noexcept { return {address(), mr_->length, mr_->rkey}; }

  /// Deregisters now and says how it went; the destructor can only report. After a failure the
  /// registration stays in the kernel until the process ends.
  /// Errors: kProvider (errno kept).
  Status deregister() &&;

  /// Borrowed; never deregister it.
  [[nodiscard]] ibv_mr* raw() const noexcept { return mr_.get(); }

 private:
  struct Deregister {  // holds the parent, so a region always goes before its domain
    ProtectionDomain domain;
    void operator()(ibv_mr* mr) const noexcept;
  };
  MemoryRegion(ibv_mr* mr, const ProtectionDomain& domain, Access access) noexcept
      : mr_{mr, Deregister{domain}}, access_{access} {}

  std::unique_ptr<ibv_mr, Deregister> mr_;
  Access access_;
};

}  // namespace remora::verbs
