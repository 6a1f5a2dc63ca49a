#pragma once

/// The application's handlers run only while the engine lives.

#include <cstddef>

#include <remora/mutex.h>

namespace remora::detail {

/// The handlers of the application are called through this gate until the engine is destroyed.
/// Thread-safe.
class HandlerGate {
 public:
  /// While it lives, and if it is true, a handler may run.
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

  /// No new pass is open from now on. Returns when no handler runs any more.
  void close() noexcept;

 private:
  Mutex mutex_;
  Condition left_;  ///< inside_ is 0
  std::size_t inside_ REMORA_GUARDED_BY(mutex_) = 0;
  bool closed_ REMORA_GUARDED_BY(mutex_) = false;
};

}  // namespace remora::detail
