// Jobs of several groups at once: how many, and what a failure does to the others.

#include "group_jobs.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <numeric>
#include <optional>
#include <thread>
#include <vector>

#include <remora/mutex.h>

namespace remora::volume::detail {
namespace {

using remora::detail::MutexLock;

tl::unexpected<Failure> failed(Code code) {
  return tl::unexpected<Failure>{Failure{Error{code, "job"}}};
}

/// Ends the work at a cancellation.
std::optional<Failure> ends_at_cancellation(const Failure& failure) {
  if (failure.error.code() != Code::kCancelled) return std::nullopt;
  return failure;
}

std::vector<std::size_t> all_of(const std::vector<GroupJobs::Job>& jobs) {
  std::vector<std::size_t> chosen(jobs.size());
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  return chosen;
}

/// Waits until so many jobs are in it at once; counts them.
class MeetingPlace {
 public:
  /// Blocks until `count` callers were here at once, or one has waited for a minute.
  void meet(std::uint32_t count) {
    MutexLock lock{mutex_};
    most_ = std::max(most_, ++here_);
    arrived_.notify_all();
    arrived_.wait_for(lock, std::chrono::minutes{1}, [&] {
      mutex_.assert_held();
      return most_ >= count;
    });
    --here_;
  }
  [[nodiscard]] std::uint32_t most() {
    const MutexLock lock{mutex_};
    return most_;
  }

 private:
  remora::detail::Mutex mutex_;
  remora::detail::Condition arrived_;
  std::uint32_t here_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint32_t most_ REMORA_GUARDED_BY(mutex_) = 0;
};

TEST(GroupJobs, AsManyRunAtOnceAsAreAllowed) {
  MeetingPlace place;
  const std::vector<GroupJobs::Job> jobs(12, [&]() -> Managed<void> {
    place.meet(3);
    return {};
  });
  GroupJobs group_jobs{ends_at_cancellation};
  GroupJobs::Failures failures(jobs.size());
  ASSERT_TRUE(group_jobs.run(jobs, all_of(jobs), 3, failures));
  EXPECT_EQ(place.most(), 3U);
}

TEST(GroupJobs, OneAtOnceRunsInOrder) {
  std::vector<std::size_t> done;
  std::vector<GroupJobs::Job> jobs;
  for (std::size_t i = 0; i < 4; ++i)
    jobs.emplace_back([&done, i]() -> Managed<void> {
      done.push_back(i);
      return {};
    });
  GroupJobs group_jobs{ends_at_cancellation};
  GroupJobs::Failures failures(jobs.size());
  const std::vector<std::size_t> chosen{0, 2, 3};
  ASSERT_TRUE(group_jobs.run(jobs, chosen, 1, failures));
  EXPECT_EQ(done, chosen);
}

TEST(GroupJobs, FailureIsNotedAndTheOthersGoOn) {
  std::vector<GroupJobs::Job> jobs(5, [] { return Managed<void>{}; });
  jobs[2] = []() -> Managed<void> { return failed(Code::kTimedOut); };
  GroupJobs group_jobs{ends_at_cancellation};
  GroupJobs::Failures failures(jobs.size());
  ASSERT_TRUE(group_jobs.run(jobs, all_of(jobs), 2, failures));
  for (std::size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(failures[i].has_value(), i == 2) << i;
  jobs[2] = [] { return Managed<void>{}; };
  ASSERT_TRUE(group_jobs.run(jobs, std::vector<std::size_t>{2}, 1, failures));
  EXPECT_FALSE(failures[2]);
}

TEST(GroupJobs, FirstFailureThatEndsTheWorkEndsTheOthers) {
  MeetingPlace place;
  GroupJobs group_jobs{ends_at_cancellation};
  std::uint32_t begun = 0;  // by one of the threads: the work has ended by then
  std::vector<GroupJobs::Job> jobs(6, [&]() -> Managed<void> {
    ++begun;
    return {};
  });
  jobs[0] = [&]() -> Managed<void> {
    place.meet(2);
    return failed(Code::kCancelled);
  };
  jobs[1] = [&]() -> Managed<void> {
    place.meet(2);
    while (!group_jobs.ended()) std::this_thread::yield();  // as a copy asks between zones
    return failed(Code::kTimedOut);
  };
  GroupJobs::Failures failures(jobs.size());
  const std::vector<std::size_t> both{0, 1};
  const auto done = group_jobs.run(jobs, both, 2, failures);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().error.code(), Code::kCancelled);
  EXPECT_FALSE(group_jobs.run(jobs, all_of(jobs), 1, failures));
  EXPECT_EQ(begun, 0U);
}

}  // namespace
}  // namespace remora::volume::detail
