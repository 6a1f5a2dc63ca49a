/// volume_model all | mutants | scenario NAME [BOUND=N...] | mutant NAME [read] | list
///
/// `scenario` succeeds if every reachable state was visited and none violates an invariant.
/// `mutant` succeeds if it finds a counterexample, and prints it.
/// `mutants` runs every mutant.
/// `all` runs everything, and succeeds if each run did, and if each kind of step was taken.

#include <array>
#include <cstdio>
#include <ctime>
#include <string>
#include <string_view>

#include "scenarios.h"
#include "search.h"

namespace {

using namespace remora::volume_model;

/// 40 bytes a state, and two tables of indices while one grows: below 2 GiB.
constexpr std::size_t kStatesMax = 30'000'000;

/// Steps taken so far, by kind, in scenarios without a mutant.
using Taken = std::array<std::size_t, kStepKinds>;

bool run(std::string_view name, const Rules& rules, Invariant expected, Taken& taken) {
  const std::clock_t start = std::clock();  // of this process: the machine may do other work
  const SearchResult result = search(rules, kStatesMax);
  const double spent = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  std::printf("%.*s: states=%zu steps=%zu depth=%zu seconds=%.1f\n", static_cast<int>(name.size()),
              name.data(), result.states, result.steps, result.depth, spent);
  if (result.counterexample) {
    const State first = Expander(rules).first_state();
    std::fputs(to_text(*result.counterexample, first).c_str(), stdout);
    if (result.counterexample->violated == expected) return true;
    const std::string_view other = name_of(expected);
    std::printf("expected: %.*s\n", static_cast<int>(other.size()), other.data());
    return false;
  }
  if (rules.mutant == Mutant::kNone)
    for (std::size_t kind = 0; kind < kStepKinds; ++kind) taken[kind] += result.of_kind[kind];
  std::printf("no violation%s\n", result.complete ? ", every state visited" : ", NOT COMPLETE");
  return result.complete && expected == Invariant::kNone;
}

int list() {
  for (const Scenario& each : scenarios())
    std::printf("scenario %.*s\n", static_cast<int>(each.name.size()), each.name.data());
  for (const MutantRun& each : mutant_runs())
    std::printf("mutant %.*s (%.*s)\n", static_cast<int>(each.name.size()), each.name.data(),
                static_cast<int>(each.scenario.size()), each.scenario.data());
  return 0;
}

bool run_scenario(const Scenario& scenario, Taken& taken) {
  return run(scenario.name, scenario.rules, Invariant::kNone, taken);
}

/// `only_reads`: up to a read that returns less than it must.
bool run_mutant(const MutantRun& mutant, bool only_reads, Taken& taken) {
  const Scenario* scenario = find_scenario(mutant.scenario);
  if (scenario == nullptr) return false;
  Rules rules = scenario->rules;
  rules.mutant = mutant.mutant;
  if (only_reads) {
    rules.only = Invariant::kLinearizable;
    rules.without_reader = false;
  }
  return run(mutant.name, rules, only_reads ? rules.only : mutant.expected, taken);
}

/// kReaderOpen is a step of a mutant alone.
bool all_taken(const Taken& taken) {
  bool all = true;
  for (std::size_t kind = 0; kind < kStepKinds; ++kind) {
    if (taken[kind] != 0 || static_cast<StepKind>(kind) == StepKind::kReaderOpen) continue;
    const std::string_view text = to_text(static_cast<StepKind>(kind));
    std::printf("never taken: %.*s\n", static_cast<int>(text.size()), text.data());
    all = false;
  }
  return all;
}

bool run_mutants() {
  Taken taken{};
  bool good = true;
  for (const MutantRun& each : mutant_runs()) good = run_mutant(each, false, taken) && good;
  return good;
}

bool run_all() {
  Taken taken{};
  bool good = true;
  for (const Scenario& each : scenarios()) good = run_scenario(each, taken) && good;
  good = all_taken(taken) && good;
  good = run_mutants() && good;
  std::printf("%s\n", good ? "all as expected" : "NOT AS EXPECTED");
  return good;
}

/// "writes=3": other bounds than the scenario's, for a run by hand.
bool change_bound(std::string_view word, Rules& rules) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals + 2 != word.size()) return false;
  const auto number = static_cast<std::uint8_t>(word.back() - '0');
  const std::string_view bound = word.substr(0, equals);
  if (number > 3) return false;
  if (bound == "claims" && number < 3) return (rules.claims = number), true;
  if (bound == "writes") return (rules.writes = number), true;
  if (bound == "crashes") return (rules.crashes = number), true;
  if (bound == "unknown" && number < 2) return (rules.unknown = number), true;
  if (bound == "rebuilds") return (rules.rebuilds = number), true;
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc > 1 ? argv[1] : "";
  const std::string_view name = argc > 2 ? argv[2] : "";
  Taken taken{};
  if (what == "list") return list();
  if (what == "all") return run_all() ? 0 : 1;
  if (what == "mutants") return run_mutants() ? 0 : 1;
  if (what == "scenario") {
    if (const Scenario* found = find_scenario(name)) {
      Scenario scenario = *found;
      bool understood = true;
      for (int place = 3; place < argc; ++place)
        understood = change_bound(argv[place], scenario.rules) && understood;
      if (understood) return run_scenario(scenario, taken) ? 0 : 1;
    }
  }
  if (what == "mutant")
    if (const MutantRun* found = find_mutant(name))
      return run_mutant(*found, argc > 3 && argv[3] == std::string_view("read"), taken) ? 0 : 1;
  std::fputs(
      "usage: volume_model all | mutants | scenario NAME [BOUND=N...] | "
      "mutant NAME [read] | list\n",
      stderr);
  return 2;
}
