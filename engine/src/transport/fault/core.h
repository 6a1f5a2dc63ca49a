#pragma once

/// The state that testing::FaultTransport shares with the lanes and connections that it wraps: the
/// faults to inject, by chance and by command, and the faults that were injected.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <remora/mutex.h>
#include <remora/testing/fault_transport.h>

#include "base/clock.h"
#include "transport/client_endpoint.h"
#include "transport/fault/bell.h"
#include "transport/fault/sampler.h"

namespace remora::detail {

/// One connection, for its lanes and for the commands.
struct FaultLink {
  std::weak_ptr<transport::ClientEndpoint> endpoint;
  std::atomic<bool> cut{false};  ///< the connection carries nothing any more
};

/// The faults of one request.
struct FaultVerdict {
  enum class Loss : std::uint8_t { kNone, kLane, kConnection };
  Loss loss = Loss::kNone;
  bool landed = false;
  bool hold = false;
  bool reorder = false;
  std::chrono::nanoseconds delay{0};
};

/// Thread-safe. Never blocks; no lock is held while a lane or a connection is called.
class FaultCore {
 public:
  using Counts = testing::FaultCounts;
  using Rates = testing::FaultRates;
  using Landing = testing::Landing;

  explicit FaultCore(const testing::FaultOptions& options) noexcept
      : seed_{options.seed}, rates_{options.rates} {}

  /// Whether a parent process made it, before fork.
  [[nodiscard]] bool foreign() const noexcept { return made_in_ != this_process(); }

  // Called by the wrapped lanes and connections.
  [[nodiscard]] bool lets_connect() noexcept;
  [[nodiscard]] std::uint64_t next_lane() noexcept { return lanes_.fetch_add(1); }
  [[nodiscard]] std::uint64_t seed() const noexcept { return seed_; }
  /// Decides the faults of the requests of a chain, up to the first request that is lost. Returns
  /// the number of these requests.
  std::size_t judge(FaultSampler& sampler, std::span<FaultVerdict> verdicts) noexcept;
  [[nodiscard]] bool drops_answer(FaultSampler& sampler) noexcept;
  [[nodiscard]] bool holds_completions() const noexcept { return holds_completions_.load(); }
  /// Changes whenever completions are released.
  [[nodiscard]] std::uint64_t releases() const noexcept { return releases_.load(); }
  [[nodiscard]] bool holds_answers() const noexcept { return holds_answers_.load(); }
  void add_bell(const std::shared_ptr<FaultBell>& bell);
  void add_link(const std::shared_ptr<FaultLink>& link);
  /// Nothing comes over the connection any more; its session receives an error.
  void cut(FaultLink& link) noexcept;
  void count(std::uint64_t Counts::*what, std::uint64_t times = 1) noexcept;

  // Commands: see testing::FaultTransport.
  void set_rates(const Rates& rates) noexcept;
  void lose_next(FaultVerdict::Loss loss, Landing landing, std::uint64_t requests_before) noexcept;
  void lose_connections() noexcept;
  void refuse_connects(std::uint64_t count) noexcept;
  void refuse_connects_for(std::chrono::nanoseconds time) noexcept;
  void delay_next(std::uint64_t requests, std::chrono::nanoseconds delay) noexcept;
  void hold_completions() noexcept { holds_completions_.store(true); }
  void release_completions() noexcept;
  void hold_answers() noexcept { holds_answers_.store(true); }
  void release_answers() noexcept;
  [[nodiscard]] Counts counts() const noexcept;

 private:
  FaultVerdict verdict(FaultSampler& sampler) noexcept REMORA_REQUIRES(mutex_);
  void ring_all() noexcept;

  const std::uint64_t seed_;
  const std::uint32_t made_in_ = made_here();
  std::atomic<bool> holds_completions_{false};
  std::atomic<bool> holds_answers_{false};
  std::atomic<std::uint64_t> releases_{0};
  std::atomic<std::uint64_t> lanes_{0};

  mutable Mutex mutex_;
  Rates rates_ REMORA_GUARDED_BY(mutex_);
  Counts counts_ REMORA_GUARDED_BY(mutex_);
  std::uint64_t attempts_ REMORA_GUARDED_BY(mutex_) = 0;  ///< attempts to connect
  std::uint64_t refused_next_ REMORA_GUARDED_BY(mutex_) = 0;
  Deadline refused_until_ REMORA_GUARDED_BY(mutex_) = Deadline::min();
  FaultVerdict::Loss next_loss_ REMORA_GUARDED_BY(mutex_) = FaultVerdict::Loss::kNone;
  Landing next_landing_ REMORA_GUARDED_BY(mutex_) = Landing::kLanded;
  std::uint64_t before_loss_ REMORA_GUARDED_BY(mutex_) = 0;
  std::uint64_t delayed_next_ REMORA_GUARDED_BY(mutex_) = 0;
  std::chrono::nanoseconds next_delay_ REMORA_GUARDED_BY(mutex_){0};
  std::vector<std::weak_ptr<FaultBell>> bells_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<FaultLink>> links_ REMORA_GUARDED_BY(mutex_);
};

}  // namespace remora::detail

namespace remora::transport {

using Connect = std::function<Result<std::unique_ptr<ClientEndpoint>>(Deadline)>;

/// Connects as `connect` does, with faults. Errors: kUnsupported (over shm); kConnectionRefused (by
/// a fault); those of `connect`; kSystem (no descriptors are left).
Connect with_faults(std::shared_ptr<detail::FaultCore> core, TransportKind kind, Connect connect);

}  // namespace remora::transport
