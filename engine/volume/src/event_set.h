#pragma once

/// One descriptor for the events of many queues, and for a notice of the owner's own.

#include <chrono>
#include <memory>

#include <remora/result.h>

namespace remora::volume::detail {

/// An epoll set and an eventfd in it. One owner at a time.
class EventSet {
 public:
  /// Errors: kSystem (errno kept), kOutOfMemory.
  static Result<std::unique_ptr<EventSet>> create();
  ~EventSet();
  EventSet(const EventSet&) = delete;
  EventSet& operator=(const EventSet&) = delete;

  /// `fd` is borrowed: it must be open as long as the set. Errors: kSystem.
  Status add(int fd);
  /// Readable while one of the descriptors is, and after notify().
  [[nodiscard]] int fd() const noexcept { return epoll_; }
  void notify() noexcept;
  /// Takes the notice.
  void take_notice() noexcept;
  /// Blocks until fd() is readable, or until that time.
  void wait(std::chrono::steady_clock::time_point until) noexcept;

 private:
  EventSet(int epoll, int notice) noexcept : epoll_{epoll}, notice_{notice} {}
  int epoll_;
  int notice_;
};

}  // namespace remora::volume::detail
