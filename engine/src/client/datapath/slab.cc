#include "client/datapath/slab.h"

#include <cerrno>
#include <linux/mman.h>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "base/core_dump.h"

namespace remora::detail {

namespace {
constexpr std::size_t round_up(std::size_t value, std::size_t unit) noexcept {
  return (value + unit - 1) / unit * unit;
}
}  // namespace

std::span<std::byte> Slab::map_huge(std::size_t size_bytes, const Placement* placement) noexcept {
  const std::size_t rounded = round_up(size_bytes, kHugePageBytes);
  // MAP_HUGETLB reserves the pages, so mmap(2) fails if they are not free.
  void* const address = ::mmap(nullptr, rounded, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
  if (address == MAP_FAILED) return {};
  const std::span bytes{static_cast<std::byte*>(address), rounded};
  (void)::madvise(address, rounded, MADV_DONTFORK);
  if (placement != nullptr) placement->place(bytes);
  // A limit of the cgroup or the cpuset would otherwise show only at the first access, as SIGBUS.
  if (::madvise(address, rounded, MADV_POPULATE_WRITE) != 0) {
    ::munmap(address, rounded);
    return {};
  }
  return bytes;
}

Result<Slab> Slab::map(std::size_t size_bytes, const SlabOptions& options) {
  const bool huge = options.huge_pages == HugePages::kAuto && size_bytes >= kHugePageBytes;
  if (huge)
    if (const auto bytes = map_huge(size_bytes, options.placement); !bytes.empty()) {
      keep_out_of_core_dumps(bytes, options.core_dump);
      return Slab{bytes, Pages::kHuge};
    }
  // 2 MiB more, so that the slab can begin at a multiple of 2 MiB.
  const std::size_t spare_bytes = huge ? kHugePageBytes : 0;
  void* const address = ::mmap(nullptr, size_bytes + spare_bytes, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return Error{Code::kOutOfMemory, "mmap"}.with_errno(errno).with_subject("slab of slots");
  auto* const begin = static_cast<std::byte*>(address);
  if (!huge) {
    if (size_bytes >= kHugePageBytes) (void)::madvise(begin, size_bytes, MADV_NOHUGEPAGE);
    if (options.placement != nullptr) options.placement->place({begin, size_bytes});
    keep_out_of_core_dumps({begin, size_bytes}, options.core_dump);
    return Slab{{begin, size_bytes}, Pages::kOrdinary};
  }
  const std::size_t place = reinterpret_cast<std::uintptr_t>(begin);
  const std::size_t lead_bytes = round_up(place, kHugePageBytes) - place;
  const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t kept_bytes = round_up(size_bytes, page_bytes);
  if (lead_bytes != 0) ::munmap(begin, lead_bytes);
  const std::size_t mapped_bytes = round_up(size_bytes + spare_bytes, page_bytes);
  if (const std::size_t tail_bytes = mapped_bytes - lead_bytes - kept_bytes; tail_bytes != 0)
    ::munmap(begin + lead_bytes + kept_bytes, tail_bytes);
  const bool taken = ::madvise(begin + lead_bytes, size_bytes, MADV_HUGEPAGE) == 0;
  if (options.placement != nullptr) options.placement->place({begin + lead_bytes, size_bytes});
  keep_out_of_core_dumps({begin + lead_bytes, size_bytes}, options.core_dump);
  return Slab{{begin + lead_bytes, size_bytes}, taken ? Pages::kTransparent : Pages::kOrdinary};
}

Slab::Slab(Slab&& other) noexcept : bytes_{std::exchange(other.bytes_, {})}, pages_{other.pages_} {}

Slab::~Slab() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace remora::detail
