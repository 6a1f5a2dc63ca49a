#include "transport/rdma/budget.h"

namespace remora::transport::rdma {

Status Budget::take(std::uint64_t count) noexcept {
  std::uint64_t used = used_.load();
  do {
    if (limit_ != 0 && (used > limit_ || count > limit_ - used))
      return Error{Code::kLimitExceeded, what_}.with_subject(subject_).with_limit(used + count,
                                                                                  limit_);
  } while (!used_.compare_exchange_weak(used, used + count));
  return {};
}

}  // namespace remora::transport::rdma
