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
/// also on the same regions. In the thread of run(), `co_await region.async().read(...)` finds the
/// executor by itself, in a coroutine of any type. In other threads a poller of the engine resumes
/// the same coroutine: see async.h.

#include <cstddef>
#include <memory>
#include <utility>

#include <remora/engine/async.h>
#include <remora/engine/task.h>
#include <remora/owned.h>
#include <remora/result.h>

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
  /// Not during run(), except by exit(3), which destroys static objects: operations in flight then
  /// keep what they use until the process has ended.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// Runs `task` to its end and returns its result. Blocks; operations keep their deadlines. At the
  /// end nothing is in flight, and the executor releases the regions that it has used. A coroutine
  /// that the task began and that outlives it, by Task::start(), is resumed in this thread by the
  /// operation that it awaits; what it awaits after that is awaited outside of run().
  ///
  /// Errors: kBusy if this executor runs a task already, in this thread or another one, and T can
  /// be made from an Error; for any other T std::terminate() ends the program. Do not call it from
  /// inside a task of another executor either: it blocks the tasks of that one. A task that waits
  /// while no operation is in flight that could resume it is a fault of the program, which then
  /// ends by std::terminate() after a line on stderr.
  template <typename T>
  T run(Task<T> task) {
    if (!task) return detail::end_of_empty_task<T>();
    const Status driven =
        drive(&has_ended<T>, &task, [](void* started) { static_cast<Task<T>*>(started)->start(); });
    if (!driven) return detail::end_without_result<T>(driven.error());
    return std::move(task.result());
  }

 private:
  template <typename T>
  static bool has_ended(void* task) noexcept {
    return static_cast<Task<T>*>(task)->done();
  }
  Status drive(bool (*ended)(void*) noexcept, void* task, void (*start)(void*));

  detail::OwnedUnique<detail::ExecutorCore> core_;
};

}  // namespace remora
