#include "transport/tcp/posted_requests.h"

#include <algorithm>
#include <bit>

#include <remora/assert.h>

namespace remora::transport::tcp {

PostedRequests::PostedRequests(std::uint32_t depth)
    : ring_(std::bit_ceil(depth)), mask_{ring_.size() - 1}, results_(ring_.size()) {}

void PostedRequests::fail(std::uint64_t sequence, CompletionStatus status) noexcept {
  REMORA_ASSERT(!failed_ && sequence <= next_sequence_, "one request of a lane fails, once");
  failed_ = true;
  fault_ = sequence;
  fault_status_ = status;
  done_end_ = std::max(done_end_, sequence);
}

std::size_t PostedRequests::report(std::span<LaneCompletion> completions) noexcept {
  std::size_t count = 0;
  if (done_end_ > unreported_ && count < completions.size()) {
    completions[count++] = {
        .sequence = done_end_ - 1, .status = CompletionStatus::kSuccess, .vendor_error = 0};
    unreported_ = done_end_;
  }
  for (; failed_ && unreported_ != next_sequence_ && count < completions.size(); ++unreported_)
    completions[count++] = {
        .sequence = unreported_,
        .status = unreported_ == fault_ ? fault_status_ : CompletionStatus::kFlushed,
        .vendor_error = 0};
  return count;
}

}  // namespace remora::transport::tcp
