/// Groups of pairs on a queue: one ticket, one completion, and a place for each pair until it has
/// ended.

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <poll.h>
#include <string>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

class ManyQueueTest : public ConformanceTest {
 protected:
  /// `count` parts of 64 B of `bytes`, at multiples of 128 in the region, from `at` on.
  static std::vector<ReadPair> reads(std::span<std::byte> bytes, std::size_t count,
                                     std::uint64_t at = 0) {
    std::vector<ReadPair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back({ByteOffset{at + 128 * i}, bytes.subspan(64 * i, 64)});
    return pairs;
  }
  static std::vector<WritePair> writes(std::span<const std::byte> bytes, std::size_t count,
                                       std::uint64_t at = 0) {
    std::vector<WritePair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back({ByteOffset{at + 128 * i}, bytes.subspan(64 * i, 64)});
    return pairs;
  }
};

TEST_P(ManyQueueTest, GroupHasOneCompletion) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 256}).value();
  const std::vector<std::byte> model = noise(6400, 1);
  std::vector<ManyOutcome> each(100);
  const Ticket ticket = queue.write_many(writes(model, 100), each, 7);
  ASSERT_TRUE(ticket);
  EXPECT_EQ(queue.size(), 100U);
  ASSERT_TRUE(ok(queue.submit()));
  {
    const Completions done = queue.wait(1);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_TRUE(done.begin()->ok());
    EXPECT_EQ(done.begin()->tag(), 7U);
    EXPECT_EQ(done.begin()->ticket(), ticket);
    EXPECT_EQ(queue.size(), 0U);
  }
  EXPECT_TRUE(std::ranges::all_of(each, &ManyOutcome::ok));
  std::vector<std::byte> into(6400);
  std::vector<std::byte> single(64);
  ASSERT_TRUE(queue.read(ByteOffset{128}, single, 1));
  ASSERT_TRUE(queue.read_many(reads(into, 100), {}, 2));
  ASSERT_TRUE(queue.read(ByteOffset{256}, single, 3));
  auto tags = drain(queue);
  std::ranges::sort(tags);
  EXPECT_EQ(tags, (std::vector<std::uint64_t>{1, 2, 3}));
  EXPECT_TRUE(same_bytes(into, model));
}

TEST_P(ManyQueueTest, EachPairNeedsAPlace) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 10}).value();
  std::vector<std::byte> into(64 * 11);
  const auto pairs = reads(into, 11);
  EXPECT_FALSE(queue.read_many(pairs));
  EXPECT_FALSE(queue.read_many({}));
  std::vector<ManyOutcome> each(9);
  if (!kThroughC) {  // there the array of outcomes has no number of its own
    EXPECT_FALSE(queue.read_many(std::span{pairs}.first(10), each));
  }
  EXPECT_EQ(queue.size(), 0U);
  for (std::size_t round = 0; round < 5; ++round) {
    ASSERT_TRUE(queue.read_many(std::span{pairs}.first(10)));
    EXPECT_TRUE(queue.full());
    EXPECT_FALSE(queue.read(ByteOffset{0}, std::span{into}.first(64)));
    EXPECT_EQ(drain(queue).size(), 1U);
    EXPECT_EQ(queue.size(), 0U);
  }
}

TEST_P(ManyQueueTest, FailedPairIsNamedInTheCompletion) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 64}).value();
  const std::vector<std::byte> model = noise(64 * 50, 2);
  auto pairs = writes(model, 50);
  pairs[0].from = std::span<const std::byte>{};
  pairs[30].to = ByteOffset{region.size_bytes()};
  std::vector<ManyOutcome> each(50);
  for (const bool head_fails : {true, false}) {
    if (!head_fails) pairs[0].from = std::span{model}.first(64);
    ASSERT_TRUE(queue.write_many(pairs, each));
    ASSERT_TRUE(ok(queue.submit()));
    const Completions done = queue.wait(1);
    ASSERT_EQ(done.size(), 1U);
    ASSERT_FALSE(done.begin()->ok());
    const Error error = done.begin()->error();
    EXPECT_EQ(error.code(), head_fails ? Code::kInvalidArgument : Code::kOutOfRange);
    EXPECT_TRUE(error.subject().ends_with(head_fails ? ", pair 0" : ", pair 30")) << error;
    for (std::size_t i = 0; i < 50; ++i)
      EXPECT_EQ(each[i].ok, i != 30 && (i != 0 || !head_fails)) << i;
  }
  // The places serve other operations afterwards, with errors of their own.
  std::vector<std::byte> into(64);
  ASSERT_TRUE(queue.read(ByteOffset{region.size_bytes()}, into));
  ASSERT_TRUE(ok(queue.submit()));
  const Completions done = queue.wait(1);
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done.begin()->error().subject(), region.info().name);
}

