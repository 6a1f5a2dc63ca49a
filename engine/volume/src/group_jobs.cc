#include "group_jobs.h"

#include <algorithm>
#include <thread>
#include <utility>

#include <remora/assert.h>
#include <remora/start_thread.h>

namespace remora::volume::detail {

using remora::detail::MutexLock;

Managed<void> GroupJobs::run(std::span<const Job> jobs, std::span<const std::size_t> chosen,
                             std::size_t at_once, Failures& failures) {
  {
    const MutexLock lock{mutex_};
    REMORA_ASSERT(batch_.failures == nullptr && failures.size() == jobs.size(),
                  "one batch of jobs runs at a time, with a place for each failure");
    batch_ = {.jobs = jobs, .chosen = chosen, .next = 0, .failures = &failures};
  }
  std::vector<std::thread> helpers;
  for (std::size_t i = 1; i < std::min(at_once, chosen.size()); ++i) {
    auto helper = remora::detail::start_thread("remora-groups", [this] { work(); });
    if (!helper) break;  // the others go on
    helpers.push_back(std::move(*helper));
  }
  work();
  for (std::thread& helper : helpers) helper.join();
  const MutexLock lock{mutex_};
  batch_ = {};
  if (end_) return tl::unexpected<Failure>{*end_};
  return {};
}

void GroupJobs::work() {
  while (const auto index = next()) end_job(*index, job(*index)());
}

std::optional<std::size_t> GroupJobs::next() {
  const MutexLock lock{mutex_};
  if (end_ || batch_.next == batch_.chosen.size()) return std::nullopt;
  return batch_.chosen[batch_.next++];
}

const GroupJobs::Job& GroupJobs::job(std::size_t index) {
  const MutexLock lock{mutex_};
  return batch_.jobs[index];
}

void GroupJobs::end_job(std::size_t index, const Managed<void>& done) {
  const MutexLock lock{mutex_};
  std::optional<Failure>& failure = (*batch_.failures)[index];
  failure.reset();
  if (done) return;
  failure = done.error();
  if (end_) return;
  end_ = judge_(done.error());
  if (end_) ended_.store(true, std::memory_order_relaxed);
}

}  // namespace remora::volume::detail
