/// The checker accepts what a real atomic word does, and notices each kind of lie about it.

#include "linearizability.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <thread>

#include "history.h"
#include "support/pattern.h"

namespace remora::fault {
namespace {

using End = WordOperation::End;
using Kind = WordOperation::Kind;
using Verdict = Linearizability::Verdict;
using test::Random;

WordOperation add(std::int64_t from, std::int64_t to, std::uint64_t delta, std::uint64_t found) {
  WordOperation one;
  one.expected = delta;
  one.result = found;
  one.invoked_ns = from;
  one.responded_ns = to;
  return one;
}

WordOperation swap(std::int64_t from, std::int64_t to, std::uint64_t expected,
                   std::uint64_t desired, std::uint64_t found) {
  WordOperation one = add(from, to, expected, found);
  one.kind = Kind::kSwap;
  one.desired = desired;
  return one;
}

WordOperation unknown(WordOperation one) {
  one.end = End::kUnknown;
  one.responded_ns = 0;
  one.result = 0;
  return one;
}

/// What `thread_count` clients of one word are told: each operation takes effect somewhere between
/// its call and its answer. Some are never answered: then it happens late, in time, or never.
std::vector<WordOperation> simulate(std::uint64_t seed, std::size_t thread_count,
                                    std::size_t operation_count, std::uint64_t lost_percent) {
  struct Planned {
    WordOperation operation;
    std::int64_t effect_ns = 0;
    bool happens = true;
  };
  Random random{seed};
  std::vector<Planned> planned;
  std::vector<std::int64_t> free_at(thread_count, 0);
  std::uint64_t guess = 0;
  for (std::size_t i = 0; i < operation_count; ++i) {
    const std::size_t thread = random.below(thread_count);
    const std::int64_t from = free_at[thread] + 1 + static_cast<std::int64_t>(random.below(20));
    const std::int64_t to = from + 2 + static_cast<std::int64_t>(random.below(100));
    Planned one;
    one.operation = random.below(3) == 0 ? swap(from, to, guess, random.next(), 0)
                                         : add(from, to, random.below(3), 0);
    one.operation.thread = static_cast<std::uint32_t>(thread);
    one.effect_ns =
        from + 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(to - from)));
    if (random.below(100) < lost_percent) {
      one.operation = unknown(one.operation);
      one.happens = random.below(2) == 0;
      if (random.below(3) == 0) one.effect_ns += static_cast<std::int64_t>(random.below(2000));
    } else if (random.below(20) == 0) {
      one.operation.end = End::kVoid;
      one.happens = false;
    }
    free_at[thread] = to;
    planned.push_back(one);
  }
  std::stable_sort(planned.begin(), planned.end(),
                   [](const Planned& a, const Planned& b) { return a.effect_ns < b.effect_ns; });
  std::uint64_t word = 0;
  std::vector<WordOperation> history;
  for (Planned& one : planned) {
    WordOperation& done = one.operation;
    // A swap is meant for what stands there, more often than not.
    if (done.kind == Kind::kSwap && random.below(4) != 0) done.expected = word;
    if (one.happens) {
      if (done.end == End::kDone) done.result = word;
      if (done.kind == Kind::kAdd) word += done.expected;
      if (done.kind == Kind::kSwap && word == done.expected) word = done.desired;
    }
    history.push_back(done);
  }
  return history;
}

TEST(Linearizability, HistoriesOfAnAtomicWordAreAccepted) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const std::uint64_t lost = seed % 4 == 0 ? 5 : seed % 4;
    const auto history = simulate(seed, 1 + seed % 12, 400, lost);
    const Linearizability found = check_linearizable(history, 0);
    ASSERT_EQ(found.verdict, Verdict::kLinearizable) << "seed " << seed << ": " << found.text;
  }
}

TEST(Linearizability, AnswerThatIsNotOfAnyOrderIsNoticed) {
  int noticed = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    auto history = simulate(seed, 8, 300, 0);
    for (WordOperation& one : history)
      if (one.end == End::kDone && one.result != 0) {
        one.result += 1'000'000'007;  // a value that was never written
        break;
      }
    noticed += check_linearizable(history, 0).verdict == Verdict::kViolated ? 1 : 0;
  }
  EXPECT_EQ(noticed, 100);
}

