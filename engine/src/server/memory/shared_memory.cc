#include "server/memory/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <remora/system_file.h>

#include "base/core_dump.h"

namespace remora::detail {

std::uint64_t available_memory_bytes() {
  std::uint64_t available = 0;
  std::istringstream meminfo{read_file("/proc/meminfo").value_or("")};
  for (std::string key; meminfo >> key;) {
    std::uint64_t kibibytes = 0;
    if (key == "MemAvailable:" && meminfo >> kibibytes) available = kibibytes * 1024;
    meminfo.ignore(256, '\n');
  }
  return available;
}

namespace {

Error failed(Operation operation, const char* name, std::uint64_t size_bytes) {
  const int system_errno = errno;
  const bool memory = system_errno == ENOMEM || system_errno == ENOSPC || system_errno == EFAULT;
  return Error{memory ? Code::kOutOfMemory : Code::kSystem, operation}
      .with_subject(name)
      .with_errno(system_errno)
      .with_limit(size_bytes, available_memory_bytes());
}

}  // namespace

Result<SharedMemory> SharedMemory::create(const char* name, std::uint64_t size_bytes,
                                          config::HugePages huge_pages, bool populate,
                                          const Placement& placement, const PopulateSteps& steps,
                                          bool core_dump) {
  const auto place = [&](std::span<std::byte> bytes) {
    keep_out_of_core_dumps(bytes, core_dump);
    if (placement.memory_node()) placement.place(bytes);
  };
  const bool gib = huge_pages == config::HugePages::kRequire1GiB;
  const bool fits = size_bytes % (gib ? config::kGibPageBytes : config::kHugePageBytes) == 0;
  if (huge_pages != config::HugePages::kNever && fits) {
    const unsigned size_flag = gib ? unsigned{MFD_HUGE_1GB} : unsigned{MFD_HUGE_2MB};
    UniqueFd fd{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | size_flag)};
    if (fd && ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0) {
      void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
      if (address != MAP_FAILED) {
        SharedMemory made{std::move(fd), {static_cast<std::byte*>(address), size_bytes}, true};
        place(made.bytes());
        // Huge pages that are missing show only when they are touched.
        const Status populated = made.populate(0, size_bytes, steps);
        if (!populated && populated.error().code() == Code::kCancelled) return populated.error();
        if (populated) {
          ::fchmod(made.fd(), 0600);
          ::fcntl(made.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
          return made;
        }
      }
    }
    if (huge_pages == config::HugePages::kRequire)
      return failed("huge pages (vm.nr_hugepages)", name, size_bytes);
    if (gib) return failed("1 GiB pages (hugepages-1048576kB)", name, size_bytes);
  } else if (gib) {
    return Error{Code::kInvalidArgument, "huge pages"}.with_subject("size is no multiple of 1 GiB");
  } else if (huge_pages == config::HugePages::kRequire) {
    return Error{Code::kInvalidArgument, "huge pages"}.with_subject("size is no multiple of 2 MiB");
  }
  UniqueFd fd{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  if (!fd) return failed("memfd_create", name, size_bytes);
  // Mode 0600 before any other process can have the descriptor: no other user can open it again.
  if (::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0)
    return failed("ftruncate", name, size_bytes);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failed("fcntl(F_ADD_SEALS)", name, size_bytes);
  void* address = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) return failed("mmap", name, size_bytes);
  SharedMemory made{std::move(fd), {static_cast<std::byte*>(address), size_bytes}, false};
  place(made.bytes());
  if (huge_pages != config::HugePages::kNever) ::madvise(address, size_bytes, MADV_HUGEPAGE);
  if (populate)
    if (auto status = made.populate(0, size_bytes, steps); !status) return status.error();
  return made;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : fd_{std::move(other.fd_)}, bytes_{std::exchange(other.bytes_, {})}, huge_{other.huge_} {}

SharedMemory::~SharedMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Status SharedMemory::punch(std::uint64_t offset_bytes, std::uint64_t length_bytes) const noexcept {
  if (::fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(offset_bytes), static_cast<off_t>(length_bytes)) == 0)
    return {};
  return Error{Code::kSystem, "fallocate(PUNCH_HOLE)"}.with_errno(errno);
}

Status SharedMemory::populate(std::uint64_t offset_bytes, std::uint64_t length_bytes,
                              const PopulateSteps& steps) const {
  std::uint64_t done = 0;
  while (done < length_bytes) {
    if (steps.on_step) steps.on_step(done);
    if (steps.stop.stop_requested())
      return Error{Code::kCancelled, "populate memory"}.with_limit(length_bytes, done);
    const std::uint64_t step = std::min(PopulateSteps::kStepBytes, length_bytes - done);
    if (::madvise(bytes_.data() + offset_bytes + done, step, MADV_POPULATE_WRITE) != 0)
      return failed("madvise(MADV_POPULATE_WRITE)", "pool", length_bytes);
    done += step;
  }
  if (steps.on_step) steps.on_step(done);
  return {};
}

}  // namespace remora::detail
