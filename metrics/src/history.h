#pragma once

// What a registry showed over the last hour, kept in this process: so that a page that is opened
// when somebody is paged already has what led to it.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "snapshot.h"

namespace remora::metrics {

// Takes a sample of all series each period and keeps the latest. Its thread begins with start().
// Memory: 8 bytes a sample for a counter or gauge, 56 for a histogram; all of it is taken when a
// series is seen for the first time.
//
// Thread safety: sample() is for one thread at a time, json() for any.
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

  // Errors: kSystem (no thread).
  Status start();
  // Takes a sample now. Its thread does so each period; without start(), a test.
  void sample(std::chrono::system_clock::time_point now);

  // Samples with a number of at least `since` and everything about them, in the format that
  // metrics/docs/http.md describes.
  [[nodiscard]] std::string json(std::uint64_t since) const;

 private:
  // Values of one number over time; sample n is in place n modulo its size.
  using Column = std::vector<double>;
  struct Track {
    Kind kind = Kind::kCounter;
    Unit unit = Unit::kCount;
    std::vector<Column> columns;  // one, or as kHistogramColumns says
    LatencyHistogram before;      // histograms
  };
  using Key = std::pair<std::string, Labels>;  // family, labels

  struct Excerpt;
  void run();
  [[nodiscard]] Excerpt excerpt(std::uint64_t since) const;
  Track& track_of(const FamilySnapshot& family, const SeriesSnapshot& series);
  void record(Track& track, const SeriesSnapshot& series, std::size_t place) const;

  const std::shared_ptr<Registry> registry_;
  const Options options_;
  const std::string id_;

  mutable std::mutex writing_;  // held while an answer is written
  mutable std::mutex mutex_;    // all below
  std::map<Key, std::unique_ptr<Track>> tracks_;
  std::vector<std::int64_t> times_ms_;
  std::uint64_t next_ = 0;  // number of the sample to come

  std::mutex stop_mutex_;
  std::condition_variable stop_changed_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace remora::metrics
