#pragma once

/// Executor: runs coroutines over remote memory in the thread that calls run().
///
/// The operations that the tasks await of Region::async() are submitted together, one doorbell a
/// region and round, and tasks are resumed in this thread only: no lock, no thread of the engine's,
/// no hand-over between threads. What another thread ends, an operation of an AsyncQueue or a
/// control call, is handed over to this thread.
///
///   remora::Executor executor;
///   remora::Status copied = executor.run(copy(from, to, slots));
///
/// Thread safety: an executor belongs to one thread at a time; several may run at once, also on the
/// same regions. Inside a task, `co_await region.async().read(...)` finds the executor by itself.
/// Without an executor a poller of the engine resumes the same task: see async.h.

#include <cstddef>
#include <memory>
#include <utility>

#include <remora/engine/async.h>
#include <remora/engine/task.h>
#include <remora/owned.h>

namespace remora {

namespace detail {
class ExecutorCore;
}

struct ExecutorOptions {
  /// Operations in flight on one region; what is awaited beyond waits for its turn.
  std::size_t depth = 64;
};

class Executor {
 public:
  explicit Executor(const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs `task` to its end and returns what it ended with. Blocks; operations keep their
  /// deadlines. Regions that it used are let go at the end. Never called from inside a task. A task
  /// that waits for what no operation will ever resume is a fault of the program, which ends by
  /// std::terminate.
  template <typename T>
  T run(Task<T> task) {
    if (!task) return detail::end_of_empty_task<T>();
    drive(&has_ended<T>, &task, [](void* started) { static_cast<Task<T>*>(started)->start(); });
    return std::move(task.result());
  }

 private:
  template <typename T>
  static bool has_ended(void* task) noexcept {
    return static_cast<Task<T>*>(task)->done();
  }
  void drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*));

  detail::OwnedUnique<detail::ExecutorCore> core_;
};

}  // namespace remora
