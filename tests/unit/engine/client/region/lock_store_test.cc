/// How a client acquires a lock when outcomes are not known, grants go and other clients interfere.

#include "client/region/lock_store.h"

#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

#include <remora/engine/lock.h>

namespace remora::detail {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kFirstToken = std::uint64_t{1} << Held::kOwnerBits;
constexpr std::uint64_t kOwnerOnly = kFirstToken - 1;

class FakeStore final : public LockStore {
 public:
  std::uint64_t word = 0;
  /// The outcomes of the next swaps.
  enum class SwapResult { kFine, kLostBefore, kLostAfter, kFenced };
  std::deque<SwapResult> swap_results;
  std::vector<bool> reopened;  ///< for each: with a fence or not
  std::function<void()> at_fence = [] {};
  /// Called at the beginning of each swap, with `expected` and `desired`.
  std::function<void(std::uint64_t, std::uint64_t)> at_swap = [](std::uint64_t, std::uint64_t) {};
  Status fence_outcome;
  int swaps = 0;

  [[nodiscard]] const Region& region() const noexcept override { return region_; }
  Result<std::uint64_t> read_word() noexcept override { return word; }
  Result<std::uint64_t> swap(std::uint64_t expected, std::uint64_t desired) noexcept override {
    ++swaps;
    at_swap(expected, desired);
    SwapResult result = SwapResult::kFine;
    if (!swap_results.empty()) {
      result = swap_results.front();
      swap_results.pop_front();
    }
    if (result == SwapResult::kFenced)
      return Error{Code::kAccessRefused, "compare_swap"}.with_reason(Reason::kFenced);
    if (result == SwapResult::kLostBefore) return Error{Code::kIndeterminate, "compare_swap"};
    const std::uint64_t before = word;
    if (before == expected) word = desired;
    if (result == SwapResult::kLostAfter) return Error{Code::kIndeterminate, "compare_swap"};
    return before;
  }
  Status reopen(Deadline /*deadline*/) noexcept override {
    reopened.push_back(false);
    return {};
  }
  Status fence() noexcept override {
    reopened.push_back(true);
    at_fence();
    return fence_outcome;
  }

