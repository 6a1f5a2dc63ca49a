#include "scenarios.h"

#include <algorithm>
#include <array>

namespace remora::volume_model {

namespace {

constexpr Rules kFailOver{.claims = 1, .writes = 2, .crashes = 2};
constexpr Rules kRebuild{.claims = 1, .writes = 1, .crashes = 1, .rebuilds = 1};
constexpr Rules kUnknown{
    .claims = 1, .writes = 1, .crashes = 1, .unknown = 1, .rebuilds = 1, .degraded = true};
constexpr Rules kDegraded{.claims = 1,
                          .writes = 1,
                          .crashes = 0,
                          .rebuilds = 2,
                          .degraded = true,
                          .without_reader = true};
constexpr Rules kExclusive{.exclusive = true, .claims = 1, .writes = 2, .crashes = 0};
constexpr Rules kClaims{.claims = 2, .writes = 1, .crashes = 2};
constexpr Rules kLateFences{.claims = 2, .writes = 1, .crashes = 0, .late_fences = true};
constexpr Rules kRestored{.restore = true, .claims = 2, .writes = 1, .crashes = 1};

constexpr std::array kScenarios{
    Scenario{"fail-over", kFailOver}, Scenario{"rebuild", kRebuild},
    Scenario{"degraded", kDegraded},  Scenario{"exclusive", kExclusive},
    Scenario{"unknown", kUnknown},    Scenario{"claims", kClaims},
    Scenario{"restored", kRestored},  Scenario{"late-fences", kLateFences},
};

constexpr std::array kMutants{
    MutantRun{"no-fence", Mutant::kNoFence, "fail-over", Invariant::kV3},
    MutantRun{"primary-first", Mutant::kPrimaryFirst, "fail-over", Invariant::kV4},
    MutantRun{"mark-after-write", Mutant::kMarkAfterWrite, "fail-over", Invariant::kV5},
    MutantRun{"no-wait", Mutant::kNoWait, "fail-over", Invariant::kLinearizable},
    MutantRun{"no-confirmation", Mutant::kNoConfirmation, "fail-over", Invariant::kV3},
    MutantRun{"fence-before-transaction", Mutant::kFenceBeforeTransaction, "fail-over",
              Invariant::kV3},
    MutantRun{"read-while-promoting", Mutant::kReadWhilePromoting, "fail-over", Invariant::kV4},
    MutantRun{"bitmap-not-copied", Mutant::kBitmapNotCopied, "degraded", Invariant::kV5},
    MutantRun{"clear-unresolved", Mutant::kClearUnresolved, "fail-over", Invariant::kV5},
    MutantRun{"same-region", Mutant::kSameRegion, "rebuild", Invariant::kV7},
    MutantRun{"no-nonce", Mutant::kNoNonce, "unknown", Invariant::kV2},
    MutantRun{"no-writer-compare", Mutant::kNoWriterCompare, "fail-over", Invariant::kV1},
    MutantRun{"reader-never-confirms", Mutant::kReaderNeverConfirms, "fail-over", Invariant::kV6},
    MutantRun{"settled-is-equal", Mutant::kSettledIsEqual, "fail-over", Invariant::kV5},
    MutantRun{"end-unresolved", Mutant::kEndUnresolved, "fail-over", Invariant::kV4},
    MutantRun{"keep-syncing", Mutant::kKeepSyncing, "rebuild", Invariant::kV3},
    MutantRun{"two-words-in-flight", Mutant::kTwoWordsInFlight, "fail-over", Invariant::kV5},
    MutantRun{"read-unresolved", Mutant::kReadUnresolved, "exclusive", Invariant::kV4},
    MutantRun{"restore-removes-unseen", Mutant::kRestoreRemovesUnseen, "restored", Invariant::kV8},
    MutantRun{"restore-reads", Mutant::kRestoreReads, "restored", Invariant::kV8},
    MutantRun{"header-before-fence", Mutant::kHeaderBeforeFence, "restored", Invariant::kV8},
    MutantRun{"header-before-answer", Mutant::kHeaderBeforeAnswer, "restored", Invariant::kV4},
    MutantRun{"fence-last-primary", Mutant::kFenceLastPrimary, "fail-over",
              Invariant::kLinearizable},
    MutantRun{"promote-spoiled", Mutant::kPromoteSpoiled, "rebuild", Invariant::kV2},
    MutantRun{"use-fenced", Mutant::kUseFenced, "late-fences", Invariant::kV3},
};

template <class Runs>
const typename Runs::value_type* find(const Runs& runs, std::string_view name) {
  const auto found =
      std::find_if(runs.begin(), runs.end(), [name](const auto& run) { return run.name == name; });
  return found == runs.end() ? nullptr : &*found;
}

}  // namespace

std::span<const Scenario> scenarios() noexcept { return kScenarios; }
std::span<const MutantRun> mutant_runs() noexcept { return kMutants; }
const Scenario* find_scenario(std::string_view name) noexcept { return find(kScenarios, name); }
const MutantRun* find_mutant(std::string_view name) noexcept { return find(kMutants, name); }

}  // namespace remora::volume_model
