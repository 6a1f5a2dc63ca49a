#pragma once

/// A thread that calls handlers when descriptors become readable: the control thread of an engine
/// or of a server. Never on the data path.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <sys/epoll.h>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/service_state.h"
#include "base/service_thread.h"

namespace remora {

/// Owns the thread. An engine or a server owns the loop. Thread-safe, unless a function says
/// otherwise.
class EventLoop {
 public:
  using Handler = std::function<void()>;

  /// The thread calls `first` before all other handlers. Errors: kSystem (see Reason::kNoThread),
  /// kOutOfMemory.
  static Result<std::unique_ptr<EventLoop>> start(const char* thread_name, Handler first = {});
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  using Token = std::uint64_t;
  /// The order of handlers whose descriptors are readable at the same time. kLast: after all
  /// others.
  enum class Turn : std::uint8_t { kAny, kLast };
  /// Calls `handler` on the loop's thread while `fd` is readable or hung up. Any thread.
  Result<Token> watch(int fd, Handler handler, Turn turn = Turn::kAny);
  /// On return the handler does not run, unless it is the caller, and will not run again. Any
  /// thread.
  void forget(Token token) noexcept;
  /// As forget(), but the handler may still be running on return. Never blocks.
  void drop(Token token) noexcept;
  /// Ends the thread; on return no handler runs. The functions of a stopped loop have no effect.
  /// Idempotent. Not from a handler.
  void stop() noexcept;
  /// Calls `task` once, soon, and destroys it on the loop's thread, or elsewhere if that thread has
  /// ended. Any thread; never blocks.
  void run_soon(Handler task);
  /// Calls `task` about every `period` until the loop ends. Call this before watch().
  void every(std::chrono::milliseconds period, Handler task);

  [[nodiscard]] bool is_loop_thread() const noexcept { return state_->service.is_this_thread(); }

  /// For an owner that releases a loop of which a handler of the loop may be the last owner. The
  /// owner makes this object before it releases the loop, and destroys it after that. The
  /// destructor waits until the handler that was running has returned and all tasks of run_soon()
  /// have run; if that has destroyed the loop, it waits until the thread has ended. It does not
  /// wait on the loop's own thread, nor where there is no memory for the wait.
  class Parting;

 private:
  struct Watch {
    int fd;
    std::shared_ptr<Handler> handler;
  };
  /// Shared with the thread, which may live longer than the loop: a handler of the loop may be its
  /// last owner.
  struct State {
    ServiceState service;
    detail::Mutex running REMORA_ACQUIRED_BEFORE(mutex);  ///< held while a handler runs
    detail::Mutex mutex;
    std::unordered_map<Token, Watch> watches REMORA_GUARDED_BY(mutex);
    Token next_token REMORA_GUARDED_BY(mutex) = 1;
    Handler periodic REMORA_GUARDED_BY(mutex);
    std::chrono::milliseconds period REMORA_GUARDED_BY(mutex){0};
    std::vector<Handler> soon REMORA_GUARDED_BY(mutex);
    /// The thread runs no further handler.
    bool ended REMORA_GUARDED_BY(mutex) = false;
    /// Number of Parting objects that exist.
    std::size_t partings REMORA_GUARDED_BY(mutex) = 0;
    /// The thread of a loop that was destroyed on that thread; the last Parting joins it.
    std::thread left REMORA_GUARDED_BY(mutex);
  };
  explicit EventLoop(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
  static void run(State& state) noexcept;
  static void end(State& state) noexcept;
  static void dispatch(State& state, Token token) noexcept;
  static void dispatch_all(State& state, std::span<const epoll_event> events, Turn turn) noexcept;
  static void run_all_soon(State& state) noexcept;

  std::shared_ptr<State> state_;
  ServiceThread thread_;
};

/// Used by one thread.
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
