#pragma once

/// MemoryRegion: memory pinned and known to the NIC.
///
/// | made by          | the bytes                                                               |
/// |------------------|-------------------------------------------------------------------------|
/// | `register_bytes` | borrowed: they must outlive the region                                  |
/// | `register_owned` | of a container that is moved in and destroyed with the region |
/// | `allocate`       | the region's own, zeroed, aligned to pages                              |
/// | `register_at`    | borrowed, under an address of the caller's choice (iova)                |
/// | `register_dmabuf`| of a device's or another process's buffer; not in this address space |
/// | `adopt` | of a registration that other code of the process has made |
///
/// The region must outlive every posted request that names its keys. If the deregistration fails,
/// bytes that a region owns are never freed: the NIC may still access them.
///
/// Thread safety: const calls are safe concurrently.

#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>
#include <memory>
#include <ostream>
#include <ranges>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include <remora/result.h>
#include <remora/verbs/access.h>
#include <remora/verbs/format.h>
#include <remora/verbs/protection_domain.h>
#include <remora/verbs/slice.h>

namespace remora::verbs {

namespace detail {
class WindowSet;
}

/// Advice about ranges that will be used. Source: ibv_advise_mr(3).
enum class Advice : std::uint8_t {
  kPrefetch,         ///< on-demand pages, for reading
  kPrefetchWrite,    ///< on-demand pages, for writing
  kPrefetchNoFault,  ///< pages that exist already, for reading
};
/// "prefetch" and so on.
[[nodiscard]] std::string_view to_string(Advice advice) noexcept;

/// See the top of this file. Move-only; keeps its domain. Destroying it deregisters the memory.
class MemoryRegion {
 public:
  /// Registers `bytes` (non-empty) for `access`. Blocks while pages are pinned: control path only.
  ///
  /// Remote write and remote atomic need local write, by the specification. Errors:
  /// kInvalidArgument (empty, wraps around, access without a needed kLocalWrite); kLimitExceeded
  /// (longer than the device's max_mr_bytes); kOutOfMemory, with Reason::kMemlock and asked() and
  /// allowed() in bytes if RLIMIT_MEMLOCK is the cause; kUnsupported (kOnDemand, and the device has
  /// no on-demand paging); kProvider (errno kept). Source: ibv_reg_mr(3).
  [[nodiscard]] static Result<MemoryRegion> register_bytes(const ProtectionDomain& domain,
                                                           std::span<std::byte> bytes,
                                                           Access access);

  /// Takes over a container of trivially copyable elements (a std::vector, a std::string, ...); it
  /// is destroyed after the deregistration. The move must not change the place of its bytes.
  /// Errors: as register_bytes; the container is gone then.
  template <std::ranges::contiguous_range Container>
  [[nodiscard]] static Result<MemoryRegion> register_owned(const ProtectionDomain& domain,
                                                           Container&& container, Access access)  //
      requires(!std::is_lvalue_reference_v<Container> &&
               std::is_trivially_copyable_v<std::ranges::range_value_t<Container>>) {
    auto kept = std::make_unique<Kept<Container>>(std::forward<Container>(container));
    const auto bytes = std::as_writable_bytes(std::span{kept->container});
    return register_kept(domain, bytes, access, std::move(kept));
  }

  /// `length_bytes` zeroed bytes of its own, aligned to pages.
  /// Errors: as register_bytes; kOutOfMemory.
  [[nodiscard]] static Result<MemoryRegion> allocate(const ProtectionDomain& domain,
                                                     std::size_t length_bytes, Access access);

  /// Registers `bytes` under the address `iova` instead of their own: slices of this region, local
  /// and remote, begin there. Both addresses must have the same offset in a page. With
  /// Access::kZeroBased `register_bytes` does this with 0, for bytes that begin at a page. Errors:
  /// as register_bytes; kInvalidArgument (iova that wraps, or has another offset in a page).
  /// Source: ibv_reg_mr_iova(3).
  [[nodiscard]] static Result<MemoryRegion> register_at(const ProtectionDomain& domain,
                                                        std::span<std::byte> bytes,
                                                        std::uint64_t iova, Access access);

  /// A part of a dma-buf, for instance of a GPU; `fd` is needed during the call only. `bytes()` is
  /// empty. Errors: kInvalidArgument (no bytes, no descriptor); kUnsupported (device or kernel);
  /// kOutOfMemory; kProvider (errno kept; EINVAL if it is not a dma-buf). Source:
  /// ibv_reg_dmabuf_mr(3).
  [[nodiscard]] static Result<MemoryRegion> register_dmabuf(const ProtectionDomain& domain, int fd,
                                                            std::uint64_t offset_bytes,
                                                            std::size_t length_bytes,
                                                            std::uint64_t iova, Access access);

  /// Takes over a registration made elsewhere in `domain`; it is deregistered with the region.
  /// Errors: kInvalidArgument (null, of another domain).
  [[nodiscard]] static Result<MemoryRegion> adopt(const ProtectionDomain& domain, ibv_mr* region,
                                                  Access access);

