#pragma once

/// A thread that calls back when descriptors become readable: the control thread of an engine or
/// of a server. Never on the data path.

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/service_thread.h"

namespace remora {

class EventLoop {
 public:
  using Handler = std::function<void()>;

  /// The thread calls `first` before anything else. Errors: kSystem (see
  /// Reason::kNoThread), kOutOfMemory.
  static Result<std::unique_ptr<EventLoop>> start(const char* thread_name, Handler first = {});
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  using Token = std::uint64_t;
  /// Calls `handler` on the loop's thread while `fd` is readable or hung up. Any thread.
  Result<Token> watch(int fd, Handler handler);
  /// On return the handler is not running (unless it is the caller) and never will. Any thread.
  void forget(Token token) noexcept;
  /// As forget(), but the handler may still be running on return. Never blocks.
  void drop(Token token) noexcept;
  /// Ends the thread; on return no handler runs. Everything may still be called, to no effect.
  /// Idempotent. Not from a handler.
  void stop() noexcept;
  /// Calls `task` once, soon. Destroys it on the loop's thread, too, unless that has ended. Any
  /// thread; never blocks.
  void run_soon(Handler task);
  /// Calls `task` about every `period` until the loop ends. Set before anything is watched.
  void every(std::chrono::milliseconds period, Handler task);

  [[nodiscard]] bool is_loop_thread() const noexcept { return state_->service.is_this_thread(); }

  /// For an owner that gives up a loop of which one of the loop's own handlers may be the last
  /// owner: made before the owner gives it up, destroyed after. Its destructor waits until the
  /// handler that was running has returned and what run_soon() was given has run; where that has
  /// destroyed the loop, until the thread has ended, too. It does not wait on the loop's own
  /// thread, nor where there is no memory for it.
  class Parting;

 private:
  struct Watch {
    int fd;
    std::shared_ptr<Handler> handler;
  };
  /// Shared with the thread, which may outlive the loop: the last owner of a loop may be one of its
  /// own handlers.
  struct State {
    ServiceState service;
    detail::Mutex running REMORA_ACQUIRED_BEFORE(mutex);  ///< held while a handler runs
    detail::Mutex mutex;
    std::unordered_map<Token, Watch> watches REMORA_GUARDED_BY(mutex);
    Token next_token REMORA_GUARDED_BY(mutex) = 1;
    Handler periodic REMORA_GUARDED_BY(mutex);
    std::chrono::milliseconds period REMORA_GUARDED_BY(mutex){0};
    std::vector<Handler> soon REMORA_GUARDED_BY(mutex);
    /// The thread runs no handler any more.
    bool ended REMORA_GUARDED_BY(mutex) = false;
    /// Parting objects that exist.
    std::size_t partings REMORA_GUARDED_BY(mutex) = 0;
    /// The thread of a loop that was destroyed on it; the last Parting joins it.
    std::thread left REMORA_GUARDED_BY(mutex);
  };
  explicit EventLoop(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
  static void run(State& state) noexcept;
  static void end(State& state) noexcept;
  static void dispatch(State& state, Token token) noexcept;
  static void run_all_soon(State& state) noexcept;

  std::shared_ptr<State> state_;
  ServiceThread thread_;
};

class EventLoop::Parting {
 public:
  explicit Parting(const EventLoop& loop) noexcept;
  ~Parting();
  Parting(const Parting&) = delete;
  Parting& operator=(const Parting&) = delete;

 private:
  void wait() noexcept;

  std::shared_ptr<State> state_;
};

}  // namespace remora
