#pragma once

/// State that a Registry shares with the threads that record in it and with its callback handles.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <remora/metrics/registry.h>
#include <remora/mutex.h>

#include "block.h"
#include "naming.h"

namespace remora::metrics {

/// A callback and the lock that is held while it runs, so that unregistering can wait for it.
struct RegistryCallback {
  RegistryCallback(std::function<double()> value, std::string family_name, Labels series_labels)
      : call{std::move(value)}, family{std::move(family_name)}, labels{std::move(series_labels)} {}

  detail::Mutex running;
  std::function<double()> call REMORA_GUARDED_BY(running);  ///< empty once unregistered
  const std::string family;
  const Labels labels;
};

struct RegistryState {
  static constexpr std::uint32_t kHistogramCells = 1 + Buckets::kCount;
  static constexpr std::uint32_t kScratchCells = kHistogramCells;

  enum class Source : std::uint8_t { kCell, kGauge, kHighWater, kCallback };

  struct Series {
    Source source = Source::kCell;
    std::uint32_t cell = 0;                   ///< kCell: a counter, or a histogram's sum
    Gauge::Cell* gauge = nullptr;             ///< kGauge, kHighWater
    std::shared_ptr<RegistryCallback> entry;  ///< kCallback
  };

  struct Family {
    std::string help;
    Kind kind = Kind::kCounter;
    bool is_high_water = false;  ///< made by its gauge
    HistogramShape shape;        ///< histograms only
    std::map<Labels, Series> series;
  };

  explicit RegistryState(RegistryOptions options);

  // --- thread_blocks.cc ---
  /// A block for the calling thread; without memory the shared one.
  std::uint64_t* acquire_block() noexcept;
  /// Releases a finished thread's block, with its counts, to the next thread.
  void release_block(std::uint64_t* cells) noexcept;

  // --- registry_state.cc ---
  /// The family of that name; a new one if there is none.
  /// Errors: kAlreadyExists (another kind, shape or origin).
  Result<Family*> family(std::string_view name, std::string_view help, Kind kind,
                         const HistogramShape& shape, bool is_high_water) REMORA_REQUIRES(mutex);
  /// Errors: kLimitExceeded.
  Status reserve_series(std::string_view name, std::size_t count) REMORA_REQUIRES(mutex);
  [[nodiscard]] const Family* find(std::string_view name) const REMORA_REQUIRES(mutex);

  [[nodiscard]] std::uint64_t sum_cell(std::size_t cell) const REMORA_REQUIRES(mutex);
  [[nodiscard]] LatencyHistogram read_histogram(std::uint32_t cell) const REMORA_REQUIRES(mutex);
  /// Not for kCallback. A mark is the value that the next scrape would get, and is not changed.
  [[nodiscard]] double read_plain(const Series& series) const REMORA_REQUIRES(mutex);
  /// The highest value since `reader` took it last; begins a new interval for that reader only.
  static std::int64_t take_mark(Gauge::Cell& cell, MarkReader reader) noexcept;
  [[nodiscard]] static std::int64_t mark(const Gauge::Cell& cell, MarkReader reader) noexcept;

  const std::uint64_t id;  ///< never reused in a process
  const std::size_t series_max;

  mutable detail::Mutex mutex;
  std::map<std::string, Family, std::less<>> families REMORA_GUARDED_BY(mutex);
  std::deque<Gauge::Cell> gauges REMORA_GUARDED_BY(mutex);
  std::size_t series_used REMORA_GUARDED_BY(mutex) = 0;
  std::uint32_t counters_end REMORA_GUARDED_BY(mutex);
  std::uint32_t histograms_end REMORA_GUARDED_BY(mutex);

  const std::size_t cells_per_block;
  /// Threads without a block of their own share blocks[0], which may lose counts.
  std::vector<Block> blocks REMORA_GUARDED_BY(mutex);
  std::vector<std::uint64_t*> free_blocks REMORA_GUARDED_BY(mutex);
};

/// Sets NaN if the callback throws. False: it is unregistered. Called without RegistryState::mutex.
bool call(RegistryCallback& entry, double& value) noexcept;

}  // namespace remora::metrics
