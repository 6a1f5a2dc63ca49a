#pragma once

/// Counts operations, and keeps new ones from beginning while a configuration changes.

#include <atomic>
#include <chrono>
#include <cstdint>

#include <remora/assert.h>
#include <remora/mutex.h>

namespace remora::volume::detail {

/// An operation enters, and leaves at its end. While the gate is closed none enters. An operation
/// that has nothing in flight, and waits for a change of the configuration, is *parked*.
/// Thread-safe. Entering and leaving an open gate is one atomic addition each.
class OperationGate {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// Of an operation inside: it is parked until this object is destroyed.
  class Parking {
   public:
    explicit Parking(OperationGate& gate) noexcept : gate_{gate} { gate_.park(); }
    ~Parking() { gate_.unpark(); }
    Parking(const Parking&) = delete;
    Parking& operator=(const Parking&) = delete;

   private:
    OperationGate& gate_;
  };

  OperationGate() = default;
  OperationGate(const OperationGate&) = delete;
  OperationGate& operator=(const OperationGate&) = delete;

  /// Waits while the gate is closed. False: `until` has come before, and nothing was entered.
  [[nodiscard]] bool enter(Time until) noexcept {
    if ((state_.fetch_add(1, std::memory_order_acquire) & kClosed) == 0) [[likely]]
      return true;
    return enter_later(until);
  }
  void leave() noexcept {
    const std::uint32_t before = state_.fetch_sub(1, std::memory_order_release);
    REMORA_ASSERT((before & ~kClosed) != 0, "an operation leaves a gate that it has entered");
    if ((before & kClosed) != 0) [[unlikely]]
      tell();
  }
  /// Each close() needs an open().
  void close() noexcept;
  void open() noexcept;
  /// Of a closed gate: waits until each operation inside has left or is parked.
  [[nodiscard]] bool wait_quiet(Time until) noexcept;
  [[nodiscard]] bool is_quiet() noexcept;

 private:
  static constexpr std::uint32_t kClosed = std::uint32_t{1} << 31U;

  [[gnu::cold]] bool enter_later(Time until) noexcept;
  void tell() noexcept;
  void park() noexcept;
  void unpark() noexcept;
  [[nodiscard]] bool quiet() const noexcept REMORA_REQUIRES(mutex_) {
    return (state_.load(std::memory_order_acquire) & ~kClosed) == parked_;
  }

  std::atomic<std::uint32_t> state_{0};  ///< operations inside, and whether it is closed
  remora::detail::Mutex mutex_;
  remora::detail::Condition changed_;
  std::uint32_t closers_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint32_t parked_ REMORA_GUARDED_BY(mutex_) = 0;
};

/// Is inside a gate until it is destroyed, if enter() was successful.
class GateEntry {
 public:
  GateEntry(OperationGate& gate, OperationGate::Time until) noexcept
      : gate_{gate}, entered_{gate.enter(until)} {}
  ~GateEntry() {
    if (entered_) gate_.leave();
  }
  GateEntry(const GateEntry&) = delete;
  GateEntry& operator=(const GateEntry&) = delete;
  [[nodiscard]] explicit operator bool() const noexcept { return entered_; }

 private:
  OperationGate& gate_;
  const bool entered_;
};

}  // namespace remora::volume::detail
