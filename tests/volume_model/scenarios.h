#pragma once

/// The runs of the search: the protocol as it is, and each mutant where its rule matters.

#include <span>
#include <string_view>

#include "rules.h"

namespace remora::volume_model {

struct Scenario {
  std::string_view name;
  Rules rules;
};

struct MutantRun {
  std::string_view name;
  Mutant mutant = Mutant::kNone;
  std::string_view scenario;
  Invariant expected = Invariant::kNone;  ///< of the shortest counterexample
};

[[nodiscard]] std::span<const Scenario> scenarios() noexcept;
[[nodiscard]] std::span<const MutantRun> mutant_runs() noexcept;
/// nullptr: there is none of this name.
[[nodiscard]] const Scenario* find_scenario(std::string_view name) noexcept;
[[nodiscard]] const MutantRun* find_mutant(std::string_view name) noexcept;

}  // namespace remora::volume_model
