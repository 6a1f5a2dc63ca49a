#pragma once

/// The control channel of a session: its requests and their answers, over the session's current
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
/// The session owns it. Thread-safe, unless a function says otherwise. While a mutex of the channel
/// is locked, no function calls the session, except to read values that need no mutex.
class ControlChannel {
 public:
  /// A reply that is not a failure.
  struct Answer {
    control::Reply reply;
    std::vector<UniqueFd> descriptors;
    std::vector<std::byte> raw;    ///< the message as it was received
    std::uint64_t connection = 0;  ///< the number of the connection
  };
  /// The most requests of one call_together(): fewer than the server has room for, so that requests
  /// of other callers need not wait for all of them.
  static constexpr std::size_t kMaxTogether = transport::kMaxControlRequests / 2;
  /// The result of a request for whose answer no caller waits.
  enum class Sent : std::uint8_t {
    kSent,
    kLater,  ///< there is no room for the request now
    kGone    ///< the connection has ended
  };
  struct Connection {
    std::shared_ptr<transport::ClientEndpoint> endpoint;
    std::uint64_t number = 0;
  };

  /// `session` owns the channel. `loop`: the engine's.
  ControlChannel(SessionCore& session, EventLoop& loop,
                 std::shared_ptr<transport::ClientEndpoint> endpoint) noexcept;
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;
  ~ControlChannel();

  // The connection:
  /// The latest connection, also after it was abandoned.
  [[nodiscard]] Connection connection() const;
  [[nodiscard]] std::shared_ptr<transport::ClientEndpoint> endpoint() const {
    return connection().endpoint;
  }
  [[nodiscard]] std::uint64_t number() const {
    const MutexLock lock{mutex_};
    return number_;
  }
  /// Whether `number` is the current connection, and is up or coming up.
  [[nodiscard]] bool is_current(std::uint64_t number) const noexcept {
    const MutexLock lock{mutex_};
    return reachable() && number == number_;
  }
  /// From now on the control thread reads the messages that the server sends on that connection.
  /// Errors: those of EventLoop::watch().
  Status watch(const Connection& connection);
  /// Until the next watch(), messages of the server are not read.
  void unwatch();
  /// Whether all messages of the latest connection have been read.
  [[nodiscard]] bool read_to_end() const noexcept {
    return read_to_end_.load(std::memory_order_acquire);
  }
  /// Waits until the messages that have arrived are read, since they may contain the reason why a
  /// connection or a lane ends. The control thread reads them. Waits at most 50 ms, and not at all
  /// on the control thread.
  void await_last_messages() noexcept;
  /// The time when the channel last read a message of the server. KeepAlive sets it after this
  /// process was stopped for a while.
  [[nodiscard]] Clock::time_point heard_at() const noexcept {
    return Clock::time_point{Clock::duration{heard_at_.load(std::memory_order_relaxed)}};
  }
  void set_heard_at(Clock::time_point at) noexcept {
    heard_at_.store(at.time_since_epoch().count(), std::memory_order_relaxed);
  }

  /// The state of the session. The session sets it with its own mutex locked.

  /// Begins with the next connection. Until open() only the calling thread may make calls. Returns
  /// the connection's number.
  std::uint64_t begin_joining(std::shared_ptr<transport::ClientEndpoint> endpoint);
  /// From now on every thread may make calls.
  void open();
  /// After open(), when the lanes work again: wakes the calls that wait for room.
  void wake_calls();
  /// Abandons the connection (`next`: kDown or kEnded): the calls that wait for an answer end.
  /// Returns the connection's endpoint.
  std::shared_ptr<transport::ClientEndpoint> abandon_connection(SessionState next);
  /// As abandon_connection(kEnded), from any state. The destructor of the session calls it.
  void close();

  // Requests:
  /// Sends `request` and waits for its answer, until `deadline`. `raw` receives the request as it
  /// was sent.
  Result<Answer> call(control::Request request, Operation operation, Deadline deadline,
                      std::vector<std::byte>* raw);
  /// As call(), for up to kMaxTogether requests: sends all, then waits for their answers. The
  /// server answers in any order. One result for each request, in the order of the requests.
  std::vector<Result<Answer>> call_together(std::vector<control::Request> requests,
                                            Operation operation, Deadline deadline);
  /// Sends a request and does not wait. The request counts as unanswered until its answer arrives,
  /// which is dropped. `number`: the connection on which it is sent; 0: any. `asked_id` receives
  /// the request's number. There is room for one such request besides those whose callers wait.
  Sent ask_unanswered(control::Request request, std::uint64_t number = 0,
                      std::uint64_t* asked_id = nullptr) noexcept;
  /// Closes a grant: sends the request at once or when there is room for it, but before any later
  /// call. Does not wait. Does nothing if the session has ended.
  void close_grant(std::uint64_t grant_id) noexcept;
  /// Sends close requests while there is room for them.
  void send_closes() noexcept;
  /// Drops the close requests: the next hello tells the server which grants the client has.
  void forget_closes();
  /// Number of requests that the server has not answered.
  [[nodiscard]] std::size_t unanswered() const {
    const MutexLock lock{mutex_};
    return waiters_.size();
  }
  [[nodiscard]] bool is_unanswered(std::uint64_t id) const {
    const MutexLock lock{mutex_};
    return waiters_.contains(id);
  }
  /// Waits until this host has sent all messages, or until `until`.
  void flush(Deadline until);

 private:
  struct Waiter {
    Condition ready;
    std::optional<Answer> answer;
    std::uint64_t number = 0;  ///< the connection on which it was sent
  };
  struct Call;
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
  /// Sends the request of `call`, whose result says whether that has succeeded. Each call that is
  /// begun must be ended.
  void begin_call(Call& call, control::Request request, std::vector<std::byte>* raw = nullptr);
  /// Waits for the answer to a call.
  Result<Answer> end_call(Call& call);
  Status leave_call(Call& call);
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
  /// Locked while a request is sent, so that requests are sent one after another.
  Mutex send_mutex_ REMORA_ACQUIRED_BEFORE(mutex_);
  mutable Mutex mutex_;
  SessionState state_ REMORA_GUARDED_BY(mutex_) = SessionState::kUp;
  std::thread::id joining_ REMORA_GUARDED_BY(mutex_);  ///< the thread by which the session joins
  std::shared_ptr<transport::ClientEndpoint> endpoint_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t number_ REMORA_GUARDED_BY(mutex_) = 1;  ///< the number of endpoint_
  EventLoop::Token watch_ REMORA_GUARDED_BY(mutex_) = 0;
  Condition room_;  ///< there is room for one more call
  /// Requests that the server has not answered; null: no caller waits for the answer.
  std::unordered_map<std::uint64_t, Waiter*> waiters_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t next_id_ REMORA_GUARDED_BY(mutex_) = 1;
  /// Closed grants whose close request was not sent.
  std::vector<std::uint64_t> to_close_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail
