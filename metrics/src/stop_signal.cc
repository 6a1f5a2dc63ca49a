#include "stop_signal.h"

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

namespace remora::metrics {

Result<StopSignal> StopSignal::create() {
  Descriptor event{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (event.fd() < 0) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  return StopSignal{std::move(event)};
}

void StopSignal::raise() const noexcept {
  const std::uint64_t one = 1;
  // Cannot fail: the counter is never read back and stays far from its limit.
  [[maybe_unused]] const ssize_t written = ::write(event_.fd(), &one, sizeof(one));
}

}  // namespace remora::metrics
