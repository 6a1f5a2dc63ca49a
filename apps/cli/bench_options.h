#pragma once

/// The command line of `remora bench`.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench_mix.h"
#include "cli/command.h"

namespace remora::apps {

struct BenchOptions {
  std::string uri;
  BenchMix mix;
  std::vector<std::uint64_t> sizes;  ///< empty until complete_bench_options()
  std::vector<std::size_t> depths{32};
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
  std::size_t threads = 1;
  std::size_t batch = 0;  ///< 0: as many as fit
  std::uint32_t lanes = EngineOptions{}.lanes;
  double seconds = 5;
  double warmup = 0.5;
  double linger = 0;
  bool sequential = false;
  bool random = false;                ///< explicit form of the default
  std::optional<std::uint64_t> seed;  ///< set by complete_bench_options() if it is not given
  std::chrono::nanoseconds spin = EngineOptions{}.spin;
  std::string metrics_address;

  /// Whether a run is one size at one depth.
  [[nodiscard]] bool single() const noexcept { return sizes.size() * depths.size() == 1; }
};

/// Adds the options to `command`. A value that is wrong by itself is a usage error of the parser.
void add_bench_options(CLI::App* command, BenchOptions& options);

/// Sets options that were not given. Returns a usage failure for options that exclude each other.
[[nodiscard]] std::optional<Failure> complete_bench_options(BenchOptions& options);

}  // namespace remora::apps
