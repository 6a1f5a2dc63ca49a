// Completions by value: one call for each batch instead of several for each completion.

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/queue.h>

#include "client/queue/queue_core.h"

namespace remora::detail {

bool read_values(std::span<const Completion> completions, CompletionValues* into) noexcept {
  bool all_ok = true;
  for (const Completion& completion : completions) {
    const QueueEntry& entry = *completion.entry_;
    into->tag = entry.tag;
    into->ticket = entry.ticket;
    into->old_value = entry.old_value;
    into->outcome = 0;
    all_ok &= completion.ok_;
    ++into;
  }
  return all_ok;
}

}  // namespace remora::detail