TEST(Linearizability, LostUpdateIsNoticed) {
  const Linearizability found =
      check_linearizable({add(0, 10, 1, 0), add(20, 30, 1, 0), add(40, 50, 0, 1)}, 0);
  ASSERT_EQ(found.verdict, Verdict::kViolated);
  EXPECT_NE(found.text.find("found 0 at 0 us"), std::string::npos) << found.text;
  EXPECT_NE(found.text.find("could hold 1"), std::string::npos) << found.text;
}

TEST(Linearizability, DoubleEffectIsNoticed) {
  EXPECT_EQ(check_linearizable({add(0, 10, 1, 0), add(20, 30, 0, 2)}, 0).verdict,
            Verdict::kViolated);
  // Also of one whose outcome is unknown: once, not twice.
  EXPECT_EQ(check_linearizable({unknown(add(0, 0, 1, 0)), add(20, 30, 0, 2)}, 0).verdict,
            Verdict::kViolated);
  EXPECT_EQ(check_linearizable(
                {unknown(swap(0, 0, 0, 5, 0)), swap(10, 20, 5, 0, 5), add(30, 40, 0, 5)}, 0)
                .verdict,
            Verdict::kViolated);
}

TEST(Linearizability, StaleReadIsNoticed) {
  EXPECT_EQ(check_linearizable({add(0, 10, 1, 0), add(20, 30, 0, 1), add(40, 50, 0, 0)}, 0).verdict,
            Verdict::kViolated);
  // Overlapping ones may see either.
  EXPECT_TRUE(check_linearizable({add(0, 50, 1, 0), add(20, 30, 0, 0)}, 0).ok());
  EXPECT_TRUE(check_linearizable({add(0, 50, 1, 0), add(20, 30, 0, 1)}, 0).ok());
}

TEST(Linearizability, EffectOfOneThatProvablyHadNoneIsNoticed) {
  WordOperation withdrawn = add(0, 10, 1, 0);
  withdrawn.end = End::kVoid;
  EXPECT_EQ(check_linearizable({withdrawn, add(20, 30, 0, 1)}, 0).verdict, Verdict::kViolated);
  EXPECT_TRUE(check_linearizable({withdrawn, add(20, 30, 0, 0)}, 0).ok());
}

TEST(Linearizability, UnknownOnesMayHappenLateOrNeverButNotBeforeTheirCall) {
  EXPECT_TRUE(
      check_linearizable({unknown(add(0, 0, 1, 0)), add(100, 110, 0, 0), add(120, 130, 0, 1)}, 0)
          .ok());
  EXPECT_TRUE(check_linearizable({unknown(add(0, 0, 1, 0)), add(100, 110, 0, 0)}, 0).ok());
  EXPECT_EQ(check_linearizable({add(0, 10, 0, 1), unknown(add(20, 0, 1, 0))}, 0).verdict,
            Verdict::kViolated);
}

TEST(Linearizability, SwapThatSaysItWonTwiceIsNoticed) {
  EXPECT_EQ(check_linearizable({swap(0, 100, 0, 5, 0), swap(0, 100, 0, 6, 0)}, 0).verdict,
            Verdict::kViolated);
  EXPECT_TRUE(check_linearizable({swap(0, 100, 0, 5, 0), swap(0, 100, 0, 6, 5)}, 0).ok());
}

TEST(Linearizability, BeginningAndSizeAreSaid) {
  auto history = simulate(3, 8, 2000, 0);
  std::size_t voids = 0;
  for (const WordOperation& one : history) voids += one.end == End::kVoid ? 1U : 0U;
  const Linearizability found = check_linearizable(history, 0);
  EXPECT_EQ(found.operation_count, history.size() - voids);
  EXPECT_FALSE(check_linearizable(history, 77).ok()) << "it began with 0";
}

