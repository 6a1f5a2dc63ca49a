#include "transport/shm/mapping.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

#include <remora/start_thread.h>

namespace remora::transport {

namespace {

/// The number of threads of this process that populate at this moment. A child of fork may start
/// fewer.
std::atomic<unsigned> populating_count{0};

/// Whether the memory of all pages of the range exists already. Source: mincore(2).
bool all_exist(std::byte* begin, std::size_t size_bytes) noexcept {
  static const auto page_bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::array<unsigned char, Mapping::kStepBytes / 4096> pages{};  // 4096: the smallest page
  if (::mincore(begin, size_bytes, pages.data()) != 0) return false;
  const std::size_t count = (size_bytes + page_bytes - 1) / page_bytes;
  return std::all_of(pages.begin(), pages.begin() + static_cast<std::ptrdiff_t>(count),
                     [](unsigned char page) { return (page & 1U) != 0; });
}

}  // namespace

Result<std::shared_ptr<Mapping>> Mapping::map(int descriptor, std::size_t size_bytes,
                                              int protection) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return Error{Code::kSystem, "fstat"}.with_errno(errno);
  const int seals = ::fcntl(descriptor, F_GET_SEALS);
  // Without the seal a peer could truncate the file and kill this process by SIGBUS.
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 ||
      static_cast<std::uint64_t>(status.st_size) < size_bytes)
    return Error{Code::kProtocol, "map shared memory"}.with_subject("unsealed or too short");
  struct statfs files {};
  const bool huge = ::fstatfs(descriptor, &files) == 0 &&
                    static_cast<std::uint64_t>(files.f_type) == HUGETLBFS_MAGIC;
  // A file of explicit huge pages has whole huge pages, and munmap(2) and madvise(2) accept no
  // parts of them.
  const std::size_t page_bytes = huge ? static_cast<std::size_t>(files.f_bsize) : 1;
  const std::size_t whole_bytes = (size_bytes + page_bytes - 1) / page_bytes * page_bytes;
  void* address = ::mmap(nullptr, whole_bytes, protection, MAP_SHARED, descriptor, 0);
  if (address == MAP_FAILED) return Error{Code::kOutOfMemory, "mmap"}.with_errno(errno);
  return std::make_shared<Mapping>(static_cast<std::byte*>(address), whole_bytes, huge);
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
  // The server has all explicit huge pages from the beginning, and mincore(2) does not see them.
  const Missing missing = how == Populate::kNow || huge_ ? Missing::kMake : Missing::kLeave;
  populate_range(0, at_once, advice, missing);
  if (at_once == size_bytes_) return;
  if (populating_count.fetch_add(1, std::memory_order_relaxed) < kMaxThreads) {
    auto thread = remora::detail::start_thread("remora-populate", [this, at_once, advice, missing] {
      populate_range(at_once, size_bytes_, advice, missing);
      populating_count.fetch_sub(1, std::memory_order_relaxed);
    });
    if (thread) {
      populating_ = std::move(*thread);
      return;
    }
  }
  populating_count.fetch_sub(1, std::memory_order_relaxed);
}

void Mapping::await_populated() noexcept {
  if (populating_.joinable()) populating_.join();
}

void Mapping::populate_range(std::size_t from, std::size_t to, int advice,
                             Missing missing) noexcept {
  for (std::size_t at = from; at < to && !stop_.load(std::memory_order_relaxed); at += kStepBytes) {
    const std::size_t length = std::min(kStepBytes, to - at);
    if (missing == Missing::kLeave && !all_exist(address_ + at, length)) continue;
    if (::madvise(address_ + at, length, advice) != 0 && errno != EINTR)
      return;  // out of memory for page tables, or a kernel before 5.14
  }
}

}  // namespace remora::transport
