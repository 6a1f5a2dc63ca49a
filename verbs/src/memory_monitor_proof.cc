#include "memory_monitor_proof.h"

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

#include <remora/start_thread.h>

namespace remora::verbs::detail {
namespace {

constexpr int kProofWaitMs = 2000;

/// Two threads unmap a page each before the monitor reads a report.
class Proof {
 public:
  explicit Proof(int userfault) noexcept
      : userfault_{userfault}, page_{static_cast<std::size_t>(::sysconf(_SC_PAGESIZE))} {}
  Proof(const Proof&) = delete;
  Proof& operator=(const Proof&) = delete;
  ~Proof() {
    if (!passed_) ::close(userfault_);  // lets the threads continue
    for (auto& thread : unmappers_)
      if (thread.joinable()) thread.join();
    if (pages_ == nullptr) return;
    // Stops watching the rest, since no thread reads reports yet. If a thread has unmapped a page,
    // other memory of the process may be at its address by now.
    uffdio_range middle{reinterpret_cast<std::uintptr_t>(pages_ + page_), page_};
    if (passed_) ::ioctl(userfault_, UFFDIO_UNREGISTER, &middle);
    ::munmap(pages_ + page_, page_);
    for (std::size_t i = 0; i < unmappers_.size(); ++i)
      if (!started_[i]) ::munmap(place(i), page_);
  }

  /// Null: passed.
  const char* run() {
    void* const mapped =
        ::mmap(nullptr, 3 * page_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return "no memory for the proof";
    pages_ = static_cast<std::byte*>(mapped);
    for (std::size_t i = 0; i < unmappers_.size(); ++i)
      *place(i) = std::byte{1};  // see wait_gone()
    uffdio_register request{};
    request.range = {reinterpret_cast<std::uintptr_t>(pages_), 3 * page_};
    request.mode = UFFDIO_REGISTER_MODE_WP;
    if (::ioctl(userfault_, UFFDIO_REGISTER, &request) != 0)
      return "userfaultfd: the kernel does not register memory in write-protect mode";
    if (ask() != EINVAL) return "userfaultfd: an unknown answer where nothing changes";
    for (std::size_t i = 0; i < unmappers_.size(); ++i) {
      auto unmapper =
          remora::detail::start_thread("remora-proof", [this, i] { ::munmap(place(i), page_); });
      if (!unmapper) return "userfaultfd: no thread for the proof: a limit on threads is reached";
      unmappers_[i] = std::move(*unmapper);
      started_[i] = true;
      wait_gone(i);
    }
    for (int i = 0; i < 2; ++i) {
      // The second thread still waits after the first report was read and the first thread has
      // continued.
      if (ask() != EAGAIN) return "userfaultfd: the kernel does not say that a change waits";
      if (!read_one()) return "userfaultfd: munmap by another thread is not reported";
    }
    if (ask() != EINVAL) return "userfaultfd: a change waits for ever";
    passed_ = true;
    return nullptr;
  }

 private:
  [[nodiscard]] std::byte* place(std::size_t index) const { return pages_ + 2 * index * page_; }
  [[nodiscard]] int ask() const noexcept {
    uffdio_writeprotect nothing{};
    return ::syscall(SYS_ioctl, userfault_, UFFDIO_WRITEPROTECT, &nothing) == 0 ? 0 : errno;
  }
  /// Waits until the page is unmapped, or the bytes at its address were not written here: they are
  /// another thread's then. If they were written, this waits in vain; the caller checks afterwards
  /// whether munmap was reported.
  void wait_gone(std::size_t index) const {
    unsigned char present = 0;
    for (int waited_ms = 0; waited_ms < kProofWaitMs; ++waited_ms) {
      if (::mincore(place(index), page_, &present) != 0 || (present & 1U) == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }
  bool read_one() {
    pollfd waited{userfault_, POLLIN, 0};
    uffd_msg message{};
    if (::poll(&waited, 1, kProofWaitMs) != 1 ||
        ::read(userfault_, &message, sizeof(message)) != sizeof(message) ||
        message.event != UFFD_EVENT_UNMAP)
      return false;
    for (std::size_t i = 0; i < unmappers_.size(); ++i) {
      if (message.arg.remove.start != reinterpret_cast<std::uintptr_t>(place(i))) continue;
      if (unmappers_[i].joinable()) unmappers_[i].join();
      return true;
    }
    return false;
  }

  int userfault_;
  std::size_t page_;
  std::byte* pages_ = nullptr;
  std::array<std::thread, 2> unmappers_;
  std::array<bool, 2> started_{};
  bool passed_ = false;
};

}  // namespace

bool prove_monitoring(int userfault, std::string& why) {
  Proof proof{userfault};
  const char* const failed = proof.run();
  if (failed != nullptr) why = failed;
  return failed == nullptr;
}

}  // namespace remora::verbs::detail
