#pragma once

/// One session of a client with its server.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>

#include "base/event_loop.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/lane_driver.h"
#include "client/region/opening.h"
#include "client/session/dial.h"
#include "client/session/revocation_tracker.h"
#include "protocol/messages.h"
#include "transport/transport.h"

namespace remora::detail {

class EngineCore;
class MemoryReleaser;
class RegionGrant;

/// One session: RPC over its control channel, and its lanes.
class SessionCore : public std::enable_shared_from_this<SessionCore> {
 public:
  /// Connects, says hello and opens the lanes. Blocks, at most until `deadline`.
  static Result<std::shared_ptr<SessionCore>> start(std::shared_ptr<EngineCore> engine, Dial dial,
                                                    Deadline deadline);
  /// `loop`: the engine's, which the engine keeps for as long as the session keeps the engine.
  SessionCore(std::shared_ptr<EngineCore> engine, Dial dial,
              std::shared_ptr<transport::ClientEndpoint> endpoint, EventLoop& loop);
  ~SessionCore();

  [[nodiscard]] EngineCore& engine() const noexcept { return *engine_; }
  [[nodiscard]] const ServerInfo& server() const noexcept { return server_; }
  /// Of the protocol.
  [[nodiscard]] std::uint32_t version() const noexcept { return version_; }
  [[nodiscard]] TransportKind kind() const noexcept { return kind_; }
  /// "host:port", as the URI named it.
  [[nodiscard]] const std::string& server_address() const noexcept { return dial_.server; }
  [[nodiscard]] const std::string& local_device() const noexcept { return device_; }
  [[nodiscard]] bool connected() const noexcept {
    return state_.load(std::memory_order_acquire) == State::kUp;
  }
  /// For good.
  [[nodiscard]] bool ended() const noexcept {
    return state_.load(std::memory_order_acquire) == State::kEnded;
  }
  /// There is a connection to the server, if only to say hello by.
  [[nodiscard]] bool reachable() const noexcept {
    const State state = state_.load(std::memory_order_acquire);
    return state == State::kUp || state == State::kJoining;
  }
  /// Why it was interrupted or has ended.
  [[nodiscard]] Reason lost_reason() const noexcept { return lost_reason_.load(); }
  /// Why an operation ended with its lane. Where all that was seen is that the connection went,
  /// waits until the server's last word has been read, which may say why: for 50 ms at most.
  [[nodiscard]] Reason explained(Reason reason) noexcept;
  /// See Session::settled().
  Status settled(Deadline deadline);
  /// The same, until a stop is requested too.
  Status settled(const ControlLimits& limits);
  /// By the control thread, every so often: keep-alive.
  void tick(Clock::time_point now) noexcept;
  /// All of them alike. What completes on one says nothing of what is in flight on another.
  [[nodiscard]] const std::vector<std::unique_ptr<LaneDriver>>& lanes() const noexcept {
    return lanes_;
  }
  /// What a queue on the lane tells of its operations' memory; null where that has no keys.
  [[nodiscard]] std::shared_ptr<MemoryReleaser> releaser_of(const LaneDriver& lane) const noexcept;
  /// The lane of one more queue: each has its turn.
  [[nodiscard]] LaneDriver& next_lane() noexcept {
    return *lanes_[queues_.fetch_add(1, std::memory_order_relaxed) % lanes_.size()];
  }
  /// The lane of what this thread does synchronously.
  [[nodiscard]] LaneDriver& lane_of_thread() const noexcept {
    return lanes_.size() == 1 ? *lanes_.front() : *lanes_[thread_number() % lanes_.size()];
  }
  [[nodiscard]] transport::MemoryDomain* memory_domain() const noexcept { return domain_.get(); }
  /// What Engine::status_json() says of a grant.
  struct OpenRegion {
    std::string name;
    std::string reason;  ///< why this transport
  };
  void region_opened(std::uint64_t grant_id, OpenRegion region);
  void region_closed(std::uint64_t grant_id) noexcept;
  [[nodiscard]] std::vector<OpenRegion> open_regions() const;
  [[nodiscard]] const ClientMetrics& metrics() const noexcept { return *metrics_; }

