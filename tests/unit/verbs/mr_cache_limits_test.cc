// What bounds an MrCache: deadlines, threads, kinds of memory, what the process may do.

#include <array>
#include <atomic>
#include <cstddef>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "fake_nic.h"

namespace remora::test {
namespace {

using verbs::Access;
using verbs::Invalidation;
using verbs::MrLease;

class MrCacheLimits : public MrCacheTest {
 protected:
  void create_explicit(verbs::MrCacheOptions options = {}) {
    options.invalidation = Invalidation::kExplicit;
    create(options);
  }
  void wait_for_no_registration() {
    EXPECT_TRUE(eventually([&] { return nic_->live() == 0; })) << nic_->live();
  }
  /// Runs `child` in a forked process, which ends with what it returns.
  template <typename Child>
  static int in_child(Child child) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::alarm(20);
      ::_exit(child());
    }
    int status = -1;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status);
  }
};

TEST_F(MrCacheLimits, DeadlineThatPassesBetweenPiecesLeavesNothing) {
  create_explicit({.piece_bytes = kPage});
  std::atomic<int> calls{0};
  const Mapping memory{64};
  // Once more where the host stood still until the deadline, so that nothing was registered.
  for (int tries = 0; tries < 50 && calls == 0; ++tries) {
    const verbs::Deadline deadline = verbs::deadline_in(std::chrono::milliseconds{200});
    nic_->before_registering = [&calls, deadline] {
      ++calls;
      std::this_thread::sleep_until(deadline + std::chrono::milliseconds{1});
    };
    EXPECT_CODE(cache_->acquire(memory.bytes(), Access::kLocalWrite, deadline), kTimedOut);
  }
  EXPECT_GE(calls, 1);
  EXPECT_LT(calls, 64);
  EXPECT_EQ(nic_->live(), 0U);
  EXPECT_EQ(cache_->counters().pinned_bytes, 0U);
}

TEST_F(MrCacheLimits, PiecesAreRegisteredByMoreThanOneThread) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "one processor";
  create_explicit({.piece_bytes = kPage});
  std::atomic<int> inside{0};
  std::atomic<int> inside_max{0};
  nic_->before_registering = [&] {
    const int now = ++inside;
    int seen = inside_max.load();
    while (seen < now && !inside_max.compare_exchange_weak(seen, now)) {
    }
    // The first waits for a second one, but not for ever.
    EXPECT_TRUE(eventually([&] { return inside_max.load() >= 2; }));
    --inside;
  };
  const Mapping memory{8};
  EXPECT_EQ(acquire(memory.bytes()).piece_count(), 8U);
  EXPECT_GE(inside_max, 2);
}

TEST_F(MrCacheLimits, EvictingStopsAtTheDeadline) {
  create_explicit({.bytes_max = 32 * kPage});
  const Mapping memory{64};
  for (std::size_t i = 0; i < 32; ++i) static_cast<void>(acquire(memory.pages(i, 1)));
  nic_->before_deregistering = [] { std::this_thread::sleep_for(std::chrono::milliseconds{20}); };
  EXPECT_CODE(cache_->acquire(memory.pages(32, 32), Access::kLocalWrite,
                              verbs::deadline_in(std::chrono::milliseconds{50})),
              kTimedOut);
  EXPECT_GT(nic_->live(), 16U);
  nic_->before_deregistering = nullptr;
}

TEST_F(MrCacheLimits, RefusedMemoryIsNotRegistered) {
  create({.unkept = verbs::Unkept::kRefuse});
  ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  const int descriptor = ::memfd_create("mr_cache", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(descriptor, kPage), 0);
  auto* const shared = static_cast<std::byte*>(
      ::mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0));
  EXPECT_CODE(cache_->acquire({shared, kPage}, Access::kLocalWrite), kUnsupported);
  EXPECT_EQ(cache_->counters().refused, 1U);
  EXPECT_EQ(cache_->counters().registrations, 0U);
  const Mapping memory{1};
  static_cast<void>(acquire(memory.bytes()));
  EXPECT_EQ(nic_->live(), 1U);
  ::munmap(shared, kPage);
  ::close(descriptor);
}

