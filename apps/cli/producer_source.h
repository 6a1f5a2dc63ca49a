#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>

#include "cli/upload_source.h"

namespace remora::apps {

/// Gives the next bytes of an upload; 0 ends it.
struct Producer {
  std::function<Result<std::size_t>(std::span<std::byte> into)> read;
  /// Whether read() will not block.
  std::function<bool()> ready;
};

/// The bytes of a producer, piece after piece: for one stream.
class ProducerSource final : public UploadSource {
 public:
  explicit ProducerSource(Producer producer) : producer_{std::move(producer)} {}
  [[nodiscard]] bool ready() const override { return producer_.ready(); }
  Result<Piece> next(std::span<std::byte> into) override;
  Result<std::size_t> fill(const Piece& piece, std::span<std::byte> into) override;

 private:
  Producer producer_;
  std::uint64_t at_ = 0;
};

}  // namespace remora::apps
