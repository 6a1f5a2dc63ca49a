/// Calls with many pairs: each pair ends as a single operation does, whatever the others do.

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kManyRegionBytes = 512_KiB;

class ManyTest : public ConformanceTest {
 protected:
  Region region_of(std::uint64_t size_bytes = kManyRegionBytes) {
    return make_region({.size_bytes = size_bytes});
  }
  /// `count` parts of `bytes`, each of `length_bytes`, at multiples of `stride_bytes` in the
  /// region.
  static std::vector<ReadPair> reads(std::span<std::byte> bytes, std::size_t count,
                                     std::size_t length_bytes, std::uint64_t stride_bytes) {
    std::vector<ReadPair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back(
          {ByteOffset{i * stride_bytes}, bytes.subspan(i * length_bytes, length_bytes)});
    return pairs;
  }
  static std::vector<WritePair> writes(std::span<const std::byte> bytes, std::size_t count,
                                       std::size_t length_bytes, std::uint64_t stride_bytes) {
    std::vector<WritePair> pairs;
    for (std::size_t i = 0; i < count; ++i)
      pairs.push_back(
          {ByteOffset{i * stride_bytes}, bytes.subspan(i * length_bytes, length_bytes)});
    return pairs;
  }
};

/// The same work by a call and by single operations, on two regions.
TEST_P(ManyTest, DoesWhatSingleOperationsDo) {
  const Region by_call = region_of();
  const Region by_operation = region_of();
  Random random{17};
  std::vector<std::byte> own(64_KiB);
  const RegisteredMemory memory = engine().register_memory(own).value();
  SlotPool slots = engine().allocate_slots(8, 1024).value();
  std::array<Slot, 8> taken;
  for (Slot& slot : taken) slot = slots.take();
  std::vector<std::byte> plain(64_KiB);
  for (std::size_t round = 0; round < steps(40); ++round) {
    fill(own, 3 * round);
    fill(plain, 3 * round + 1);
    for (Slot& slot : taken) fill(slot.bytes(), 3 * round + 2);
    std::vector<WritePair> pairs;
    // One pair for each stretch of 4 KiB, in a random order: pairs of one call are unordered.
    for (std::uint64_t i = 0; i < kManyRegionBytes / 4096; ++i) {
      const ByteOffset to{i * 4096 + random.below(512)};
      const std::size_t length = 1 + random.below(3000);
      const std::size_t part = random.below(own.size() - length);
      switch (random.below(3)) {
        case 0: pairs.push_back({to, Source{memory, part, length}}); break;
        case 1: pairs.push_back({to, Source{taken[random.below(taken.size())]}}); break;
        default: pairs.push_back({to, std::span<const std::byte>{plain}.subspan(part, length)});
      }
      std::swap(pairs.back(), pairs[random.below(pairs.size())]);
    }
    std::vector<ManyOutcome> each(pairs.size());
    ASSERT_TRUE(ok(by_call.write_many(pairs, {.each = each})));
    EXPECT_TRUE(std::ranges::all_of(each, &ManyOutcome::ok));
    for (const WritePair& pair : pairs) ASSERT_TRUE(ok(by_operation.write(pair.to, pair.from)));
    ASSERT_TRUE(same_bytes(read_all(by_call), read_all(by_operation)));
  }
}

TEST_P(ManyTest, ReadsBringEachPairItsBytes) {
  const Region region = region_of();
  const std::vector<std::byte> model = noise(kManyRegionBytes, 4);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  Random random{5};
  std::vector<std::byte> own(256_KiB);
  const RegisteredMemory memory = engine().register_memory(own).value();
  std::vector<std::byte> plain(256_KiB);
  for (const std::size_t length_max : {16UL, 64UL, 700UL}) {
    std::vector<ReadPair> pairs;
    std::vector<std::span<std::byte>> places;
    for (std::size_t i = 0; i < 300; ++i) {
      const std::size_t length = 1 + random.below(length_max);
      const ByteOffset from{random.below(kManyRegionBytes - length)};
      std::vector<std::byte>& bytes = i % 2 == 0 ? own : plain;
      places.push_back(std::span{bytes}.subspan(i * 800, length));
      if (i % 2 == 0)
        pairs.push_back({from, Target{memory, i * 800, length}});
      else
        pairs.push_back({from, places.back()});
    }
    ASSERT_TRUE(ok(region.read_many(pairs)));
    for (std::size_t i = 0; i < pairs.size(); ++i)
      ASSERT_TRUE(
          same_bytes(places[i], std::span{model}.subspan(pairs[i].from.bytes, places[i].size())))
          << "pair " << i;
  }
}

