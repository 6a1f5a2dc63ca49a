// Completions by value: one call a batch instead of several for each completion.

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/engine/queue.h>

#include "client/queue/queue_core.h"

namespace remora::detail {

std::size_t read_values(std::span<const Completion> completions, CompletionValues* into) noexcept {
  std::size_t failed = 0;
  for (const Completion& completion : completions) {
    const QueueEntry& entry = *completion.entry_;
    into->tag = entry.tag;
    into->ticket = entry.ticket;
    into->old_value = entry.old_value;
    into->failed = completion.ok_ ? 0 : 1;
    failed += into->failed;
    ++into;
  }
  return failed;
}

}  // namespace remora::detail
