#include "server/sessions_to_read.h"

#include <cerrno>
#include <sys/eventfd.h>

namespace remora::detail {

Status SessionsToRead::open() {
  event_ = UniqueFd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!event_) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  return {};
}

void SessionsToRead::add(std::uint64_t session_id) noexcept {
  const MutexLock lock{mutex_};
  if (closed_) return;
  ids_.push_back(session_id);
  signal_event(event_.get());
}

std::vector<std::uint64_t> SessionsToRead::take() noexcept {
  std::vector<std::uint64_t> ids;
  const MutexLock lock{mutex_};
  eventfd_t value = 0;
  ::eventfd_read(event_.get(), &value);
  ids.swap(ids_);
  return ids;
}

void SessionsToRead::close() noexcept {
  const MutexLock lock{mutex_};
  closed_ = true;
}

}  // namespace remora::detail
