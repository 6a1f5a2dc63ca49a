/// What is written is what is read: every size, odd offsets, odd buffers, all kinds of memory.

#include <algorithm>
#include <array>
#include <span>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kRegionBytes = 16_MiB + 64_KiB;
/// From one byte over the edges of cache lines, pages and bounce slots to sixteen mebibytes.
constexpr std::array<std::size_t, 21> kSizes{
    1,    2,    3,     7,     8,     9,         63,        64,        65,        255,   4095,
    4096, 4097, 65535, 65536, 65537, 1_MiB - 1, 1_MiB + 3, 2_MiB + 1, 5_MiB + 7, 16_MiB};

class PatternTest : public ConformanceTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override {
    return {.pool_bytes = 24U << 20U, .piece_bytes = 1U << 20U};
  }

  /// Writes `from` at `offset`, then reads it into `into` with a margin of the region around it.
  void round_trip(const Region& region, std::uint64_t offset, Source from, Target into) {
    SCOPED_TRACE(std::to_string(from.bytes().size()) + " bytes at " + std::to_string(offset));
    ASSERT_TRUE(ok(region.write(ByteOffset{offset}, from)));
    ASSERT_TRUE(ok(region.read(ByteOffset{offset}, into)));
    EXPECT_TRUE(same_bytes(into.bytes(), from.bytes()));
  }
};

TEST_P(PatternTest, EverySizeRoundTripsInForeignMemory) {
  const Region region = make_region({.size_bytes = kRegionBytes});
  std::vector<std::byte> from(16_MiB + 64);
  std::vector<std::byte> into(16_MiB + 64);
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    const std::size_t size = kSizes[i];
    const std::size_t shift = (i * 7) % 64;  // odd alignments of the buffers
    const auto source = std::span{from}.subspan(shift, size);
    fill(source, size);
    round_trip(region, i % 2 == 0 ? 0 : 4099 * i, Source{source},
               Target{std::span{into}.subspan(63 - shift, size)});
  }
}

TEST_P(PatternTest, EverySizeRoundTripsInRegisteredMemory) {
  const Region region = make_region({.size_bytes = kRegionBytes});
  std::vector<std::byte> bytes(32_MiB + 128);
  const RegisteredMemory memory = engine().register_memory(bytes).value();
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    const std::size_t size = kSizes[i];
    const std::size_t shift = (i * 5) % 64;
    fill(std::span{bytes}.subspan(shift, size), size + 1);
    round_trip(region, i % 2 == 0 ? 1 : 65536 - i, Source{memory, shift, size},
               Target{memory, 16_MiB + 64 + 63 - shift, size});
  }
}

TEST_P(PatternTest, EverySizeRoundTripsInSlots) {
  const Region region = make_region({.size_bytes = kRegionBytes});
  for (const std::size_t size : kSizes) {
    if (size > 2_MiB + 1) break;
    SlotPool pool = engine().allocate_slots(2, size).value();
    Slot from = pool.take();
    Slot into = pool.take();
    ASSERT_TRUE(from && into);
    fill(from.bytes(), size + 2);
    round_trip(region, size % 4099, Source{from}, Target{into});
  }
}

TEST_P(PatternTest, BytesAroundAWriteKeepTheirValue) {
  const Region region = make_region({.size_bytes = 64_KiB});
  std::vector<std::byte> model = noise(64_KiB, 3);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  Random random{4};
  for (std::size_t i = 0; i < steps(2000); ++i) {
    const std::size_t length = 1 + random.below(i % 8 == 0 ? 9000 : 80);
    const std::size_t offset = random.below(model.size() - length + 1);
    const auto part = std::span{model}.subspan(offset, length);
    fill(part, i);
    ASSERT_TRUE(ok(region.write(ByteOffset{offset}, part)));
  }
  EXPECT_TRUE(same_bytes(read_all(region), model));
}

TEST_P(PatternTest, BytesAroundAReadBufferKeepTheirValue) {
  const Region region = make_region({.size_bytes = 64_KiB});
  const std::vector<std::byte> model = noise(64_KiB, 5);
  ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
  constexpr std::size_t kMargin = 64;
  for (const std::size_t length : {1UL, 7UL, 8UL, 63UL, 64UL, 65UL, 4096UL, 4097UL, 60000UL}) {
    std::vector<std::byte> buffer(length + 2 * kMargin, std::byte{0xa5});
    ASSERT_TRUE(
        ok(region.read(ByteOffset{length % 13}, std::span{buffer}.subspan(kMargin, length))));
    std::vector<std::byte> expected(buffer.size(), std::byte{0xa5});
    std::copy_n(model.begin() + static_cast<std::ptrdiff_t>(length % 13), length,
                expected.begin() + kMargin);
    EXPECT_TRUE(same_bytes(buffer, expected)) << length;
  }
}

TEST_P(PatternTest, EverySizeRoundTripsThroughAQueue) {
  const Region region = make_region({.size_bytes = kRegionBytes});
  Queue queue = region.queue({.depth = 4}).value();
  std::vector<std::byte> from = noise(16_MiB, 6);
  std::vector<std::byte> into(16_MiB);
  std::uint64_t tag = 0;
  for (const std::size_t size : kSizes) {
    SCOPED_TRACE(size);
    const auto source = std::span{from}.last(size);
    const auto target = std::span{into}.last(size);
    ASSERT_TRUE(queue.write(ByteOffset{size % 97}, Source{source}, ++tag));
    ASSERT_TRUE(ok(queue.submit()));
    for (Completion& completion : queue.wait(1)) ASSERT_TRUE(completion.ok()) << completion.error();
    ASSERT_TRUE(queue.read(ByteOffset{size % 97}, Target{target}, ++tag));
    ASSERT_TRUE(ok(queue.submit()));
    for (Completion& completion : queue.wait(1)) {
      ASSERT_TRUE(completion.ok()) << completion.error();
      EXPECT_EQ(completion.tag(), tag);
    }
    ASSERT_EQ(queue.size(), 0U);
    EXPECT_TRUE(same_bytes(target, source));
  }
}

TEST_P(PatternTest, WrittenBytesAreWhatAnotherSessionReads) {
  const RegionInfo made = create({.size_bytes = 256_KiB});
  const std::vector<std::byte> bytes = noise(made.size_bytes, 7);
  ASSERT_TRUE(ok(open(made.name).write(ByteOffset{0}, bytes)));
  const Engine other = open_engine();
  const Region region = other.open_region(uri(made.name), Rights::kRead).value();
  EXPECT_TRUE(same_bytes(read_all(region), bytes));
}

REMORA_CONFORMANCE(PatternTest);

}  // namespace
}  // namespace remora::test
