#pragma once

/// Pauses between attempts to connect.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>

namespace remora::detail {

/// Pauses that grow and differ between clients, so that the clients of a server that restarts do
/// not all connect at once. Belongs to the thread that connects.
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
  /// Begins again with the first step.
  void begin_anew() noexcept { step_ = kFirst; }

 private:
  std::minstd_rand random_;
  std::chrono::milliseconds step_ = kFirst;
};

}  // namespace remora::detail