/// Neighbours on both sides, in order and in disorder, go as fewer requests.
TEST_P(ManyTest, NeighboursMayBeInAnyOrder) {
  const Region region = region_of();
  const std::vector<std::byte> model = noise(64_KiB, 6);
  std::vector<WritePair> pairs = writes(model, 1024, 64, 64);
  for (std::size_t i = 0; i < pairs.size(); ++i) std::swap(pairs[i], pairs[(i * 37) % 1024]);
  ASSERT_TRUE(ok(region.write_many(pairs)));
  std::vector<std::byte> into(64_KiB);
  ASSERT_TRUE(ok(region.read_many(reads(into, 1024, 64, 64))));
  EXPECT_TRUE(same_bytes(into, model));
}

TEST_P(ManyTest, MorePairsThanTheSendQueueHasRoomFor) {
  const Region region = region_of();
  const std::size_t count = 3000;
  const std::vector<std::byte> model = noise(count * 40, 7);
  ASSERT_TRUE(ok(region.write_many(writes(model, count, 40, 128))));
  std::vector<std::byte> into(count * 40);
  ASSERT_TRUE(ok(region.read_many(reads(into, count, 40, 128))));
  EXPECT_TRUE(same_bytes(into, model));
}

TEST_P(ManyTest, AsManyPairsAsThereMayBeAndOneMore) {
  const Region region = region_of();
  const std::vector<std::byte> model = noise(8 * kMaxMany, 8);
  ASSERT_TRUE(ok(region.write_many(writes(model, kMaxMany, 8, 8))));
  std::vector<std::byte> into(8 * kMaxMany);
  ASSERT_TRUE(ok(region.read_many(reads(into, kMaxMany, 8, 8))));
  EXPECT_TRUE(same_bytes(into, model));
  const std::vector<std::byte> zeroes(8 * kMaxMany);
  std::vector<WritePair> pairs = writes(zeroes, kMaxMany, 8, 8);
  pairs.push_back(pairs.front());
  const Status refused = region.write_many(pairs);
  ASSERT_TRUE(fails_with(refused, Code::kLimitExceeded));
  EXPECT_EQ(refused.error().asked(), kMaxMany + 1);
  EXPECT_EQ(refused.error().allowed(), kMaxMany);
  EXPECT_TRUE(same_bytes(read_all(region), model)) << "nothing was written";
}

TEST_P(ManyTest, NoPairsAreOk) {
  const Region region = region_of();
  EXPECT_TRUE(ok(region.read_many({})));
  EXPECT_TRUE(ok(region.write_many({})));
  EXPECT_TRUE(ok(region.fetch_add_many({})));
  EXPECT_TRUE(ok(region.compare_swap_many({})));
}

TEST_P(ManyTest, BadPairEndsAlone) {
  const Region region = region_of();
  const std::vector<std::byte> model = noise(64 * 64, 9);
  std::vector<WritePair> pairs = writes(model, 64, 64, 128);
  std::vector<std::byte> own(100);
  const RegisteredMemory memory = engine().register_memory(own).value();
  pairs[40].to = ByteOffset{kManyRegionBytes - 63};
  pairs[17].to = ByteOffset{UINT64_MAX - 5};
  pairs[50].from = std::span<const std::byte>{};
  pairs[51].from = std::span<const std::byte>{static_cast<const std::byte*>(nullptr), 8};
  if (!kThroughC) {  // in C remora_piece_init() refuses the one, and there are no empty slots
    pairs[52].from = Source{memory, 60, 41};
    pairs[53].from = Source{Slot{}};
  }
  std::vector<ManyOutcome> each(pairs.size());
  const Status status = region.write_many(pairs, {.each = each});
  ASSERT_TRUE(fails_with(status, Code::kOutOfRange));
  EXPECT_TRUE(status.error().subject().ends_with(", pair 17")) << status.error();
  EXPECT_TRUE(status.error().subject().starts_with(region.info().name)) << status.error();
  EXPECT_EQ(status.error().offset_bytes(), UINT64_MAX - 5);
  const std::vector<std::byte> seen = read_all(region);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const bool bad = i == 17 || i == 40 || (i >= 50 && i <= (kThroughC ? 51U : 53U));
    EXPECT_EQ(each[i].ok, !bad) << "pair " << i;
    const auto written = std::span{seen}.subspan(i * 128, 64);
    const auto wanted =
        bad ? std::vector<std::byte>(64)
            : std::vector<std::byte>(model.begin() + static_cast<long>(i) * 64,
                                     model.begin() + static_cast<long>(i) * 64 + 64);
    EXPECT_TRUE(same_bytes(written, wanted)) << "pair " << i;
  }
  EXPECT_EQ(each[40].code, Code::kOutOfRange);
  EXPECT_EQ(each[50].reason, Reason::kZeroLength);
  EXPECT_EQ(each[51].reason, Reason::kNullPointer);
  if (kThroughC) return;
  EXPECT_EQ(each[52].reason, Reason::kOutsideMemory);
  EXPECT_EQ(each[53].reason, Reason::kEmptySlot);
}

