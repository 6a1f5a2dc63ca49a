#pragma once

/// The writer's side of a group's intent bitmap: which zones are marked on all members.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include <remora/mutex.h>
#include <remora/result.h>

#include "zone_flags.h"

namespace remora::volume::detail {

/// Rules 12 and 17: each word has one write in flight, and a bit is forgotten before its clear is
/// posted. Marks that wait for the same word go with one write. Thread-safe. A zone that is marked
/// costs a mark one atomic load.
class IntentBitmap {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// Writes a word to every member, and awaits all. After an error members may have the old word
  /// or the new one. Must not throw.
  using WriteWord = std::function<Status(std::uint32_t word, std::uint64_t value)>;

  IntentBitmap(std::uint32_t zones, WriteWord write_word);

  [[nodiscard]] const ZoneFlags& marked() const noexcept { return marked_; }
  /// A claimant's: the union of what the members have.
  void assume(std::uint32_t word, std::uint64_t value) noexcept { marked_.set_word(word, value); }

  /// The caller has a range in the zone, so that nothing clears it meanwhile. No write begins after
  /// `until`. Errors: kTimedOut; those of WriteWord.
  Status mark(std::uint32_t zone, Time until) {
    if (marked_.has(zone)) [[likely]]
      return {};
    return mark_now(zone, until);
  }
  /// Clears the zones of `mask`; the caller has the exclusive lock of each.
  Status clear(std::uint32_t word, std::uint64_t mask, Time until);
  /// Writes the word as it is, for a member that has come in.
  Status repeat(std::uint32_t word, Time until);

 private:
  struct Word {
    remora::detail::Mutex mutex;
    remora::detail::Condition changed;
    bool in_flight REMORA_GUARDED_BY(mutex) = false;
    std::uint64_t wanted REMORA_GUARDED_BY(mutex) = 0;  ///< marks that wait
  };

  Status mark_now(std::uint32_t zone, Time until);
  /// The value to write: what is marked and what is wanted, less `cleared`.
  [[nodiscard]] std::uint64_t begin(std::uint32_t index, Word& word, std::uint64_t cleared)
      REMORA_REQUIRES(word.mutex);
  void end(std::uint32_t index, Word& word, std::uint64_t value, bool written)
      REMORA_REQUIRES(word.mutex);

  ZoneFlags marked_;
  std::unique_ptr<Word[]> words_;
  WriteWord write_word_;
};

}  // namespace remora::volume::detail
