#pragma once

/// The one header that knows oneTBB: a task arena whose workers run where the engine's threads do.

#include <tbb/task_arena.h>
#include <tbb/task_scheduler_observer.h>
#include <utility>

#include "support/placement.h"

namespace remora::detail {

class Arena {
 public:
  /// `threads` at once, `callers` of them kept for those that call execute().
  Arena(int threads, unsigned callers, const Placement& placement)
      : tasks_{threads, callers}, binder_{tasks_, placement} {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  [[nodiscard]] tbb::task_arena& tasks() noexcept { return tasks_; }

 private:
  /// Workers are the process's, not ours: each is bound when it comes to the arena, and as it was
  /// when it leaves.
  class Binder final : public tbb::task_scheduler_observer {
   public:
    Binder(tbb::task_arena& arena, const Placement& placement)
        : task_scheduler_observer{arena}, placement_{placement} {
      if (!placement_.processors().empty()) observe(true);
    }
    ~Binder() override { observe(false); }
    Binder(const Binder&) = delete;
    Binder& operator=(const Binder&) = delete;
    void on_scheduler_entry(bool is_worker) override {
      if (is_worker) before() = placement_.borrow_thread();
    }
    void on_scheduler_exit(bool is_worker) override {
      if (is_worker) placement_.release_thread(std::exchange(before(), {}));
    }

   private:
    /// A worker is in one arena at a time.
    static ThreadBinding& before() {
      static thread_local ThreadBinding binding;
      return binding;
    }
    Placement placement_;
  };

  tbb::task_arena tasks_;
  Binder binder_;
};

}  // namespace remora::detail
