#pragma once

/// Blocks that name their writer, their time and their place, so that one that was lost, is stale,
/// torn or foreign is told from one that is as it should be.
///
/// | bytes   | meaning (little-endian) |
/// |---------|-------------------------|
/// | 0 … 7   | magic, "RMRSTAMP" |
/// | 8 … 15  | session of the writer: never 0 |
/// | 16 … 23 | sequence number of the write among those to this block, from 1 |
/// | 24 … 31 | offset in the region at which the block belongs |
/// | 32 … 35 | length of the block |
/// | 36 … 39 | CRC32C of the block with these four bytes zero |
/// | 40 …    | pattern made from session, sequence and offset |
///
/// A block of zeroes is one that has not been written, sequence 0, or that was written with zeroes.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace remora::fault {

inline constexpr std::size_t kStampBytesMin = 64;

struct Stamp {
  std::uint64_t session = 0;
  std::uint64_t sequence = 0;
  std::uint64_t offset = 0;
};

/// Fills `block`, of kStampBytesMin at least, with the stamp and its pattern.
void write_stamp(std::span<std::byte> block, const Stamp& stamp) noexcept;

/// What a block turned out to be.
enum class BlockVerdict : std::uint8_t {
  kIntact,   ///< what may stand there
  kLost,     ///< older than a write that was acknowledged
  kStale,    ///< older than what has been seen there, though nothing newer was acknowledged
  kTorn,     ///< neither one write nor a mixture of those that may have been cut off
  kForeign,  ///< another writer's, or of another offset
  kGhost,    ///< of a write that provably had no effect, or was never made
};
[[nodiscard]] std::string_view to_string(BlockVerdict verdict) noexcept;

/// What may stand in one block, from what its only writer was told of its writes. One write of a
/// block is in flight at a time. Values, nothing borrowed; one thread at a time.
class BlockModel {
 public:
  /// A block of `session` at `offset` that is all zero. `zeroes_each`: writes whose turn() is a
  /// multiple of it write zeroes instead of their stamp; 0: none.
  BlockModel(std::uint64_t session, std::uint64_t offset, std::uint64_t zeroes_each = 0) noexcept
      : session_{session}, offset_{offset}, zeroes_each_{zeroes_each} {}
  /// One whose writer has died: acknowledged up to one sequence number, tried up to another.
  BlockModel(std::uint64_t session, std::uint64_t offset, std::uint64_t acknowledged,
             std::uint64_t issued, std::uint64_t zeroes_each = 0);

  /// The stamp of the write that is made next.
  Stamp begin_write() noexcept { return {session_, ++issued_, offset_}; }
  void acknowledged(std::uint64_t sequence) noexcept;
  /// Its effect cannot be known: whole, in part, or none.
  void indeterminate(std::uint64_t sequence) { uncertain_.push_back(sequence); }

  /// Whether the write of that number is one of zeroes.
  [[nodiscard]] bool is_zeroes(std::uint64_t sequence) const noexcept {
    return sequence == 0 || (zeroes_each_ != 0 && turn(sequence) % zeroes_each_ == 0);
  }
  /// What counts the writes of a block, from another number in the next one: kinds that take turns
  /// are all there from the first write of each block on.
  [[nodiscard]] std::uint64_t turn(std::uint64_t sequence) const noexcept {
    return sequence + offset_ / 4096;
  }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }
  [[nodiscard]] std::uint64_t issued() const noexcept { return issued_; }
  [[nodiscard]] std::uint64_t acknowledged() const noexcept { return acknowledged_; }

  /// What `block` is, read while no write of it was in flight. What is seen is remembered.
  BlockVerdict check(std::span<const std::byte> block);
  /// What was expected and found, for a message.
  [[nodiscard]] std::string describe(std::span<const std::byte> block) const;

 private:
  [[nodiscard]] std::uint64_t base() const noexcept {
    return seen_ > acknowledged_ ? seen_ : acknowledged_;
  }
  [[nodiscard]] bool mixture(std::span<const std::byte> block) const;
  BlockVerdict check_whole(const Stamp& found);
  [[nodiscard]] std::uint64_t sequence_of_zeroes() const noexcept;

  std::uint64_t session_;
  std::uint64_t offset_;
  std::uint64_t zeroes_each_ = 0;
  std::uint64_t issued_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t seen_ = 0;
  std::vector<std::uint64_t> uncertain_;  ///< newer than what was acknowledged, in order
};

}  // namespace remora::fault
