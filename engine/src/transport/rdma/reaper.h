#pragma once

/// Destroys, on its own threads, objects whose destruction may take a device long.

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include <remora/mutex.h>

namespace remora::transport {

/// A device destroys a queue pair only when the last packet of it has left the host, which may take
/// as long as the interface is down: a thread that has operations to end must not wait for it.
/// Thread-safe. No object in the reaper may hold the last reference to that reaper.
class Reaper {
 public:
  /// The most objects that may wait; beyond that, take() destroys on the caller's thread.
  static constexpr std::size_t kMaxWaiting = 4096;

  explicit Reaper(std::size_t max_waiting = kMaxWaiting) noexcept
      : Reaper{max_waiting, max_waiting} {}
  /// `max_unawaited`: the same limit for take_unawaited().
  Reaper(std::size_t max_waiting, std::size_t max_unawaited) noexcept
      : max_waiting_{max_waiting, max_unawaited} {}
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;
  /// Blocks until all objects are destroyed.
  ~Reaper();

  /// Destroys `what` later. Does not block, unless there is no memory, no thread or no room: then
  /// the caller destroys it here.
  template <typename T>
  requires std::is_nothrow_move_constructible_v<T>
  void take(T what) noexcept { keep(std::move(what), kAwaited); }
  /// As take(), for objects whose destruction no thread awaits. If their interface is down,
  /// destruction may take as long as that: a second thread destroys them, so that no other object
  /// waits behind them.
  template <typename T>
  requires std::is_nothrow_move_constructible_v<T>
  void take_unawaited(T what) noexcept { keep(std::move(what), kUnawaited); }

  /// How long its threads have been destroying objects by now, altogether: the time of the devices'
  /// drivers. Never less than before.
  [[nodiscard]] std::chrono::nanoseconds destroying() const noexcept;

 private:
  enum Kind : std::size_t { kAwaited, kUnawaited, kKinds };
  struct Item {
    virtual ~Item() = default;
  };
  /// Of one thread.
  struct Destroying {
    std::chrono::steady_clock::duration before{0};  ///< with the objects that are destroyed
    /// When it began the object that it destroys now; empty: there is none.
    std::optional<std::chrono::steady_clock::time_point> began;
  };
  template <typename T>
  struct Kept final : Item {
    explicit Kept(T&& what) noexcept : kept{std::move(what)} {}
    T kept;
  };

  template <typename T>
  void keep(T&& what, Kind kind) noexcept {
    static_assert(!std::is_reference_v<T>, "it is moved");
    try {
      add(std::make_unique<Kept<T>>(std::forward<T>(what)), kind);
    } catch (const std::bad_alloc&) {
      return;
    }
  }
  void add(std::unique_ptr<Item> item, Kind kind) noexcept;
  void work(Kind kind) noexcept;

  const std::array<std::size_t, kKinds> max_waiting_;
  mutable detail::Mutex mutex_;
  detail::Condition more_;
  std::array<std::deque<std::unique_ptr<Item>>, kKinds> waiting_ REMORA_GUARDED_BY(mutex_);
  std::array<Destroying, kKinds> destroying_ REMORA_GUARDED_BY(mutex_);
  bool ending_ REMORA_GUARDED_BY(mutex_) = false;
  /// Each thread starts with the first item of its kind.
  std::array<std::thread, kKinds> threads_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::transport