TEST(Linearizability, ManyUnknownOnesAreNoObstacle) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const auto history = simulate(seed, 16, 1000, 8);
    const Linearizability found = check_linearizable(history, 0);
    ASSERT_TRUE(found.ok()) << "seed " << seed << ": " << found.text;
  }
}

TEST(Linearizability, OverlappingReadsAreTakenInOneOrderOnly) {
  std::vector<WordOperation> history;
  for (std::int64_t i = 0; i < 40; ++i) history.push_back(add(i, 100, 0, 0));
  history.push_back(swap(40, 100, 7, 8, 0));  // changes nothing, either
  const Linearizability all = check_linearizable(history, 0);
  EXPECT_TRUE(all.ok());
  EXPECT_EQ(all.steps, 41U);
  history.push_back(add(200, 210, 0, 1));
  const Linearizability found = check_linearizable(history, 0, 1000);
  EXPECT_EQ(found.verdict, Verdict::kViolated) << "2^40 orders of what is the same";
}

TEST(Linearizability, WorkIsBoundedAndUndecidedIsNotAccepted) {
  // Sums of many unknown numbers, in search of one that they do not have.
  std::vector<WordOperation> hard;
  for (std::uint64_t i = 0; i < 40; ++i) hard.push_back(unknown(add(1, 0, 2 * i + 2, 0)));
  hard.push_back(add(10, 20, 0, 801));
  const Linearizability found = check_linearizable(hard, 0, 10'000);
  EXPECT_EQ(found.verdict, Verdict::kUndecided);
  EXPECT_FALSE(found.ok());
  EXPECT_LE(found.steps, 10'000U);
}

TEST(LoadPage, RecordsOfManyThreadsAreAHistory) {
  LoadPage page = LoadPage::create({}, 4, 4000);
  std::atomic<std::uint64_t> word{0};
  std::vector<std::thread> threads;
  for (std::uint32_t id = 0; id < 4; ++id)
    threads.emplace_back([&page, &word, id] {
      Random random{id};
      for (int i = 0; i < 1000; ++i) {
        WordOperation one;
        one.expected = random.below(3);
        AtomicRecord* const record = page.begin(1, 64, one, id);
        ASSERT_NE(record, nullptr);
        LoadPage::end(*record, Effect::kDone, word.fetch_add(one.expected));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(page.begin(1, 64, {}, 0), nullptr) << "it is full";
  EXPECT_EQ(page.size(), 4000U);
  ASSERT_EQ(page.words().size(), 1U);
  const Linearizability found = check_words(page);
  EXPECT_TRUE(found.ok()) << found.text;
  EXPECT_EQ(found.operation_count, 4000U);
}

TEST(LoadPage, OperationsWithoutAnEndAreUnknownAndVoidOnesAreNot) {
  LoadPage page = LoadPage::create({}, 1, 8);
  WordOperation one;
  one.expected = 5;
  page.begin(1, 0, one, 0);
  LoadPage::end(*page.begin(1, 0, one, 0), Effect::kNone);
  LoadPage::end(*page.begin(1, 0, one, 0), Effect::kUnknown);
  WordOperation read;
  LoadPage::end(*page.begin(1, 0, read, 0), Effect::kDone, 10);
  EXPECT_TRUE(check_words(page).ok());
  LoadPage::end(*page.begin(1, 0, read, 0), Effect::kDone, 15);
  EXPECT_FALSE(check_words(page).ok()) << "only two of three could have happened";
}

TEST(LoadPage, OfAFileAnotherOneReadsTheSame) {
  const std::string path = testing::TempDir() + "remora-load-page-" + std::to_string(now_ns());
  {
    LoadPage page = LoadPage::create(path, 2, 8);
    page.blocks()[1].issued = 9;
    LoadPage::end(*page.begin(3, 8, {}, 0), Effect::kDone, 1);
  }
  const LoadPage found = LoadPage::open(path);
  EXPECT_EQ(found.blocks().size(), 2U);
  EXPECT_EQ(found.blocks()[1].issued, 9U);
  const auto operations = found.of(3, 8);
  ASSERT_EQ(operations.size(), 1U);
  EXPECT_EQ(operations[0].result, 1U);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace remora::fault
