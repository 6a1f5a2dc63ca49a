#pragma once

/// One client, as the server sees it: its endpoint, its grants, its requests.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/token_bucket.h"
#include "protocol/authentication.h"
#include "protocol/messages.h"
#include "server/client_registry.h"
#include "server/memory/catalog.h"
#include "server/notifier.h"
#include "server/server_metrics.h"
#include "transport/control_message.h"
#include "transport/grant.h"
#include "transport/notice.h"
#include "transport/server_endpoint.h"

namespace remora::detail {

class ServerCore;

/// receive side: control thread; everything else: the worker.
class ServerSession : public std::enable_shared_from_this<ServerSession> {
 public:
  ServerSession(ServerCore& server, std::uint64_t id, std::uint64_t lane_secret,
                std::unique_ptr<transport::ServerEndpoint> endpoint);
  ~ServerSession();
  ServerSession(const ServerSession&) = delete;
  ServerSession& operator=(const ServerSession&) = delete;

  [[nodiscard]] std::uint64_t id() const noexcept { return id_.load(); }
  [[nodiscard]] transport::ServerEndpoint& endpoint() const noexcept { return *endpoint_; }
  [[nodiscard]] bool handshake_complete() const noexcept { return handshake_complete_.load(); }
  /// Of the protocol, once handshake_complete. Any thread.
  [[nodiscard]] std::uint32_t version() const noexcept { return version_.load(); }
  /// Something came, answered or not: the worker may be busy with others. Or it was answered, which
  /// its client has waited for. Any thread.
  void hear() noexcept {
    heard_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// Control thread: when anything came.
  [[nodiscard]] Clock::time_point heard_at() const noexcept {
    return Clock::time_point{Clock::duration{heard_at_.load(std::memory_order_relaxed)}};
  }
  /// Whether something that came is not answered yet. Any thread.
  [[nodiscard]] bool waits() const noexcept { return unanswered_.load() != 0; }
  /// It has no client any more, and is kept for that to come back. Any thread.
  void be_alone() noexcept { alone_.store(true); }
  [[nodiscard]] bool alone() const noexcept { return alone_.load(); }
  /// Whether its client may come back to it. Any thread.
  [[nodiscard]] bool resumable() const noexcept { return comes_back_.load(); }
  /// Whether it is to be heard of within its lease. Any thread.
  [[nodiscard]] bool keeps_alive() const noexcept { return version() >= 2; }
  /// Whether the client of `other` may come back to it by `resume`.
  [[nodiscard]] bool is_that_of(const control::Resume& resume,
                                const ServerSession& other) const noexcept;
  /// With the server's lock: whether its client comes back no more often than it may.
  [[nodiscard]] bool may_resume(Clock::time_point now) noexcept { return resumes_.admits(now); }
  /// Any thread, once handshake_complete: what the client calls itself, and whether that is proven.
  [[nodiscard]] const std::string& client_name() const noexcept { return client_name_; }
  [[nodiscard]] bool proven() const noexcept { return proven_key_.has_value(); }
  /// The same: the key by which it is.
  [[nodiscard]] const std::optional<config::SecretKey>& proven_key() const noexcept {
    return proven_key_;
  }
  /// Control thread: it is the client's turn to say who it is, and has been for longer than
  /// `patience`. What waits for the worker is not held against the client.
  [[nodiscard]] bool late(Clock::time_point now, std::chrono::nanoseconds patience) const noexcept {
    return !handshake_complete() && !waits() &&
           now - Clock::time_point{Clock::duration{waits_since_.load()}} > patience;
  }
  [[nodiscard]] Clock::time_point began() const noexcept { return began_; }
  /// Any thread.
  [[nodiscard]] std::size_t open_grants() const noexcept {
    return open_grants_.load(std::memory_order_relaxed);
  }

  /// Control thread: answers a ping, so that nobody who is heard is taken for dead while the worker
  /// is busy with others. False: it is none, or one for the worker.
  [[nodiscard]] bool answer_ping(std::span<const std::byte> message) noexcept;
  /// Control thread: whether the client keeps within what it may have unanswered.
  [[nodiscard]] bool admit_request() noexcept;
  /// What has become of a message; all but the first end the session.
  enum class Served : std::uint8_t {
    kAnswered,        ///< or the client has hung up, and what it had said before is still to serve
    kRefused,         ///< the client was told that it is not welcome
    kNotTheProtocol,  ///< the peer does not speak it
    kUnheard          ///< the answer could not be sent: the client does not read
  };
  using SharedMessage = std::shared_ptr<const transport::ControlMessage>;
  /// Worker: serves one message, or keeps it until limits.requests_per_second lets it be served.
  Served serve(const SharedMessage& message, Clock::time_point arrived);
  /// Worker: serves what waits for that and may be served now.
  void serve_delayed();
  /// Worker: serves all that waits, since its client says no more. The last words of a client are
  /// no more than admit_request() lets in.
  void serve_all_delayed();
  /// Room for up to `most` notices, to be used by announce() or given back. 0: kNoticesMax are not
  /// handled yet. Any thread.
  [[nodiscard]] std::size_t reserve_notices(std::size_t most) noexcept {
    return desk_->reserve(most);
  }
  void give_back_room(std::size_t count) noexcept {
    for (; count > 0; --count) desk_->notice_handled();
  }
  /// Control thread: notices are left with the endpoint until look_for_notices() comes. False:
  /// there is room after all.
  [[nodiscard]] bool hold_up() noexcept { return desk_->hold_up(); }
  /// Hands a notice on to the application, in room that was reserved. Errors: kProtocol: the client
  /// may not say that; the room is given back.
  Status announce(const transport::Notice& notice);
  /// Control thread, once the session is over: what the client was told is taken, is.
  void announce_the_rest() noexcept;
  /// Worker, once it is alone: what is left of its lanes goes, and nobody waits for its client.
  void settle_alone();
  /// Worker: gives all grants back, and takes no new ones.
  void release() noexcept;
  /// How long whoever ends a session waits for that word to leave: over rdma the end of the queue
  /// pair would take it back.
  static constexpr std::chrono::milliseconds kLastWordTime{5};
  /// The same of a server that stops, which holds up no other session.
  static constexpr std::chrono::milliseconds kStoppedWordTime{100};
  /// Tells a client that hears events why its session ends, where it could not know; best effort.
  /// Whether the word is worth await_last_word(). Does not block. Any thread, before the endpoint
  /// is shut down.
  [[nodiscard]] bool say_why(ServerMetrics::SessionEnd why) noexcept;
  /// Waits for it to leave, until then. The same.
  void await_last_word(Deadline until) noexcept;

  // Worker; see RevocationCoordinator.
  /// Tells the client that the grant is about to go. False: it cannot be told.
  bool begin_revoking(std::uint64_t grant_id, Reason reason);
  /// Ends the grant: what it reached is reached no more.
  void release_lease(std::uint64_t grant_id, Reason reason, ServerMetrics::TakenBack how);
  /// Its grants are memory mapped by the client, which only the client can end.
  [[nodiscard]] bool maps_grants() const noexcept { return endpoint_->mapping_client() != nullptr; }
  /// Tells the client something of the server's own accord, after what it was told before. Only
  /// clients of version 2 hear it.
  void tell(control::Event event);

 private:
  /// The count of what is not handled; outlives the session.
  class NotificationCredits final : public Notifier::Origin {
   public:
    NotificationCredits(ServerCore& server, std::uint64_t session_id) noexcept
        : server_{server}, session_id_{session_id} {}
    void rename(std::uint64_t session_id) noexcept { session_id_.store(session_id); }
    [[nodiscard]] std::size_t reserve(std::size_t most) noexcept;
    [[nodiscard]] bool hold_up() noexcept;
    void end() noexcept { ended_.store(true); }
    /// Beyond any room.
    void add() noexcept { unhandled_.fetch_add(1); }
    void notice_handled() noexcept override;
    [[nodiscard]] bool ended() const noexcept override { return ended_.load(); }

   private:
    ServerCore& server_;  // outlives the notifier, which is the last to have this
    std::atomic<std::uint64_t> session_id_;
    std::atomic<std::size_t> unhandled_{0};
    std::atomic<bool> held_up_{false};
    std::atomic<bool> ended_{false};
  };
  /// What notices need to know of a grant, also shortly after it has been closed.
  struct Named {
    std::string region;
    std::uint64_t size_bytes = 0;
    Rights rights = Rights::kNone;
  };
  static constexpr std::size_t kMaxClosed = 256;
  /// More of them wait their turn.
  static constexpr std::uint32_t kPingsPerSecond = 20;
  struct OpenGrant {
    std::shared_ptr<RegionEntry> region;
    transport::Grant grant;
    std::uint64_t size_bytes = 0;  ///< of the region when it was opened
    bool revoking = false;         ///< the client is told, and why
    Reason reason = Reason::kNone;
  };
  using Grants = std::unordered_map<std::uint64_t, OpenGrant>;
  /// Grants that were taken back, of which the client may still ask.
  static constexpr std::size_t kMaxTaken = 1024;
  struct Answer {
    control::Reply reply;
    std::vector<UniqueFd> descriptors;
  };
  /// A request whose answer may take its time.
  struct Asked {
    std::uint64_t id;
    RequestKind kind;
    Clock::time_point arrived;
  };
  /// A request that waits for limits.requests_per_second.
  struct Delayed {
    SharedMessage message;
    Clock::time_point arrived;
  };
  /// There is nobody any more whose requests these would be. Worker.
  [[nodiscard]] bool over() const noexcept { return released_ || alone_.load(); }
  Served reply(const Asked& asked, Result<Answer> answered);
  /// As reply(), some time after serve() has returned.
  void reply_later(const Asked& asked, Result<Answer> answered);
  /// Requests that have to wait for their turn at a region. False: it is none.
  bool serve_in_turn(const Asked& asked, const control::Request& request);
  using TurnJob = std::function<void(ServerSession&, const std::shared_ptr<RegionEntry>&)>;
  void in_turn(const Asked& asked, const std::string& name, TurnJob job);
  void create_when_there(const Asked& asked, const control::CreateRequest& request);
  void remove_now(const Asked& asked, const std::string& name);
  void fence(const Asked& asked, const control::FenceRequest& request,
             const std::shared_ptr<RegionEntry>& region);
  void resize(const Asked& asked, const control::ResizeRequest& request,
              const std::shared_ptr<RegionEntry>& region);
  [[nodiscard]] Status may_open(const RegionEntry& region, std::uint32_t rights) const;
  /// What of its own grants goes before the session has another one of the region.
  enum class Before : std::uint8_t { kNothingGoes, kThoseOfTheRegionGo };
  /// Errors: kLimitExceeded, naming the limit of one session.
  [[nodiscard]] Status has_room_for(const RegionEntry& region, Before before) const;
  Result<Answer> grant_state(const control::GrantStateRequest& request) const;
  Result<Answer> event_ack(const control::EventAckRequest& request);
  void send_event();
  [[nodiscard]] control::Event revoking_event(std::uint64_t grant_id, Reason reason) const;
  void give_up(Grants::iterator found);
  void lock_out(const RegionEntry& region, const Error& why);
  [[nodiscard]] std::optional<Reason> taken(std::uint64_t grant_id) const;

  void count_grants(int change) noexcept;
  Result<bool> resume();
  void give_up_unknown();
  Status send(const control::Envelope& envelope);
  Status deliver(transport::ControlMessage message);
  void flush_to_stranger() noexcept;
  Status adopt(ServerSession& before);
  using Raw = std::span<const std::byte>;  ///< a message as it came
  [[nodiscard]] bool expects(const control::Request& request) const noexcept;
  [[nodiscard]] bool exempt_from_pace(const control::Request& request) noexcept;
  Served serve_now(const control::Envelope& envelope, const transport::ControlMessage& message,
                   Clock::time_point arrived);
  Served serve_first_delayed();
  void note_delayed(Clock::time_point now);
  Result<Answer> answer(const control::Request& request, Raw raw);
  Result<Answer> hello(const control::Hello& hello, Raw raw);
  Result<Answer> challenge(const control::Hello& hello, Raw raw);
  Result<Answer> prove(const control::ProveRequest& request, Raw raw);
  [[nodiscard]] control::Welcome welcome(bool resumed) const;
  Result<control::Welcome> let_in(const std::string& client_name,
                                  const std::optional<config::SecretKey>& proven_key);
  void begin(bool resumed);
  /// Who asks, for as long as `registry` lives; null: nobody is asked who he is.
  /// Errors: kConnectionRefused: no longer one of the server's clients.
  struct Asker {
    std::shared_ptr<const ClientRegistry> registry;
    const KnownClient* client = nullptr;
  };
  [[nodiscard]] Result<Asker> asker() const;
  /// The region, if the client may know of it. Errors: kUnknownRegion, those of asker().
  Result<std::shared_ptr<RegionEntry>> find_permitted(const std::string& name,
                                                      Permission& permission) const;
  Status check_quota(const KnownClient& client, std::uint64_t more_bytes) const;
  Result<Answer> usage();
  Result<Answer> create(const control::CreateRequest& request);
  Result<Answer> open(const control::OpenRequest& request);
  Result<Answer> extents(const control::ExtentsRequest& request);
  Result<Answer> close(const control::CloseRequest& request);
  Result<Answer> list(const control::ListRequest& request);
  Result<Answer> stat(const control::StatRequest& request);
  Result<Answer> remove(const control::RemoveRequest& request);
  Result<Answer> notify(const control::NotifyRequest& request);

  ServerCore& server_;
  std::atomic<std::uint64_t> id_;  ///< that of the session it resumes, once it does
  std::uint64_t lane_secret_;
  std::unique_ptr<transport::ServerEndpoint> endpoint_;
  transport::LaneKeyRenewal* lane_keys_ = nullptr;  ///< null: one key for all lanes
  Grants grants_;
  std::vector<std::weak_ptr<RegionEntry>> own_regions_;  ///< that go with this
  bool released_ = false;
  bool locked_out_ = false;         ///< see lock_out()
  std::uint64_t open_bytes_ = 0;    ///< of grants_
  std::uint64_t fences_ = 0;        ///< under way, each of which needs room for a grant
  std::uint64_t fences_bytes_ = 0;  ///< of their regions
  std::unordered_map<std::uint64_t, Reason> taken_;
  std::deque<std::uint64_t> taken_order_;
  std::deque<control::Event> events_;  ///< not sent yet: one for each grant at most
  /// What the client has not acknowledged yet, and the grant that it is about; 0: none.
  std::uint64_t event_in_flight_ = 0;
  std::uint64_t event_grant_ = 0;
  Reason event_reason_ = Reason::kNone;
  std::uint64_t next_event_id_ = 1;
  std::mutex rest_mutex_;   // announce_the_rest() by one thread at a time
  std::mutex named_mutex_;  // what follows: changed by the worker, read by the control thread
  std::unordered_map<std::uint64_t, Named> named_;  ///< grants that are open, and the latest closed
  std::deque<std::uint64_t> closed_;
  std::uint64_t next_grant_id_ = 1;
  std::atomic<std::size_t> open_grants_{0};
  std::atomic<std::size_t> unanswered_{0};
  std::shared_ptr<NotificationCredits> desk_;
  std::atomic<Clock::rep> heard_at_{0};
  std::atomic<bool> alone_{false};
  std::atomic<bool> comes_back_{false};    ///< until it says goodbye
  std::optional<control::Resume> wanted_;  ///< the session that the client has lost; worker
  std::optional<control::ServerHandshake> handshake_;  ///< between hello and proof
  std::string client_name_;                            ///< complete before handshake_complete_
  std::optional<config::SecretKey> proven_key_;        ///< complete before handshake_complete_
  TokenBucket pace_;                                   // worker, as what follows
  std::deque<Delayed> delayed_;                        ///< as many as may be unanswered
  bool said_goodbye_ = false;
  Clock::time_point delayed_line_at_{};  ///< when the log told of it
  std::size_t owed_pages_ = 0;  ///< of extents, whose keys have gone with the lanes; worker
  TokenBucket resumes_;         ///< of the session, whichever connection it has
  std::mutex send_mutex_;  ///< of the endpoint's sending side: the worker, and answers to pings
  TokenBucket ping_pace_{kPingsPerSecond};  // control thread
  std::atomic<bool> handshake_complete_{false};
  std::atomic<std::uint32_t> version_{0};
  Clock::time_point began_ = Clock::now();
  std::atomic<Clock::rep> waits_since_{began_.time_since_epoch().count()};
};

}  // namespace remora::detail
