#pragma once

/// Destroys what a device may take long to destroy, on a thread of its own.

#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>

#include <remora/mutex.h>

namespace remora::transport {

/// A queue pair is destroyed only when the last packet of it has left the host, and that may take
/// as long as the interface is down: a thread that has operations to end must not wait for it.
/// Thread-safe. Nothing that is taken may be the last to hold its own reaper.
class Reaper {
 public:
  /// As many may wait; beyond that, take() destroys on the caller's thread.
  static constexpr std::size_t kMaxWaiting = 4096;

  explicit Reaper(std::size_t max_waiting = kMaxWaiting) noexcept : max_waiting_{max_waiting} {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  /// Blocks until all is destroyed.
  ~Reaper();

  /// Destroys `what`, later. Does not block, unless there is no memory, no thread, or no room: then
  /// it is destroyed here.
  template <typename T>
  requires std::is_nothrow_move_constructible_v<T>
  void take(T what) noexcept {
    try {
      add(std::make_unique<Kept<T>>(std::move(what)));
    } catch (const std::bad_alloc&) {
      return;
    }
  }

 private:
  struct Item {
    virtual ~Item() = default;
  };
  template <typename T>
  struct Kept final : Item {
    explicit Kept(T&& what) noexcept : kept{std::move(what)} {}
    T kept;
  };

  void add(std::unique_ptr<Item> item) noexcept;
  void work() noexcept;

  const std::size_t max_waiting_;
  detail::Mutex mutex_;
  detail::Condition more_;
  std::deque<std::unique_ptr<Item>> waiting_ REMORA_GUARDED_BY(mutex_);
  bool ending_ REMORA_GUARDED_BY(mutex_) = false;
  std::thread thread_ REMORA_GUARDED_BY(mutex_);  ///< starts with the first item
};

}  // namespace remora::transport
