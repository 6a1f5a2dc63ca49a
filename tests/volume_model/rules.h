#pragma once

/// What a run of the search may do: the bounds, the mode, and the one rule that a mutant breaks.

#include <cstdint>
#include <string_view>

namespace remora::volume_model {

/// kNone is the protocol of engine/docs/volumes.md. Each other changes one rule.
enum class Mutant : std::uint8_t {
  kNone,
  kNoFence,                 ///< a claimant opens grants and takes none away
  kPrimaryFirst,            ///< the primary is written before the backups
  kMarkAfterWrite,          ///< the bitmap is written after the data
  kNoWait,                  ///< a promotion ends without T and without a fence
  kNoConfirmation,          ///< a grant is used as soon as it is obtained
  kFenceBeforeTransaction,  ///< a claimant fences, then claims
  kReadWhilePromoting,      ///< readers read the new primary at once
  kBitmapNotCopied,         ///< a rebuild copies the zones only
  kClearUnresolved,         ///< bits are cleared while an operation is unresolved
  kSameRegion,              ///< a member comes back with its old region
  kNoNonce,                 ///< a transaction of unknown outcome is forgotten
  // Beyond the contract's table: each shows that an invariant or a mended rule can fail.
  kNoWriterCompare,       ///< the group's transactions do not compare the writer epoch
  kReaderNeverConfirms,   ///< a reader confirms its configuration once
  kSettledIsEqual,        ///< settled() alone makes a zone resolved
  kEndUnresolved,         ///< a promotion ends while a zone is unresolved
  kKeepSyncing,           ///< a claimant keeps the syncing member as it found it
  kTwoWordsInFlight,      ///< a bitmap word is written while an older write of it is in flight
  kReadUnresolved,        ///< exclusive: reads do not wait for unresolved writes
  kRestoreRemovesUnseen,  ///< after a restore, a claimant removes members that it cannot fence
  kRestoreReads,          ///< after a restore, readers read before a claimant has adopted
  kHeaderBeforeFence,     ///< after a restore, headers are read before the fences
  kHeaderBeforeAnswer,    ///< headers come before an acknowledgement, not before the data
  kFenceLastPrimary,      ///< while promoting, a fence of any removed primary replaces the wait
  kPromoteSpoiled,        ///< a syncing member that missed a write becomes in sync
  kUseFenced,             ///< a writer uses a member that it has fenced again, and does not confirm
};

/// Invariants of engine/docs/volumes.md. kLinearizable is the promise that they serve.
enum class Invariant : std::uint8_t {
  kNone,
  kV1,
  kV2,
  kV3,
  kV4,
  kV5,
  kV6,
  kV7,
  kV8,
  kLinearizable
};

struct Rules {
  Mutant mutant = Mutant::kNone;
  bool exclusive = false;   ///< all members at once; only the claimed writer reads
  bool restore = false;     ///< the store may be restored from a snapshot, once
  std::uint8_t claims = 1;  ///< beside the first writer's
  std::uint8_t writes = 2;
  std::uint8_t crashes = 2;  ///< of members; a client's crash needs no bound
  std::uint8_t unknown = 0;  ///< transactions of unknown outcome
  std::uint8_t rebuilds = 0;
  bool degraded = false;  ///< begins with one member in sync and a marked zone
  /// Begins with a claimant that comes to its fences after another one has claimed the volume. What
  /// was taken away is fenced again.
  bool late_fences = false;
  bool without_reader = false;
  /// Not kNone: the other invariants are not judged, so that a mutant runs on to its harm.
  Invariant only = Invariant::kNone;
};

[[nodiscard]] std::string_view name_of(Invariant invariant) noexcept;

}  // namespace remora::volume_model