TEST_F(MrCacheLimits, MappingsThatTouchAreOneRangeOnlyWhereAllIsPrivate) {
  create();
  ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  Mapping room{4};
  std::byte* const at = room.data();
  const int descriptor = ::memfd_create("mr_cache", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(descriptor, 2 * kPage), 0);
  ASSERT_NE(::mmap(at + 2 * kPage, 2 * kPage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
                   descriptor, 0),
            MAP_FAILED);
  expect_fresh({at, 4 * kPage});
  expect_fresh({at, 4 * kPage});
  EXPECT_EQ(cache_->counters().hits, 0U);
  EXPECT_EQ(cache_->counters().unkept, 2U);
  // Two mappings, since their advice differs; both private.
  ASSERT_NE(::mmap(at + 2 * kPage, 2 * kPage, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            MAP_FAILED);
  ASSERT_EQ(::madvise(at + 2 * kPage, 2 * kPage, MADV_DONTDUMP), 0);
  keep({at, 4 * kPage});
  EXPECT_EQ(cache_->counters().hits, 1U);
  ::munmap(at + 2 * kPage, 2 * kPage);
  wait_for_no_registration();
  Mapping again{2, at + 2 * kPage};
  expect_fresh({at, 4 * kPage});
  again.forget();
  ::close(descriptor);
}

TEST_F(MrCacheLimits, FindGivesWhatIsThereAndRegistersNothing) {
  create_explicit();
  const Mapping memory{4};
  EXPECT_TRUE(cache_->find(memory.bytes(), Access::kLocalWrite).empty());
  EXPECT_EQ(nic_->live(), 0U);
  const auto key = acquire(memory.bytes()).piece(0).lkey;
  const MrLease found = cache_->find(memory.pages(1, 2), Access::kLocalWrite);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.piece(0).lkey, key);
  EXPECT_TRUE(cache_->find(memory.bytes(), Access::kNone).empty()) << "other rights";
  EXPECT_TRUE(cache_->find({}, Access::kLocalWrite).empty());
}

TEST_F(MrCacheLimits, TrimTakesWhatIsIdle) {
  create_explicit();
  const Mapping memory{3};
  const MrLease held = acquire(memory.pages(0, 1));
  static_cast<void>(acquire(memory.pages(1, 1)));
  static_cast<void>(acquire(memory.pages(2, 1)));
  EXPECT_EQ(cache_->trim(), 2U);
  EXPECT_EQ(nic_->live(), 1U);
  EXPECT_EQ(cache_->trim(), 0U);
  EXPECT_FALSE(cache_->find(memory.pages(0, 1), Access::kLocalWrite).empty());
}

TEST_F(MrCacheLimits, DropSoonLeavesDeregisteringToAnotherThread) {
  create();
  ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  Mapping memory{2};
  MrLease held = acquire(memory.bytes());
  memory.unmap();
  ASSERT_TRUE(eventually([&] { return cache_->counters().unmapped != 0; }));
  std::atomic<std::thread::id> by{};
  nic_->before_deregistering = [&] { by = std::this_thread::get_id(); };
  held.drop_soon();
  EXPECT_TRUE(held.empty());
  wait_for_no_registration();
  // Where the change was collected after the lease, that thread did both.
  EXPECT_NE(by.load(), std::this_thread::get_id());
  nic_->before_deregistering = nullptr;
}

TEST_F(MrCacheLimits, DropSoonAfterTheCacheDeregistersAtOnce) {
  create();
  ASSERT_TRUE(cache_->automatic()) << cache_->why_not_automatic();
  const Mapping memory{2};
  MrLease held = acquire(memory.bytes());
  cache_.reset();
  EXPECT_EQ(nic_->live(), 1U);
  held.drop_soon();
  EXPECT_EQ(nic_->live(), 0U);
}

TEST_F(MrCacheLimits, DetachedLeaseComesBackWhole) {
  create_explicit();
  const Mapping memory{2};
  MrLease lease = acquire(memory.bytes());
  const auto key = lease.piece(0).lkey;
  void* const word = lease.detach();
  EXPECT_TRUE(lease.empty());
  EXPECT_EQ(cache_->invalidate(memory.bytes()), 1U);
  EXPECT_EQ(nic_->live(), 1U) << "the word is the lease";
  MrLease back = MrLease::attach(word, memory.bytes());
  EXPECT_EQ(back.piece(0).lkey, key);
  back.drop();
  EXPECT_EQ(nic_->live(), 0U);
}

TEST_F(MrCacheLimits, UserWithoutPrivilegesHasAnAutomaticOne) {
  if (::geteuid() != 0) GTEST_SKIP() << "every other test here is one of such a user";
  EXPECT_EQ(in_child([this] {
              if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0)
                return 1;
              auto cache = verbs::MrCache::create(open().allocate_domain().value());
              if (!cache || !cache->automatic()) return 2;
              Mapping memory{2};
              const auto lease = cache->acquire(memory.bytes(), Access::kLocalWrite);
              return lease.ok() ? 0 : 3;
            }),
            0);
}

// As a container's profile does.
TEST_F(MrCacheLimits, SeccompThatRefusesUserfaultfdIsTold) {
  EXPECT_EQ(in_child([this] {
              std::array<sock_filter, 4> program{
                  sock_filter BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                  sock_filter BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
                  sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                  sock_filter BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
              const sock_fprog filter{program.size(), program.data()};
              if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
                  ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
                return 1;
              auto cache = verbs::MrCache::create(open().allocate_domain().value());
              if (!cache || cache->automatic()) return 2;
              if (cache->why_not_automatic().find("seccomp") == std::string_view::npos) return 3;
              Mapping memory{2};
              for (int i = 0; i < 2; ++i)
                if (!cache->acquire(memory.bytes(), Access::kLocalWrite)) return 4;
              return cache->counters().hits == 0 && cache->counters().unkept == 2 ? 0 : 5;
            }),
            0);
}

}  // namespace
}  // namespace remora::test