TEST_P(ManyQueueTest, AtomicsPutTheirOldValuesIntoThePairs) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 64}).value();
  std::vector<FetchAddPair> adds;
  for (std::uint64_t i = 0; i < 20; ++i) adds.push_back({ByteOffset{8 * i}, i + 1});
  std::vector<CompareSwapPair> swaps;
  for (std::uint64_t i = 0; i < 20; ++i) swaps.push_back({ByteOffset{8 * i}, i + 1, 100});
  ASSERT_TRUE(queue.fetch_add_many(adds));
  queue.barrier();
  ASSERT_TRUE(queue.compare_swap_many(swaps));
  EXPECT_EQ(drain(queue).size(), 2U);
  for (std::uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(adds[i].before, 0U);
    EXPECT_EQ(swaps[i].before, i + 1);
    EXPECT_EQ(region.fetch_add(ByteOffset{8 * i}, 0).value(), 100U);
  }
}

TEST_P(ManyQueueTest, BarrierStandsBetweenGroups) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 400}).value();
  for (std::size_t round = 0; round < steps(20); ++round) {
    const std::vector<std::byte> model = noise(6400, 10 + round);
    std::vector<std::byte> into(6400);
    ASSERT_TRUE(queue.write_many(writes(model, 100), {}, 1));
    queue.barrier();
    ASSERT_TRUE(queue.read_many(reads(into, 100), {}, 2));
    ASSERT_TRUE(ok(queue.submit()));
    std::vector<std::uint64_t> tags;
    while (queue.size() > 0)
      for (const Completion& completion : queue.wait(1)) {
        EXPECT_TRUE(completion.ok());
        tags.push_back(completion.tag());
      }
    EXPECT_EQ(tags, (std::vector<std::uint64_t>{1, 2}));
    ASSERT_TRUE(same_bytes(into, model));
  }
}

TEST_P(ManyQueueTest, CancelTakesBackAllPairs) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 64}).value();
  const std::vector<std::byte> ones(64 * 20, std::byte{1});
  std::vector<ManyOutcome> each(20);
  ASSERT_TRUE(queue.write(ByteOffset{64}, std::span{ones}.first(8), 1));
  const Ticket group = queue.write_many(writes(ones, 20), each, 2);
  ASSERT_TRUE(group);
  ASSERT_TRUE(queue.write(ByteOffset{72}, std::span{ones}.first(8), 3));
  ASSERT_TRUE(ok(queue.cancel(group)));
  ASSERT_TRUE(ok(queue.submit()));
  std::map<std::uint64_t, bool> ends;
  while (queue.size() > 0)
    for (const Completion& completion : queue.wait(1)) {
      ends[completion.tag()] = completion.ok();
      if (!completion.ok()) {
        EXPECT_EQ(completion.error().code(), Code::kCancelled);
      }
    }
  EXPECT_EQ(ends, (std::map<std::uint64_t, bool>{{1, true}, {2, false}, {3, true}}));
  for (const ManyOutcome& outcome : each) EXPECT_EQ(outcome.code, Code::kCancelled);
  std::vector<std::byte> wanted(region.size_bytes());
  std::fill_n(wanted.begin() + 64, 16, std::byte{1});
  EXPECT_TRUE(same_bytes(read_all(region), wanted));
  EXPECT_TRUE(fails_with(queue.cancel(group), Code::kNotFound));
}

TEST_P(ManyQueueTest, CancelKnowsAGroupWhoseFirstPairHasEnded) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 8}).value();
  const std::vector<std::byte> ones(64 * 3, std::byte{1});
  auto pairs = writes(ones, 3);
  pairs[0].from = std::span<const std::byte>{};  // refused when it is taken
  const Ticket group = queue.write_many(pairs);
  ASSERT_TRUE(group);
  EXPECT_EQ(queue.poll().size(), 0U);
  ASSERT_TRUE(ok(queue.cancel(group)));
  {
    const Completions done = queue.wait(1);
    ASSERT_EQ(done.size(), 1U);
    EXPECT_EQ(done.begin()->error().code(), Code::kInvalidArgument);
  }
  EXPECT_TRUE(fails_with(queue.cancel(group), Code::kNotFound));
  EXPECT_EQ(read_all(region), std::vector<std::byte>(region.size_bytes()));
}

