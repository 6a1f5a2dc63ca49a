/// How a queue refuses operations that it has taken and not handed over, once their grant is
/// revoked.

#include <utility>

#include "client/queue/queue_core.h"

namespace remora::detail {

std::atomic<QueueCore::CallState>* QueueCore::enter_closely(CallState before) noexcept {
  if (before == kInCall) return nullptr;  // of another thread
  refuse_revoked();
  return &in_call_;
}

bool QueueCore::request_refusal() noexcept {
  CallState before = kIdle;
  return in_call_.compare_exchange_strong(before, CallState::kLookAgain,
                                          std::memory_order_acq_rel) ||
         before == CallState::kLookAgain;
}

/// By the queue's owner, in a call.
void QueueCore::refuse_revoked() noexcept {
  // A barrier before a refused operation then stands before the next one that stays.
  bool bar_next = false;
  const auto sweep = [&](OperationList& list) {
    OperationList kept;
    bool gap = true;
    while (!list.empty()) {
      OperationRecord& operation = list.take_first();
      const Reason why = revoked(operation);
      if (why == Reason::kNone) {
        if (std::exchange(gap, false)) operation.follows = false;
        if (std::exchange(bar_next, false)) bar(&operation);
        kept.append(operation);
        continue;
      }
      gap = true;
      bar_next = std::exchange(entry_of(&operation)->after_barrier, false) || bar_next;
      refuse(operation, Outcome::failure(Code::kAccessRefused, why));
    }
    list = kept;
  };
  sweep(held_);
  OperationList filled = detach_filled();
  sweep(filled);
  attach_filled(filled);
  barrier_ = barrier_ || bar_next;
}

/// Why the grant of an operation was revoked, or kNone.
Reason QueueCore::revoked(const OperationRecord& operation) const noexcept {
  for (const auto& [region, kept] : regions_)
    if (region->revoked() != Reason::kNone && region->owns(operation)) return region->revoked();
  return Reason::kNone;
}

}  // namespace remora::detail
