#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

#include "client/datapath/lane_driver.h"
#include "client/datapath/many_batch.h"

namespace remora::detail {

/// The batches of a session that no call uses. The session owns it. Thread-safe and lock-free.
class ManyBatches {
 public:
  ManyBatches() = default;
  ~ManyBatches();
  ManyBatches(const ManyBatches&) = delete;
  ManyBatches& operator=(const ManyBatches&) = delete;

  /// A batch for one call. Null: out of memory.
  [[nodiscard]] std::unique_ptr<ManyBatch> take(const LaneDriver& lane) noexcept;
  /// Keeps `batch`, whose records are all free, or destroys it if enough batches are kept.
  void give_back(std::unique_ptr<ManyBatch> batch) noexcept;

 private:
  static constexpr std::size_t kMaxKept = 4;
  std::array<std::atomic<ManyBatch*>, kMaxKept> kept_{};
};

}  // namespace remora::detail