  /// Advises the device about ranges of one domain, before they are used. With `wait` it blocks
  /// until that is done. Errors: kInvalidArgument (no ranges, an invalid slice); kUnsupported (most
  /// devices without on-demand paging); kProvider (errno kept). Source: ibv_advise_mr(3).
  static Status advise(const ProtectionDomain& domain, Advice advice,
                       std::span<const LocalSlice> ranges, bool wait = false);

  /// The key for requests of this process.
  [[nodiscard]] std::uint32_t lkey() const noexcept { return mr_->lkey; }
  /// The key for peers. Useful only with remote rights.
  [[nodiscard]] std::uint32_t rkey() const noexcept { return mr_->rkey; }
  /// The address at which slices begin: the bytes' own, or the iova under which they were
  /// registered.
  [[nodiscard]] std::uint64_t address() const noexcept { return iova_; }
  /// Bytes that are registered.
  [[nodiscard]] std::uint64_t length_bytes() const noexcept { return mr_->length; }
  /// Empty for a dma-buf.
  [[nodiscard]] std::span<std::byte> bytes() const noexcept {
    if (!mapped_) return {};
    return {static_cast<std::byte*>(mr_->addr), mr_->length};
  }
  /// The rights with which it was registered.
  [[nodiscard]] Access access() const noexcept { return access_; }
  /// The domain that the region keeps alive; valid as long as the region.
  [[nodiscard]] const ProtectionDomain& domain() const noexcept { return mr_.get_deleter().domain; }

  /// `length_bytes` (at most 4 GiB - 1) from `offset_bytes`. If the bytes are not all inside the
  /// region, the slice is invalid, and every post refuses it with kOutOfRange.
  [[nodiscard]] LocalSlice slice(std::uint64_t offset_bytes,
                                 std::uint64_t length_bytes) const noexcept {
    const std::uint64_t whole = mr_->length;
    if (offset_bytes > whole || length_bytes > whole - offset_bytes || length_bytes > UINT32_MAX)
      return LocalSlice::invalid();
    return LocalSlice::unchecked(address() + offset_bytes, static_cast<std::uint32_t>(length_bytes),
                                 mr_->lkey);
  }
  /// slice(), with the bounds checked at once. Errors: kOutOfRange.
  [[nodiscard]] Result<LocalSlice> checked_slice(std::uint64_t offset_bytes,
                                                 std::uint64_t length_bytes) const;

  /// The address and key that a peer needs for these bytes. Useful only with remote rights.
  [[nodiscard]] RemoteSlice remote(std::uint64_t offset_bytes,
                                   std::uint64_t length_bytes) const noexcept {
    return remote().slice(offset_bytes, length_bytes);
  }
  /// The same for the whole region.
  [[nodiscard]] RemoteSlice remote() const noexcept { return {address(), mr_->length, mr_->rkey}; }

  /// Deregisters now and returns the outcome; the destructor can only report it. After a failure
  /// the registration stays in the kernel until the process ends. Errors: kProvider (errno kept).
  Status deregister() &&;

  /// Borrowed; never deregister it.
  [[nodiscard]] ibv_mr* raw() const noexcept { return mr_.get(); }

 private:
  friend class MemoryWindow;
  struct Keeper {  ///< owned bytes
    virtual ~Keeper() = default;
    Keeper* next = nullptr;
  };
  template <typename Container>
  struct Kept : Keeper {
    explicit Kept(Container&& moved) : container{std::move(moved)} {}
    Container container;
  };
  struct Deregister {  ///< holds the parent, so a region always goes before its domain
    ProtectionDomain domain;
    std::shared_ptr<detail::WindowSet> windows;  ///< null without kWindowBind
    std::unique_ptr<Keeper> keeper;
    void operator()(ibv_mr* mr) noexcept;
    [[nodiscard]] int deregister(ibv_mr* mr) noexcept;
  };
  static Result<MemoryRegion> register_kept(const ProtectionDomain& domain,
                                            std::span<std::byte> bytes, Access access,
                                            std::unique_ptr<Keeper> keeper);
  static Result<MemoryRegion> make(ibv_mr* mr, const ProtectionDomain& domain, Access access,
                                   std::uint64_t iova, std::unique_ptr<Keeper> keeper);
  MemoryRegion(std::unique_ptr<ibv_mr, Deregister> mr, Access access, std::uint64_t iova) noexcept
      : mr_{std::move(mr)}, iova_{iova}, access_{access} {}

  std::unique_ptr<ibv_mr, Deregister> mr_;
  std::uint64_t iova_;
  Access access_;
  bool mapped_ = true;  ///< false: no bytes of this process
};

/// "4096 bytes at 0x7f... local-write|remote-read lkey 5 rkey 5".
std::ostream& operator<<(std::ostream& out, const MemoryRegion& region);

}  // namespace remora::verbs
