#pragma once

/// The series of the server's registration in its cluster.

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include <remora/metrics/registry.h>
#include <remora/result.h>

namespace remora::apps {

/// One thread tells it what happens; scrapes read it at any time.
class ClusterMetrics {
 public:
  using Clock = std::chrono::steady_clock;
  /// Why the server has no record that it could renew, as the label `reason`.
  enum class Failure : std::uint8_t {
    kStore,      ///< a call to the store failed
    kNameTaken,  ///< another server has the name, for longer than a lease
  };
  static constexpr std::size_t kFailures = 2;

  /// `lease`: a record that was not renewed for that long is gone. `now`: for tests. Errors: those
  /// of Registry::gauge_callback().
  static Result<std::unique_ptr<ClusterMetrics>> create(std::shared_ptr<metrics::Registry> registry,
                                                        std::chrono::nanoseconds lease,
                                                        Clock::time_point (*now)() = Clock::now);
  ClusterMetrics(const ClusterMetrics&) = delete;
  ClusterMetrics& operator=(const ClusterMetrics&) = delete;

  /// The lease was granted or renewed at this moment.
  void lease_renewed() noexcept { renewed_ns_.store(now_ns(), std::memory_order_relaxed); }
  /// Whether the server's record stands in the store, with the lease.
  void set_registered(bool registered) noexcept {
    registered_.store(registered, std::memory_order_relaxed);
  }
  void failed(Failure failure) const noexcept {
    registry_->recorder().add(failures_[static_cast<std::size_t>(failure)]);
  }

 private:
  ClusterMetrics(std::shared_ptr<metrics::Registry> registry, std::chrono::nanoseconds lease,
                 Clock::time_point (*now)())
      : registry_{std::move(registry)}, lease_{lease}, now_{now}, renewed_ns_{now_ns()} {}
  Status declare();
  [[nodiscard]] std::int64_t now_ns() const noexcept {
    return std::chrono::nanoseconds{now_().time_since_epoch()}.count();
  }
  [[nodiscard]] std::chrono::nanoseconds age() const noexcept {
    return std::chrono::nanoseconds{now_ns() - renewed_ns_.load(std::memory_order_relaxed)};
  }

  const std::shared_ptr<metrics::Registry> registry_;
  const std::chrono::nanoseconds lease_;
  Clock::time_point (*const now_)();
  std::atomic<bool> registered_{false};
  std::atomic<std::int64_t> renewed_ns_;  ///< at first: when this object was made
  std::array<metrics::Counter, kFailures> failures_{};
  std::array<metrics::CallbackHandle, 2> series_{};  ///< ended first: they use the other members
};

}  // namespace remora::apps
