#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <remora/result.h>

namespace remora::apps {

/// A part of a transfer that one operation carries.
struct Piece {
  std::uint64_t at = 0;      ///< from the first byte of the transfer
  std::uint64_t length = 0;  ///< 0: the end
  bool hole = false;         ///< zeroes, for which no buffer is needed
};

/// The source of an upload's bytes.
class UploadSource {
 public:
  UploadSource() = default;
  virtual ~UploadSource() = default;
  UploadSource(const UploadSource&) = delete;
  UploadSource& operator=(const UploadSource&) = delete;

  /// Whether next() will not block. Before the stream calls it when it will block, all its
  /// operations complete.
  [[nodiscard]] virtual bool ready() const { return true; }
  /// The next piece, of `into.size()` bytes at most unless it is a hole. A source that is read in
  /// order writes its bytes there. One stream at a time.
  virtual Result<Piece> next(std::span<std::byte> into) = 0;
  /// Writes the bytes of a piece that is no hole to `into`, which has its length. Returns their
  /// number: fewer if the source has become shorter. Several streams at once.
  virtual Result<std::size_t> fill(const Piece& piece, std::span<std::byte> into) = 0;
};

}  // namespace remora::apps
