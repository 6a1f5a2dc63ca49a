#pragma once

/// A breadth-first search of every state that the protocol can reach within the bounds of a run.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rules.h"
#include "steps.h"

namespace remora::volume_model {

struct Counterexample {
  Invariant violated = Invariant::kNone;
  std::vector<Successor> steps;  ///< from the first state on; members keep their names
};

struct SearchResult {
  std::size_t states = 0;  ///< distinct, after symmetry
  std::size_t steps = 0;   ///< successors that were made
  std::size_t depth = 0;
  std::array<std::size_t, kStepKinds> of_kind{};  ///< steps, by kind
  bool complete = false;                          ///< every reachable state was visited
  std::optional<Counterexample> counterexample;   ///< one with the fewest steps
};

/// Ends at the first violation, when all is visited, or when `states_max` are stored.
[[nodiscard]] SearchResult search(const Rules& rules, std::size_t states_max);

/// The counterexample, a line a step.
[[nodiscard]] std::string to_text(const Counterexample& counterexample, const State& first);
[[nodiscard]] std::string to_text(const Successor& step);
[[nodiscard]] std::string_view to_text(StepKind kind);

}  // namespace remora::volume_model
