#pragma once

/// The control channel of one session: requests and their answers over the session's current
/// connection.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "client/session/session_state.h"
#include "protocol/messages.h"
#include "transport/client_endpoint.h"
#include "transport/control_message.h"

namespace remora::detail {

class SessionCore;

/// Sends requests, and gives each answer to the call that waits for it. Tells the session of events
/// and of the end of a connection. Connections are numbered from 1 upwards.
///
/// Thread-safe, unless said otherwise. While a mutex of the channel is locked, no function calls
/// the session, except to read values that need no mutex.
class ControlChannel {
 public:
  /// A reply that is no failure.
  struct Answer {
    control::Reply reply;
    std::vector<UniqueFd> descriptors;
    std::vector<std::byte> raw;    ///< the message as it came
    std::uint64_t connection = 0;  ///< the number of its connection
  };
  /// The result of a request whose answer no caller waits for.
  enum class Sent : std::uint8_t {
    kSent,
    kLater,  ///< there is no room for it now
    kGone    ///< its connection is no more
  };
  struct Connection {
    std::shared_ptr<transport::ClientEndpoint> endpoint;
    std::uint64_t number = 0;
  };

  /// `session` owns the channel. `loop`: of the engine.
  ControlChannel(SessionCore& session, EventLoop& loop,
                 std::shared_ptr<transport::ClientEndpoint> endpoint) noexcept;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  ~ControlChannel();

  // The connection.
  /// The latest connection, also when it has been left.
  [[nodiscard]] Connection connection() const;
  [[nodiscard]] std::shared_ptr<transport::ClientEndpoint> endpoint() const {
    return connection().endpoint;
  }
  [[nodiscard]] std::uint64_t number() const {
    const MutexLock lock{mutex_};
    return number_;
  }
  /// Whether `number` is the current connection, and that is up or coming up.
  [[nodiscard]] bool is_current(std::uint64_t number) const noexcept {
    const MutexLock lock{mutex_};
    return reachable() && number == number_;
  }
  /// From now on the control thread reads what the server sends on that connection. Errors: those
  /// of EventLoop::watch().
  Status watch(const Connection& connection);
  /// Until the next watch(), messages of the server are not read.
  void unwatch();
  /// Everything that the server has said on the latest connection has been read.
  [[nodiscard]] bool read_to_end() const noexcept {
    return read_to_end_.load(std::memory_order_acquire);
  }
  /// Reads the messages that have arrived, for a caller that wants to know why a connection or a
  /// lane ends. The control thread reads them; the caller waits for that at most 50 ms, and does
  /// not wait if it is the control thread.
  void await_last_messages() noexcept;
  /// When the channel last read a message of the server; KeepAlive sets it after this process stood
  /// still.
  [[nodiscard]] Clock::time_point heard_at() const noexcept {
    return Clock::time_point{Clock::duration{heard_at_.load(std::memory_order_relaxed)}};
  }
  void set_heard_at(Clock::time_point at) noexcept {
    heard_at_.store(at.time_since_epoch().count(), std::memory_order_relaxed);
  }

  /// The session's state. The session sets it, with its own mutex locked.

  /// The next connection follows. Until open() only the calling thread may make calls. Returns its
  /// number.
  std::uint64_t begin_joining(std::shared_ptr<transport::ClientEndpoint> endpoint);
  /// Every thread may make calls again.
  void open();
  /// After open(), once the lanes go on: calls that wait for room look again.
  void wake_calls();
  /// The connection is left for good (`next`: kDown or kEnded): calls that wait for an answer end.
  /// Returns its endpoint.
  std::shared_ptr<transport::ClientEndpoint> abandon_connection(SessionState next);
  /// abandon_connection(kEnded) by the destructor of the session, from any state.
  void close();

