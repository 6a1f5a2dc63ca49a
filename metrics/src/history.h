#pragma once

/// Samples of a registry over the last hour, kept in this process: a page that is opened after an
/// alert shows the time before it.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <remora/mutex.h>

#include "snapshot.h"

namespace remora::metrics {

/// Takes a sample of all series each period and keeps the latest. start() starts its thread.
/// Memory: 8 bytes for each sample of a counter or gauge, 56 for a histogram; all of it is
/// allocated when a series is seen for the first time.
///
/// Thread safety: sample() is for one thread at a time, json() for any.
class History {
 public:
  struct Options {
    std::chrono::milliseconds period{2'000};
    std::size_t samples_max = 1'800;
  };

  History(std::shared_ptr<Registry> registry, Options options);
  ~History();
  History(const History&) = delete;
  History& operator=(const History&) = delete;

  /// Errors: kSystem (no thread).
  Status start();
  /// Takes a sample now. Called by its thread each period; a test calls it without start().
  void sample(std::chrono::system_clock::time_point now);

  /// Samples with a number of at least `since`, in the format that metrics/docs/http.md describes.
  [[nodiscard]] std::string json(std::uint64_t since) const;

 private:
  /// Values of one number over time; sample n is in place n modulo its size.
  using Column = std::vector<double>;
  struct Track {
    Kind kind = Kind::kCounter;
    Unit unit = Unit::kCount;
    std::vector<Column> columns;  ///< one, or those of kHistogramColumns
    LatencyHistogram before;      ///< histograms
  };
  using Key = std::pair<std::string, Labels>;  ///< family, labels

  struct Excerpt;
  void run();
  [[nodiscard]] Excerpt excerpt(std::uint64_t since) const;
  Track& track_of(const FamilySnapshot& family, const SeriesSnapshot& series)
      REMORA_REQUIRES(mutex_);
  void record(Track& track, const SeriesSnapshot& series, std::size_t place) const;

  const std::shared_ptr<Registry> registry_;
  const Options options_;
  const std::string id_;

  /// Held while an answer is written, so that one answer is in memory at a time.
  mutable detail::Mutex writing_ REMORA_ACQUIRED_BEFORE(mutex_);
  mutable detail::Mutex mutex_;
  std::map<Key, std::unique_ptr<Track>> tracks_ REMORA_GUARDED_BY(mutex_);
  std::vector<std::int64_t> times_ms_ REMORA_GUARDED_BY(mutex_);
  /// The number of the next sample.
  std::uint64_t next_ REMORA_GUARDED_BY(mutex_) = 0;

  detail::Mutex stop_mutex_;
  detail::Condition stop_changed_;
  bool stop_ REMORA_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;
};

}  // namespace remora::metrics
