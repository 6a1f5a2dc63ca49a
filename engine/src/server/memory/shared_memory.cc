#include "server/memory/shared_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>
#include <utility>

#include <remora/sanitizers.h>
#include <remora/system_file.h>

#include "base/core_dump.h"
#include "base/parallel_steps.h"

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

/// Maps at `address`, if it is not 0 and free; otherwise anywhere. MAP_FAILED: errno is set.
void* map_shared(int fd, std::uint64_t size_bytes, std::uint64_t address) noexcept {
  if (address != 0) {
    void* const wanted = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
    void* const found =
        ::mmap(wanted, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    if (found == wanted) return found;
    if (found != MAP_FAILED) ::munmap(found, size_bytes);
  }
  return ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
}

}  // namespace

std::uint64_t SharedMemory::lasting_address() noexcept {
  // ThreadSanitizer has shadow memory for other addresses only, and no memory can be mapped at
  // these.
  if constexpr (REMORA_THREAD_SANITIZER != 0) return 0;
  // In 47 bits of addresses, programs and their heaps start at 0x5555..., libraries and stacks are
  // at the end.
  constexpr std::uint64_t kFirst = 0x2000'0000'0000;
  constexpr std::uint64_t kStep = 1ULL << 30U;
  constexpr std::uint64_t kSteps = 1ULL << 15U;  // 32 TiB
  std::uint64_t drawn = 0;
  if (::getrandom(&drawn, sizeof drawn, 0) != sizeof drawn) return 0;
  return kFirst + drawn % kSteps * kStep;
}

Result<SharedMemory> SharedMemory::adopt(UniqueFd fd, std::uint64_t size_bytes,
                                         std::optional<bool> huge, std::uint64_t address,
                                         bool core_dump) {
  const Error wrong{Code::kProtocol, "memory of the process before"};
  struct stat status {};
  struct statfs system {};
  if (::fstat(fd.get(), &status) != 0 || ::fstatfs(fd.get(), &system) != 0)
    return failed("fstat", "memory of the process before", size_bytes);
  constexpr int kWanted = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  const int seals = ::fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kWanted) != kWanted) return wrong.with_subject("a memfd without seals");
  if (static_cast<std::uint64_t>(status.st_size) != size_bytes)
    return wrong.with_subject("a memfd of another length")
        .with_limit(static_cast<std::uint64_t>(status.st_size), size_bytes);
  const bool is_huge = static_cast<std::uint64_t>(system.f_type) == HUGETLBFS_MAGIC;
  if (huge && *huge != is_huge) return wrong.with_subject("a memfd of other pages");
  void* const found = map_shared(fd.get(), size_bytes, address);
  if (found == MAP_FAILED) return failed("mmap", "memory of the process before", size_bytes);
  SharedMemory made{std::move(fd), {static_cast<std::byte*>(found), size_bytes}, is_huge};
  keep_out_of_core_dumps(made.bytes(), core_dump);
  return made;
}

Result<SharedMemory> SharedMemory::create(const char* name, std::uint64_t size_bytes,
                                          config::HugePages huge_pages, bool populate,
                                          const Placement& placement, const PopulateSteps& steps,
                                          bool core_dump, std::uint64_t address) {
  const auto place = [&](std::span<std::byte> bytes) {
    keep_out_of_core_dumps(bytes, core_dump);
    if (placement.memory_node()) placement.place(bytes);
  };
  const bool gib = huge_pages == config::HugePages::kRequire1GiB;
  const bool fits = size_bytes % (gib ? config::kGibPageBytes : config::kHugePageBytes) == 0;
  if (huge_pages != config::HugePages::kNever && fits) {
    Status populated = ok_status();
    const unsigned size_flag = gib ? unsigned{MFD_HUGE_1GB} : unsigned{MFD_HUGE_2MB};
    UniqueFd fd{::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB | size_flag)};
    if (fd && ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) == 0) {
      void* const found = map_shared(fd.get(), size_bytes, address);
      if (found != MAP_FAILED) {
        SharedMemory made{std::move(fd), {static_cast<std::byte*>(found), size_bytes}, true};
        place(made.bytes());
        // Missing huge pages are noticed only when they are touched.
        populated = made.populate(0, size_bytes, steps, placement);
        if (!populated && populated.error().code() == Code::kCancelled) return populated.error();
        if (populated) {
          ::fchmod(made.fd(), 0600);
          ::fcntl(made.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
          return made;
        }
      }
    }
    if (!populated) errno = populated.error().system_errno();  // perhaps of another thread
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
  // Mode 0600 before any other process can get the descriptor, so that no other user can open it
  // again.
  if (::fchmod(fd.get(), 0600) != 0 || ::ftruncate(fd.get(), static_cast<off_t>(size_bytes)) != 0)
    return failed("ftruncate", name, size_bytes);
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failed("fcntl(F_ADD_SEALS)", name, size_bytes);
  void* const found = map_shared(fd.get(), size_bytes, address);
  if (found == MAP_FAILED) return failed("mmap", name, size_bytes);
  SharedMemory made{std::move(fd), {static_cast<std::byte*>(found), size_bytes}, false};
  place(made.bytes());
  if (huge_pages != config::HugePages::kNever) ::madvise(found, size_bytes, MADV_HUGEPAGE);
  if (populate)
    if (auto status = made.populate(0, size_bytes, steps, placement); !status)
      return status.error();
  return made;
}

std::uint64_t SharedMemory::page_bytes() const noexcept {
  struct statfs system {};
  return ::fstatfs(fd_.get(), &system) == 0 ? static_cast<std::uint64_t>(system.f_bsize) : 0;
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
                              const PopulateSteps& steps, const Placement& placement) const {
  constexpr std::uint64_t kStep = PopulateSteps::kStepBytes;
  // The last step is usually shorter.
  const auto bytes_of = [length_bytes](std::size_t done) {
    return std::min(done * kStep, length_bytes);
  };
  StepOptions options{
      .threads_max = std::min<std::uint64_t>(
          steps.threads_max, length_bytes / std::max<std::uint64_t>(steps.thread_bytes, 1)),
      .stop = steps.stop,
      .on_thread = [&placement] { placement.bind_thread(); }};
  if (!placement.processors().empty())
    options.threads_max = std::min(options.threads_max, placement.processors().size());
  if (steps.on_step) options.on_step = [&](std::size_t done) { steps.on_step(bytes_of(done)); };
  const auto populate_one = [&](std::size_t index) -> Status {
    const std::uint64_t at = index * kStep;
    const std::uint64_t part = std::min(kStep, length_bytes - at);
    if (::madvise(bytes_.data() + offset_bytes + at, part, MADV_POPULATE_WRITE) != 0)
      return failed("madvise(MADV_POPULATE_WRITE)", "pool", length_bytes);
    return {};
  };
  const StepsDone made = run_steps((length_bytes + kStep - 1) / kStep, populate_one, options);
  if (made.failed) return *made.failed;
  if (!made.stopped) return {};
  return Error{Code::kCancelled, "populate memory"}.with_limit(length_bytes, bytes_of(made.done));
}

}  // namespace remora::detail
