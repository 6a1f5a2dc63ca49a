#pragma once

/// One operation in flight: what was asked, how far it is, how it ended.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <remora/engine/queue.h>
#include <remora/result.h>

#include "client/local_memory.h"
#include "support/clock.h"
#include "transport/transport.h"

namespace remora::detail {

struct OperationRecord;

/// Where finished operations go; guarded by the lane driver's lock. An intrusive list.
struct CompletionSink {
  OperationRecord* first = nullptr;
  OperationRecord* last = nullptr;
  std::size_t count = 0;
};

/// How an operation ended: success, or a code with its details.
struct Outcome {
  bool ok = true;
  Code code = Code::kInternal;
  Reason reason = Reason::kNone;
  CompletionStatus status = CompletionStatus::kSuccess;
  std::uint32_t vendor_error = 0;

  static Outcome failure(Code code, Reason reason = Reason::kNone) noexcept {
    return {.ok = false, .code = code, .reason = reason};
  }
};

[[nodiscard]] constexpr Operation operation_name(transport::Opcode opcode) noexcept {
  switch (opcode) {
    case transport::Opcode::kRead: return "read";
    case transport::Opcode::kWrite: return "write";
    case transport::Opcode::kCompareSwap: return "compare_swap";
    case transport::Opcode::kFetchAdd: return "fetch_add";
  }
  return "operation";
}

[[nodiscard]] constexpr bool is_atomic(transport::Opcode opcode) noexcept {
  return opcode == transport::Opcode::kCompareSwap || opcode == transport::Opcode::kFetchAdd;
}

/// Owned by whoever submits it (a queue's table, a synchronous caller's stack) and untouched by
/// them from submission until it is in its sink.
struct OperationRecord {
  // What was asked.
  transport::Opcode opcode = transport::Opcode::kRead;
  std::byte* local = nullptr;  ///< a write's bytes are only read
  std::uint64_t length_bytes = 0;
  std::uint64_t offset_bytes = 0;  ///< in the region
  std::uint64_t compare_or_add = 0;
  std::uint64_t swap = 0;
  LocalMemory* memory = nullptr;  ///< null: not registered, bounced where a key is needed
  std::span<const transport::WireExtent> extents;
  Deadline deadline;
  Clock::time_point submitted;
  CompletionSink* sink = nullptr;

  // How far it is.
  std::uint64_t planned_bytes = 0;  ///< made into work requests
  std::uint32_t requests_in_flight = 0;
  bool any_posted = false;
  OperationRecord* next = nullptr;  ///< in the driver's backlog, then in the sink

  // How it ended.
  Outcome outcome;
  std::uint64_t old_value = 0;
};

}  // namespace remora::detail
