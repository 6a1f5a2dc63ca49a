#pragma once

/// Calls the application's handlers only while the engine lives.

#include <cstddef>

#include <remora/mutex.h>

namespace remora::detail {

/// The handlers of the application run with a Pass of this gate, until the engine closes it. The
/// engine owns it. Thread-safe.
class HandlerGate {
 public:
  /// A handler may run while this object lives, if it converts to true.
  class Pass {
   public:
    explicit Pass(HandlerGate& gate) noexcept;
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const noexcept { return open_; }

   private:
    HandlerGate& gate_;
    bool open_ = false;
  };

  HandlerGate() = default;
  ~HandlerGate();
  HandlerGate(const HandlerGate&) = delete;
  HandlerGate& operator=(const HandlerGate&) = delete;

  /// Gives no pass from now on. Returns when no handler runs.
  void close() noexcept;

 private:
  Mutex mutex_;
  Condition left_;  ///< signalled when inside_ becomes 0
  std::size_t inside_ REMORA_GUARDED_BY(mutex_) = 0;
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::detail