TEST_P(ManyTest, OutcomesAreAsManyAsPairs) {
  if (kThroughC) GTEST_SKIP() << "in C the array of outcomes has no number of its own";
  const Region region = region_of();
  std::vector<std::byte> into(640);
  const auto pairs = reads(into, 10, 64, 64);
  std::vector<ManyOutcome> each(9, ManyOutcome{.ok = false});
  EXPECT_TRUE(fails_with(region.read_many(pairs, {.each = each}), Code::kInvalidArgument));
  EXPECT_FALSE(each.front().ok) << "it was not written";
  each.resize(11);
  EXPECT_TRUE(fails_with(region.read_many(pairs, {.each = each}), Code::kInvalidArgument));
}

TEST_P(ManyTest, MissingRightEndsEachPair) {
  const Region read_only = open(create({.size_bytes = 64_KiB}).name, Rights::kRead);
  const std::vector<std::byte> bytes = noise(640, 10);
  std::vector<ManyOutcome> each(10);
  EXPECT_TRUE(
      fails_with(read_only.write_many(writes(bytes, 10, 64, 64), {.each = each}), Code::kNoRight));
  for (const ManyOutcome& outcome : each) EXPECT_EQ(outcome.code, Code::kNoRight);
  std::array<FetchAddPair, 2> adds{};
  EXPECT_TRUE(fails_with(read_only.fetch_add_many(adds), Code::kNoRight));
  std::vector<std::byte> into(640);
  EXPECT_TRUE(ok(read_only.read_many(reads(into, 10, 64, 64))));
}

TEST_P(ManyTest, AtomicsReturnWhatStoodBefore) {
  const Region region = region_of();
  std::vector<FetchAddPair> adds;
  for (std::uint64_t i = 0; i < 300; ++i) adds.push_back({ByteOffset{i * 8}, i + 1});
  ASSERT_TRUE(ok(region.fetch_add_many(adds)));
  for (const FetchAddPair& each : adds) EXPECT_EQ(each.before, 0U);
  ASSERT_TRUE(ok(region.fetch_add_many(adds)));
  for (const FetchAddPair& each : adds) EXPECT_EQ(each.before, each.delta);
  std::vector<CompareSwapPair> swaps;
  for (std::uint64_t i = 0; i < 300; ++i)
    swaps.push_back({ByteOffset{i * 8}, i % 2 == 0 ? 2 * (i + 1) : 1, 7});
  ASSERT_TRUE(ok(region.compare_swap_many(swaps)));
  for (std::uint64_t i = 0; i < 300; ++i) {
    EXPECT_EQ(swaps[i].before, 2 * (i + 1));
    EXPECT_EQ(region.fetch_add(ByteOffset{i * 8}, 0).value(), i % 2 == 0 ? 7 : 2 * (i + 1));
  }
}

/// Additions to one word, of one call: each sees another value.
TEST_P(ManyTest, AtomicsOfOneWordAreAtomicAmongEachOther) {
  const Region region = region_of();
  std::vector<FetchAddPair> adds(200, FetchAddPair{ByteOffset{64}, 1});
  ASSERT_TRUE(ok(region.fetch_add_many(adds)));
  std::vector<std::uint64_t> before;
  for (const FetchAddPair& each : adds) before.push_back(each.before);
  std::ranges::sort(before);
  for (std::uint64_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i], i);
}

