#pragma once

/// A set of series: counters, gauges and histograms, recorded by many threads, read by a scrape.
///
/// Series are declared in advance, on the control path; the calling thread's Recorder records with
/// their handles. Several registries may live in one process.
///
/// Thread safety: every function may be called from any thread. Registration, reads and the first
/// recorder() of a thread take the registry's lock; recording takes none.
///
/// Lifetime: a registry may be destroyed before or after the threads that recorded in it. The
/// counts of a finished thread are kept. Handles and recorders must not be used after the registry.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/metrics/latency_histogram.h>
#include <remora/metrics/recorder.h>
#include <remora/owned.h>
#include <remora/result.h>

namespace remora::metrics {

/// One `name="value"` of a series. Values must come from a small, fixed set (an operation, a
/// transport, a status), never from a text that a peer or a user chooses.
struct Label {
  std::string name;
  std::string value;
  friend bool operator==(const Label&, const Label&) = default;
  // NOLINTNEXTLINE(modernize-use-nullptr): the tool misreads the default.
  friend auto operator<=>(const Label&, const Label&) = default;
};
/// The order does not matter. `{{"op", "read"}, {"transport", "rdma"}}`.
using Labels = std::vector<Label>;

/// The unit of a histogram's recorded integers; decides the unit of its export.
enum class Unit : std::uint8_t {
  kSeconds,  ///< recorded in nanoseconds, exported in seconds; the name ends in _seconds
  kBytes,    ///< the name ends in _bytes
  kCount,    ///< a plain number
};

/// How a histogram is exported. Internally it always has the resolution of Buckets.
struct HistogramShape {
  Unit unit = Unit::kCount;
  /// Upper bounds (`le`, inclusive) of the exported buckets, ascending, in recorded units (ns,
  /// bytes, things), without +Inf. An exported bucket counts every value up to its bound; it may
  /// also count values up to 6.25 % above it, unless the bound is a power of two or at most 32:
  /// then it is exact.
  std::vector<std::uint64_t> bounds;

  /// 1 µs … 60 s in 21 steps.
  static HistogramShape latency();
  /// 64 B … 64 MiB in powers of four.
  static HistogramShape bytes();
  /// 1 … `largest` (at least 1) in powers of two.
  static HistogramShape counts(std::uint64_t largest = 1024);
};

/// Whether a gauge also exports `<name>_high_water`: its highest value since the last scrape.
enum class HighWater : std::uint8_t { kNone, kExport };

class History;            // internal
struct RegistryState;     // internal
struct RegistryCallback;  // internal

/// Keeps a callback series registered. Its destructor unregisters, and waits for a call in
/// progress: after that, no object that the callback has captured is used. Movable; may outlive the
/// registry. Its own callback must not destroy it. In a child of fork(2) a parent's handle does
/// nothing.
class CallbackHandle {
 public:
  /// Keeps nothing registered.
  CallbackHandle() noexcept = default;
  ~CallbackHandle() { reset(); }
  CallbackHandle(CallbackHandle&& other) noexcept = default;
  /// Unregisters the series that this object had, as the destructor does.
  CallbackHandle& operator=(CallbackHandle&& other) noexcept;

  /// Unregisters now.
  void reset() noexcept;
  /// Keeps the series for the registry's whole life; the objects that the callback has captured
  /// must live as long.
  void release() noexcept { entry_.reset(); }

 private:
  friend class Registry;
  CallbackHandle(std::weak_ptr<RegistryState> state,
                 std::shared_ptr<RegistryCallback> entry) noexcept
      : state_{std::move(state)}, entry_{std::move(entry)} {}
  std::weak_ptr<RegistryState> state_;
  remora::detail::OwnedShared<RegistryCallback> entry_;
};

/// Cells of one registry that belong not to a thread but to an object that one thread at a time
/// uses (a lane and its lock): the thread that holds the object needs no look-up. Movable. The
/// counts are kept when it is destroyed; it may outlive the registry, but then no thread may record
/// in it.
class OwnedCells {
 public:
  /// Records nowhere.
  OwnedCells() noexcept;
  ~OwnedCells();
  OwnedCells(OwnedCells&& other) noexcept;
  OwnedCells& operator=(OwnedCells&& other) noexcept;

  /// For the thread that holds the object of these cells, as long as it holds it.
  [[nodiscard]] Recorder recorder() const noexcept { return Recorder{cells_}; }