  /// A reply that is no failure. Thread-safe; blocks until `deadline`.
  struct Answer {
    control::Reply reply;
    std::vector<UniqueFd> descriptors;
    std::vector<std::byte> raw;    ///< the message as it came
    std::uint64_t connection = 0;  ///< on which it came
  };
  /// `raw` takes the request as it was sent.
  Result<Answer> call(control::Request request, Operation operation, Deadline deadline,
                      std::vector<std::byte>* raw = nullptr) {
    auto answer = exchange(std::move(request), operation, deadline, raw);
    if (!answer) return answer.error().with_server(dial_.server);
    return answer;
  }
  /// The same, with the control deadline of the engine.
  Result<Answer> call(control::Request request, Operation operation);

  /// How a grant is asked for: beside older ones, or instead of them.
  Result<std::shared_ptr<RegionGrant>> open(const std::string& name, Rights rights,
                                            std::string transport_reason, Deadline deadline,
                                            Opening how = Opening::kOpen);
  /// Gives a grant back: the request is sent, or follows when there is room for it, before any
  /// later request of the session. Waits for nothing. What an interrupted session gives back its
  /// server hears of when it is resumed.
  void close_grant(std::uint64_t grant_id) noexcept;
  /// Tells the server of a write, where no lane does. Blocks until it has taken it.
  Status notify(const transport::Notice& notice, Deadline deadline);
  /// The lanes or the channel are gone: the session is interrupted, or ends. Not with a lane taken.
  /// `connection`: what happened was of that one, and is no news where another has followed; 0: of
  /// whichever there is.
  void fail(Reason reason, std::uint64_t connection = 0) noexcept;

  // Grants that are taken back.
  [[nodiscard]] RevocationTracker& revocations() noexcept { return revocations_; }
  /// What has become of a request whose answer nobody waits for.
  enum class Told : std::uint8_t {
    kSent,
    kLater,  ///< there is no room for it now
    kGone    ///< its connection is no more
  };
  /// What an event of that connection asks for is done. Waits for nothing.
  Told acknowledge(std::uint64_t connection, std::uint64_t event_id) noexcept;
  /// Whether that is the connection there is, and it is up or coming up.
  [[nodiscard]] bool is_current(std::uint64_t connection) const noexcept {
    const std::lock_guard lock{mutex_};
    return reachable() && connection == connection_;
  }
  /// Everything that the server has said before the session ended has been looked at.
  [[nodiscard]] bool heard_all() const noexcept {
    return heard_all_.load(std::memory_order_acquire);
  }