 private:
  Region region_{nullptr};
};

Result<std::uint64_t> acquire(FakeStore& store, milliseconds wait) {
  return acquire_lock(store, milliseconds{30}, wait);
}

TEST(LockCore, FreeLockIsTakenWithTheNextTokenAndNoFence) {
  FakeStore store;
  store.word = 6 * kFirstToken;
  const std::uint64_t word = acquire(store, milliseconds{0}).value();
  EXPECT_EQ(word >> Held::kOwnerBits, 7U);
  EXPECT_NE(word & kOwnerOnly, 0U);
  EXPECT_EQ(store.word, word);
  EXPECT_TRUE(store.reopened.empty());
}

TEST(LockCore, SwapThatTookEffectUnseenIsOurs) {
  FakeStore store;
  store.swap_results = {FakeStore::SwapResult::kLostAfter};
  EXPECT_EQ(acquire(store, milliseconds{0}).value(), store.word);
  EXPECT_EQ(store.word >> Held::kOwnerBits, 1U) << "acquired once, not twice";
  EXPECT_EQ(store.reopened, std::vector<bool>{false});
}

/// Two contenders that saw the same word may draw the same owner number.
TEST(LockCore, SameWordWrittenByAnotherClientIsNotOurs) {
  FakeStore store;
  store.at_swap = [&](std::uint64_t, std::uint64_t desired) { store.word = desired; };
  EXPECT_EQ(acquire(store, milliseconds{0}).error().code(), Code::kWouldBlock);
  EXPECT_EQ(store.swaps, 1);
  store.word = kFirstToken + 5;
  const Deadline soon = Clock::now() + std::chrono::seconds{30};
  EXPECT_EQ(change_lock(store, kFirstToken + 5, kFirstToken + 6, soon).error().reason(),
            Reason::kFenced);
  // After an attempt with an unknown outcome, the same word is ours.
  EXPECT_TRUE(change_lock(store, kFirstToken + 5, kFirstToken + 6, soon, true).ok());
}

TEST(LockCore, SwapThatWasLostIsDoneAgain) {
  FakeStore store;
  store.swap_results = {FakeStore::SwapResult::kLostBefore, FakeStore::SwapResult::kLostBefore};
  // An unknown outcome is looked up again only as long as there is time left.
  EXPECT_EQ(acquire(store, std::chrono::seconds{30}).value(), store.word);
  EXPECT_EQ(store.word >> Held::kOwnerBits, 1U);
  EXPECT_EQ(store.swaps, 3);
}

TEST(LockCore, GrantThatWasFencedIsReplaced) {
  FakeStore store;
  store.swap_results = {FakeStore::SwapResult::kFenced};
  EXPECT_TRUE(acquire(store, std::chrono::seconds{30}).ok());
  EXPECT_EQ(store.reopened, std::vector<bool>{false});
}

TEST(LockCore, HeldLockIsNotTakenBeforeItsTtl) {
  FakeStore store;
  store.word = kFirstToken + 5;
  EXPECT_EQ(acquire(store, milliseconds{0}).error().code(), Code::kWouldBlock);
  EXPECT_EQ(acquire_lock(store, std::chrono::hours{1}, milliseconds{10}).error().code(),
            Code::kTimedOut);
  EXPECT_EQ(store.word, kFirstToken + 5);
  EXPECT_TRUE(store.reopened.empty());
}

TEST(LockCore, SilentHolderLosesTheLockByAFence) {
  FakeStore store;
  store.word = kFirstToken + 5;
  std::uint64_t at_fence = 0;
  store.at_fence = [&] { at_fence = store.word; };
  const std::uint64_t word = acquire(store, std::chrono::seconds{30}).value();
  EXPECT_EQ(word >> Held::kOwnerBits, 2U);
  EXPECT_EQ(at_fence, word) << "the word is ours before the fence";
  EXPECT_EQ(store.reopened, std::vector<bool>{true});
}

TEST(LockCore, FenceThatFailsLeavesTheLockToBeFencedByTheNext) {
  FakeStore store;
  store.word = kFirstToken + 5;
  store.fence_outcome = Error{Code::kTimedOut, "fence"};
  EXPECT_EQ(acquire(store, std::chrono::seconds{30}).error().code(), Code::kTimedOut);
  EXPECT_NE(store.word & kOwnerOnly, 0U) << "a free lock would be taken without a fence";
}

TEST(LockCore, FenceOfAHolderThatDoesNotRunIsRepeated) {
  FakeStore store;
  store.word = kFirstToken + 5;
  store.fence_outcome = Error{Code::kBusy, "fence"};
  int fences = 0;
  store.at_fence = [&] {
    if (++fences == 3) store.fence_outcome = {};
  };
  const std::uint64_t word = acquire(store, std::chrono::seconds{30}).value();
  EXPECT_EQ(word >> Held::kOwnerBits, 2U);
  EXPECT_EQ(fences, 3);
}

TEST(LockCore, HolderThatDoesNotRunKeepsTheLockUntilTheDeadline) {
  FakeStore store;
  store.word = kFirstToken + 5;
  store.fence_outcome = Error{Code::kBusy, "fence"};
  bool fenced = false;
  store.at_fence = [&] { fenced = true; };
  Code code{};
  // On a machine that stands still the time is over before the holder is known to be silent.
  while (!fenced) code = acquire(store, milliseconds{60}).error().code();
  EXPECT_EQ(code, Code::kBusy);
  EXPECT_NE(store.word & kOwnerOnly, 0U);
}

TEST(LockCore, ClientOvertakenDuringItsFenceDoesNotHaveTheLock) {
  FakeStore store;
  store.word = kFirstToken + 5;
  store.at_fence = [&] {
    store.word = 9 * kFirstToken + 1;  // another client took it meanwhile
    store.at_fence = [] {};
  };
  const std::uint64_t word = acquire(store, std::chrono::seconds{30}).value();
  EXPECT_EQ(word >> Held::kOwnerBits, 10U);
  EXPECT_EQ(store.reopened, (std::vector<bool>{true, true}));
}

TEST(LockCore, TokensDoNotWrap) {
  FakeStore store;
  store.word = ~kOwnerOnly;
  EXPECT_EQ(acquire(store, milliseconds{0}).error().code(), Code::kLimitExceeded);
}

TEST(LockCore, WordOfAnotherHolderIsNotChanged) {
  FakeStore store;
  store.word = kFirstToken + 5;
  const Deadline soon = Clock::now() + std::chrono::seconds{30};
  const Status changed = change_lock(store, kFirstToken + 6, kFirstToken, soon);
  ASSERT_FALSE(changed.ok());
  EXPECT_EQ(changed.error().reason(), Reason::kFenced);
  EXPECT_EQ(store.word, kFirstToken + 5);
  EXPECT_TRUE(change_lock(store, kFirstToken + 5, released_lock(store.word), soon).ok());
  EXPECT_EQ(store.word, kFirstToken);
}

TEST(LockCore, RenewalChangesTheOwnerAndNotTheToken) {
  for (int i = 0; i < 100; ++i) {
    const std::uint64_t renewed = renewed_lock(kFirstToken + 5);
    EXPECT_NE(renewed, kFirstToken + 5);
    EXPECT_EQ(renewed & ~kOwnerOnly, kFirstToken);
    EXPECT_NE(renewed & kOwnerOnly, 0U);
  }
}

}  // namespace
}  // namespace remora::detail
