#include "base/service_state.h"

#include <cerrno>
#include <sys/epoll.h>
#include <sys/eventfd.h>

namespace remora {

Status ServiceState::open() {
  epoll_ = UniqueFd{::epoll_create1(EPOLL_CLOEXEC)};
  if (!epoll_) return Error{Code::kSystem, "epoll_create1"}.with_errno(errno);
  wake_ = UniqueFd{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
  if (!wake_) return Error{Code::kSystem, "eventfd"}.with_errno(errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 0}};
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0)
    return Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
  return {};
}

void ServiceState::clear_wake() noexcept {
  eventfd_t value = 0;
  ::eventfd_read(wake_.get(), &value);
}

}  // namespace remora
