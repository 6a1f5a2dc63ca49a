/// Transfers in pieces, zeroes, visibility, one queue over many regions, sealed blocks.

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "conformance_test.h"

namespace remora::test {
namespace {

class PiecesTest : public ConformanceTest {
 protected:
  /// Odd lengths, and buffers that do not touch.
  static std::vector<std::vector<std::byte>> odd_pieces(std::size_t count, std::uint64_t seed) {
    std::vector<std::vector<std::byte>> pieces;
    for (std::size_t i = 0; i < count; ++i)
      pieces.push_back(noise(1 + (i * i * 37) % 5000, seed + i));
    return pieces;
  }
  static std::vector<std::byte> joined(const std::vector<std::vector<std::byte>>& pieces) {
    std::vector<std::byte> all;
    for (const auto& piece : pieces) all.insert(all.end(), piece.begin(), piece.end());
    return all;
  }
};

TEST_P(PiecesTest, GatheredWriteAndScatteredReadKeepTheOrder) {
  const Region region = make_region({.size_bytes = 1_MiB});
  const auto written = odd_pieces(40, 1);
  const std::vector<std::byte> model = joined(written);
  const std::vector<Source> from(written.begin(), written.end());
  ASSERT_TRUE(ok(region.write(ByteOffset{333}, from)));
  std::vector<std::byte> straight(model.size());
  ASSERT_TRUE(ok(region.read(ByteOffset{333}, straight)));
  EXPECT_TRUE(same_bytes(straight, model));
  auto read = odd_pieces(40, 100);
  std::reverse(read.begin(), read.end());
  const std::vector<Target> into(read.begin(), read.end());
  ASSERT_TRUE(ok(region.read(ByteOffset{333}, into)));
  EXPECT_TRUE(same_bytes(joined(read), model));
}

TEST_P(PiecesTest, PiecesOfSlotsAndRegisteredMemoryInOneOperation) {
  const Region region = make_region();
  SlotPool slots = engine().allocate_slots(2, 1000).value();
  Slot one = slots.take();
  Slot two = slots.take();
  std::vector<std::byte> own = noise(10'000, 5);
  const RegisteredMemory memory = engine().register_memory(own).value();
  fill(one.bytes(), 6);
  fill(two.bytes(), 7);
  std::vector<std::byte> plain = noise(3000, 8);
  const std::array<Source, 5> from{Source{one}, Source{memory, 77, 4001}, Source{plain},
                                   Source{memory, 0, 1}, Source{two}};
  Queue queue = region.queue({.depth = 4}).value();
  ASSERT_TRUE(queue.write(ByteOffset{5}, from));
  EXPECT_EQ(drain(queue).size(), 1U);
  std::vector<std::byte> model;
  for (const Source& piece : from)
    model.insert(model.end(), piece.bytes().begin(), piece.bytes().end());
  std::vector<std::byte> seen(model.size());
  ASSERT_TRUE(ok(region.read(ByteOffset{5}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
}

TEST_P(PiecesTest, AsManyPiecesAsThereMayBe) {
  const Region region = make_region();
  std::vector<std::byte> bytes = noise(kMaxPieces * 16, 9);
  std::vector<Source> from;
  for (std::size_t i = 0; i < kMaxPieces; ++i)
    from.emplace_back(std::span<const std::byte>{bytes}.subspan(16 * i, 16));
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, from)));
  std::vector<std::byte> seen(bytes.size());
  ASSERT_TRUE(ok(region.read(ByteOffset{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, bytes));
  from.emplace_back(std::span<const std::byte>{bytes}.first(16));
  EXPECT_EQ(region.write(ByteOffset{0}, from).error().code(), Code::kLimitExceeded);
}

TEST_P(PiecesTest, UnsoundPiecesAreRefusedWhole) {
  const Region region = make_region({.size_bytes = 8192});
  std::vector<std::byte> bytes(4096, std::byte{1});
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  const auto refused = [&](const std::vector<Source>& from, std::uint64_t at = 0) {
    return region.write(ByteOffset{at}, from).error().code();
  };
  EXPECT_EQ(refused({}), Code::kInvalidArgument);
  EXPECT_EQ(refused({Source{bytes}, Source{std::span<const std::byte>{}}}), Code::kInvalidArgument);
  EXPECT_EQ(refused({Source{bytes}, Source{memory, 4095, 2}}), Code::kOutOfRange);
  EXPECT_EQ(refused({Source{bytes}, Source{bytes}}, 1), Code::kOutOfRange);
  EXPECT_EQ(refused({Source{bytes}}, UINT64_MAX - 5), Code::kOutOfRange);
  EXPECT_EQ(read_all(region), std::vector<std::byte>(8192)) << "nothing was written";
  const Region read_only = open(region.info().name, Rights::kRead);
  EXPECT_EQ(read_only.write(ByteOffset{0}, std::vector<Source>{Source{bytes}}).error().code(),
            Code::kNoRight);
}

TEST_P(PiecesTest, ZeroesFillExactlyTheirRange) {
  const Region region = make_region({.size_bytes = 4_MiB});
  std::vector<std::byte> model = noise(4_MiB, 11);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  const auto zero = [&](std::uint64_t at, std::uint64_t length) {
    ASSERT_TRUE(ok(region.write_zeroes(ByteOffset{at}, length)));
    std::fill_n(model.begin() + static_cast<std::ptrdiff_t>(at), length, std::byte{0});
  };
  zero(1, 1);
  zero(4097, 63);
  zero(100'001, 300'001);
  zero(1_MiB - 7, 2_MiB + 14);
  EXPECT_TRUE(same_bytes(read_all(region), model));
  Queue queue = region.queue().value();
  ASSERT_TRUE(queue.write_zeroes(ByteOffset{0}, 4_MiB, 1));
  ASSERT_TRUE(queue.write_zeroes(ByteOffset{4_MiB}, 1, 2));
  ASSERT_TRUE(queue.write_zeroes(ByteOffset{0}, 0, 3));
  ASSERT_TRUE(ok(queue.submit()));
  std::size_t done = 0;
  while (queue.size() > 0)
    for (const Completion& completion : queue.wait(1)) {
      ++done;
      const Code code = completion.ok() ? Code::kInternal : completion.error().code();
      EXPECT_EQ(code, (std::array{Code::kInternal, Code::kOutOfRange,
                                  Code::kInvalidArgument}[completion.tag() - 1]));
    }
  EXPECT_EQ(done, 3U);
  EXPECT_EQ(read_all(region), std::vector<std::byte>(4_MiB));
  EXPECT_EQ(open(region.info().name, Rights::kRead).write_zeroes(ByteOffset{0}, 1).error().code(),
            Code::kNoRight);
}

TEST_P(PiecesTest, FlushMakesWritesVisibleToTheServersProcessor) {
  const Region region = make_region();
  std::optional<RegionView> view;
  if (!external()) view = server().view(region.info().name).value();
  Queue queue = region.queue().value();
  for (std::uint64_t i = 0; i < steps(50); ++i) {
    const std::vector<std::byte> bytes = noise(3000, 20 + i);
    ASSERT_TRUE(queue.write(ByteOffset{64}, bytes));
    queue.barrier();
    ASSERT_TRUE(queue.flush_visible());
    ASSERT_EQ(drain(queue).size(), 2U);
    if (!view) continue;
    std::vector<std::byte> seen(3000);
    ASSERT_TRUE(ok(view->read(ByteOffset{64}, seen)));
    ASSERT_TRUE(same_bytes(seen, bytes));
  }
  EXPECT_TRUE(ok(region.flush_visible()));
  EXPECT_EQ(open(region.info().name, Rights::kWrite).flush_visible().error().code(),
            Code::kNoRight);
}

TEST_P(PiecesTest, OneQueueServesManyRegions) {
  std::vector<Region> regions;
  for (std::size_t i = 0; i < 8; ++i) regions.push_back(make_region({.size_bytes = 4096}));
  Queue queue = regions[0].queue({.depth = 64}).value();
  std::vector<std::vector<std::byte>> pages;
  for (std::uint64_t i = 0; i < 64; ++i) pages.push_back(noise(512, 30 + i));
  for (std::uint64_t i = 0; i < 64; ++i) {
    ASSERT_TRUE(ok(queue.select(regions[i % 8])));
    ASSERT_TRUE(queue.write(ByteOffset{512 * (i / 8)}, pages[i], i));
  }
  EXPECT_EQ(drain(queue).size(), 64U);
  // A region in use by a queue stays open, whatever becomes of its handles.
  const Region last = regions[7];
  regions.pop_back();
  std::vector<std::byte> seen(512);
  for (std::uint64_t i = 0; i < 64; ++i) {
    const Region& region = i % 8 == 7 ? last : regions[i % 8];
    ASSERT_TRUE(ok(region.read(ByteOffset{512 * (i / 8)}, seen)));
    EXPECT_TRUE(same_bytes(seen, pages[i]));
  }
}

TEST_P(PiecesTest, RegionOfAnotherSessionIsNotSelected) {
  const Region region = make_region();
  Queue queue = region.queue().value();
  Engine other = open_engine();
  const Region elsewhere = other.open_region(uri(region.info().name), Rights::kRead).value();
  EXPECT_EQ(queue.select(elsewhere).error().code(), Code::kInvalidArgument);
  EXPECT_TRUE(ok(queue.select(region)));
}

#ifndef REMORA_TEST_THROUGH_C  // the C API has no sealed blocks
TEST_P(PiecesTest, SealedBlocksAreNeverTorn) {
  const Region region = make_region({.size_bytes = 128_KiB, .block_bytes = 32_KiB});
  std::vector<std::byte> block(32_KiB);
  EXPECT_EQ(read_consistent(region, Block{1}, block).value(), 0U) << "never written";
  std::atomic<bool> enough{false};
  std::atomic<std::uint64_t> written{0};
  std::thread writer{[&] {
    Engine own = open_engine();
    const Region same = own.open_region(uri(region.info().name), Rights::kReadWrite).value();
    std::vector<std::byte> mine(32_KiB);
    for (std::uint64_t version = 1; !enough; ++version) {
      fill(payload_of(mine), version);
      EXPECT_TRUE(ok(write_consistent(same, Block{1}, mine, version)));
      written = version;
    }
  }};
  std::uint64_t latest = 0;
  std::vector<std::byte> model(32_KiB);
  for (std::size_t i = 0; i < steps(200) || latest < 3; ++i) {
    const std::uint64_t before = written;
    const auto version = read_consistent(region, Block{1}, block);
    ASSERT_TRUE(version.ok()) << version.error();
    EXPECT_GE(*version, before);
    EXPECT_GE(*version, latest);
    latest = *version;
    if (latest == 0) continue;
    fill(payload_of(model), latest);
    EXPECT_TRUE(same_bytes(payload_of(block), payload_of(model)));
  }
  enough = true;
  writer.join();
  // A good block in a wrong place is none.
  ASSERT_TRUE(ok(region.write(Block{2}, block)));
  EXPECT_EQ(read_consistent(region, Block{2}, block, std::chrono::seconds{2}).error().code(),
            Code::kBusy);
  EXPECT_EQ(read_consistent(region, Block{1}, model = std::vector<std::byte>(100)).error().code(),
            Code::kInvalidArgument);
}

/// Two writers of different pages, and a reader of both: 4096 bytes of payload in blocks of 4 KiB.
TEST_P(PiecesTest, SealedPagesAreNeverTorn) {
  const Region region = make_region({.size_bytes = 128_KiB, .block_bytes = 4096});
  const SealedPages pages = SealedPages::over(region).value();
  ASSERT_EQ(pages.page_bytes(), 4096U);
  ASSERT_EQ(pages.page_count(), 31U);
  std::vector<std::byte> page(4096);
  EXPECT_EQ(pages.read(Block{1}, page).value(), 0U) << "never written";
  std::atomic<bool> enough{false};
  std::array<std::atomic<std::uint64_t>, 2> written{};
  std::vector<std::thread> writers;
  for (std::uint64_t at = 0; at < 2; ++at)
    writers.emplace_back([&, at] {
      Engine own = open_engine();
      const Region same = own.open_region(uri(region.info().name), Rights::kReadWrite).value();
      const SealedPages mine = SealedPages::over(same).value();
      std::vector<std::byte> bytes(4096);
      for (std::uint64_t version = 1; !enough; ++version) {
        fill(bytes, version * 2 + at);
        EXPECT_TRUE(ok(mine.write(Block{at}, bytes, version)));
        written[at] = version;
      }
    });
  std::array<std::uint64_t, 2> latest{};
  std::vector<std::byte> model(4096);
  for (std::size_t i = 0; i < steps(400) || latest[0] < 3 || latest[1] < 3; ++i) {
    const std::size_t at = i % 2;
    const std::uint64_t before = written[at];
    const auto version = pages.read(Block{at}, page, 30s);
    EXPECT_TRUE(version.ok()) << version.error();
    if (!version.ok()) break;
    EXPECT_GE(*version, before);
    EXPECT_GE(*version, latest[at]);
    latest[at] = *version;
    if (latest[at] == 0) continue;
    fill(model, latest[at] * 2 + at);
    EXPECT_TRUE(same_bytes(page, model));
  }
  enough = true;
  for (std::thread& writer : writers) writer.join();
  // A whole page in another's place is none, nor is one whose seal is an older one's.
  ASSERT_TRUE(ok(region.write(Block{2}, page)));
  EXPECT_EQ(pages.read(Block{2}, page, 100ms).error().code(), Code::kBusy);
  ASSERT_TRUE(ok(pages.write(Block{3}, page, 7)));
  page[4095] ^= std::byte{1};
  ASSERT_TRUE(ok(region.write(Block{3}, page)));
  EXPECT_EQ(pages.read(Block{3}, page, 100ms).error().code(), Code::kBusy);
  ASSERT_TRUE(ok(pages.write(Block{3}, page, 8)));
  EXPECT_EQ(pages.read(Block{3}, page).value(), 8U);
}

TEST_P(PiecesTest, SealedPagesWithSealsInARegionOfTheirOwn) {
  const Region data = make_region({.size_bytes = 64_KiB, .block_bytes = 4096});
  const Region seals = make_region({.size_bytes = 4096, .block_bytes = 4096});
  const SealedPages pages = SealedPages::over(data, seals, ByteOffset{64}).value();
  EXPECT_EQ(pages.page_count(), 16U) << "all of them";
  std::vector<std::byte> page = noise(4096, 3);
  ASSERT_TRUE(ok(pages.write(Block{15}, page, 1)));
  std::vector<std::byte> back(4096);
  EXPECT_EQ(pages.read(Block{15}, back).value(), 1U);
  EXPECT_TRUE(same_bytes(back, page));
  EXPECT_EQ(SealedPages::over(data, seals, ByteOffset{4096 - 96}).value().page_count(), 3U);
  EXPECT_TRUE(
      fails_with(SealedPages::over(data, seals, ByteOffset{4096 - 31}), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(SealedPages::over(data, seals, ByteOffset{8192}), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(SealedPages::over(seals), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(pages.write(Block{16}, page, 1), Code::kOutOfRange));
  EXPECT_TRUE(fails_with(pages.write(Block{0}, page, 0), Code::kInvalidArgument));
  EXPECT_TRUE(
      fails_with(pages.write(Block{0}, std::span{page}.first(4095), 1), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(pages.read(Block{16}, page), Code::kOutOfRange));
}
#endif

REMORA_CONFORMANCE(PiecesTest);

}  // namespace
}  // namespace remora::test