TEST_P(ManyTest, MisalignedAtomicEndsAlone) {
  const Region region = region_of();
  std::array<FetchAddPair, 4> adds{FetchAddPair{ByteOffset{0}, 1}, FetchAddPair{ByteOffset{12}, 1},
                                   FetchAddPair{ByteOffset{kManyRegionBytes}, 1},
                                   FetchAddPair{ByteOffset{16}, 1}};
  std::array<ManyOutcome, 4> each{};
  const Status status = region.fetch_add_many(adds, {.each = each});
  ASSERT_TRUE(fails_with(status, Code::kMisaligned));
  EXPECT_TRUE(status.error().subject().ends_with(", pair 1")) << status.error();
  EXPECT_EQ(each[2].code, Code::kOutOfRange);
  EXPECT_TRUE(each[0].ok && each[3].ok);
  EXPECT_EQ(region.fetch_add(ByteOffset{16}, 0).value(), 1U);
  const Region without = make_region({.rights = Rights::kAll, .atomic_domain = "none"});
  std::array<CompareSwapPair, 1> swap{};
  EXPECT_TRUE(fails_with(without.compare_swap_many(swap), Code::kWrongAtomicDomain));
}

/// Writes that overlap in the region, and reads that overlap in local memory: each shared byte is
/// of one of them, and no other byte changes.
TEST_P(ManyTest, OverlappingPairsMixTheirBytesOnly) {
  const Region region = region_of();
  std::vector<std::vector<std::byte>> sources;
  std::vector<WritePair> pairs;
  for (unsigned i = 0; i < 100; ++i) sources.emplace_back(96, static_cast<std::byte>(i + 1));
  for (std::size_t i = 0; i < sources.size(); ++i)
    pairs.push_back({ByteOffset{4096 + 64 * i}, sources[i]});
  ASSERT_TRUE(ok(region.write_many(pairs)));
  const std::vector<std::byte> seen = read_all(region);
  for (std::size_t at = 0; at < seen.size(); ++at) {
    const std::size_t place = at - 4096;  // wraps below
    const std::size_t own = place / 64 + 1;
    const bool inside = at >= 4096 && at < 4096 + 64 * 99 + 96;
    const auto value = static_cast<std::size_t>(seen[at]);
    if (!inside)
      ASSERT_EQ(value, 0U) << at;
    else
      ASSERT_TRUE((value == own && own <= 100) || (value == own - 1 && place % 64 < 32)) << at;
  }
  std::vector<std::byte> into(64);
  const std::vector<ReadPair> same(40, ReadPair{ByteOffset{0}, into});
  EXPECT_TRUE(ok(region.read_many(same)));
}

