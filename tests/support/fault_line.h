#pragma once

/// The line by which a test of a fault says what it did, and how often it was asked to.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace remora::test {

/// Whether the environment asks for the long counts (REMORA_FAULT_ROUNDS=long; `short`, `least`
/// or unset: no). Ends the process with status 2 for anything else.
[[nodiscard]] bool long_rounds();

/// How often a fault is tried: `many` with REMORA_FAULT_ROUNDS=long, a fifth of `few` with `least`,
/// two at least where `few` allows it; else `few`.
[[nodiscard]] std::uint64_t rounds_of(std::uint64_t few, std::uint64_t many);

/// How many times, how each ended, how long that took.
struct FaultLine {
  std::uint64_t rounds = 0;
  std::uint64_t operations = 0;
  std::uint64_t ok = 0;
  std::map<std::string, std::uint64_t, std::less<>> failed{};  ///< by the code's text
  std::chrono::milliseconds longest_verdict{0};                ///< to the end of one that failed

  /// One more operation, which has ended: `how` is empty where it was ok.
  void ended(std::string_view how, std::chrono::nanoseconds took = {});
  /// `fault: SUITE.TEST transport=… rounds=… operations=… ok=… failed{CODE=…} longest_verdict_ms=…`
  /// and `more`, of the test that runs, to standard output.
  void print(std::string_view transport, const std::string& more = {}) const;
};

}  // namespace remora::test
