#include <chrono>
#include <gtest/gtest.h>
#include <mutex>
#include <thread>

#include <remora/mutex.h>

namespace remora::detail {
namespace {

using std::chrono::milliseconds;

// A member guarded as those of the product are.
class Counter {
 public:
  void add() {
    const MutexLock lock{mutex_};
    ++count_;
    changed_.notify_all();
  }
  int wait_for_at_least(int wanted) {
    MutexLock lock{mutex_};
    changed_.wait(lock, [this, wanted] {
      mutex_.assert_held();
      return count_ >= wanted;
    });
    return count_;
  }
  bool wait_briefly_for(int wanted) {
    MutexLock lock{mutex_};
    return changed_.wait_for(lock, milliseconds{1}, [this, wanted] {
      mutex_.assert_held();
      return count_ >= wanted;
    });
  }
  std::cv_status wait_until_past() {
    MutexLock lock{mutex_};
    return changed_.wait_until(lock, std::chrono::steady_clock::now() - milliseconds{1});
  }

 private:
  Mutex mutex_;
  Condition changed_;
  int count_ REMORA_GUARDED_BY(mutex_) = 0;
};

// Whether another thread could lock it now.
bool is_free(Mutex& mutex) {
  bool free = false;
  std::thread{[&mutex, &free] {
    if (!mutex.try_lock()) return;
    free = true;
    mutex.unlock();
  }}.join();
  return free;
}

TEST(Mutex, LockedOneIsRefusedToAnotherThread) {
  Mutex mutex;
  mutex.lock();
  EXPECT_FALSE(is_free(mutex));
  mutex.unlock();
  EXPECT_TRUE(is_free(mutex));
}

TEST(MutexLock, HoldsUntilTheEndOfItsScope) {
  Mutex mutex;
  {
    const MutexLock lock{mutex};
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
}

TEST(MutexLock, UnlockedOneCanBeLockedAgain) {
  Mutex mutex;
  {
    MutexLock lock{mutex};
    lock.unlock();
    EXPECT_TRUE(is_free(mutex));
    lock.lock();
    EXPECT_FALSE(is_free(mutex));
  }
  EXPECT_TRUE(is_free(mutex));
}

TEST(MutexLock, UnlockedOneIsNotUnlockedTwice) {
  Mutex mutex;
  {
    MutexLock lock{mutex};
    lock.unlock();
  }
  EXPECT_TRUE(is_free(mutex));
}

TEST(MutexLock, AdoptedMutexIsUnlockedAtTheEnd) {
  Mutex mutex;
  if (mutex.try_lock()) {
    const MutexLock lock{mutex, std::adopt_lock};
    EXPECT_FALSE(is_free(mutex));
  } else {
    ADD_FAILURE() << "a mutex that no thread holds could not be locked";
  }
  EXPECT_TRUE(is_free(mutex));
}

TEST(Condition, WaitEndsOnceAnotherThreadMadeItTrue) {
  Counter counter;
  std::thread other{[&counter] {
    counter.add();
    counter.add();
  }};
  EXPECT_EQ(counter.wait_for_at_least(2), 2);
  other.join();
}

TEST(Condition, WaitForSaysWhatThePredicateSaysAtTheEnd) {
  Counter counter;
  EXPECT_FALSE(counter.wait_briefly_for(1));
  counter.add();
  EXPECT_TRUE(counter.wait_briefly_for(1));
}

TEST(Condition, DeadlineThatHasPassedIsATimeout) {
  Counter counter;
  EXPECT_EQ(counter.wait_until_past(), std::cv_status::timeout);
}

}  // namespace
}  // namespace remora::detail
