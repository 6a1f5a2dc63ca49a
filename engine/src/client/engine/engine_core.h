#pragma once

/// What the handles of engine.h share: the engine, its sessions and their regions.

#include <array>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>
#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/metrics/registry.h>

#include "base/event_loop.h"
#include "base/placement.h"
#include "client/datapath/client_metrics.h"
#include "client/datapath/lane_driver.h"
#include "client/datapath/local_memory.h"
#include "client/datapath/parallel_copy.h"
#include "client/engine/passed_over.h"
#include "client/session/revocation_tracker.h"
#include "protocol/messages.h"
#include "transport/transport.h"

namespace remora::detail {

class ControlCalls;
class JobThreads;
class MemoryReleaser;
class Poller;
class Pollers;
class QueueCore;
class SessionCore;

/// How a session's server is reached, again and again.
struct Dial {
  std::string server;  ///< "host:port"
  std::function<Result<std::unique_ptr<transport::ClientEndpoint>>(Deadline)> connect;
};

/// What the application's handlers are called through, until the engine is destroyed.
class HandlerGate {
 public:
  /// While it lives, and if it is true, a handler may run.
  class Pass {
   public:
    explicit Pass(HandlerGate& gate) noexcept;
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    explicit operator bool() const noexcept { return open_; }

   private:
    HandlerGate& gate_;
    bool open_ = false;
  };
  /// Nobody passes any more; returns when nobody is inside.
  void close() noexcept;

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  std::size_t inside_ = 0;
  bool closed_ = false;
};

/// How a region is opened: beside those who have it, or instead of them.
enum class Opening : std::uint8_t { kOpen, kFence };

class EngineCore : public std::enable_shared_from_this<EngineCore> {
 public:
  static Result<std::shared_ptr<EngineCore>> create(EngineOptions options);
  EngineCore(EngineOptions options, Placement placement);
  ~EngineCore();
  EngineCore(const EngineCore&) = delete;
  EngineCore& operator=(const EngineCore&) = delete;

  [[nodiscard]] const EngineOptions& options() const noexcept { return options_; }
  /// Where the engine's own threads run: each calls bind_thread() first.
  [[nodiscard]] const Placement& placement() const noexcept { return placement_; }
  [[nodiscard]] metrics::Registry& registry() const noexcept { return *options_.registry; }

  Result<Region> open_region(const Uri& uri, Rights rights, Opening opening,
                             const ControlLimits& limits = {});
  /// The same for who had it open: tried once, whatever EngineOptions::connect_for says, until
  /// `deadline` and for `control_deadline` at most.
  Result<Region> open_again(const Uri& uri, Rights rights, Opening opening, Deadline deadline);
  Result<std::shared_ptr<SessionCore>> connect(const Uri& uri, const ControlLimits& limits = {});
  /// Those that do not block.
  [[nodiscard]] const std::shared_ptr<ControlCalls>& control_calls() const noexcept {
    return control_calls_;
  }
  /// With the deadline that such a call has where none was given.
  [[nodiscard]] ControlOptions control_options(ControlOptions given) const;

  Result<std::shared_ptr<SlotStore>> allocate_slots(std::size_t count, std::size_t slot_bytes);
  Result<std::shared_ptr<LocalMemory>> register_memory(std::span<std::byte> bytes);
  [[nodiscard]] const std::shared_ptr<MemoryReleaser>& releaser() const noexcept {
    return releaser_;
  }

  /// See Engine::status_json().
  [[nodiscard]] std::string status_json(const metrics::StatusQuery& query) const;

  [[nodiscard]] HandlerGate& handler_gate() noexcept { return handler_gate_; }
  /// Whether the calling thread is one that serves callback queues.
  [[nodiscard]] bool on_poller() const noexcept;

