#pragma once

/// Whether what threads were told of one 64-bit word can be explained by operations that took
/// effect one after the other, each between its call and its answer.
///
/// A search as Wing and Gong's, with Lowe's memory of configurations ("Testing for
/// linearizability", 2017): operations are tried in the order in which they were called; a
/// configuration (which of them have taken effect, and the word's value) is looked at once.
/// Operations whose outcome is not known may take effect at any time after their call, once, or
/// never; those that provably had none may not. The work is bounded, and what was not decided
/// within it is said to be so.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace remora::fault {

/// One operation on the word.
struct WordOperation {
  enum class Kind : std::uint8_t { kAdd, kSwap };  ///< fetch-and-add (a read adds 0), CAS
  enum class End : std::uint8_t { kDone, kUnknown, kVoid };

  Kind kind = Kind::kAdd;
  End end = End::kDone;
  std::uint32_t thread = 0;
  std::uint64_t expected = 0;  ///< kSwap; of kAdd: the number that is added
  std::uint64_t desired = 0;   ///< kSwap
  std::uint64_t result = 0;    ///< kDone: what stood there before
  std::int64_t invoked_ns = 0;
  std::int64_t responded_ns = 0;  ///< kDone
};

struct Linearizability {
  enum class Verdict : std::uint8_t { kLinearizable, kViolated, kUndecided };
  Verdict verdict = Verdict::kLinearizable;
  std::size_t operation_count = 0;
  std::uint64_t steps = 0;  ///< configurations looked at
  /// kViolated: the shortest beginning of the history that cannot be explained ends with the
  /// operation named first; then what ran at the same time, and what came just before.
  std::string text{};

  [[nodiscard]] bool ok() const noexcept { return verdict == Verdict::kLinearizable; }
};

inline constexpr std::uint64_t kCheckStepsMax = 4'000'000;

/// `initial`: the word's value at first. Blocks; some microseconds an operation, unless very many
/// outcomes are unknown.
Linearizability check_linearizable(std::vector<WordOperation> history, std::uint64_t initial,
                                   std::uint64_t steps_max = kCheckStepsMax);

}  // namespace remora::fault
