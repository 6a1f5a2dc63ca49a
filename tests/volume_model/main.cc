/// volume_model scenario NAME | mutant NAME [SCENARIO] | list
///
/// `scenario`: succeeds if no reachable state violates an invariant, and all were visited.
/// `mutant`: succeeds if a counterexample is found, and prints it.

#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

#include "scenarios.h"
#include "search.h"

namespace {

using namespace remora::volume_model;

/// 44 bytes a state and its parts of two tables while one grows: below 2 GiB.
constexpr std::size_t kStatesMax = 30'000'000;

int run(std::string_view name, const Rules& rules, bool expect_violation) {
  const std::clock_t start = std::clock();  // of this process: the machine may do other work
  const SearchResult result = search(rules, kStatesMax);
  const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%.*s: states=%zu steps=%zu depth=%zu seconds=%.1f\n", static_cast<int>(name.size()),
              name.data(), result.states, result.steps, result.depth, spent);
  if (result.counterexample) {
    const State first = Expander(rules).first_state();
    std::fputs(to_text(*result.counterexample, first).c_str(), stdout);
    return expect_violation ? 0 : 1;
  }
  std::printf("no violation%s\n", result.complete ? ", every state visited" : ", NOT COMPLETE");
  return result.complete && !expect_violation ? 0 : 1;
}

int list() {
  for (const Scenario& each : scenarios())
    std::printf("scenario %.*s\n", static_cast<int>(each.name.size()), each.name.data());
  for (const MutantRun& each : mutant_runs())
    std::printf("mutant %.*s (%.*s)\n", static_cast<int>(each.name.size()), each.name.data(),
                static_cast<int>(each.scenario.size()), each.scenario.data());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const std::string_view name = argc > 2 ? argv[2] : "";
  if (what == "list") return list();
  if (what == "scenario")
    if (const Scenario* found = find_scenario(name)) return run(name, found->rules, false);
  if (what == "mutant") {
    if (const MutantRun* found = find_mutant(name)) {
      const Scenario* scenario = find_scenario(argc > 3 ? argv[3] : found->scenario);
      if (scenario == nullptr) return 2;
      Rules rules = scenario->rules;
      rules.mutant = found->mutant;
      return run(name, rules, true);
    }
  }
  std::fputs("usage: volume_model scenario NAME | mutant NAME [SCENARIO] | list\n", stderr);
  return 2;
}
