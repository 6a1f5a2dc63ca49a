#pragma once

/// The transfers of a call with many pairs that go to a lane without a record that is filled in for
/// each of them.

#include <cstdint>

#include <remora/assert.h>

#include "client/datapath/operation_record.h"
#include "transport/work_request.h"

namespace remora::detail {

/// Whole transfers of one opcode, memory, submission, deadline and sink, within one extent. Their
/// records are chained by `next`. All members of the first record are filled in; of the others only
/// `next`, `request` and `sink`. The driver calls fill_like() for a record whose operation ends
/// apart from those before it.
struct UniformRun {
  OperationRecord* first;
  transport::Chain requests;  ///< those of the records, in order
  std::uint64_t bytes;        ///< of all requests
};

/// Fills in the record `later` of a uniform run, whose record `earlier` is filled in.
inline void fill_like(OperationRecord& later, const OperationRecord& earlier) noexcept {
  REMORA_ASSERT_HOT(later.request.opcode == earlier.request.opcode && later.sink == earlier.sink,
                    "the operations of a uniform run differ in their bytes only");
  later.length_bytes = later.request.length_bytes;
  later.offset_bytes =
      earlier.offset_bytes + (later.request.remote_address - earlier.request.remote_address);
  later.memory = earlier.memory;
  later.submitted = earlier.submitted;
  later.deadline = earlier.deadline;
  later.whole = true;
  later.follows = false;
  later.outcome = {};
}

}  // namespace remora::detail
