#pragma once

/// Executor: runs coroutines over remote memory in the thread that calls run().
///
/// The operations of Region::async() that the tasks await are submitted together, with one doorbell
/// for each region and round, and tasks are resumed in this thread only: without a lock and without
/// another thread. If another thread ends an operation of an AsyncQueue or a control call, it
/// passes the end to this thread.
///
///   remora::Executor executor;
///   remora::Status copied = executor.run(copy(from, to, slots));
///
/// Thread safety: an executor belongs to one thread at a time; several executors may run at once,
/// also on the same regions. Inside a task, `co_await region.async().read(...)` finds the executor
/// by itself. Without an executor a poller of the engine resumes the same task: see async.h.

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

/// The options of an executor.
struct ExecutorOptions {
  /// The most operations in flight on one region; an operation beyond it waits for its turn.
  std::size_t depth = 64;
};

/// See the top of this file.
class Executor {
 public:
  /// Opens no descriptor and starts no thread. Allocates.
  explicit Executor(const ExecutorOptions& options = {});
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs `task` to its end and returns its result. Blocks; operations keep their deadlines. The
  /// executor releases the regions that it has used at the end. Never call it from inside a task. A
  /// task that waits without an operation that will resume it is a fault of the program, which then
  /// ends by std::terminate.
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
