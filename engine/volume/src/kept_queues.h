#pragma once

/// Queues that a volume keeps for synchronous operations of several parts.

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

namespace remora::volume::detail {

class VolumeQueueCore;

/// A few places for queues, each taken and returned by one exchange: threads wait for no lock.
/// Thread-safe.
class KeptQueues {
 public:
  KeptQueues() = default;
  ~KeptQueues();
  KeptQueues(const KeptQueues&) = delete;
  KeptQueues& operator=(const KeptQueues&) = delete;

  /// Null: none is kept.
  [[nodiscard]] std::unique_ptr<VolumeQueueCore> take() noexcept;
  /// Destroys the queue if all places are in use.
  void put(std::unique_ptr<VolumeQueueCore> queue) noexcept;

 private:
  static constexpr std::size_t kPlaces = 8;
  std::array<std::atomic<VolumeQueueCore*>, kPlaces> places_{};
};

}  // namespace remora::volume::detail
