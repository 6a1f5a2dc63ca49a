#pragma once

/// The series of the calls to a metadata store.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <remora/metrics/registry.h>
#include <remora/result.h>
#include <remora/volume/uri.h>

namespace remora::volume {

/// Of all stores of one kind in a registry: the same series. A registry without room for a series
/// leaves it out. Thread-safe.
class StoreMetrics {
 public:
  /// The label `op`.
  enum class Call : std::uint8_t { kGet, kCommit, kLease };
  static constexpr std::size_t kCalls = 3;

  /// Errors: those of Registry::counter(), but for kLimitExceeded.
  static Result<StoreMetrics> create(std::shared_ptr<metrics::Registry> registry, StoreKind kind);

  /// The store has answered.
  void answered(Call call, std::chrono::nanoseconds took) const noexcept;
  void failed(Call call, const Error& error) const noexcept;
  /// A transaction was sent and no answer came.
  void outcome_unknown() const noexcept;

 private:
  StoreMetrics() = default;
  /// The label `reason`.
  enum Cause : std::size_t {
    kTimedOut,
    kUnreachable,
    kDenied,
    kLeaseEnded,
    kUnknown,
    kOther,
    kCauses
  };
  static Cause cause_of(const Error& error) noexcept;
  static bool happens(Call call, Cause cause) noexcept;

  std::shared_ptr<metrics::Registry> registry_;
  std::array<metrics::Histogram, kCalls> latency_{};
  std::array<std::array<metrics::Counter, kCauses>, kCalls> errors_{};
};

}  // namespace remora::volume
