#include "stamp.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "base/crc32c.h"

namespace remora::fault {
namespace {

constexpr std::uint64_t kMagic = 0x504d415453524d52;  // "RMRSTAMP"
constexpr std::size_t kLengthAt = 32;
constexpr std::size_t kSumAt = 36;
constexpr std::size_t kPatternAt = 40;

std::uint64_t mix(std::uint64_t value) noexcept {
  value = (value ^ (value >> 30U)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27U)) * 0x94d049bb133111eb;
  return value ^ (value >> 31U);
}

template <typename Word>
void put(std::span<std::byte> block, std::size_t at, Word word) noexcept {
  std::memcpy(block.data() + at, &word, sizeof word);
}

template <typename Word>
Word get(std::span<const std::byte> block, std::size_t at) noexcept {
  Word word = 0;
  std::memcpy(&word, block.data() + at, sizeof word);
  return word;
}

std::uint32_t sum_of(std::span<const std::byte> block) noexcept {
  constexpr std::array<std::byte, 4> kNoSum{};
  const std::uint32_t front = crc32c(block.first(kSumAt));
  return crc32c(block.subspan(kPatternAt), crc32c(kNoSum, front));
}

bool all_zero(std::span<const std::byte> block) noexcept {
  return std::all_of(block.begin(), block.end(), [](std::byte b) { return b == std::byte{0}; });
}

/// The stamp of a block that is whole.
std::optional<Stamp> read_stamp(std::span<const std::byte> block) noexcept {
  if (all_zero(block)) return Stamp{};
  if (get<std::uint64_t>(block, 0) != kMagic) return std::nullopt;
  if (get<std::uint32_t>(block, kLengthAt) != block.size()) return std::nullopt;
  if (get<std::uint32_t>(block, kSumAt) != sum_of(block)) return std::nullopt;
  return Stamp{get<std::uint64_t>(block, 8), get<std::uint64_t>(block, 16),
               get<std::uint64_t>(block, 24)};
}

}  // namespace

void write_stamp(std::span<std::byte> block, const Stamp& stamp) noexcept {
  put(block, 0, kMagic);
  put(block, 8, stamp.session);
  put(block, 16, stamp.sequence);
  put(block, 24, stamp.offset);
  put(block, kLengthAt, static_cast<std::uint32_t>(block.size()));
  put(block, kSumAt, std::uint32_t{0});
  std::uint64_t state = mix(stamp.session) ^ mix(stamp.sequence + 1) ^ mix(stamp.offset + 2);
  for (std::size_t at = kPatternAt; at < block.size(); at += sizeof state) {
    state += 0x9e3779b97f4a7c15;
    const std::uint64_t word = mix(state);
    std::memcpy(block.data() + at, &word, std::min(sizeof word, block.size() - at));
  }
  put(block, kSumAt, sum_of(block));
}

std::string_view to_string(BlockVerdict verdict) noexcept {
  switch (verdict) {
    case BlockVerdict::kIntact: return "intact";
    case BlockVerdict::kLost: return "lost";
    case BlockVerdict::kStale: return "stale";
    case BlockVerdict::kTorn: return "torn";
    case BlockVerdict::kForeign: return "foreign";
    case BlockVerdict::kGhost: return "ghost";
  }
  return "unknown";
}

BlockModel::BlockModel(std::uint64_t session, std::uint64_t offset, std::uint64_t acknowledged,
                       std::uint64_t issued, std::uint64_t zeroes_each)
    : session_{session},
      offset_{offset},
      zeroes_each_{zeroes_each},
      issued_{issued},
      acknowledged_{acknowledged} {
  for (std::uint64_t sequence = acknowledged + 1; sequence <= issued; ++sequence)
    uncertain_.push_back(sequence);
}

void BlockModel::acknowledged(std::uint64_t sequence) noexcept {
  acknowledged_ = sequence;
  uncertain_.clear();
}

BlockVerdict BlockModel::check(std::span<const std::byte> block) {
  const std::optional<Stamp> found = read_stamp(block);
  if (found) return check_whole(*found);
  return !uncertain_.empty() && mixture(block) ? BlockVerdict::kIntact : BlockVerdict::kTorn;
}

BlockVerdict BlockModel::check_whole(const Stamp& found) {
  const bool zeroes = found.sequence == 0;
  if (!zeroes && (found.session != session_ || found.offset != offset_))
    return BlockVerdict::kForeign;
  const std::uint64_t sequence = zeroes ? sequence_of_zeroes() : found.sequence;
  if (sequence < acknowledged_) return BlockVerdict::kLost;
  if (sequence < seen_) return BlockVerdict::kStale;
  if (sequence == base()) return BlockVerdict::kIntact;
  if ((!zeroes && is_zeroes(sequence)) ||
      std::find(uncertain_.begin(), uncertain_.end(), sequence) == uncertain_.end())
    return BlockVerdict::kGhost;
  seen_ = sequence;
  return BlockVerdict::kIntact;
}

/// Of the writes of zeroes the oldest that may stand there; 0: none may.
std::uint64_t BlockModel::sequence_of_zeroes() const noexcept {
  if (is_zeroes(base())) return base();
  for (const std::uint64_t sequence : uncertain_)
    if (sequence > base() && is_zeroes(sequence)) return sequence;
  return 0;
}

/// Each byte is that of the newest known write, or of one that may have been cut off after it.
bool BlockModel::mixture(std::span<const std::byte> block) const {
  std::vector<bool> explained(block.size(), false);
  std::vector<std::byte> candidate(block.size());
  const auto explain = [&](std::uint64_t sequence) {
    if (is_zeroes(sequence))
      std::fill(candidate.begin(), candidate.end(), std::byte{0});
    else
      write_stamp(candidate, {session_, sequence, offset_});
    for (std::size_t i = 0; i < block.size(); ++i)
      if (block[i] == candidate[i]) explained[i] = true;
  };
  explain(base());
  for (const std::uint64_t sequence : uncertain_)
    if (sequence > base()) explain(sequence);
  return std::all_of(explained.begin(), explained.end(), [](bool one) { return one; });
}

std::string BlockModel::describe(std::span<const std::byte> block) const {
  std::string text = "block at " + std::to_string(offset_) + ": acknowledged " +
                     std::to_string(acknowledged_) + ", seen " + std::to_string(seen_) +
                     ", tried " + std::to_string(issued_) + ", uncertain";
  for (const std::uint64_t sequence : uncertain_) text += " " + std::to_string(sequence);
  if (uncertain_.empty()) text += " none";
  if (all_zero(block)) return text + "; found zeroes";
  return text + "; found session " + std::to_string(get<std::uint64_t>(block, 8)) + " (of " +
         std::to_string(session_) + "), sequence " + std::to_string(get<std::uint64_t>(block, 16)) +
         ", offset " + std::to_string(get<std::uint64_t>(block, 24)) +
         (read_stamp(block) ? ", whole" : ", not whole");
}

}  // namespace remora::fault
