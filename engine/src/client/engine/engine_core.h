#pragma once

/// The engine of a client: its sessions, its local memory and its threads.

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <remora/engine/control.h>
#include <remora/engine/engine.h>
#include <remora/engine/region.h>
#include <remora/engine/uri.h>
#include <remora/metrics/registry.h>
#include <remora/mutex.h>

#include "base/event_loop.h"
#include "base/placement.h"
#include "client/datapath/local_memory.h"
#include "client/datapath/parallel_copy.h"
#include "client/engine/handler_gate.h"
#include "client/region/opening.h"
#include "transport/memory_domain.h"
#include "transport/registration_cache.h"

namespace remora::detail {

class ControlCalls;
class JobThreads;
class MemoryReleaser;
class PassedOver;
class Poller;
class Pollers;
class SessionCore;

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
  /// The same for a client that had it open: tried once, whatever EngineOptions::connect_for says,
  /// until `deadline` and for `control_deadline` at most.
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
  /// For the thread that gives the engine up: the control thread may be its last owner, for a
  /// moment. None where there is no such thread, and on a poller, which that thread would wait for.
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
  mutable Mutex mutex_;  ///< never locked on the data path
  Condition turn_over_;
  std::set<std::string> connecting_
      REMORA_GUARDED_BY(mutex_);  ///< the keys of sessions_ that have no session yet
  std::unique_ptr<EventLoop> control_loop_ REMORA_GUARDED_BY(mutex_);
  std::unique_ptr<Pollers> pollers_;  ///< pick() with mutex_ locked
  std::shared_ptr<JobThreads> arena_ REMORA_GUARDED_BY(mutex_);
  std::map<std::string, std::weak_ptr<SessionCore>> sessions_ REMORA_GUARDED_BY(mutex_);
  std::chrono::milliseconds tick_period_ REMORA_GUARDED_BY(mutex_){0};  ///< 0: no session needs it
  /// That have a lease: also those that are still being connected, or replaced in sessions_.
  std::vector<std::weak_ptr<SessionCore>> leased_ REMORA_GUARDED_BY(mutex_);
  std::array<std::shared_ptr<transport::MemoryDomain>, kMemoryDomainsMax> domains_
      REMORA_GUARDED_BY(mutex_);
  struct Cache {
    bool asked = false;
    std::shared_ptr<transport::RegistrationCache> cache;
  };
  std::array<Cache, kMemoryDomainsMax> caches_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<LocalMemory>> memories_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<SlotStore> bounce_ REMORA_GUARDED_BY(mutex_);
  std::shared_ptr<SlotStore> zeroes_ REMORA_GUARDED_BY(mutex_);  ///< one slot, never handed out
};

/// Of open_region() and its like. Errors: kInvalidArgument.
[[nodiscard]] Result<Uri> region_uri(std::string_view text, Rights rights);

}  // namespace remora::detail