TEST_P(ManyTest, LongAndShortPairsInOneCall) {
  const Region region = region_of(4_MiB);
  const std::vector<std::byte> model = noise(4_MiB, 11);
  std::vector<WritePair> pairs;
  std::uint64_t at = 0;
  for (const std::size_t length : {64UL, 1_MiB, 1UL, 65'536UL, 65'537UL, 8UL, 2_MiB, 300'000UL}) {
    pairs.push_back({ByteOffset{at}, std::span{model}.subspan(at, length)});
    at += length;
  }
  pairs.push_back({ByteOffset{at}, std::span{model}.subspan(at)});
  ASSERT_TRUE(ok(region.write_many(pairs)));
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

/// More registered memories than a call counts at once, in an order that names each again.
TEST_P(ManyTest, ManyRegisteredMemoriesInOneCall) {
  const Region region = region_of();
  const std::vector<std::byte> model = noise(200 * 64, 12);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  std::vector<std::vector<std::byte>> bytes(40, std::vector<std::byte>(5 * 64));
  std::vector<RegisteredMemory> memories;
  for (auto& own : bytes) memories.push_back(engine().register_memory(own).value());
  std::vector<ReadPair> pairs;
  for (std::size_t i = 0; i < 200; ++i)
    pairs.push_back({ByteOffset{i * 64}, Target{memories[i % 40], i / 40 * 64, 64}});
  ASSERT_TRUE(ok(region.read_many(pairs)));
  for (std::size_t i = 0; i < 200; ++i)
    EXPECT_TRUE(same_bytes(std::span{bytes[i % 40]}.subspan(i / 40 * 64, 64),
                           std::span{model}.subspan(i * 64, 64)));
}

#ifndef REMORA_TEST_THROUGH_C  // the C API has no calls with several regions
TEST_P(ManyTest, NoRegionsAndRegionsWithoutPairsAreOk) {
  const Region region = region_of();
  EXPECT_TRUE(ok(remora::read_many(std::span<const RegionReads>{})));
  const std::array<RegionReads, 1> none{RegionReads{.region = &region, .pairs = {}}};
  EXPECT_TRUE(ok(remora::read_many(none)));
}

TEST_P(ManyTest, PairsOfSeveralRegions) {
  std::vector<Region> regions;
  for (int i = 0; i < 5; ++i) regions.push_back(region_of(64_KiB));
  const std::vector<std::byte> model = noise(5 * 6400, 13);
  std::vector<std::vector<WritePair>> pairs;
  std::vector<RegionWrites> all;
  for (std::size_t i = 0; i < regions.size(); ++i)
    pairs.push_back(writes(std::span{model}.subspan(i * 6400, 6400), 100, 64, 64));
  for (std::size_t i = 0; i < regions.size(); ++i) all.push_back({&regions[i], pairs[i]});
  ASSERT_TRUE(ok(remora::write_many(all)));
  std::vector<std::byte> into(model.size());
  std::vector<std::vector<ReadPair>> read;
  std::vector<RegionReads> from;
  for (std::size_t i = 0; i < regions.size(); ++i)
    read.push_back(reads(std::span{into}.subspan(i * 6400, 6400), 100, 64, 64));
  for (std::size_t i = 0; i < regions.size(); ++i) from.push_back({&regions[i], read[i]});
  read[3][7].from = ByteOffset{64_KiB};  // the pair 307 of the call
  std::vector<ManyOutcome> each(500);
  const Status status = remora::read_many(from, {.each = each});
  ASSERT_TRUE(fails_with(status, Code::kOutOfRange));
  EXPECT_TRUE(status.error().subject().ends_with(regions[3].info().name + ", pair 307"));
  for (std::size_t i = 0; i < each.size(); ++i) EXPECT_EQ(each[i].ok, i != 307) << i;
  std::fill_n(into.begin() + 307 * 64, 64, std::byte{0});
  std::vector<std::byte> wanted = model;
  std::fill_n(wanted.begin() + 307 * 64, 64, std::byte{0});
  EXPECT_TRUE(same_bytes(into, wanted));
}

TEST_P(ManyTest, RegionsOfOneCallAreOfOneSession) {
  Region region = region_of(64_KiB);
  const Engine other_engine = open_engine();
  const Region other = other_engine.open_region(uri(region.info().name), Rights::kAll).value();
  std::vector<std::byte> into(64);
  const std::array<ReadPair, 1> pair{ReadPair{ByteOffset{0}, into}};
  std::array<RegionReads, 2> both{RegionReads{&region, pair}, RegionReads{&other, pair}};
  EXPECT_TRUE(fails_with(remora::read_many(both), Code::kInvalidArgument));
  both[1].region = nullptr;
  EXPECT_TRUE(fails_with(remora::read_many(both), Code::kInvalidArgument));
  const Region moved = std::move(region);
  EXPECT_TRUE(
      fails_with(region.read_many(pair), Code::kClosed));  // NOLINT(bugprone-use-after-move)
  both[1].region = &moved;
  EXPECT_TRUE(fails_with(remora::read_many(both), Code::kClosed));
  EXPECT_TRUE(ok(moved.read_many(pair)));
}
#endif

TEST_P(ManyTest, RevokedGrantEndsEachPair) {
  const Region region = region_of(64_KiB);
  const std::vector<std::byte> bytes = noise(6400, 14);
  const Region fenced = region.fence().value();
  std::vector<ManyOutcome> each(100);
  EXPECT_TRUE(fails_with(region.write_many(writes(bytes, 100, 64, 64), {.each = each}),
                         Code::kAccessRefused));
  for (const ManyOutcome& outcome : each) {
    EXPECT_EQ(outcome.code, Code::kAccessRefused);
    EXPECT_EQ(outcome.reason, Reason::kFenced);
  }
  EXPECT_EQ(read_all(fenced), std::vector<std::byte>(64_KiB));
}

/// A fence in the middle of calls: once it has returned, no pair of the older grant lands.
TEST_P(ManyTest, FenceInTheMiddleOfACall) {
  for (std::size_t round = 0; round < steps(10); ++round) {
    const Region region = region_of();
    const Engine other_engine = open_engine();
    const Region other = other_engine.open_region(uri(region.info().name), Rights::kAll).value();
    const std::vector<std::byte> ones(kManyRegionBytes / 2, std::byte{1});
    const std::vector<WritePair> pairs = writes(ones, 4096, 64, 128);
    std::atomic<bool> began{false};
    std::atomic<bool> refused{false};
    std::thread writer{[&] {
      std::vector<ManyOutcome> each(pairs.size());
      Status last;
      do {
        last = region.write_many(pairs, {.each = each});
        began = true;
      } while (last.ok());
      refused = last.error().code() == Code::kAccessRefused ||
                last.error().code() == Code::kIndeterminate;
      // The status is that of the failed pair that stands first.
      const auto first = std::ranges::find(each, false, &ManyOutcome::ok);
      EXPECT_TRUE(first != each.end() && first->code == last.error().code());
    }};
    EXPECT_TRUE(eventually([&] { return began.load(); }));
    const auto fenced = other.fence();
    if (fenced.ok()) {
      const std::vector<std::byte> twos(kManyRegionBytes, std::byte{2});
      EXPECT_TRUE(ok(fenced->write(ByteOffset{0}, twos)));
      writer.join();
      EXPECT_TRUE(same_bytes(read_all(*fenced), twos)) << "a pair landed after the fence";
      EXPECT_TRUE(refused);
    } else {
      ADD_FAILURE() << fenced.error();
      EXPECT_TRUE(ok(region.fence()));
      writer.join();
    }
  }
}

TEST_P(ManyTest, CallsOfManyThreadsKeepToTheirStripes) {
  constexpr std::size_t kThreads = 6;
  const Region region = region_of();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t id = 0; id < kThreads; ++id)
    threads.emplace_back([&, id] {
      std::vector<std::byte> into(200 * 64);
      for (std::size_t round = 0; round < steps(30); ++round) {
        const std::vector<std::byte> model = noise(200 * 64, 100 * id + round);
        auto write = writes(model, 200, 64, 128);
        auto read = reads(into, 200, 64, 128);
        for (WritePair& pair : write) pair.to.bytes += id * 200 * 128;
        for (ReadPair& pair : read) pair.from.bytes += id * 200 * 128;
        if (!region.write_many(write).ok() || !region.read_many(read).ok() || into != model)
          ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

REMORA_CONFORMANCE(ManyTest);

/// Regions that are cut into extents: no pair passes the quick check.
class ManyExtentsTest : public ManyTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 4U << 20U, .piece_bytes = 64U << 10U};
  }
};

TEST_P(ManyExtentsTest, PairsAcrossEachEdgeAreWhole) {
  const Region region = region_of();
  const std::vector<std::byte> model = noise(kManyRegionBytes, 15);
  std::vector<WritePair> pairs;
  constexpr std::uint64_t kStep = 64_KiB / 3;
  for (std::uint64_t at = 0; at < kManyRegionBytes; at += kStep)
    pairs.push_back(
        {ByteOffset{at}, std::span{model}.subspan(at, std::min(kStep, kManyRegionBytes - at))});
  ASSERT_TRUE(ok(region.write_many(pairs)));
  std::vector<std::byte> into(kManyRegionBytes);
  std::vector<ReadPair> read;
  for (std::uint64_t at = 0; at < kManyRegionBytes; at += 1000)
    read.push_back({ByteOffset{at}, std::span{into}.subspan(
                                        at, std::min<std::uint64_t>(1000, kManyRegionBytes - at))});
  ASSERT_TRUE(ok(region.read_many(read)));
  EXPECT_TRUE(same_bytes(into, model));
}

REMORA_CONFORMANCE(ManyExtentsTest);

}  // namespace
}  // namespace remora::test
