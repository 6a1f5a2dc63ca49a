#pragma once

/// Connects an interrupted session to its server again.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "client/session/server_connector.h"

namespace remora::detail {

class SessionCore;

/// When a lane breaks, or the server fails or is silent, the session is interrupted: it moves its
/// lanes to the error state, and a thread of the reconnector connects again. The server destroys
/// the old lanes before it answers, and the session continues with its grants. If the server has
/// new memory, or has ended the session, the session ends. The session owns it.
class Reconnector {
 public:
  Reconnector(SessionCore& session, const ServerConnector& connector);
  ~Reconnector();
  Reconnector(const Reconnector&) = delete;
  Reconnector& operator=(const Reconnector&) = delete;

  /// Called when the session was interrupted, by the thread that changes the session's state.
  /// Starts the thread if none runs; a running thread tries for EngineOptions::reconnect_for from
  /// now on. Errors: those of start_thread().
  Status begin();
  /// The destructor of the session, which has ended, calls it. The thread ends. If it is
  /// connecting, it is detached, ends after that by itself, and does not access the session any
  /// more.
  void stop() noexcept;

  [[nodiscard]] bool is_own_thread() const noexcept {
    return own_thread_.load() == std::this_thread::get_id();
  }
  /// Why the latest attempt to connect again has failed; kNone: none has failed, or the session is
  /// up.
  [[nodiscard]] Reason unreached() const noexcept { return unreached_.load(); }
  void session_is_up() noexcept { unreached_.store(Reason::kNone); }

 private:
  /// Shared by the thread and the session, which does not wait for a silent server.
  struct Attempt {
    explicit Attempt(ServerConnector to) : connector{std::move(to)} {}
    const ServerConnector connector;
    Mutex mutex;
    bool connecting REMORA_GUARDED_BY(mutex) =
        false;  ///< The session has been destroyed, or is about to be.
    bool abandoned REMORA_GUARDED_BY(mutex) =
        false;  ///< The thread touches nothing of the session.
  };
  void run() noexcept;
  [[nodiscard]] bool end_work() noexcept;
  void give_up() noexcept;
  /// `until`: the end of the time to reconnect.
  [[nodiscard]] bool reconnect_once(Deadline until) noexcept;
  Status resume(Deadline deadline, Deadline until);
  void await_grant_events(Deadline deadline) noexcept;
  [[nodiscard]] static Reason why_unreached(const Error& error) noexcept;
  void set_next_attempt(const Error& failed_by) noexcept;

  SessionCore& session_;
  const std::shared_ptr<Attempt> attempt_;
  std::thread thread_;  ///< used by begin() and stop(), which never run at the same time
  std::atomic<std::thread::id> own_thread_{};
  std::atomic<Reason> unreached_{Reason::kNone};
  Reason attempt_failed_by_ = Reason::kNone;  ///< reason of the latest failure; used by the thread
  std::chrono::milliseconds attempt_time_;    ///< for the next attempt; used by the thread
  mutable Mutex mutex_;
  bool at_work_ REMORA_GUARDED_BY(mutex_) = false;
  std::uint64_t interruptions_ REMORA_GUARDED_BY(mutex_) = 0;
};

}  // namespace remora::detail
