#pragma once

/// What the programs that measure Remora itself share: a memory server with one region, and what
/// each does with an error.

#include <chrono>
#include <cstddef>
#include <string>

#include <remora/remora.h>

#include "jobs.h"

namespace remora::bench {

/// `tcp_spin` of a server that polls: longer than any pause inside a job, and short enough to be
/// over before the peer's warm-up is.
inline constexpr std::chrono::nanoseconds kPollingServerSpin = std::chrono::milliseconds{2};

/// A server with one region, which fills its pool, over one transport.
struct MeasuredServer {
  std::string transport;
  std::string address;
  std::size_t region_bytes = 0;
  std::size_t block_bytes = 4096;
  /// How long a thread of tcp polls before it sleeps.
  std::chrono::nanoseconds tcp_spin{0};

  /// For ServerProcess::start(): serves until the process is killed. Tells its port.
  [[noreturn]] void serve(int where) const;
  /// The region, all rights, at the port that serve() has told.
  [[nodiscard]] Region open(const Engine& engine, const std::string& port) const;
};

/// The number of operations, all of which succeeded. Throws the first error.
std::size_t successes(const Completions& found);

/// The exit status of main(): runs the program, and ends it with the text of what was thrown.
int run_program(int argc, char** argv, int (*run)(const Arguments&));

}  // namespace remora::bench