 private:
  Result<Answer> exchange(control::Request request, Operation operation, Deadline deadline,
                          std::vector<std::byte>* raw);
  enum class State : std::uint8_t {
    kUp,
    kDown,     ///< interrupted: the engine connects again
    kJoining,  ///< has connected again, and says hello
    kEnded
  };
  struct Waiter {
    std::condition_variable ready;
    std::optional<Answer> answer;
    std::uint64_t connection = 0;  ///< on which it was asked
  };
  using End = ClientMetrics::SessionEnd;
  /// A turn of the session's fate: see turning_. When the thread's last one is over, what is to be
  /// told is.
  class Turn {
   public:
    explicit Turn(SessionCore& session) noexcept;
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    SessionCore& session_;
  };
  /// What the application has not been told yet.
  struct News {
    const SessionHandlers::Handler* handler;
    Reason reason;
  };
  /// As fail(), with what is counted. `fault`: of an operation on one of the lanes.
  void lose(Reason reason, End by, LaneFault fault = LaneFault::kNone,
            std::uint64_t connection = 0) noexcept;
  void hear_last_word() noexcept;
  void lane_gone() noexcept;
  [[nodiscard]] std::optional<Outcome> await_return(const OperationRecord& operation) noexcept;
  [[nodiscard]] std::optional<Outcome> look_for_return(const OperationRecord& operation) noexcept;
  void interrupt(Reason reason, End by, LaneFault fault) noexcept;
  void end(Reason reason, End by, LaneFault fault = LaneFault::kNone) noexcept;
  [[nodiscard]] bool leave_connection(State next, Reason reason, End by) noexcept;
  [[nodiscard]] LaneFault lane_fault() noexcept;
  Status hello(Deadline deadline);
  [[nodiscard]] Error not_let_in(const Error& error) const;
  Result<control::Welcome> hello_with_key(control::Request request, const config::SecretKey& key,
                                          Deadline deadline);
  Status open_lanes(Deadline deadline);
  Status watch(const std::shared_ptr<transport::ClientEndpoint>& endpoint,
               std::uint64_t connection);
  [[nodiscard]] std::shared_ptr<transport::ClientEndpoint> endpoint() const {
    const std::lock_guard lock{mutex_};
    return endpoint_;
  }
  void reconnect() noexcept;
  bool sleep_unless_ended(std::chrono::nanoseconds pause) noexcept;
  /// False: the session has gone meanwhile; nothing of it is to be touched.
  [[nodiscard]] bool join_again(std::chrono::nanoseconds time) noexcept;
  Status take_up(const transport::LaneTicket& ticket, std::uint64_t memory_id);
  Status resume(Deadline deadline);
  Result<std::vector<std::unique_ptr<transport::Lane>>> lanes_again(Deadline deadline);
  void hear_of_grants(Deadline deadline) noexcept;
  bool go_on(std::vector<std::unique_ptr<transport::Lane>> lanes) noexcept;
  void send_closes() noexcept;
  void say_goodbye() noexcept;
  void add_news(const SessionHandlers::Handler& handler, Reason reason);
  void tell_news() noexcept;
  void tell(const News& news) const noexcept;
  /// Whether a call may be made now. With mutex_.
  [[nodiscard]] bool may_call() const noexcept {
    const State state = state_.load(std::memory_order_relaxed);
    return state == State::kUp ||
           (state == State::kJoining && std::this_thread::get_id() == reconnecting_);
  }
  [[nodiscard]] static std::size_t thread_number() noexcept;
  [[nodiscard]] LaneDriver::BrokenHandler lane_broken();
  Status keep(std::unique_ptr<LaneDriver> driver);
  Status agree_on_keys(bool by_lane, bool again);
  [[nodiscard]] bool has_lane_keys(const control::Extent& extent) const noexcept;
  void set_lane_keys(std::uint32_t token, const control::Extent& extent) noexcept;
  Result<transport::AttachedGrant> with_tokens(transport::AttachedGrant grant,
                                               const transport::LaneKeys& keys);
  Status renew_keys();
  Status renew_keys_of(const RevocationTracker::Extents& grant);
  Result<std::vector<transport::WireExtent>> fetch_extents(const control::OpenReply& opened,
                                                           std::uint64_t connection,
                                                           Deadline deadline,
                                                           transport::LaneKeys& keys);
  Told ask_unanswered(control::Request request, std::uint64_t connection = 0,
                      std::uint64_t* asked_id = nullptr) noexcept;
  void on_readable(transport::ClientEndpoint& endpoint, std::uint64_t connection) noexcept;
  void hung_up(std::uint64_t connection, bool wrongly) noexcept;
  Result<Answer> ask_for(const std::string& name, Rights rights, Opening how, Deadline deadline);
  void on_event(const control::Event& event, std::uint64_t connection);
  [[nodiscard]] bool heed(const control::Event& event, std::uint64_t connection);
  void on_ending(const control::Event::Ending& ending);
  [[nodiscard]] Reason told_or(Reason reason) const noexcept;
  [[nodiscard]] static Reason why_unreached(const Error& error) noexcept;
  void deliver(transport::ControlMessage message, std::uint64_t connection);
  [[nodiscard]] static Result<std::vector<std::byte>> encode(control::Request request,
                                                             std::uint64_t id);
  Status send(transport::ClientEndpoint& endpoint, control::Request request, std::uint64_t id,
              Deadline deadline, std::vector<std::byte>* raw = nullptr);

