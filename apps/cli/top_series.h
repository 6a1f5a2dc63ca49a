#pragma once

/// The data of a process in `remora top`: the answers of its `/history` and `/status`, and rates
/// between the latest two samples.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace remora::apps {

/// Labels that a series must have; it may have more.
using LabelFilter = std::map<std::string, std::string>;

/// The latest samples of all series. Shapes: metrics/docs/http.md. Missing numbers are NaN.
class TopSeries {
 public:
  /// The number of samples that are kept: two minutes.
  static constexpr std::size_t kSamplesMax = 60;

  /// Takes an answer of `/history`. False: it is not such an answer, and nothing changes.
  bool take(const Json& answer);
  /// The number of the sample to request next.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  [[nodiscard]] std::size_t samples() const noexcept { return times_ms_.size(); }

  [[nodiscard]] bool has(std::string_view name, const LabelFilter& labels = {}) const;
  /// The values of a label in the series of that name, sorted.
  [[nodiscard]] std::vector<std::string> values_of(std::string_view name,
                                                   const std::string& label) const;
  /// The sum of the latest values.
  [[nodiscard]] double last(std::string_view name, const LabelFilter& labels = {},
                            const std::string& column = "values") const;
  /// The largest of the latest values.
  [[nodiscard]] double latest_max(std::string_view name, const LabelFilter& labels,
                                  const std::string& column) const;
  /// The growth of the sum in a second, between the samples `ago` and `ago` + 1 before the latest.
  [[nodiscard]] double rate(std::string_view name, const LabelFilter& labels = {},
                            const std::string& column = "values", std::size_t ago = 0) const;

 private:
  struct Series {
    std::string name;
    std::map<std::string, std::string> labels;
    std::map<std::string, std::deque<double>> columns;  ///< each as long as times_ms_
  };
  [[nodiscard]] static bool matches(const Series& series, std::string_view name,
                                    const LabelFilter& labels);
  Series& series_of(const Json& described);
  void forget_oldest();

  std::string process_;
  std::uint64_t next_ = 0;
  std::deque<double> times_ms_;
  std::vector<Series> series_;
};

}  // namespace remora::apps
