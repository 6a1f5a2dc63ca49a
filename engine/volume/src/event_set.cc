#include "event_set.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <new>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace remora::volume::detail {

Result<std::unique_ptr<EventSet>> EventSet::create() {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  if (epoll < 0) return Error{Code::kSystem, "epoll_create1"}.with_errno(errno);
  const int notice = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (notice < 0) {
    const Error error = Error{Code::kSystem, "eventfd"}.with_errno(errno);
    ::close(epoll);
    return error;
  }
  std::unique_ptr<EventSet> made{new (std::nothrow) EventSet{epoll, notice}};
  if (made == nullptr) {
    ::close(notice);
    ::close(epoll);
    return Error{Code::kOutOfMemory, "event_fd"};
  }
  if (const Status added = made->add(notice); !added) return added.error();
  return made;
}

EventSet::~EventSet() {
  ::close(notice_);
  ::close(epoll_);
}

Status EventSet::add(int fd) {
  epoll_event wanted{};
  wanted.events = EPOLLIN;
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &wanted) != 0)
    return Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
  return {};
}

void EventSet::notify() noexcept {
  const std::uint64_t one = 1;
  // Fails only if the counter is full: then it is readable already.
  [[maybe_unused]] const ssize_t written = ::write(notice_, &one, sizeof one);
}

void EventSet::take_notice() noexcept {
  std::uint64_t count = 0;
  // Fails if there is no notice.
  [[maybe_unused]] const ssize_t taken = ::read(notice_, &count, sizeof count);
}

void EventSet::wait(std::chrono::steady_clock::time_point until) noexcept {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongest{60'000};  // the caller looks again after that
  const auto now = std::chrono::steady_clock::now();
  milliseconds time = kLongest;
  if (until < now + kLongest)
    time = std::max(milliseconds{0}, std::chrono::ceil<milliseconds>(until - now));
  epoll_event found{};
  // EINTR: the caller looks again, too.
  [[maybe_unused]] const int count =
      ::epoll_wait(epoll_, &found, 1, static_cast<int>(time.count()));
}

}  // namespace remora::volume::detail
