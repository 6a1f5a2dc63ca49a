#include "cli/pipeline_ring.h"

#include "cli/pipeline.h"

namespace remora::apps {

Result<PipelineRing> PipelineRing::open(const OpenedStore& store, std::size_t depth) {
  constexpr std::size_t kPageBytes = 4096;
  const std::size_t length = kPieceBytes * depth;
  Storage storage{static_cast<std::byte*>(std::aligned_alloc(kPageBytes, length))};
  if (storage == nullptr) return Error{Code::kOutOfMemory, "transfer buffer"};
  auto memory = store.engine().register_memory({storage.get(), length});
  if (!memory) return memory.error();
  auto queue = store.queue(depth);
  if (!queue) return queue.error();
  return PipelineRing{std::move(storage), std::move(*memory), std::move(*queue), depth};
}

std::span<std::byte> PipelineRing::piece(std::size_t index) noexcept {
  return {storage_.get() + index * kPieceBytes, kPieceBytes};
}

Status PipelineRing::write(std::uint64_t to, std::size_t index, std::size_t length) {
  return queue_->write(ByteOffset{to}, Source{memory_, index * kPieceBytes, length}, index);
}

Status PipelineRing::write_zeroes(std::uint64_t to, std::size_t index, std::uint64_t length) {
  return queue_->write_zeroes(ByteOffset{to}, length, index);
}

Status PipelineRing::read(std::uint64_t from, std::size_t index, std::size_t length) {
  return queue_->read(ByteOffset{from}, Target{memory_, index * kPieceBytes, length}, index);
}

}  // namespace remora::apps
