#pragma once

/// A list of operations of a volume's queue.

#include <cstddef>

#include <remora/assert.h>

namespace remora::volume::detail {

/// First in, first out. The entries are chained by `next`, and an entry is in one list at a time.
template <typename Entry>
struct QueueEntryList {
  Entry* first = nullptr;
  Entry* last = nullptr;
  std::size_t count = 0;

  void append(Entry& entry) noexcept {
    entry.next = nullptr;
    (first == nullptr ? first : last->next) = &entry;
    last = &entry;
    ++count;
  }
  /// `before`: the entry before it; null: it is the first.
  void remove(Entry* before, Entry& entry) noexcept {
    REMORA_ASSERT_HOT(count != 0 && (before == nullptr ? first : before->next) == &entry,
                      "an entry that is removed is in the list");
    (before == nullptr ? first : before->next) = entry.next;
    if (last == &entry) last = before;
    --count;
  }
  /// Only if there is one.
  Entry& take_first() noexcept {
    Entry& taken = *first;
    remove(nullptr, taken);
    return taken;
  }
};

}  // namespace remora::volume::detail
