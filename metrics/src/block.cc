#include "block.h"

#include <sys/mman.h>

namespace remora::metrics {

Block::Block(std::size_t cells) noexcept {
  void* const pages = ::mmap(nullptr, cells * sizeof(std::uint64_t), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return;
  cells_ = static_cast<std::uint64_t*>(pages);
  count_ = cells;
}

Block::~Block() {
  if (cells_ != nullptr) ::munmap(cells_, count_ * sizeof(std::uint64_t));
}

}  // namespace remora::metrics
