#include "client/datapath/mapped_access.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/forked.h"

namespace remora::detail {
namespace {

constexpr std::uint64_t kAccessed = 1'000'001;
constexpr std::uint64_t kNotAccessed = 1'000'002;

TEST(MappedAccessTest, GrantIsAccessedWhileTheScopeLasts) {
  EXPECT_FALSE(MappedAccess::accessed(kAccessed));
  {
    const MappedAccess access{kAccessed};
    EXPECT_TRUE(MappedAccess::accessed(kAccessed));
    EXPECT_FALSE(MappedAccess::accessed(kNotAccessed));
  }
  EXPECT_FALSE(MappedAccess::accessed(kAccessed));
}

TEST(MappedAccessTest, AccessOfEveryGrantIsOneOfEach) {
  const MappedAccess access{MappedAccess::kEveryGrant};
  EXPECT_TRUE(MappedAccess::accessed(kAccessed));
  EXPECT_TRUE(MappedAccess::accessed(kNotAccessed));
}

TEST(MappedAccessTest, AccessEndsEarly) {
  MappedAccess::end_early();
  const MappedAccess access{kAccessed};
  MappedAccess::end_early();
  EXPECT_FALSE(MappedAccess::accessed(kAccessed));
}

/// Also of more threads at once than the first places are for, and of threads that come later.
TEST(MappedAccessTest, EachThreadIsSeen) {
  constexpr std::size_t kThreads = 200;
  for (int round = 0; round < 2; ++round) {
    std::atomic<std::size_t> begun{0};
    std::atomic<std::size_t> may_end{0};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] {
        const MappedAccess access{kAccessed + i};
        ++begun;
        begun.notify_one();
        for (std::size_t seen = may_end; seen <= i; seen = may_end) may_end.wait(seen);
      });
    for (std::size_t seen = begun; seen != kThreads; seen = begun) begun.wait(seen);
    for (std::size_t i = 0; i < kThreads; ++i) EXPECT_TRUE(MappedAccess::accessed(kAccessed + i));
    for (std::size_t i = 0; i < kThreads; ++i) {
      may_end = i + 1;
      may_end.notify_all();
      threads[i].join();
      EXPECT_FALSE(MappedAccess::accessed(kAccessed + i));
    }
  }
}

/// A grant of an engine that the child opens is not accessed by a thread of its parent.
TEST(MappedAccessTest, ThreadsOfTheParentAccessNothingInAChild) {
  if (!test::kChildrenOfFork) GTEST_SKIP() << "ThreadSanitizer reports the thread in the child";
  std::promise<void> begun;
  std::promise<void> release;
  std::thread accessing{[&] {
    const MappedAccess access{MappedAccess::kEveryGrant};
    begun.set_value();
    release.get_future().wait();
  }};
  begun.get_future().wait();
  const MappedAccess own{kNotAccessed};
  const pid_t child = ::fork();
  if (child == 0) {
    const bool wrong = MappedAccess::accessed(kAccessed) || !MappedAccess::accessed(kNotAccessed);
    ::_exit(wrong ? 1 : 0);
  }
  int status = -1;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(MappedAccess::accessed(kAccessed)) << "in the parent";
  release.set_value();
  accessing.join();
}

/// The proof of the order: of a thread that accesses what it has found not revoked, and one that
/// revokes and finds no access, the second one is first.
TEST(MappedAccessTest, NoAccessBeginsAfterARevocationThatFoundNone) {
  for (int round = 0; round < 200; ++round) {
    std::atomic<bool> revoked{false};
    std::atomic<bool> acknowledged{false};
    std::atomic<bool> late{false};
    std::thread accessing{[&] {
      while (true) {
        const MappedAccess access{kAccessed};
        if (revoked.load(std::memory_order_relaxed)) return;
        late = late || acknowledged.load();
      }
    }};
    revoked.store(true, std::memory_order_relaxed);
    while (MappedAccess::accessed(kAccessed)) std::this_thread::yield();
    acknowledged = true;
    accessing.join();
    EXPECT_FALSE(late);
  }
}

}  // namespace
}  // namespace remora::detail
