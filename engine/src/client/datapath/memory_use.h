#pragma once

#include "client/datapath/local_memory.h"

namespace remora::detail {

/// Counts an operation that is in no queue's table as a use of its memory, if that memory has
/// handles. A local object of the thread that carries the operation out.
class MemoryUse {
 public:
  explicit MemoryUse(LocalMemory* memory) noexcept
      : memory_{memory != nullptr && memory->has_handles() ? memory : nullptr} {
    if (memory_ != nullptr) memory_->begin_use();
  }
  ~MemoryUse() {
    if (memory_ != nullptr) memory_->end_use();
  }
  MemoryUse(const MemoryUse&) = delete;
  MemoryUse& operator=(const MemoryUse&) = delete;

 private:
  LocalMemory* memory_;
};

}  // namespace remora::detail
