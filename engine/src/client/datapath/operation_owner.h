#pragma once

#include <remora/result.h>

namespace remora::detail {

struct OperationRecord;

/// A queue, which knows the region of each of its operations. Used by the thread of the queue.
class OperationOwner {
 public:
  OperationOwner() = default;
  virtual ~OperationOwner() = default;
  OperationOwner(const OperationOwner&) = delete;
  OperationOwner& operator=(const OperationOwner&) = delete;
  /// The Error of an operation that has failed. The owner's thread calls it.
  [[nodiscard]] virtual Error error_of(const OperationRecord& operation) const noexcept = 0;
};

}  // namespace remora::detail
