#pragma once

#include <cerrno>
#include <sys/epoll.h>
#include <utility>

#include <remora/result.h>

#include "base/unique_fd.h"

namespace remora {

/// A set of descriptors with a descriptor of its own, which is readable while one of them is ready.
/// Thread-safe, as epoll(7) is.
class FdSet {
 public:
  /// Errors: kSystem.
  static Result<FdSet> create() {
    UniqueFd epoll{::epoll_create1(EPOLL_CLOEXEC)};
    if (!epoll) return Error{Code::kSystem, "epoll_create1"}.with_errno(errno);
    return FdSet{std::move(epoll)};
  }
  /// remove() or closing takes a descriptor out of the set. Errors: kSystem.
  Status add(int fd, std::uint32_t events = EPOLLIN) noexcept {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
      return Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
    return {};
  }
  /// From now on waits for `events` of `fd`, which is in the set. Errors: kSystem.
  Status change(int fd, std::uint32_t events) noexcept {
    epoll_event event{.events = events, .data = {.fd = fd}};
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
      return Error{Code::kSystem, "epoll_ctl"}.with_errno(errno);
    return {};
  }
  void remove(int fd) noexcept { ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }
  [[nodiscard]] int get() const noexcept { return epoll_.get(); }

 private:
  explicit FdSet(UniqueFd epoll) noexcept : epoll_{std::move(epoll)} {}
  UniqueFd epoll_;
};

}  // namespace remora
