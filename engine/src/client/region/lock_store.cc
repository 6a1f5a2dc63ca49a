#include "client/region/lock_store.h"

#include <algorithm>
#include <random>
#include <thread>
#include <utility>

#include <remora/engine/lock.h>

namespace remora::detail {

namespace {

constexpr std::uint64_t kOwnerMask = (std::uint64_t{1} << Held::kOwnerBits) - 1;
constexpr std::chrono::microseconds kPauseLeast{100};
constexpr std::chrono::milliseconds kMaxTryPause{20};

std::mt19937_64& random_numbers() {
  thread_local std::mt19937_64 t_random{std::random_device{}()};
  thread_local std::uint32_t t_process = this_process();
  // A parent and its child would draw the same owner numbers, so one would take the other's lock
  // for its own.
  if (std::exchange(t_process, this_process()) != this_process())
    t_random.seed(std::random_device{}());
  return t_random;
}

std::uint64_t new_owner() noexcept { return 1 + random_numbers()() % kOwnerMask; }

/// The grant or its session has ended, and another one may work.
bool worth_another_grant(const Error& error) noexcept {
  const bool taken = error.code() == Code::kAccessRefused &&
                     (error.reason() == Reason::kFenced || error.reason() == Reason::kRevoked);
  return taken || error.code() == Code::kConnectionLost || error.code() == Code::kIndeterminate;
}

/// True: this contender has changed the word to `desired`. Reads the word if the outcome is not
/// known. `unsure`: the outcome of an earlier attempt is not known either; otherwise a word that is
/// `desired` already belongs to another contender.
Result<bool> swap_surely(LockStore& store, std::uint64_t expected, std::uint64_t desired,
                         Deadline deadline, bool unsure) noexcept {
  while (true) {
    const auto before = store.swap(expected, desired);
    if (before) return *before == expected || (unsure && *before == desired);
    unsure = unsure || before.error().code() == Code::kIndeterminate;
    if (!worth_another_grant(before.error()) || Clock::now() >= deadline) return before.error();
    if (auto status = store.reopen(deadline); !status)
      return before.error().code() == Code::kIndeterminate ? before.error() : status.error();
  }
}

/// The word that a waiting contender has read, and since when.
struct Sight {
  std::uint64_t word = 0;
  Clock::time_point since{};

  void see(std::uint64_t now_there) noexcept {
    if (since != Clock::time_point{} && now_there == word) return;
    *this = {now_there, Clock::now()};
  }
};

Result<std::uint64_t> read_surely(LockStore& store, Deadline deadline) noexcept {
  while (true) {
    auto word = store.read_word();
    if (word || !worth_another_grant(word.error()) || Clock::now() >= deadline) return word;
    if (auto status = store.reopen(deadline); !status) return status.error();
  }
}

/// Fences the holder that was silent. Over shm a holder that does not run keeps its mapping, and
/// the fence is refused: it may run again, or end, before `deadline`.
Status fence_by(LockStore& store, Deadline deadline) noexcept {
  while (true) {
    auto fenced = store.fence();
    if (fenced || fenced.error().code() != Code::kBusy || Clock::now() >= deadline) return fenced;
    std::this_thread::sleep_for(kMaxTryPause);
  }
}

}  // namespace

std::uint64_t renewed_lock(std::uint64_t word) noexcept {
  std::uint64_t owner = new_owner();
  while (owner == (word & kOwnerMask)) owner = new_owner();
  return (word & ~kOwnerMask) | owner;
}

std::uint64_t released_lock(std::uint64_t word) noexcept { return word & ~kOwnerMask; }

Result<std::uint64_t> acquire_lock(LockStore& store, std::chrono::nanoseconds ttl,
                                   std::chrono::nanoseconds wait) noexcept {
  const bool waits = wait > wait.zero();
  const Deadline deadline = waits ? deadline_after(wait) : Clock::now();
  // An attempt that has begun is finished.
  const Deadline finish_by = deadline + ttl;
  std::chrono::nanoseconds pause = kPauseLeast;
  Sight sight;
  while (true) {
    const auto word = read_surely(store, finish_by);
    if (!word) return word.error();
    sight.see(*word);
    const bool free = (*word & kOwnerMask) == 0;
    const bool dead = !free && Clock::now() - sight.since >= ttl;
    if (free || dead) {
      if (*word >> Held::kOwnerBits == ~std::uint64_t{0} >> Held::kOwnerBits)
        return Error{Code::kLimitExceeded, "lock"}.with_limit((*word >> Held::kOwnerBits) + 1,
                                                              *word >> Held::kOwnerBits);
      const std::uint64_t mine =
          released_lock(*word) + (std::uint64_t{1} << Held::kOwnerBits) + new_owner();
      const auto won = swap_surely(store, *word, mine, finish_by, false);
      if (!won) return won.error();
      if (*won && free) return mine;
      if (*won) {
        // If the fence fails, the word stays, and the next contender has to fence, too.
        if (auto fenced = fence_by(store, deadline); !fenced) return fenced.error();
        const auto now_there = read_surely(store, finish_by);
        if (!now_there) return now_there.error();
        // Otherwise this contender took too long.
        if (*now_there == mine) return mine;
      }
      pause = kPauseLeast;
    }
    if (!waits || Clock::now() >= deadline)
      return Error{waits ? Code::kTimedOut : Code::kWouldBlock, "lock"}.with_reason(Reason::kHeld);
    // The contenders do not try at the same time.
    std::this_thread::sleep_for(pause / 2 + pause * static_cast<int>(random_numbers()() % 16) / 16);
    pause = std::min<std::chrono::nanoseconds>(
        2 * pause, std::min<std::chrono::nanoseconds>(kMaxTryPause, ttl / 8));
  }
}

Status change_lock(LockStore& store, std::uint64_t word, std::uint64_t desired, Deadline deadline,
                   bool unsure) noexcept {
  const auto changed = swap_surely(store, word, desired, deadline, unsure);
  if (!changed) return changed.error();
  if (!*changed) return Error{Code::kAccessRefused, "lock"}.with_reason(Reason::kFenced);
  return {};
}

}  // namespace remora::detail
