#pragma once

/// How long to wait before one connects again.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace remora::detail {

/// Pauses that grow, and differ between clients: a server that comes back is not met by all at
/// once. Not thread-safe.
class Backoff {
 public:
  static constexpr std::chrono::milliseconds kFirst{20};
  static constexpr std::chrono::milliseconds kMax{2000};

  Backoff() : Backoff{std::random_device{}()} {}
  explicit Backoff(std::uint32_t seed) : random_{seed} {}

  /// Between half of a step and all of it; steps double, from kFirst to kMax.
  [[nodiscard]] std::chrono::nanoseconds next() {
    std::uniform_real_distribution<double> share{0.5, 1.0};
    const auto pause = std::chrono::duration_cast<std::chrono::nanoseconds>(step_ * share(random_));
    step_ = std::min(2 * step_, kMax);
    return pause;
  }
  /// The next pause is one of the first step again.
  void begin_anew() noexcept { step_ = kFirst; }

 private:
  std::minstd_rand random_;
  std::chrono::milliseconds step_ = kFirst;
};

}  // namespace remora::detail
