#include "server/memory/orphaned_mappings.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <new>
#include <string>
#include <utility>

#include "base/log.h"

namespace remora::detail {

namespace {

/// Whether another process has the file open or mapped. The kernel grants a write lease only if no
/// other process has it open or mapped. Source: fcntl(2), F_SETLEASE.
bool held_elsewhere(int fd) noexcept {
  // If another process opens the file while this process holds the lease, the kernel sends a
  // signal, whose default action must not end the process.
  (void)::fcntl(fd, F_SETSIG, SIGURG);
  if (::fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
    (void)::fcntl(fd, F_SETLEASE, F_UNLCK);
    return false;
  }
  const bool unsupported = errno == EINVAL || errno == EACCES || errno == EPERM ||
                           errno == ENOSYS || errno == EOPNOTSUPP;
  if (!unsupported) return true;  // EAGAIN, or the kernel is out of memory: the caller asks again
  static const bool logged = [] {
    log::info({"shm.orphans_unknown", "errno"},
              "shm: this kernel does not tell which processes hold memory of removed regions "
              "(F_SETLEASE: "
              "errno {}): orphaned bytes are not counted",
              errno);
    return true;
  }();
  (void)logged;
  return false;
}

}  // namespace

UniqueFd OrphanedMappings::open_again(int fd) noexcept try {
  return UniqueFd{::open(("/proc/self/fd/" + std::to_string(fd)).c_str(), O_RDWR | O_CLOEXEC)};
} catch (const std::bad_alloc&) {
  return UniqueFd{};
}

void OrphanedMappings::add(UniqueFd again, std::uint64_t size_bytes) noexcept try {
  if (!again || !held_elsewhere(again.get())) return;
  const MutexLock lock{mutex_};
  if (all_.size() < kMaxFollowed)
    all_.push_back({.fd = std::move(again), .size_bytes = size_bytes});
  else
    log::warn({"shm.orphans_not_counted", "bytes"},
              "shm: {} bytes of a removed region are still mapped, with {} others: not counted",
              size_bytes, kMaxFollowed);
} catch (const std::bad_alloc&) {  // then the mapping is not counted
}

std::uint64_t OrphanedMappings::held_bytes() noexcept {
  const MutexLock lock{mutex_};
  std::uint64_t held = 0;
  for (OrphanedMapping& orphaned : all_) {
    orphaned.unheld = orphaned.unheld || !held_elsewhere(orphaned.fd.get());
    if (!orphaned.unheld) held += orphaned.size_bytes;
  }
  return held;
}

std::vector<UniqueFd> OrphanedMappings::take_unheld() noexcept try {
  const MutexLock lock{mutex_};
  std::vector<UniqueFd> unheld;
  unheld.reserve(all_.size());
  for (OrphanedMapping& orphaned : all_)
    if (orphaned.unheld) unheld.push_back(std::move(orphaned.fd));
  std::erase_if(all_, [](const OrphanedMapping& orphaned) { return orphaned.unheld; });
  return unheld;
} catch (const std::bad_alloc&) {  // then a later call takes them
  return {};
}

}  // namespace remora::detail
