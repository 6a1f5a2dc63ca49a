#pragma once

/// The part of metrics/ for the data path: handles of series, and the recorder of the calling
/// thread.
///
/// Handles are indices: cheap, copyable, made by a Registry (registry.h) and valid with recorders
/// of that registry only, as long as it lives. A default-constructed handle records into a scratch
/// cell that is never read, so code without metrics needs no branch.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include <remora/metrics/latency_histogram.h>
#include <remora/sanitizers.h>

/// Whether one instruction raises a cell. ThreadSanitizer must see the portable form.
#if REMORA_THREAD_SANITIZER || !defined(__x86_64__)
#define REMORA_METRICS_ONE_INSTRUCTION 0
#else
#define REMORA_METRICS_ONE_INSTRUCTION 1
#endif

namespace remora::metrics {

#ifdef REMORA_METRICS_NOT_RECORDED
/// For one test, which compiles a data path twice to count what recording costs. Not defined
/// elsewhere: all objects that are linked together must agree.
inline constexpr bool kRecorded = false;
#else
inline constexpr bool kRecorded = true;
#endif

class OwnedCells;
class Registry;

/// A number that only grows. Record with Recorder::add.
class Counter {
 public:
  /// Records into the scratch cell.
  constexpr Counter() noexcept = default;

 private:
  friend class Recorder;
  friend class Registry;
  constexpr explicit Counter(std::uint32_t cell) noexcept : cell_{cell} {}
  std::uint32_t cell_ = 0;
};

/// A distribution of integers: nanoseconds, bytes or counts, as registered. Record with
/// Recorder::observe.
class Histogram {
 public:
  /// Records into the scratch cell.
  constexpr Histogram() noexcept = default;

 private:
  friend class Recorder;
  friend class Registry;
  constexpr explicit Histogram(std::uint32_t cell) noexcept : cell_{cell} {}
  std::uint32_t cell_ = 0;  ///< the sum; the slots follow it
};

/// The readers of high-water marks: each begins new intervals for itself only. Internal.
enum class MarkReader : std::uint8_t { kScrape, kHistory, kCount };

/// A value that goes up and down, with an optional high-water mark since the last scrape.
///
/// Any thread may call any function; each is one or a few atomic operations on a cell that all
/// threads share, so use gauges for values that change once in a batch, not once in an operation.
/// Copies are the same gauge. Must not be used after its registry is gone.
class Gauge {
 public:
  /// Records into the scratch cell.
  constexpr Gauge() noexcept = default;

  /// Sets it to `value`. An add by another thread at the same time may have no effect.
  void set(std::int64_t value) const noexcept {
    if (!kRecorded || cell_ == nullptr) return;
    cell_->value.store(value, std::memory_order_relaxed);
    note(value);
  }
  /// Adds `delta`, which may be negative.
  void add(std::int64_t delta) const noexcept {
    if (cell_ == nullptr) return;
    note(cell_->value.fetch_add(delta, std::memory_order_relaxed) + delta);
  }
  /// Sets it to `value`, which is certainly no new maximum.
  void lower(std::int64_t value) const noexcept {
    if (kRecorded && cell_ != nullptr) cell_->value.store(value, std::memory_order_relaxed);
  }
  /// Sets it to `value` if that is more than its present value.
  void raise(std::int64_t value) const noexcept {
    if (cell_ == nullptr) return;
    lift(cell_->value, value);
    note(value);
  }

 private:
  friend class Registry;
  friend struct RegistryState;
  struct alignas(64) Cell {
    std::atomic<std::int64_t> value{0};
    std::atomic<std::int64_t> high_water{0};
    /// For each reader, the highest mark that another reader has taken and this one has not seen.
    std::array<std::atomic<std::int64_t>, static_cast<std::size_t>(MarkReader::kCount)> unseen{};
    bool has_high_water = false;
  };
  constexpr explicit Gauge(Cell* cell) noexcept : cell_{cell} {}

  static void lift(std::atomic<std::int64_t>& target, std::int64_t value) noexcept {
    std::int64_t seen = target.load(std::memory_order_relaxed);
    while (seen < value && !target.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
    }
  }
  void note(std::int64_t value) const noexcept {
    if (cell_->has_high_water) lift(cell_->high_water, value);
  }
  Cell* cell_ = nullptr;
};

/// One thread's own cells of one registry: where counters and histograms are recorded.
///
/// The result of Registry::recorder(), called once in a batch; as cheap to copy as a pointer.
/// Belongs to the thread that has called recorder(): never pass it to another thread, and do not
/// keep it longer than the thread or the registry lives. Recording takes no lock, no locked
/// instruction and no cache line that another thread writes; it never fails and never allocates.
class Recorder {
 public:
  /// Adds `n` to `counter`.
  [[gnu::always_inline]] void add(Counter counter, std::uint64_t n = 1) const noexcept {
    bump(cells_[counter.cell_], n);
  }
  /// Counts `value` (nanoseconds, bytes or a count, as the histogram was registered) once.
  [[gnu::always_inline]] void observe(Histogram histogram, std::uint64_t value) const noexcept {
    std::uint64_t* const cells = cells_ + histogram.cell_;
    bump(cells[1 + Buckets::slot(value)], 1);
    bump(cells[0], value);
  }
  /// Counts `value` `n` times: operations of one batch that share a latency.
  [[gnu::always_inline]] void observe_n(Histogram histogram, std::uint64_t value,
                                        std::uint64_t n) const noexcept {
    std::uint64_t* const cells = cells_ + histogram.cell_;
    bump(cells[1 + Buckets::slot(value)], n);
    bump(cells[0], value * n);
  }

 private:
  friend class OwnedCells;
  friend class Registry;
  explicit Recorder(std::uint64_t* cells) noexcept : cells_{cells} {}

  /// Only the owning thread writes a cell, so this need not be a locked instruction; the scraping
  /// thread may read at any time, so it must not tear. On x86-64 one unlocked instruction does both
  /// (the portable form needs three), and a signal handler on the same thread cannot interrupt it.
  [[gnu::always_inline]] static void bump(std::uint64_t& cell, std::uint64_t n) noexcept {
    if (!kRecorded) return;
#if REMORA_METRICS_ONE_INSTRUCTION
    asm("addq %1, %0" : "+m"(cell) : "er"(n) : "cc");
#else
    const std::atomic_ref<std::uint64_t> shared{cell};
    shared.store(shared.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
#endif
  }
  std::uint64_t* cells_;
};

}  // namespace remora::metrics

#undef REMORA_METRICS_ONE_INSTRUCTION
