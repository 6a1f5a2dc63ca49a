#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <remora/assert.h>
#include <remora/mutex.h>

namespace remora::transport::rdma {

/// Counts the lanes of an endpoint that a reaper has not destroyed yet. Thread-safe.
class LaneDestruction {
 public:
  /// Counts one lane while it exists.
  class Mark {
   public:
    explicit Mark(std::shared_ptr<LaneDestruction> counter) noexcept
        : counter_{std::move(counter)} {
      const remora::detail::MutexLock lock{counter_->mutex_};
      ++counter_->left_;
    }
    Mark(Mark&&) noexcept = default;
    Mark& operator=(Mark&&) = delete;
    ~Mark() {
      if (counter_ == nullptr) return;
      const remora::detail::MutexLock lock{counter_->mutex_};
      REMORA_ASSERT(counter_->left_ != 0, "each mark was counted");
      if (--counter_->left_ == 0) counter_->none_left_.notify_all();
    }

   private:
    std::shared_ptr<LaneDestruction> counter_;
  };
  /// Blocks until the count is 0.
  void wait() {
    remora::detail::MutexLock lock{mutex_};
    none_left_.wait(lock, [this] {
      mutex_.assert_held();
      return left_ == 0;
    });
  }

 private:
  remora::detail::Mutex mutex_;
  remora::detail::Condition none_left_;
  std::size_t left_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::transport::rdma
