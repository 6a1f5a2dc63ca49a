#include "client/services/handler_gate.h"

#include <remora/assert.h>

namespace remora::detail {

HandlerGate::Pass::Pass(HandlerGate& gate) noexcept : gate_{gate} {
  const MutexLock lock{gate_.mutex_};
  open_ = !gate_.closed_;
  if (open_) ++gate_.inside_;
}

HandlerGate::Pass::~Pass() {
  if (!open_) return;
  const MutexLock lock{gate_.mutex_};
  REMORA_ASSERT(gate_.inside_ != 0, "a handler that returns was counted when it was called");
  if (--gate_.inside_ == 0) gate_.left_.notify_all();
}

HandlerGate::~HandlerGate() {
  const MutexLock lock{mutex_};
  REMORA_ASSERT(inside_ == 0, "no handler runs when the engine is destroyed");
}

void HandlerGate::close() noexcept {
  MutexLock lock{mutex_};
  closed_ = true;
  left_.wait(lock, [this] {
    mutex_.assert_held();
    return inside_ == 0;
  });
}

}  // namespace remora::detail
