#pragma once

#include <cstddef>
#include <utility>

#include <remora/assert.h>

#include "client/datapath/operation_record.h"

namespace remora::detail {

/// Operations chained by `next`, in the order of their submission. Owns nothing. One thread at a
/// time.
struct OperationList {
  OperationRecord* first = nullptr;
  OperationRecord* last = nullptr;
  std::size_t count = 0;

  [[nodiscard]] bool empty() const noexcept { return first == nullptr; }
  void append(OperationRecord& operation) noexcept {
    operation.next = nullptr;
    (first == nullptr ? first : last->next) = &operation;
    last = &operation;
    ++count;
  }
  /// Appends all operations of `other`, and leaves it empty.
  void splice(OperationList& other) noexcept {
    if (other.empty()) return;
    (first == nullptr ? first : last->next) = other.first;
    last = other.last;
    count += std::exchange(other, {}).count;
  }
  /// Removes and returns the first operation. Only while the list is not empty.
  OperationRecord& take_first() noexcept {
    REMORA_ASSERT_HOT(first != nullptr && count != 0, "a list counts its operations");
    OperationRecord& operation = *first;
    first = operation.next;
    if (first == nullptr) last = nullptr;
    --count;
    return operation;
  }
  /// Removes the first `taken_count` operations; `after`: the operation behind them, or null.
  void drop_first(std::size_t taken_count, OperationRecord* after) noexcept {
    REMORA_ASSERT_HOT(taken_count <= count && (after == nullptr) == (taken_count == count),
                      "a list counts its operations");
    first = after;
    if (after == nullptr) last = nullptr;
    count -= taken_count;
  }
  /// Removes the operations for which `wanted` returns true, in order, and passes them to `taken`.
  template <typename Wanted, typename Taken>
  void extract(Wanted wanted, Taken taken) noexcept {
    OperationList kept;
    bool gap = false;
    while (!empty()) {
      OperationRecord& operation = take_first();
      if (wanted(operation)) {
        gap = true;
        taken(operation);
      } else {
        if (std::exchange(gap, false)) operation.follows = false;
        kept.append(operation);
      }
    }
    *this = kept;
  }
  [[nodiscard]] bool contains(const OperationRecord& operation) const noexcept {
    const OperationRecord* at = first;
    while (at != nullptr && at != &operation) at = at->next;
    return at != nullptr;
  }
  /// Removes `operation`. False: it is not in the list. `after`, if given, is set to the operation
  /// behind it, or null.
  bool remove(OperationRecord& operation, OperationRecord** after = nullptr) noexcept {
    bool found = false;
    extract([&](const OperationRecord& each) { return &each == &operation; },
            [&](OperationRecord&) {
              found = true;
              if (after != nullptr) *after = first;
            });
    return found;
  }
};

}  // namespace remora::detail
