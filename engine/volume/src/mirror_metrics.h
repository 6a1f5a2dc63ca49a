#pragma once

/// The series of the mirrors that a process uses.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/mutex.h>
#include <remora/result.h>

namespace remora::volume::detail {

class MirrorCensus;

/// The label `state` of a group of a claimed mirror.
enum class MirrorGroupState : std::uint8_t { kInSync, kDegraded, kPromoting, kLost, kUnadopted };
/// "in_sync", "degraded", "promoting", "lost" or "unadopted".
[[nodiscard]] std::string_view to_string(MirrorGroupState state) noexcept;

/// The label `kind` of copies.
enum class MirrorCopy : std::uint8_t {
  kZones,   ///< makes members of a group equal
  kMembers  ///< builds a new member
};

/// All mirrors of a registry share one object, whose series are sums over them. Levels are asked
/// for by a scrape (MirrorCensus). What happens is counted in the cells of the thread that does it;
/// on the path of a read or a write that succeeds nothing is counted. The series stay until the
/// registry ends; a registry without room for one leaves it out. Thread-safe.
///
/// There is no label with the name of a volume, a group or a server: the number of series does not
/// depend on them.
class MirrorMetrics {
 public:
  /// The pointer keeps the registry, too.
  static std::shared_ptr<MirrorMetrics> of(metrics::Registry& registry);
  /// Counts nothing.
  static std::shared_ptr<MirrorMetrics> none();
  /// `registry` is borrowed, and may be null: for of() and none().
  explicit MirrorMetrics(metrics::Registry* registry);

  /// `census` is borrowed until remove().
  void add(const MirrorCensus& census);
  void remove(const MirrorCensus& census) noexcept;

  /// A claim has adopted its groups.
  void claimed() const noexcept;
  /// One has not; returns `error`.
  const Error& claim_failed(const Error& error) const noexcept;
  /// Another client has claimed the volume.
  void claim_lost() const noexcept;
  /// A claim that was not known to be lost.
  void released(const Status& done) const noexcept;
  /// Returns `grant`, which a fence has obtained or not.
  template <typename T>
  Result<T> fenced(Result<T> grant) const noexcept {
    count_fence(grant ? nullptr : &grant.error());
    return grant;
  }
  /// A member has left its group: `cause`, or on request.
  void member_removed(const Error& cause) const noexcept;
  void member_removed_on_request() const noexcept;
  /// A request for the confirmation of a configuration, which took so long.
  void confirmation(bool confirmed, std::chrono::nanoseconds took) const noexcept;
  /// A read has its bytes, and its configuration was not confirmed any more.
  void read_repeated() const noexcept;
  /// Returns `error`, that of a write.
  const Error& write_failed(const Error& error) const noexcept;
  /// A group has another configuration.
  void configuration_changed() const noexcept;
  void copied(MirrorCopy kind, std::uint64_t bytes) const noexcept;
  /// That many seconds of groups with fewer members than copies.
  void degraded_for(std::chrono::nanoseconds time) noexcept;

 private:
  /// The label `outcome` of claims and of fences, `reason` of ended claims.
  enum Claim : std::size_t { kClaimOk, kClaimHeld, kClaimFailed, kClaims };
  enum Fence : std::size_t { kFenceOk, kFenceNewMemory, kFenceFailed, kFences };
  enum End : std::size_t { kReleased, kLost, kEnds };
  /// The label `cause` of removals.
  enum Cause : std::size_t {
    kUnreachable,
    kNoAnswer,
    kNewMemory,
    kRefused,
    kMissedWrite,
    kRequest,
    kOther,
    kCauses
  };
  static Cause cause_of(const Error& error) noexcept;

  template <std::size_t N>
  void declare(std::array<metrics::Counter, N>& counters, std::string_view name,
               std::string_view help, const char* label, const std::array<const char*, N>& values);
  void declare_counters();
  void declare_levels();
  void declare_level(std::string_view name, std::string_view help, const metrics::Labels& labels,
                     std::function<double()> value);
  void count(metrics::Counter counter, std::uint64_t by = 1) const noexcept;
  void count_fence(const Error* error) const noexcept;
  template <typename Value>
  [[nodiscard]] double sum(const Value& value) const;

  metrics::Registry* const registry_;
  std::array<metrics::Counter, kClaims> claims_{};
  std::array<metrics::Counter, kEnds> ends_{};
  std::array<metrics::Counter, kFences> fences_{};
  std::array<metrics::Counter, kCauses> removals_{};
  std::array<metrics::Counter, 2> copied_{};  ///< by MirrorCopy
  metrics::Counter confirmation_failures_;
  metrics::Counter reads_repeated_;
  metrics::Counter writes_indeterminate_;
  metrics::Counter configurations_;
  metrics::Histogram confirmation_latency_;
  std::atomic<std::uint64_t> degraded_ns_{0};
  mutable remora::detail::Mutex mutex_;
  std::vector<const MirrorCensus*> censuses_ REMORA_GUARDED_BY(mutex_);
  std::vector<metrics::CallbackHandle> series_;  ///< ended first: they use the other members
};

}  // namespace remora::volume::detail
