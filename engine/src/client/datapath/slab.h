#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/buffer.h>
#include <remora/result.h>

#include "base/placement.h"

namespace remora::detail {

/// Options for the mapping of a slab.
struct SlabOptions {
  HugePages huge_pages = HugePages::kAuto;
  const Placement* placement = nullptr;  ///< borrowed for the call; null: pages come from the node
                                         ///< of the thread that touches them first
  bool core_dump = false;                ///< core dumps of this process contain the slab
};

/// Owns an anonymous, page-aligned mapping. From 2 MiB on it uses huge pages, which need fewer
/// entries in the processor's TLB and in a device's translation tables. Not thread-safe.
class Slab {
 public:
  enum class Pages : std::uint8_t {
    kOrdinary,
    kTransparent,  ///< requested; the kernel may use them or not
    kHuge,         ///< explicit huge pages, all of them present
  };
  static constexpr std::size_t kHugePageBytes = std::size_t{2} << 20U;

  /// Maps at least `size_bytes`: explicit huge pages are mapped whole. Missing huge pages are no
  /// error: explicit ones are used if enough are free, else the mapping is aligned for transparent
  /// ones. A child of fork(2) has no copy of explicit huge pages, since a copy needs a page of the
  /// same reserve, and the kernel kills the writing process if there is none. Errors: kOutOfMemory.
  static Result<Slab> map(std::size_t size_bytes, const SlabOptions& options = {});
  ~Slab();
  Slab(Slab&& other) noexcept;
  Slab& operator=(Slab&&) = delete;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] Pages pages() const noexcept { return pages_; }

 private:
  Slab(std::span<std::byte> bytes, Pages pages) noexcept : bytes_{bytes}, pages_{pages} {}
  /// Maps explicit huge pages; empty if not enough are free.
  static std::span<std::byte> map_huge(std::size_t size_bytes, const Placement* placement) noexcept;
  std::span<std::byte> bytes_;
  Pages pages_;
};

}  // namespace remora::detail