  // For sessions.
  /// How long a session that leaves may wait for its goodbye to have left: 300 ms, and a tenth of
  /// that for 5 s after one of them has waited in vain, as where hosts are gone.
  [[nodiscard]] std::chrono::nanoseconds goodbye_time() const noexcept;
  void goodbye_unheard() noexcept;
  /// Looks at the session, for as long as there is one, often enough for a lease of that length.
  void keep_alive(const std::shared_ptr<SessionCore>& session, std::chrono::milliseconds lease);
  /// The control thread, started with the first session. Errors: kSystem.
  Result<EventLoop*> control_loop();
  /// For who gives the engine up: the control thread may be the last to have it, for a moment. None
  /// where there is no such thread, and on a poller, which that thread would wait for.
  [[nodiscard]] std::optional<EventLoop::Parting> part() const noexcept;
  /// A poller for one more callback queue. Errors: see Pollers::pick().
  Result<Poller*> poller();
  /// Where coroutines go on; made by the first call. Errors: kOutOfMemory.
  Result<std::shared_ptr<JobThreads>> arena();
  /// Index of the domain in every memory's key table; registers the slots that exist already.
  /// Errors: kLimitExceeded (kMemoryDomainsMax).
  Result<std::size_t> intern(const std::shared_ptr<transport::MemoryDomain>& domain);
  [[nodiscard]] const std::shared_ptr<ParallelCopy>& parallel_copy() const noexcept {
    return parallel_copy_;
  }
  Result<std::shared_ptr<SlotStore>> bounce_store(transport::MemoryDomain& domain,
                                                  std::size_t domain_index);
  /// Of the domain; made when first asked for. Null where registrations are not kept.
  std::shared_ptr<transport::RegistrationCache> registration_cache(std::size_t domain_index);
  /// Zeroes, registered with the domain.
  Result<std::shared_ptr<LocalMemory>> zeroes(transport::MemoryDomain& domain,
                                              std::size_t domain_index);

 private:
  /// One connect at a time to each server, so that sessions are shared; the wait has a deadline.
  class Turn {
   public:
    Turn(EngineCore& engine, std::string key, Deadline deadline);
    ~Turn();
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    [[nodiscard]] bool mine() const noexcept { return mine_; }

   private:
    EngineCore& engine_;
    std::string key_;
    bool mine_ = false;
  };
  struct Candidate {
    TransportKind kind;
    std::string reason;
  };
  /// One of several attempts to connect.
  struct Attempt {
    /// The server has let the client in, and what it said is not to be asked for again.
    bool answered = false;
    std::string passed_over{};  ///< PassedOver::text() of the latest that came to nothing
  };
  std::vector<Candidate> candidates(const Uri& uri, Deadline deadline,
                                    PassedOver& passed_over) const;
  template <typename Make>
  auto retry_until_admitted(const Uri& uri, const ControlLimits& limits, const Make& make)
      -> decltype(make(std::declval<Attempt&>()));
  Result<Region> open_once(const Uri& uri, Rights rights, Opening opening, Deadline deadline,
                           Attempt& attempt);
  Result<std::shared_ptr<SessionCore>> connect_once(const Uri& uri, Deadline deadline,
                                                    Attempt& attempt);
  [[nodiscard]] Deadline attempt_deadline(const ControlLimits& limits) const noexcept {
    return std::min(limits.until, deadline_after(options_.control_deadline));
  }
  Result<std::shared_ptr<SessionCore>> session(const Uri& uri, TransportKind kind,
                                               bool hardware_only, Deadline deadline);
  void remember(const std::shared_ptr<LocalMemory>& memory);
  void tick() noexcept;

  [[nodiscard]] SlabOptions slab_options() const noexcept {
    return {.huge_pages = options_.huge_pages,
            .placement = &placement_,
            .core_dump = options_.core_dump};
  }

  EngineOptions options_;
  Placement placement_;
  std::shared_ptr<ParallelCopy> parallel_copy_;
  std::shared_ptr<ControlCalls> control_calls_;
  HandlerGate handler_gate_;
  const std::shared_ptr<MemoryReleaser> releaser_;
  std::atomic<Clock::rep> goodbye_unheard_at_{0};
  mutable std::mutex mutex_;  // what follows; never on the data path
  std::condition_variable turn_over_;
  std::set<std::string> connecting_;  ///< the keys of sessions_ that have no session yet
  std::unique_ptr<EventLoop> control_loop_;
  std::unique_ptr<Pollers> pollers_;
  std::shared_ptr<JobThreads> arena_;
  std::map<std::string, std::weak_ptr<SessionCore>> sessions_;
  std::chrono::milliseconds tick_period_{0};  ///< 0: no session needs it
  /// That have a lease: also those that are still being connected, or replaced in sessions_.
  std::vector<std::weak_ptr<SessionCore>> leased_;
  std::array<std::shared_ptr<transport::MemoryDomain>, kMemoryDomainsMax> domains_;
  struct Cache {
    bool asked = false;
    std::shared_ptr<transport::RegistrationCache> cache;
  };
  std::array<Cache, kMemoryDomainsMax> caches_;
  std::vector<std::weak_ptr<LocalMemory>> memories_;
  std::shared_ptr<SlotStore> bounce_;
  std::shared_ptr<SlotStore> zeroes_;  ///< one slot, never handed out
};

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
  [[nodiscard]] std::shared_ptr<MemoryReleaser> releaser_of(const LaneDriver& lane) const noexcept {
    return lane.needs_keys() ? engine_->releaser() : nullptr;
  }
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
  Result<Answer> call(control::Request request, Operation operation) {
    return call(std::move(request), operation, deadline_after(engine_->options().control_deadline));
  }

