/// The memory that operations in flight are for, and what may stand there when they have ended.

#include <cstring>
#include <span>
#include <thread>

#include "flight.h"

namespace remora::fault {

namespace {

constexpr std::chrono::milliseconds kBetweenLooks{400};
constexpr std::size_t kWords = FlightMemory::kBlockBytes / sizeof(std::uint64_t);

std::string where(const char* what, std::size_t index, std::uint64_t found, std::uint64_t known) {
  return std::string{what} + ' ' + std::to_string(index) + " is " + std::to_string(found) +
         " and was " + std::to_string(known);
}

}  // namespace

void FlightMemory::fill(std::span<std::byte> bytes, std::uint64_t generation, std::size_t block) {
  for (std::size_t word = 0; word < bytes.size() / sizeof(std::uint64_t); ++word) {
    const std::uint64_t value = word_of(generation, block, word);
    std::memcpy(bytes.data() + word * sizeof value, &value, sizeof value);
  }
}

void FlightMemory::begin(const Region& region) {
  std::vector<std::byte> block(kBlockBytes);
  for (std::size_t i = 0; i < kReads; ++i) {
    fill(block, 1, i);
    region.write(ByteOffset{read_at(i)}, block).value();
  }
  for (std::size_t i = 0; i < kWrites; ++i) {
    fill(block, 1, i);
    region.write(ByteOffset{write_at(i)}, block).value();
  }
  region.write_zeroes(ByteOffset{0}, kBlockBytes).value();
  known_ = read_all(region);
}

FlightMemory::Seen FlightMemory::read_all(const Region& region) {
  Seen seen;
  std::vector<std::byte> block(kBlockBytes);
  seen.blocks.resize(kWrites * kWords);
  for (std::size_t i = 0; i < kWrites; ++i) {
    region.read(ByteOffset{write_at(i)}, block).value();
    std::memcpy(&seen.blocks[i * kWords], block.data(), kBlockBytes);
  }
  region.read(ByteOffset{0}, block).value();
  for (std::size_t i = 0; i < kAdds; ++i)
    std::memcpy(&seen.words[i], block.data() + word_at(i), sizeof(std::uint64_t));
  return seen;
}

std::vector<std::string> FlightMemory::look(const Region& region, std::uint64_t tried,
                                            bool may_have_landed, bool writes_late) {
  std::vector<std::string> wrong;
  const Seen seen = read_all(region);
  for (std::size_t i = 0; i < kWrites; ++i) {
    bool landed = false;
    for (std::size_t word = 0; word < kWords; ++word) {
      const std::uint64_t found = seen.blocks[i * kWords + word];
      const std::uint64_t before = known_.blocks[i * kWords + word];
      if (found == before) continue;
      landed = true;
      if (found == word_of(tried, i, word)) continue;
      wrong.push_back("I1: " + where("a word of block", i, found, before));
      break;
    }
    landed_ += landed ? 1 : 0;
    if (landed && !may_have_landed)
      wrong.push_back("I5: write " + std::to_string(i) + " landed, and was held back");
  }
  for (std::size_t i = 0; i < kAdds; ++i) {
    if (seen.words[i] == known_.words[i]) continue;
    ++landed_;
    if (seen.words[i] != known_.words[i] + tried)
      wrong.push_back("I10: " + where("word", i, seen.words[i], known_.words[i]));
    if (!may_have_landed)
      wrong.push_back("I5: fetch_add " + std::to_string(i) + " landed, and was held back");
  }
  if (writes_late) {
    std::vector<std::byte> late(64);
    fill(late, tried, 0);
    late[0] ^= std::byte{1};
    region.write(ByteOffset{write_at(0)}, late).value();
  }
  std::this_thread::sleep_for(kBetweenLooks);
  known_ = read_all(region);
  if (!(known_ == seen)) wrong.emplace_back("I5: the memory has changed after all was settled");
  return wrong;
}

}  // namespace remora::fault