 private:
  friend class Registry;
  OwnedCells(std::shared_ptr<RegistryState> state, std::uint64_t* cells) noexcept;
  void give_back() noexcept;
  remora::detail::OwnedShared<RegistryState> state_;
  std::uint64_t* cells_;
};

/// The options of a registry.
struct RegistryOptions {
  /// The most series that the registry exports, counted as Prometheus does: a histogram is its
  /// bounds + 3, a gauge with a high-water mark is 2. Between 1 and 100,000.
  std::size_t series_max = 500;
};

/// See the top of this file.
///
/// An object that got a reference, such as Engine::registry(), keeps it by shared_from_this().
class Registry : public std::enable_shared_from_this<Registry> {
 public:
  /// Errors: kInvalidArgument (options); kOutOfMemory.
  static Result<std::shared_ptr<Registry>> create(RegistryOptions options = {});
  /// No thread may record, read or register any more.
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  /// Registration. `help` is one line. A name and labels that are registered already give the same
  /// series again (not so callbacks). All take the lock and may allocate: control path only.
  ///
  /// Errors, of all: kInvalidArgument, with the rule as operation() and the text as subject() (a
  /// name outside [a-zA-Z_][a-zA-Z0-9_]* or against the rules of src/naming.h, a help that is empty
  /// or not one line, a label that is malformed, reserved, given twice, not UTF-8 or too long, bad
  /// bounds); kAlreadyExists (the name has another kind or shape; a callback has the series);
  /// kLimitExceeded (series_max).

  /// A counter; the name ends in `_total`.
  Result<Counter> counter(std::string_view name, std::string_view help, const Labels& labels = {});
  /// A gauge, 0 at first.
  Result<Gauge> gauge(std::string_view name, std::string_view help, const Labels& labels = {},
                      HighWater high_water = HighWater::kNone);
  /// A histogram. All series of one name have one shape.
  Result<Histogram> histogram(std::string_view name, std::string_view help, const Labels& labels,
                              const HistogramShape& shape);
  /// A gauge whose callback the scraping thread calls at every scrape, without the lock. A callback
  /// that throws exports NaN; it may be slow, but must not unregister itself.
  Result<CallbackHandle> gauge_callback(std::string_view name, std::string_view help,
                                        const Labels& labels, std::function<double()> value);
  /// The same for a number that only grows (a NIC's own counter); the name ends in `_total`.
  Result<CallbackHandle> counter_callback(std::string_view name, std::string_view help,
                                          const Labels& labels, std::function<double()> value);

  /// The calling thread's cells. A thread-local look-up (some ten instructions): call it once in a
  /// batch. The first call of a thread takes the lock and maps memory; without memory the thread
  /// shares cells with others and may lose counts, nothing worse.
  [[nodiscard]] Recorder recorder() const noexcept;

  /// Cells for an object instead of a thread. Takes the lock and maps memory; without memory they
  /// are shared with others, as those of recorder().
  [[nodiscard]] OwnedCells own_cells() const noexcept;

  /// Reads: the sum over all threads, including finished ones, at about this moment. They do not
  /// change high-water marks.

  /// The sum of a counter, and the present value of a gauge.
  [[nodiscard]] std::uint64_t value(Counter counter) const;
  /// The present value of a gauge.
  [[nodiscard]] std::int64_t value(Gauge gauge) const noexcept;
  /// The highest value since the last text(); the value itself if no mark is kept.
  [[nodiscard]] std::int64_t high_water(Gauge gauge) const noexcept;
  /// Everything observed; min() and max() are edges of buckets here (max within 6.25 %).
  [[nodiscard]] LatencyHistogram value(Histogram histogram) const;
  /// One counter or gauge (callbacks too) by name and all its labels. Errors: kNotFound.
  [[nodiscard]] Result<double> value(std::string_view name, const Labels& labels = {}) const;
  /// The sum of a family's counters or gauges that have at least `labels`; 0: none has them.
  /// Errors: kNotFound (no such family).
  [[nodiscard]] Result<double> sum(std::string_view name, const Labels& labels = {}) const;
  /// All histograms of a family that have at least `labels`, merged. Errors: kNotFound.
  [[nodiscard]] Result<LatencyHistogram> distribution(std::string_view name,
                                                      const Labels& labels = {}) const;
  /// Series exported now, counted as RegistryOptions says.
  [[nodiscard]] std::size_t series_count() const;
  /// The number of blocks of cells, used or free: the most threads and objects that have recorded
  /// at once. A scrape reads all of them.
  [[nodiscard]] std::size_t block_count() const;

  /// A scrape: all series in Prometheus' text format 0.0.4, families by name. Calls the callbacks
  /// and begins a new interval for high-water marks: two scrapers share the intervals, an
  /// HttpEndpoint's history has its own.
  [[nodiscard]] std::string text() const;

 private:
  friend class History;
  explicit Registry(std::shared_ptr<RegistryState> state) noexcept;
  Result<CallbackHandle> callback(bool grows, std::string_view name, std::string_view help,
                                  const Labels& labels, std::function<double()> value);
  std::shared_ptr<RegistryState> state_;
};

}  // namespace remora::metrics
