#include "cli/producer_source.h"

namespace remora::apps {

Result<Piece> ProducerSource::next(std::span<std::byte> into) {
  const Result<std::size_t> got = producer_.read(into);
  if (!got) return got.error();
  const Piece piece{at_, *got, false};
  at_ += *got;
  return piece;
}

Result<std::size_t> ProducerSource::fill(const Piece& piece, std::span<std::byte> /*into*/) {
  return static_cast<std::size_t>(piece.length);  // next() has put them there
}

}  // namespace remora::apps
