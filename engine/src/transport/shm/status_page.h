#pragma once

/// The server's side of the page that shm clients map.

#include <cerrno>
#include <fcntl.h>
#include <memory>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <remora/result.h>

#include "base/unique_fd.h"
#include "transport/shm/identity.h"
#include "transport/shm/socket.h"

namespace remora::transport {

/// The page that tells clients whether the server still serves; its state becomes kStopped when the
/// listener is destroyed.
class StatusPage {
 public:
  static Result<std::shared_ptr<StatusPage>> create(const ShmIdentity& identity) {
    UniqueFd memory{::memfd_create("remora-status", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (!memory) return Error{Code::kSystem, "memfd_create"}.with_errno(errno);
    if (::ftruncate(memory.get(), kShmStatusPageBytes) != 0 || ::fchmod(memory.get(), 0600) != 0)
      return Error{Code::kSystem, "status page"}.with_errno(errno);
    void* address =
        ::mmap(nullptr, kShmStatusPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (address == MAP_FAILED) return Error{Code::kOutOfMemory, "mmap"}.with_errno(errno);
    auto page =
        std::make_shared<StatusPage>(std::move(memory), static_cast<ShmStatusPage*>(address));
    page->page_->identity = identity;
    // The descriptor that clients get does not allow them to write, unless they open the file
    // again.
    if (::fcntl(page->memory_.get(), F_ADD_SEALS,
                F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) != 0)
      return Error{Code::kSystem, "fcntl(F_ADD_SEALS)"}.with_errno(errno);
    return page;
  }
  StatusPage(UniqueFd memory, ShmStatusPage* page) noexcept
      : memory_{std::move(memory)}, page_{page} {
    set(ShmStatusPage::kServing);
  }
  ~StatusPage() {
    if (!handed_over_) set(ShmStatusPage::kStopped);
    ::munmap(page_, kShmStatusPageBytes);
  }
  StatusPage(const StatusPage&) = delete;
  StatusPage& operator=(const StatusPage&) = delete;

  /// The next process serves the same memory: clients continue to use their mappings.
  void hand_over() noexcept { handed_over_ = true; }
  void set(ShmStatusPage::State state) noexcept {
    __atomic_store_n(&page_->state, state, __ATOMIC_SEQ_CST);
  }
  [[nodiscard]] Result<UniqueFd> descriptor() const noexcept {
    UniqueFd copy{::fcntl(memory_.get(), F_DUPFD_CLOEXEC, 0)};
    if (!copy) return Error{Code::kSystem, "dup"}.with_errno(errno);
    return copy;
  }

 private:
  UniqueFd memory_;
  ShmStatusPage* page_;
  bool handed_over_ = false;
};

}  // namespace remora::transport
