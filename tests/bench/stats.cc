#include "stats.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace remora::bench {
namespace {

constexpr double kTail = 0.025;

/// Largest k with P(Binomial(n, 1/2) < k) <= 2.5 %: the k-th smallest value begins the interval.
std::size_t lower_rank(std::size_t n) {
  double term = std::pow(0.5, static_cast<double>(n));  // P(X = 0)
  double below = 0;
  for (std::size_t k = 0; k < n; ++k) {
    below += term;
    if (below > kTail) return k;
    term *= static_cast<double>(n - k) / static_cast<double>(k + 1);
  }
  return 0;
}

double median_of_sorted(const std::vector<double>& sorted) {
  const std::size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

std::string number(double value) {
  char text[64];
  const int decimals = value < 10 ? 2 : value < 1000 ? 1 : 0;
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

}  // namespace

Estimate estimate(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const std::size_t rank = std::max<std::size_t>(1, lower_rank(values.size()));
  return {median_of_sorted(values), values[rank - 1], values[values.size() - rank], values.size()};
}

bool Goal::parse(const std::string& text, Goal& into) {
  into = {};
  if (text == "-") return true;
  into.at_most = text.rfind("<=", 0) == 0;
  const bool has_sign = into.at_most || text.rfind(">=", 0) == 0;
  const std::string digits = has_sign ? text.substr(2) : text;
  char* end = nullptr;
  into.ratio = std::strtod(digits.c_str(), &end);
  return !digits.empty() && *end == '\0' && into.ratio > 0;
}

bool Goal::met(const Estimate& found) const noexcept {
  return at_most ? found.low <= ratio : found.high >= ratio;
}

std::string Goal::text() const {
  if (ratio == 0) return "";
  char text[32];
  std::snprintf(text, sizeof text, "%s %.4g", at_most ? "<=" : ">=", ratio);
  return text;
}

std::string table(const std::vector<Row>& rows) {
  std::string text = "| | peer | unit | pairs | remora | peer | ratio | 95 % interval | goal |\n";
  text += "|---|---|---|---|---|---|---|---|---|\n";
  for (const Row& row : rows) {
    std::vector<double> ours;
    std::vector<double> theirs;
    std::vector<double> ratios;
    for (const Pair& pair : row.pairs) {
      ours.push_back(pair.ours);
      theirs.push_back(pair.peer);
      if (pair.peer > 0) ratios.push_back(pair.ours / pair.peer);
    }
    const Estimate ratio = estimate(ratios);
    text += "| " + row.name + " | " + row.peer + " | " + row.unit + " | " +
            std::to_string(ratio.count) + " | " + number(estimate(ours).median) + " | " +
            number(estimate(theirs).median) + " | " + number(ratio.median) + " | " +
            number(ratio.low) + " - " + number(ratio.high) + " | " + row.goal.text();
    if (row.goal.ratio > 0) text += row.goal.met(ratio) ? " met" : " missed";
    text += " |\n";
  }
  return text;
}

double spin_round_trip_ns() {
  if (std::thread::hardware_concurrency() < 2) return 0;
  constexpr int kRounds = 2000;
  constexpr int kSamples = 15;
  alignas(64) std::atomic<int> ping{0};
  alignas(64) std::atomic<int> pong{0};
  std::thread other{[&] {
    for (int i = 1; i <= kRounds * kSamples; ++i) {
      while (ping.load(std::memory_order_acquire) < i) {
      }
      pong.store(i, std::memory_order_release);
    }
  }};
  std::vector<double> samples;
  for (int sample = 0, i = 1; sample < kSamples; ++sample) {
    const auto began = std::chrono::steady_clock::now();
    for (int round = 0; round < kRounds; ++round, ++i) {
      ping.store(i, std::memory_order_release);
      while (pong.load(std::memory_order_acquire) < i) {
      }
    }
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
    samples.push_back(took.count() / kRounds);
  }
  other.join();
  return estimate(samples).median;
}

}  // namespace remora::bench