  std::shared_ptr<EngineCore> engine_;
  EventLoop& loop_;
  const Dial dial_;
  const TransportKind kind_;
  const std::string device_;
  std::shared_ptr<transport::MemoryDomain> domain_;
  std::optional<ClientMetrics> metrics_;
  ServerInfo server_;
  std::atomic<std::uint32_t> version_{0};  ///< of the protocol, once handshake_complete
  std::chrono::milliseconds lease_{0};
  std::atomic<bool> resumed_{false};  ///< what the server said to the latest hello
  transport::LaneTicket ticket_;
  std::shared_ptr<transport::RkeyTable>
      keys_;  ///< null: one key for all lanes; fixed once it began
  std::vector<std::unique_ptr<LaneDriver>> lanes_;  ///< complete, and left alone, once it began
  std::atomic<std::size_t> queues_{0};
  bool reads_ = true;                     ///< the lanes take what is answered: reads and atomics
  std::atomic<State> state_{State::kUp};  ///< changed under mutex_
  std::atomic<Reason> lost_reason_{Reason::kPeerGone};
  bool resumable_ = false;  ///< fixed once it began
  End ended_by_ = ClientMetrics::kPeerGone;
  bool counted_ = false;  ///< as one that began; under mutex_, as ended_by_

  std::atomic<Clock::rep> heard_at_{0};  ///< when the server said anything
  Clock::time_point ticked_at_{};        // control thread, as pinged_at_
  Clock::time_point pinged_at_{};
  std::uint64_t ping_id_ = 0;  ///< of the latest; control thread

  /// Between the reconnector and the session, which does not wait for a server that is silent.
  struct Attempt {
    explicit Attempt(Dial to) : dial{std::move(to)} {}
    const Dial dial;
    std::mutex mutex;
    bool connecting = false;  ///< the reconnector touches nothing of the session
    bool abandoned = false;   ///< the session has gone, or is about to
  };
  const std::shared_ptr<Attempt> attempt_;

  /// One turn of the session's fate at a time: interrupt, end, go on. Recursive: a lane may break
  /// while it is made to go on. Taken before mutex_ and the lanes' locks, by Turn only.
  std::recursive_mutex turning_;
  std::size_t turns_ = 0;                     ///< of the thread that has it; under turning_
  std::thread reconnector_;                   ///< under turning_
  bool reconnector_at_work_ = false;          ///< under mutex_
  std::thread::id reconnecting_;              ///< under mutex_
  Reason attempt_failed_by_ = Reason::kNone;  ///< the latest; the reconnector's
  std::uint64_t interruptions_ = 0;           ///< under mutex_
  std::condition_variable fate_;              ///< with mutex_: the state has changed
  std::deque<News> news_;                     ///< in order; under mutex_
  bool telling_ = false;                      ///< a thread is at that; under mutex_
  bool drain_told_ = false;                   ///< control thread
  /// Grants that are closed, of which the server has not been told; under mutex_.
  std::vector<std::uint64_t> to_close_;
  std::atomic<std::uint64_t> events_heard_{0};

  mutable std::mutex mutex_;  // waiters, ids, the connection; lanes_ while the session begins
  std::shared_ptr<transport::ClientEndpoint> endpoint_;
  std::uint64_t connection_ = 1;          ///< number of endpoint_, also when it has been left
  Reason ending_reason_ = Reason::kNone;  ///< the server has said that it ends this connection
  /// The same for the application: until the session is up again.
  Reason told_reason_ = Reason::kNone;
  /// Why the latest attempt to connect again has failed; kNone: none has, or the session is up.
  std::atomic<Reason> unreached_{Reason::kNone};
  EventLoop::Token watch_ = 0;
  std::condition_variable room_;
  /// Requests that the server has not answered; null where nobody waits for that any more.
  std::unordered_map<std::uint64_t, Waiter*> waiters_;
  std::uint64_t next_id_ = 1;
  std::mutex send_mutex_;  ///< locked before mutex_ where both are
  mutable std::mutex regions_mutex_;
  std::map<std::uint64_t, OpenRegion> regions_;  ///< by grant
  std::atomic<bool> heard_all_{false};
  RevocationTracker revocations_;
};

}  // namespace remora::detail
