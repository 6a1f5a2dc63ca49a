#include "transport/shm/mapping.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utility>

#include <remora/start_thread.h>

namespace remora::transport {

Result<std::shared_ptr<Mapping>> Mapping::map(int descriptor, std::size_t size_bytes,
                                              int protection) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return Error{Code::kSystem, "fstat"}.with_errno(errno);
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  // Without the seal a peer could truncate the file and kill this process by SIGBUS.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<std::uint64_t>(status.st_size) < size_bytes)
    return Error{Code::kProtocol, "map shared memory"}.with_subject("unsealed or too short");
  void* address = ::mmap(nullptr, size_bytes, protection, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return Error{Code::kOutOfMemory, "mmap"}.with_errno(errno);
  return std::make_shared<Mapping>(static_cast<std::byte*>(address), size_bytes);
}

Mapping::~Mapping() {
  stop_.store(true, std::memory_order_relaxed);
  await_populated();
  ::munmap(address_, size_bytes_);
}

void Mapping::populate(Populate how, bool writes, std::size_t at_once_bytes) noexcept {
  ::madvise(address_, size_bytes_, MADV_HUGEPAGE);
  if (how == Populate::kNone) return;
  const int advice = writes ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  const std::size_t at_once =
      how == Populate::kNow ? size_bytes_ : std::min(size_bytes_, at_once_bytes);
  populate_range(0, at_once, advice);
  if (at_once == size_bytes_) return;
  auto thread = remora::detail::start_thread(
      "remora-populate", [this, at_once, advice] { populate_range(at_once, size_bytes_, advice); });
  if (thread) populating_ = std::move(*thread);
}

void Mapping::await_populated() noexcept {
  if (populating_.joinable()) populating_.join();
}

void Mapping::populate_range(std::size_t from, std::size_t to, int advice) noexcept {
  for (std::size_t at = from; at < to && !stop_.load(std::memory_order_relaxed); at += kStepBytes)
    if (::madvise(address_ + at, std::min(kStepBytes, to - at), advice) != 0 && errno != EINTR)
      return;  // no memory for page tables, or a kernel before 5.14
}

}  // namespace remora::transport
