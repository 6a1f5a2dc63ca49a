#include "server/memory/allocation_queue.h"

#include <iterator>
#include <utility>

namespace remora::detail {

void AllocationQueue::join(std::uint64_t size_bytes, Deadline deadline, Job job) {
  waiting_.push_back({size_bytes, deadline, std::move(job)});
  count_.store(waiting_.size());
}

void AllocationQueue::run_ready() {
  const Clock::time_point now = Clock::now();
  // Runs the jobs one after the other, since each takes memory. A job may queue itself again.
  std::vector<Waiting> before = std::exchange(waiting_, {});
  std::vector<Waiting> left;
  for (Waiting& each : before) {
    if (now < each.deadline && must_wait_(each.size_bytes))
      left.push_back(std::move(each));
    else
      each.job();
  }
  left.insert(left.end(), std::make_move_iterator(waiting_.begin()),
              std::make_move_iterator(waiting_.end()));
  waiting_ = std::move(left);
  count_.store(waiting_.size());
}

void AllocationQueue::clear() noexcept {
  const std::vector<Waiting> dropped = std::exchange(waiting_, {});
  count_.store(0);
}

}  // namespace remora::detail
