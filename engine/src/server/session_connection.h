#pragma once

/// The connection of one session: its endpoint, its unanswered requests, and the time at which a
/// message of its client arrived last.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>

#include <remora/mutex.h>
#include <remora/result.h>

#include "base/clock.h"
#include "base/token_bucket.h"
#include "protocol/messages.h"
#include "server/client_wait_budget.h"
#include "server/ending_cause.h"
#include "transport/control_message.h"
#include "transport/server_endpoint.h"

namespace remora::detail {

/// The control thread receives and answers pings, the worker sends, and any thread sends the last
/// event of a session.
class SessionConnection {
 public:
  /// `client_wait_budget` outlives the connection.
  SessionConnection(std::unique_ptr<transport::ServerEndpoint> endpoint,
                    ClientWaitBudget& client_wait_budget);
  SessionConnection(const SessionConnection&) = delete;
  SessionConnection& operator=(const SessionConnection&) = delete;

  [[nodiscard]] transport::ServerEndpoint& endpoint() const noexcept { return *endpoint_; }
  /// The client can use keys that differ from lane to lane. Called before any grant. Worker.
  void use_lane_keys() noexcept { lane_keys_ = endpoint_->use_lane_keys(); }
  /// Renews such keys; null: one key for all lanes. Worker.
  [[nodiscard]] transport::LaneKeyRenewal* lane_keys() const noexcept { return lane_keys_; }

  /// Records that a message came, or that an answer was sent for which the client has waited. Any
  /// thread.
  void record_activity() noexcept {
    last_heard_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// The time at which a message came last. Control thread.
  [[nodiscard]] Clock::time_point last_heard() const noexcept {
    return Clock::time_point{Clock::duration{last_heard_.load(std::memory_order_relaxed)}};
  }
  /// Whether a request is unanswered. Any thread.
  [[nodiscard]] bool has_unanswered() const noexcept { return unanswered_.load() != 0; }
  /// Counts a request that needs an answer. False: the client has more unanswered requests than it
  /// may. Control thread.
  [[nodiscard]] bool admit_request() noexcept;
  /// Counts an answer. Worker.
  void count_answered() noexcept;
  /// Answers a ping of an admitted client, so that a live client does not count as dead while the
  /// worker serves others. False: the message is no ping, or it is one for the worker. Control
  /// thread.
  [[nodiscard]] bool answer_ping(std::span<const std::byte> message) noexcept
      REMORA_EXCLUDES(send_mutex_);
  /// Sets whether the worker answers every ping, because it waits for the client's next one. Called
  /// by the worker before it answers a request that the ping follows.
  void leave_pings_to_worker(bool leave) noexcept { worker_answers_pings_.store(leave); }

  /// Errors: those of control::encode() and ServerEndpoint::send(). Worker.
  Status send(const control::Envelope& envelope) REMORA_EXCLUDES(send_mutex_);
  /// Sends a message. Waits a little for a client that does not read, within the worker's budget.
  /// Errors: those of ServerEndpoint::send(). Worker.
  Status send(transport::ControlMessage message) REMORA_EXCLUDES(send_mutex_);
  /// Waits until a refusal is sent, before the session ends, within the worker's budget. Worker.
  void flush_refusal() noexcept REMORA_EXCLUDES(send_mutex_);

  /// How long the server waits for the last event to be sent when it ends a session: over rdma the
  /// end of the queue pair would discard it.
  static constexpr std::chrono::milliseconds kLastEventTime{5};
  /// The same for a server that stops, which delays no other session.
  static constexpr std::chrono::milliseconds kStoppedEventTime{100};
  /// How long to wait for another thread that sends to the same client: a little or, if kPatient,
  /// until it has sent.
  enum class Wait : std::uint8_t { kShort, kPatient };
  /// Tells the client why its session ends; best effort. False: it was not sent. Blocks only as
  /// `wait` says. Any thread, before the endpoint is shut down.
  [[nodiscard]] bool send_ending(std::uint64_t session_id, const EndingCause& cause,
                                 Wait wait) noexcept REMORA_EXCLUDES(send_mutex_);
  /// Waits until that event is sent, at most until `deadline`. Any thread.
  void await_ending_sent(Deadline deadline) noexcept REMORA_EXCLUDES(send_mutex_);

 private:
  [[nodiscard]] bool lock_to_send(Wait wait) noexcept REMORA_TRY_ACQUIRE(true, send_mutex_);
  /// The worker answers pings beyond this rate.
  static constexpr std::uint32_t kPingsPerSecond = 20;

  const std::unique_ptr<transport::ServerEndpoint> endpoint_;
  Mutex send_mutex_;
  /// The same endpoint, for sending.
  transport::ServerEndpoint* const sender_ REMORA_PT_GUARDED_BY(send_mutex_);
  transport::LaneKeyRenewal* lane_keys_ = nullptr;  ///< worker
  ClientWaitBudget& client_wait_budget_;
  TokenBucket ping_bucket_{kPingsPerSecond};  ///< control thread
  std::atomic<bool> worker_answers_pings_{false};
  std::atomic<std::size_t> unanswered_{0};
  std::atomic<Clock::rep> last_heard_{0};
};

}  // namespace remora::detail
