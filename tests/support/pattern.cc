#include "support/pattern.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace remora::test {
namespace {

constexpr std::size_t kCrcOffset = 16;

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    std::uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit)
      value = (value & 1U) != 0 ? (value >> 1U) ^ 0xedb88320U : value >> 1U;
    table[i] = value;
  }
  return table;
}
constexpr auto kCrcTable = make_crc_table();

std::uint32_t extend(std::uint32_t state, std::span<const std::byte> bytes) noexcept {
  for (const std::byte b : bytes)
    state = kCrcTable[(state ^ static_cast<std::uint32_t>(b)) & 0xffU] ^ (state >> 8U);
  return state;
}

template <typename T>
T load(std::span<const std::byte> bytes, std::size_t at) noexcept {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

std::uint32_t stamp_crc(std::span<const std::byte> block) noexcept {
  const std::uint32_t head = extend(0xffffffffU, block.first(kCrcOffset));
  return ~extend(head, block.subspan(kCrcOffset + sizeof(std::uint32_t)));
}

}  // namespace

std::uint64_t Random::next() noexcept {
  state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27U)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31U);
}

void fill(std::span<std::byte> bytes, std::uint64_t seed) noexcept {
  Random random{seed};
  while (!bytes.empty()) {
    const std::uint64_t word = random.next();
    const std::size_t length = std::min(bytes.size(), sizeof word);
    std::memcpy(bytes.data(), &word, length);
    bytes = bytes.subspan(length);
  }
}

std::vector<std::byte> noise(std::size_t size, std::uint64_t seed) {
  std::vector<std::byte> bytes(size);
  fill(bytes, seed);
  return bytes;
}

testing::AssertionResult same_bytes(std::span<const std::byte> actual,
                                    std::span<const std::byte> expected) {
  if (actual.size() != expected.size())
    return testing::AssertionFailure()
           << actual.size() << " bytes, expected " << expected.size() << " bytes";
  if (actual.empty() || std::memcmp(actual.data(), expected.data(), actual.size()) == 0)
    return testing::AssertionSuccess();
  std::size_t first = actual.size();
  std::size_t count = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    first = std::min(first, i);
    ++count;
  }
  return testing::AssertionFailure()
         << count << " of " << actual.size() << " bytes differ, the first at " << first << ": "
         << static_cast<int>(actual[first]) << ", expected " << static_cast<int>(expected[first]);
}

std::uint32_t crc32(std::span<const std::byte> bytes) noexcept {
  return ~extend(0xffffffffU, bytes);
}

void stamp(std::span<std::byte> block, std::uint64_t sequence, std::uint64_t offset) noexcept {
  fill(block, sequence * 0x100000001b3U + offset);
  std::memcpy(block.data(), &sequence, sizeof sequence);
  std::memcpy(block.data() + sizeof sequence, &offset, sizeof offset);
  const std::uint32_t crc = stamp_crc(block);
  std::memcpy(block.data() + kCrcOffset, &crc, sizeof crc);
}

testing::AssertionResult stamped(std::span<const std::byte> block, std::uint64_t sequence,
                                 std::uint64_t offset) {
  const auto found_sequence = load<std::uint64_t>(block, 0);
  const auto found_offset = load<std::uint64_t>(block, sizeof found_sequence);
  const bool intact = load<std::uint32_t>(block, kCrcOffset) == stamp_crc(block);
  if (intact && found_sequence == sequence && found_offset == offset)
    return testing::AssertionSuccess();
  return testing::AssertionFailure() << "block at " << offset << " of write " << sequence << " is "
                                     << (intact ? "intact" : "torn or foreign") << ", says offset "
                                     << found_offset << " and write " << found_sequence;
}

}  // namespace remora::test