  // Requests.
  /// Sends `request` and waits for its answer, until `deadline`. `raw` takes the request as it was
  /// sent.
  Result<Answer> call(control::Request request, Operation operation, Deadline deadline,
                      std::vector<std::byte>* raw);
  /// Sends a request, and waits for nothing. The request counts as unanswered until its answer
  /// comes, which is dropped. `number`: the connection to send it on; 0: any. `asked_id` gets the
  /// request's number. One such request has room beside those whose callers wait.
  Sent ask_unanswered(control::Request request, std::uint64_t number = 0,
                      std::uint64_t* asked_id = nullptr) noexcept;
  /// Closes a grant: the request is sent at once, or when there is room for it, but before any
  /// later call. Waits for nothing. Once the session has ended, it does nothing.
  void close_grant(std::uint64_t grant_id) noexcept;
  /// Sends as many close requests as there is room for.
  void send_closes() noexcept;
  /// Drops the close requests: from the next hello the server learns which grants are held.
  void forget_closes();
  /// Requests that the server has not answered.
  [[nodiscard]] std::size_t unanswered() const {
    const MutexLock lock{mutex_};
    return waiters_.size();
  }
  [[nodiscard]] bool is_unanswered(std::uint64_t id) const {
    const MutexLock lock{mutex_};
    return waiters_.contains(id);
  }
  /// Waits until the sent messages have left this host, or `until`.
  void flush(Deadline until);

 private:
  struct Waiter {
    Condition ready;
    std::optional<Answer> answer;
    std::uint64_t number = 0;  ///< the connection on which it was sent
  };
  [[nodiscard]] bool reachable() const noexcept REMORA_REQUIRES(mutex_) {
    return state_ == SessionState::kUp || state_ == SessionState::kJoining;
  }
  /// Whether the calling thread may make a call now.
  [[nodiscard]] bool may_call() const noexcept REMORA_REQUIRES(mutex_) {
    return state_ == SessionState::kUp ||
           (state_ == SessionState::kJoining && std::this_thread::get_id() == joining_);
  }
  void end_waits() REMORA_REQUIRES(mutex_);
  Result<std::shared_ptr<transport::ClientEndpoint>> enter(Waiter& waiter, std::uint64_t& id,
                                                           Operation operation, Deadline deadline);
  Status leave_call(Waiter& waiter, std::uint64_t id, Operation operation, const Status& sent,
                    Clock::time_point asked_at, Deadline deadline);
  [[nodiscard]] Error lost(Operation operation) const noexcept;
  void read(transport::ClientEndpoint& endpoint, std::uint64_t number) noexcept;
  void end_connection(std::uint64_t number, bool wrongly) noexcept;
  void deliver(transport::ControlMessage message, std::uint64_t number);
  [[nodiscard]] static Result<std::vector<std::byte>> encode(control::Request request,
                                                             std::uint64_t id);
  Status send(transport::ClientEndpoint& endpoint, control::Request request, std::uint64_t id,
              Deadline deadline, std::vector<std::byte>* raw = nullptr);

  SessionCore& session_;
  EventLoop& loop_;
  std::atomic<Clock::rep> heard_at_;
  std::atomic<bool> read_to_end_{false};
  /// Held while a request is sent: requests leave one after the other.
  Mutex send_mutex_ REMORA_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  SessionState state_ REMORA_GUARDED_BY(mutex_) = SessionState::kUp;
  std::thread::id joining_ REMORA_GUARDED_BY(mutex_);  ///< of the thread by which the session joins
  std::shared_ptr<transport::ClientEndpoint> endpoint_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t number_ REMORA_GUARDED_BY(mutex_) = 1;  ///< of endpoint_
  EventLoop::Token watch_ REMORA_GUARDED_BY(mutex_) = 0;
  Condition room_;  ///< for one more call
  /// Requests that the server has not answered; null: no caller waits for the answer.
  std::unordered_map<std::uint64_t, Waiter*> waiters_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t next_id_ REMORA_GUARDED_BY(mutex_) = 1;
  /// Closed grants whose close request has not been sent.
  std::vector<std::uint64_t> to_close_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
