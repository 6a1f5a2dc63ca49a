#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "cli/input.h"
#include "cli/pipeline.h"

namespace remora::apps {

/// A file of a known size as the source of an upload: several streams read it at once, and its
/// holes are sent as zeroes without bytes. Short holes are read, since a request for each hole
/// would take longer than its bytes.
class FilePieces final : public UploadSource {
 public:
  /// Reads `input`, whose size is known, from `first` on. No piece crosses a multiple of `step`.
  FilePieces(const Input& input, std::uint64_t first, std::uint64_t step);

  Result<Piece> next(std::span<std::byte> into) override;
  Result<std::size_t> fill(const Piece& piece, std::span<std::byte> into) override;

  /// The size of the file, or its end if the file has become shorter.
  [[nodiscard]] std::uint64_t end() const noexcept { return end_.load(std::memory_order_relaxed); }
  /// The bytes of the pieces that were holes.
  [[nodiscard]] std::uint64_t hole_bytes() const noexcept { return hole_bytes_; }

 private:
  /// The kind of bytes at `at`, and how far they reach.
  [[nodiscard]] FileStretch look(std::uint64_t at) const;

  const Input& input_;
  std::uint64_t size_;
  std::uint64_t step_;
  std::uint64_t at_;
  FileStretch stretch_;
  std::uint64_t hole_bytes_ = 0;
  std::atomic<std::uint64_t> end_;
};

}  // namespace remora::apps