TEST_P(ManyQueueTest, FencedGroupIsRefused) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 64}).value();
  const std::vector<std::byte> ones(64 * 20, std::byte{1});
  std::vector<ManyOutcome> each(20);
  ASSERT_TRUE(queue.write_many(writes(ones, 20), each));
  const Region fenced = region.fence().value();
  ASSERT_TRUE(ok(queue.submit()));
  const Completions done = queue.wait(1);
  ASSERT_EQ(done.size(), 1U);
  ASSERT_FALSE(done.begin()->ok());
  EXPECT_EQ(done.begin()->error().reason(), Reason::kFenced);
  for (const ManyOutcome& outcome : each) EXPECT_EQ(outcome.code, Code::kAccessRefused);
  EXPECT_EQ(read_all(fenced), std::vector<std::byte>(fenced.size_bytes()));
}

TEST_P(ManyQueueTest, EventLoopSeesTheEndOfAGroup) {
  const Region region = make_region();
  Queue queue = region.queue({.depth = 200}).value();
  const int descriptor = queue.event_fd().value();
  const std::vector<std::byte> model = noise(6400, 3);
  ASSERT_TRUE(ok(region.write_many(writes(model, 100))));
  std::vector<std::byte> into(6400);
  ASSERT_TRUE(queue.read_many(reads(into, 100), {}, 9));
  ASSERT_TRUE(ok(queue.submit()));
  std::size_t ended = 0;
  EXPECT_TRUE(eventually([&] {
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    (void)::poll(&wanted, 1, 100);
    for (const Completion& completion : queue.progress()) {
      EXPECT_TRUE(completion.ok());
      EXPECT_EQ(completion.tag(), 9U);
      ++ended;
    }
    return ended != 0;
  }));
  EXPECT_EQ(ended, 1U);
  EXPECT_TRUE(same_bytes(into, model));
}

/// Groups and single operations of random lengths: each ends exactly once, and no place is lost.
TEST_P(ManyQueueTest, NoPlaceIsLost) {
  const Region region = make_region();
  constexpr std::size_t kDepth = 64;
  Queue queue = region.queue({.depth = kDepth}).value();
  Random random{6};
  std::vector<std::byte> bytes = noise(kDepth * 64, 4);
  std::map<std::uint64_t, bool> open;  // by tag: whether it is sound
  std::uint64_t next_tag = 1;
  const auto collect = [&](std::size_t at_least) {
    for (const Completion& completion : queue.wait(at_least)) {
      const auto found = open.find(completion.tag());
      ASSERT_NE(found, open.end()) << "a completion without an operation";
      EXPECT_EQ(completion.ok(), found->second);
      open.erase(found);
    }
  };
  for (std::size_t round = 0; round < steps(2000); ++round) {
    const std::size_t count = 1 + random.below(20);
    const bool sound = random.below(8) != 0;
    const std::uint64_t tag = next_tag++;
    auto pairs = reads(bytes, count);
    if (!sound) pairs[random.below(count)].from = ByteOffset{region.size_bytes()};
    const Ticket taken = count == 1 ? queue.read(pairs[0].from, pairs[0].into, tag)
                                    : queue.read_many(pairs, {}, tag);
    if (taken) open[tag] = sound;
    if (random.below(5) == 0) queue.barrier();
    if (!taken || random.below(3) == 0) {
      ASSERT_TRUE(ok(queue.submit()));
      collect(random.below(3));
    }
  }
  ASSERT_TRUE(ok(queue.submit()));
  while (!open.empty() && !HasFatalFailure()) collect(open.size());
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_TRUE(queue.read_many(reads(bytes, kDepth)));
  EXPECT_EQ(drain(queue).size(), 1U);
}

