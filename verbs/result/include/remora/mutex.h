#pragma once

/// Mutexes whose use clang checks (-Wthread-safety; an error in CI). Under g++ the annotations are
/// empty.
///
/// A member that a mutex guards is annotated, and so is a function whose caller must hold the
/// mutex:
///
///     detail::Mutex mutex_;
///     std::size_t waiting_ REMORA_GUARDED_BY(mutex_) = 0;
///     void wake_all() REMORA_REQUIRES(mutex_);
///
/// clang checks the body of a lambda separately. A predicate that Condition calls with the mutex
/// held declares that in its first line: `mutex_.assert_held();`. Source: Clang documentation,
/// "Thread Safety Analysis".

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#if defined(__clang__)
#define REMORA_THREAD_ATTRIBUTE(x) __attribute__((x))
#else
#define REMORA_THREAD_ATTRIBUTE(x)
#endif

#define REMORA_CAPABILITY(name) REMORA_THREAD_ATTRIBUTE(capability(name))
#define REMORA_SCOPED_CAPABILITY REMORA_THREAD_ATTRIBUTE(scoped_lockable)
/// A member that is read and written only with the mutex held.
#define REMORA_GUARDED_BY(mutex) REMORA_THREAD_ATTRIBUTE(guarded_by(mutex))
/// A pointer whose object is guarded, while the pointer itself is not.
#define REMORA_PT_GUARDED_BY(mutex) REMORA_THREAD_ATTRIBUTE(pt_guarded_by(mutex))
/// The mutex is locked before (after) the others if both are held. For the reader: clang 14 checks
/// it only with -Wthread-safety-beta.
#define REMORA_ACQUIRED_BEFORE(...) REMORA_THREAD_ATTRIBUTE(acquired_before(__VA_ARGS__))
#define REMORA_ACQUIRED_AFTER(...) REMORA_THREAD_ATTRIBUTE(acquired_after(__VA_ARGS__))
/// The caller holds (does not hold) the mutexes.
#define REMORA_REQUIRES(...) REMORA_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define REMORA_EXCLUDES(...) REMORA_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
/// The function locks, unlocks or tries to lock.
#define REMORA_ACQUIRE(...) REMORA_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define REMORA_RELEASE(...) REMORA_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define REMORA_TRY_ACQUIRE(...) REMORA_THREAD_ATTRIBUTE(try_acquire_capability(__VA_ARGS__))
/// After the call the mutex counts as held, for code that clang cannot follow.
#define REMORA_ASSERT_CAPABILITY(mutex) REMORA_THREAD_ATTRIBUTE(assert_capability(mutex))
#define REMORA_RETURN_CAPABILITY(mutex) REMORA_THREAD_ATTRIBUTE(lock_returned(mutex))
/// clang does not check the function. The comment beside it gives the reason.
#define REMORA_NO_THREAD_SAFETY_ANALYSIS REMORA_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace remora::detail {

/// A std::mutex that clang checks. Not recursive.
class REMORA_CAPABILITY("mutex") Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  /// Blocks until the mutex is free. Not from the thread that holds it.
  void lock() REMORA_ACQUIRE() { mutex_.lock(); }
  /// Only from the thread that holds it.
  void unlock() REMORA_RELEASE() { mutex_.unlock(); }
  /// Never blocks. True: this thread holds the mutex.
  [[nodiscard]] bool try_lock() REMORA_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  /// Tells clang that the mutex is held here. Does nothing.
  void assert_held() const noexcept REMORA_ASSERT_CAPABILITY(this) {}
  /// The wrapped mutex, for MutexLock.
  [[nodiscard]] std::mutex& native() noexcept { return mutex_; }

 private:
  std::mutex mutex_;
};

/// Holds a Mutex until the end of a scope. May be unlocked and locked again meanwhile.
class REMORA_SCOPED_CAPABILITY MutexLock {
 public:
  /// Blocks until `mutex` is free, which must outlive this object.
  explicit MutexLock(Mutex& mutex) REMORA_ACQUIRE(mutex) : lock_{mutex.native()} {}
  /// Holds a mutex that the caller has locked, for example by try_lock().
  MutexLock(Mutex& mutex, std::adopt_lock_t adopt) REMORA_REQUIRES(mutex)
      : lock_{mutex.native(), adopt} {}
  ~MutexLock() REMORA_RELEASE() = default;
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  /// Locks again after unlock(). Blocks.
  void lock() REMORA_ACQUIRE() { lock_.lock(); }
  /// Gives the mutex free before the end of the scope.
  void unlock() REMORA_RELEASE() { lock_.unlock(); }
  /// For waits that Condition does not offer, such as those that end with a stop token.
  [[nodiscard]] std::unique_lock<std::mutex>& native() noexcept { return lock_; }

 private:
  std::unique_lock<std::mutex> lock_;
};

/// A std::condition_variable that waits with a MutexLock. The predicate runs with it held.
class Condition {
 public:
  /// Wakes one of the threads that wait.
  void notify_one() noexcept { condition_.notify_one(); }
  /// Wakes all threads that wait.
  void notify_all() noexcept { condition_.notify_all(); }

  /// Blocks until a notification; may return without one.
  void wait(MutexLock& lock) { condition_.wait(lock.native()); }
  /// Blocks until `predicate` is true.
  template <typename Predicate>
  void wait(MutexLock& lock, Predicate predicate) {
    condition_.wait(lock.native(), std::move(predicate));
  }
  /// The value of the predicate at the end; false: the deadline passed before it was true.
  template <typename Clock, typename Duration, typename Predicate>
  bool wait_until(MutexLock& lock, const std::chrono::time_point<Clock, Duration>& deadline,
                  Predicate predicate) {
    return condition_.wait_until(lock.native(), deadline, std::move(predicate));
  }
  /// Blocks until a notification or `deadline`; may return without either.
  template <typename Clock, typename Duration>
  std::cv_status wait_until(MutexLock& lock,
                            const std::chrono::time_point<Clock, Duration>& deadline) {
    return condition_.wait_until(lock.native(), deadline);
  }
  /// The value of the predicate at the end; false: `time` passed before it was true.
  template <typename Rep, typename Period, typename Predicate>
  bool wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time,
                Predicate predicate) {
    return condition_.wait_for(lock.native(), time, std::move(predicate));
  }
  /// Blocks until a notification, for `time` at most; may return earlier.
  template <typename Rep, typename Period>
  std::cv_status wait_for(MutexLock& lock, const std::chrono::duration<Rep, Period>& time) {
    return condition_.wait_for(lock.native(), time);
  }

 private:
  std::condition_variable condition_;
};

}  // namespace remora::detail