  /// How a grant is asked for: beside older ones, or instead of them.
  Result<std::shared_ptr<RegionCore>> open(const std::string& name, Rights rights,
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

using transport::right_for;

/// One grant.
class RegionCore {
 public:
  RegionCore(std::shared_ptr<SessionCore> session, RegionInfo info, Rights rights,
             std::uint64_t grant_id, transport::AttachedGrant grant, std::string transport_reason);
  ~RegionCore();
  RegionCore(const RegionCore&) = delete;
  RegionCore& operator=(const RegionCore&) = delete;

  [[nodiscard]] const RegionInfo& info() const noexcept { return info_; }
  [[nodiscard]] Rights rights() const noexcept { return rights_; }
  [[nodiscard]] const std::string& transport_reason() const noexcept { return transport_reason_; }
  [[nodiscard]] SessionCore& session() const noexcept { return *session_; }
  /// The error of a call on this region: `error` names its server and the region.
  [[nodiscard, gnu::cold]] Error named(const Error& error) const noexcept;
  /// What an operation of this region that has ended badly stands for. Made where it is asked for:
  /// the record has the numbers.
  [[nodiscard, gnu::cold]] Error error_of(const OperationRecord& operation) const noexcept;
  /// In the region's order.
  [[nodiscard]] const std::vector<transport::WireExtent>& extents() const noexcept {
    return grant_.extents;
  }
  [[nodiscard]] std::uint64_t grant_id() const noexcept { return grant_id_; }
  /// How it was asked for; set before anybody else has it.
  [[nodiscard]] const Uri& uri() const noexcept { return uri_; }
  void set_uri(Uri uri) { uri_ = std::move(uri); }

  /// The server takes the grant back: from now on every operation is refused before its lane. Any
  /// thread.
  void revoke(Reason reason) noexcept;
  /// Local memory must be registered.
  [[nodiscard]] bool needs_keys() const noexcept { return quick_.needs_keys; }
  /// Why it was taken back, or kNone. Any thread.
  [[nodiscard]] Reason revoked() const noexcept { return revoked_.load(std::memory_order_acquire); }
  /// Whether a checked operation of this session is of this grant.
  [[nodiscard]] bool owns(const OperationRecord& operation) const noexcept;
  /// Queues that may have taken operations of this grant.
  void join(QueueCore& queue);
  void leave(const QueueCore& queue) noexcept;
  /// After revoke(): has all of them look at what they have taken. False: not all have heard yet.
  [[nodiscard]] bool tell_queues() noexcept;

  /// Makes a transfer ready for the lane, or refuses misuse. `operation` has opcode, local memory,
  /// length and offset; gets the rest of its request, or its outcome. True: may be submitted.
  [[gnu::always_inline]] bool check(OperationRecord& operation) const noexcept {
    return admits(operation) || check_closely(operation);
  }
  /// True for nearly every sound transfer of a region in one extent, and for no other: what
  /// check_closely() says, at less cost.
  template <std::size_t kWords = 0>
  [[gnu::always_inline]] bool admits(OperationRecord& operation) const noexcept {
    if (!fits<kWords>(operation, quick_.one_extent_bytes_max)) return false;
    operation.request.length_bytes = static_cast<std::uint32_t>(operation.length_bytes);
    operation.request.remote_address = quick_.remote_address + operation.offset_bytes;
    operation.request.remote_key = quick_.remote_key;
    operation.whole = true;
    return true;
  }
  /// As check() for a transfer in pieces, which are borrowed until it has completed. Fills in the
  /// length.
  bool check(OperationRecord& operation, std::span<const Target> pieces) const noexcept;
  bool check(OperationRecord& operation, std::span<const Source> pieces) const noexcept;
  /// Makes a part of an operation that has passed its check ready for a lane. It is not counted.
  void prepare_part(OperationRecord& operation) const noexcept {
    make_split(operation, grant_.extents);
    operation.part = true;
  }

  /// The serving application is to be told of a write that passed its check.
  void add_notice(OperationRecord& operation, std::uint32_t tag) const noexcept {
    if (operation.whole) make_split(operation, grant_.extents);
    operation.notice_grant = grant_id_;
    operation.notice_tag = tag;
  }
  /// Checks one synchronous transfer and, where that is sound, carries it out.
  [[gnu::always_inline]] void run_transfer(OperationRecord& operation,
                                           std::chrono::nanoseconds deadline) const noexcept {
    if (admits<kAloneWords>(operation)) [[likely]]
      run(operation, deadline);
    else
      run_counted(operation, deadline);
  }
  /// The same of what is not admitted at first sight: also of memory with handles.
  [[gnu::noinline]] void run_counted(OperationRecord& operation,
                                     std::chrono::nanoseconds deadline) const noexcept;
  /// Submits one operation that passed its check, and waits for it.
  void run(OperationRecord& operation, std::chrono::nanoseconds deadline) const noexcept;
  /// One operation without local memory: check and run. What an atomic found.
  Result<std::uint64_t> run_alone(const transport::WorkRequest& request, ByteOffset at,
                                  std::uint64_t length_bytes,
                                  std::chrono::nanoseconds deadline) const noexcept;

 private:
  /// What one request may move, of each Opcode; 0 where it moves no bytes or has no right.
  using BytesMax = std::array<std::uint64_t, transport::kOpcodes>;
  /// Nothing is wrong with it, and it has its local key.
  template <std::size_t kWords = 0>
  [[gnu::always_inline]] bool fits(OperationRecord& operation,
                                   const BytesMax& bytes_max) const noexcept {
    const std::uint64_t length_bytes = operation.length_bytes;
    // No length of 0, which a part outside of known memory has too, and no offset beyond the end
    // less that length.
    if (length_bytes - 1 >= bytes_max[static_cast<std::size_t>(operation.request.opcode)] ||
        operation.offset_bytes > quick_.size_bytes - length_bytes)
      return false;
    // Of a grant that has been taken back nothing fits.
    if (operation.memory != nullptr) [[likely]] {
      const std::uint64_t key_word = operation.memory->key_word(quick_.domain() + kWords);
      if (key_word == 0) return false;
      operation.request.local_key = static_cast<std::uint32_t>(key_word);
    } else if (quick_.domain() != kNoMemoryDomain || operation.request.local == nullptr) {
      return false;
    }
    operation.outcome = {};
    return true;
  }
  bool check_closely(OperationRecord& operation) const noexcept;
  void run_closely(OperationRecord& operation) const noexcept;
  template <typename Piece>
  bool check_pieces(OperationRecord& operation, std::span<const Piece> pieces) const noexcept;
  bool count_refused(OperationRecord& operation) const noexcept;
  Outcome admit_memory(LocalMemory* memory) const noexcept;
  [[nodiscard]] Outcome judge(const OperationRecord& operation) const noexcept;

  std::shared_ptr<SessionCore> session_;
  RegionInfo info_;
  Rights rights_;
  std::uint64_t grant_id_;
  transport::AttachedGrant grant_;
  std::string transport_reason_;
  Uri uri_;
  bool atomics_here_;  ///< the region's atomic domain is the one of this session's transport
  /// What every operation is held against, in one place.
  struct Quick {
    std::uint64_t size_bytes;
    std::uint32_t request_bytes_max;
    std::uint32_t inline_bytes_max;
    std::size_t domain_index;  ///< read by many, written once: kKeylessDomain when it is taken back
    bool needs_keys;
    std::uint32_t remote_key;
    std::uint64_t remote_address;
    BytesMax bytes_max;
    LaneDriver* only_lane;          ///< null: there are several
    BytesMax one_extent_bytes_max;  ///< 0 where there are several: the region begins elsewhere too

    [[nodiscard]] std::size_t domain() const noexcept {
      return __atomic_load_n(&domain_index, __ATOMIC_RELAXED);
    }
  };
  Quick quick_;
  std::size_t domain_index_;  ///< also of a grant that has been taken back
  std::atomic<Reason> revoked_{Reason::kNone};
  struct Told {
    QueueCore* queue;
    bool heard;
  };
  std::mutex queues_mutex_;
  std::vector<Told> queues_;
};

/// Of open_region() and its like. Errors: kInvalidArgument.
[[nodiscard]] Result<Uri> region_uri(std::string_view text, Rights rights);

}  // namespace remora::detail