/// The destructor waits for groups in flight.
TEST_P(ManyQueueTest, DestructorWaitsForGroups) {
  const Region region = make_region();
  std::vector<std::byte> into(64 * 60);
  Queue queue = region.queue({.depth = 64}).value();
  ASSERT_TRUE(queue.read_many(reads(into, 60)));
  ASSERT_TRUE(ok(queue.submit()));
}

#ifndef REMORA_TEST_THROUGH_C  // the C API has no callback queues
TEST_P(ManyQueueTest, CallbackIsCalledOnceForAllPairs) {
  const Region region = make_region();
  CallbackQueue queue = region.callback_queue({.depth = 128}).value();
  const std::vector<std::byte> model = noise(6400, 5);
  std::vector<ManyOutcome> each(100);
  std::atomic<int> calls{0};
  std::atomic<bool> good{false};
  const auto called = [&](int times) {
    return eventually([&calls, times] { return calls == times; });
  };
  const auto note = [&](Completion& completion) {
    good = completion.ok() && completion.tag() == 5;
    ++calls;
  };
  ASSERT_TRUE(ok(queue.write_many(writes(model, 100), note, each, 5)));
  ASSERT_TRUE(called(1));
  EXPECT_TRUE(good);
  EXPECT_TRUE(std::ranges::all_of(each, &ManyOutcome::ok));
  std::vector<std::byte> into(6400);
  ASSERT_TRUE(ok(queue.read_many(reads(into, 100), note, {}, 5)));
  ASSERT_TRUE(called(2));
  EXPECT_TRUE(good);
  EXPECT_TRUE(same_bytes(into, model));
  EXPECT_EQ(queue.size(), 0U);
  std::vector<FetchAddPair> adds(50, FetchAddPair{ByteOffset{region.size_bytes() - 8}, 1});
  ASSERT_TRUE(ok(queue.fetch_add_many(adds, note, {}, 5)));
  ASSERT_TRUE(called(3));
  std::uint64_t sum = 0;
  for (const FetchAddPair& pair : adds) sum += pair.before;
  EXPECT_EQ(sum, 49U * 50 / 2);
}

TEST_P(ManyQueueTest, CallbackIsToldOfTheFailedPair) {
  const Region region = make_region();
  CallbackQueue queue = region.callback_queue({.depth = 64}).value();
  std::vector<std::byte> into(64 * 65);
  std::atomic<int> calls{0};
  const auto never = [](Completion&) { ADD_FAILURE() << "nothing was taken"; };
  EXPECT_TRUE(fails_with(queue.read_many(reads(into, 65), never), Code::kLimitExceeded));
  EXPECT_TRUE(fails_with(queue.read_many({}, never), Code::kInvalidArgument));
  std::vector<ManyOutcome> each(3);
  EXPECT_TRUE(fails_with(queue.read_many(reads(into, 4), never, each), Code::kInvalidArgument));
  // All pairs, or one of them.
  for (const std::size_t bad : {64UL, 1UL}) {
    auto pairs = reads(into, 64);
    for (std::size_t i = 0; i < bad; ++i) pairs[63 - i].from = ByteOffset{region.size_bytes()};
    each.assign(64, ManyOutcome{});
    const int before = calls;
    ASSERT_TRUE(ok(queue.read_many(
        pairs,
        [&](Completion& completion) {
          ASSERT_FALSE(completion.ok());
          const Error error = completion.error();
          EXPECT_EQ(error.code(), Code::kOutOfRange);
          EXPECT_TRUE(error.subject().ends_with(", pair " + std::to_string(64 - bad))) << error;
          ++calls;
        },
        each)));
    ASSERT_TRUE(eventually([&] { return calls == before + 1; }));
    for (std::size_t i = 0; i < 64; ++i) EXPECT_EQ(each[i].ok, i < 64 - bad) << i;
  }
}

/// As DestructorWaitsForGroups, and for their callbacks.
TEST_P(ManyQueueTest, DestructorWaitsForCallbacksOfGroups) {
  const Region region = make_region();
  std::vector<std::byte> into(64 * 60);
  std::atomic<int> calls{0};
  {
    CallbackQueue queue = region.callback_queue({.depth = 64}).value();
    ASSERT_TRUE(ok(queue.read_many(reads(into, 60), [&](Completion&) { ++calls; })));
  }
  EXPECT_EQ(calls, 1);
}
#endif

REMORA_CONFORMANCE(ManyQueueTest);

}  // namespace
}  // namespace remora::test
