#pragma once

/// Descriptors that libibverbs, librdmacm and the resolver open by themselves, above 2.

#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <remora/mutex.h>
#include <remora/owned.h>

namespace remora::verbs::detail {

/// While one of these objects lives, each of the descriptors 0, 1 and 2 is open: a closed one is
/// opened on a file that can be neither read nor written, so that a descriptor made meanwhile, by
/// any thread, is above 2. For calls into libraries whose descriptors cannot be moved afterwards.
/// Thread-safe.
class StandardDescriptorsTaken {
 public:
  StandardDescriptorsTaken() : held_{all()} {
    const remora::detail::MutexLock lock{held_.mutex};
    if (held_.users++ == 0) held_.take();
  }
  ~StandardDescriptorsTaken() {
    const int number = errno;  // the caller's call has set it
    {
      const remora::detail::MutexLock lock{held_.mutex};
      if (--held_.users == 0) held_.give_back();
    }
    errno = number;
  }
  StandardDescriptorsTaken(const StandardDescriptorsTaken&) = delete;
  StandardDescriptorsTaken& operator=(const StandardDescriptorsTaken&) = delete;

 private:
  struct Places {
    remora::detail::Mutex mutex;
    std::size_t users REMORA_GUARDED_BY(mutex) = 0;
    std::array<bool, STDERR_FILENO + 1> taken REMORA_GUARDED_BY(mutex){};

    void take() noexcept REMORA_REQUIRES(mutex) {
      for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
        if (::fcntl(fd, F_GETFD) >= 0) continue;
        // The lowest free number: this one, unless another thread opens a file meanwhile.
        const int place = ::open("/", O_PATH | O_CLOEXEC);
        if (place == fd)
          taken[static_cast<std::size_t>(fd)] = true;
        else if (place >= 0)
          ::close(place);
      }
    }
    void give_back() noexcept REMORA_REQUIRES(mutex) {
      for (int fd = 0; fd <= STDERR_FILENO; ++fd) {
        if (!std::exchange(taken[static_cast<std::size_t>(fd)], false)) continue;
        // The application may have put a file of its own there meanwhile (dup2, freopen).
        const int flags = ::fcntl(fd, F_GETFL);
        if (flags >= 0 && (flags & O_PATH) != 0) ::close(fd);
      }
    }
  };
  static Places& all() {
    static remora::detail::PerProcess<Places> places;
    return places.get();
  }

  Places& held_;
};

/// Calls `kCall` while 0, 1 and 2 are in use.
template <auto kCall>
struct AboveStandard;
template <typename Answer, typename... Arguments, Answer (*kCall)(Arguments...)>
struct AboveStandard<kCall> {
  static Answer call(Arguments... arguments) {
    const StandardDescriptorsTaken taken;
    return kCall(arguments...);
  }
};

}  // namespace remora::verbs::detail
