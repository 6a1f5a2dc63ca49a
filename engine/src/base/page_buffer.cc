#include "base/page_buffer.h"

#include <sys/mman.h>

#include <remora/sanitizers.h>

namespace remora::detail {

namespace {

// AddressSanitizer checks accesses at the ends of allocations, not at those of mappings.
constexpr bool kMaps = REMORA_ADDRESS_SANITIZER == 0;

}  // namespace

PageBuffer::PageBuffer(std::size_t size_bytes) : size_{size_bytes} {
  if (size_bytes == 0) return;
  void* const pages = kMaps ? ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
                            : MAP_FAILED;
  mapped_ = pages != MAP_FAILED;
  // The kernel joins neighbouring buffers to one mapping. With a transparent huge page, the first
  // use of one buffer would make several resident until all of them are destroyed.
  if (mapped_) ::madvise(pages, size_bytes, MADV_NOHUGEPAGE);
  data_ = mapped_ ? static_cast<std::byte*>(pages) : new std::byte[size_bytes]();
}

void PageBuffer::release() noexcept {
  if (data_ == nullptr) return;
  if (mapped_)
    ::munmap(data_, size_);
  else
    delete[] data_;
}

}  // namespace remora::detail
