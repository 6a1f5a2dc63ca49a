#pragma once

/// One thread that calls back when descriptors become readable: the control thread of an engine or
/// of a server. Never on the data path.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/result.h>

#include "base/clock.h"
#include "base/unique_fd.h"

namespace remora {

class EventLoop {
 public:
  using Handler = std::function<void()>;

  /// `first`: what the thread does before anything else. Errors: kSystem (see
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
  /// Calls `task` once, soon. What it holds is let go of on the loop's thread, too, unless that has
  /// ended. Any thread; never blocks.
  void run_soon(Handler task);
  /// Calls `task` about every `period` until the loop ends. Set before anything is watched.
  void every(std::chrono::milliseconds period, Handler task);

  [[nodiscard]] bool is_loop_thread() const noexcept {
    return std::this_thread::get_id() == state_->thread_id.load();
  }

  /// Of who gives up a loop that one of its own handlers may be the last to own: made before, goes
  /// after. Then what the thread was at is over and what it had been asked to run has run; where
  /// that has ended the loop, the thread has ended, too. Does not wait on the loop's own thread,
  /// nor where there is no memory for it.
  class Parting;

 private:
  struct Watch {
    int fd;
    std::shared_ptr<Handler> handler;
  };
  /// Shared with the thread, which may outlive the loop: the last owner of a loop may be one of its
  /// own handlers.
  struct State {
    UniqueFd epoll;
    UniqueFd wake;
    std::mutex mutex;
    std::unordered_map<Token, Watch> watches;
    Token next_token = 1;
    std::mutex running;  // held while a handler runs
    Handler periodic;
    std::chrono::milliseconds period{0};
    std::vector<Handler> soon;
    bool ended = false;        // the thread runs nothing any more; with mutex, as what follows
    std::size_t partings = 0;  // that wait, or will
    std::thread left;          // to them, by a loop that has ended on its own thread
    std::atomic<bool> stop{false};
    std::atomic<std::thread::id> thread_id;
  };
  explicit EventLoop(std::shared_ptr<State> state) noexcept : state_{std::move(state)} {}
  static void run(State& state) noexcept;
  static void end(State& state) noexcept;
  static void dispatch(State& state, Token token) noexcept;
  static void run_all_soon(State& state) noexcept;

  std::shared_ptr<State> state_;
  std::thread thread_;
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
