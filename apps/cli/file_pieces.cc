#include "cli/file_pieces.h"

#include <algorithm>

namespace remora::apps {
namespace {

/// Holes from this length on are requests of their own.
constexpr std::uint64_t kLongHoleBytes = std::uint64_t{64} * 1024;

bool is_long_hole(const FileStretch& stretch, std::uint64_t at) noexcept {
  return stretch.hole && stretch.end - at >= kLongHoleBytes;
}

}  // namespace

FilePieces::FilePieces(const Input& input, std::uint64_t first, std::uint64_t step)
    : input_{input},
      size_{input.size_bytes().value_or(0)},
      step_{step},
      at_{first},
      stretch_{first, false},
      end_{size_} {}

FileStretch FilePieces::look(std::uint64_t at) const {
  FileStretch found = input_.stretch(at);
  if (is_long_hole(found, at)) return found;
  found.hole = false;
  while (found.end < size_ && found.end - at < kPieceBytes) {
    const FileStretch behind = input_.stretch(found.end);
    if (is_long_hole(behind, found.end)) break;
    found.end = behind.end;
  }
  return found;
}

Result<Piece> FilePieces::next(std::span<std::byte> into) {
  if (at_ >= size_) return Piece{};
  if (at_ >= stretch_.end) stretch_ = look(at_);
  Piece piece{at_, std::min(stretch_.end, size_) - at_, stretch_.hole};
  piece.length = std::min({piece.length, step_ - at_ % step_,
                           piece.hole ? kHoleBytes : static_cast<std::uint64_t>(into.size())});
  at_ += piece.length;
  if (piece.hole) hole_bytes_ += piece.length;
  return piece;
}

Result<std::size_t> FilePieces::fill(const Piece& piece, std::span<std::byte> into) {
  const Result<std::size_t> got = input_.read_at(piece.at, into);
  if (!got || *got == into.size()) return got;
  const std::uint64_t found = piece.at + *got;
  std::uint64_t known = end_.load(std::memory_order_relaxed);
  while (found < known && !end_.compare_exchange_weak(known, found, std::memory_order_relaxed)) {
  }
  return got;
}

}  // namespace remora::apps
