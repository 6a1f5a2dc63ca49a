#include "cli/pipeline.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

#include "cli/interrupt.h"

namespace remora::apps {
namespace {

/// Registered memory in pieces, and the queue that works on them. A piece's number is the tag of
/// its operation.
class Ring {
 public:
  static Result<Ring> open(const Engine& engine, const Region& region) {
    Storage storage{
        static_cast<std::byte*>(std::aligned_alloc(kPageBytes, kPieceBytes * kPiecesInFlight))};
    if (storage == nullptr) return Error{Code::kOutOfMemory, "transfer buffer"};
    auto memory = engine.register_memory({storage.get(), kPieceBytes * kPiecesInFlight});
    if (!memory) return memory.error();
    auto queue = region.queue({.depth = kPiecesInFlight});
    if (!queue) return queue.error();
    return Ring{std::move(storage), std::move(*memory), std::move(*queue)};
  }

  [[nodiscard]] Queue& queue() noexcept { return queue_; }
  [[nodiscard]] std::span<std::byte> piece(std::size_t index) noexcept {
    return {storage_.get() + index * kPieceBytes, kPieceBytes};
  }
  Status write(std::uint64_t to, std::size_t index, std::size_t length) {
    queue_.write(ByteOffset{to}, Source{memory_, index * kPieceBytes, length}, index);
    return queue_.submit();
  }
  Status read(std::uint64_t from, std::size_t index, std::size_t length) {
    queue_.read(ByteOffset{from}, Target{memory_, index * kPieceBytes, length}, index);
    return queue_.submit();
  }

 private:
  static constexpr std::size_t kPageBytes = 4096;
  struct Free {
    void operator()(std::byte* bytes) const noexcept { std::free(bytes); }  // NOLINT: aligned_alloc
  };
  using Storage = std::unique_ptr<std::byte, Free>;

  Ring(Storage storage, RegisteredMemory memory, Queue queue)
      : storage_{std::move(storage)}, memory_{std::move(memory)}, queue_{std::move(queue)} {}

  // In this order: the queue waits for what is in flight before its memory goes.
  Storage storage_;
  RegisteredMemory memory_;
  Queue queue_;
};

}  // namespace

Transferred upload(const Engine& engine, const Region& region, std::uint64_t offset,
                   std::uint64_t limit_bytes, const Producer& producer,
                   const std::function<void(std::uint64_t)>& progress) {
  Transferred outcome;
  auto ring = Ring::open(engine, region);
  if (!ring) return {.bytes = 0, .status = ring.error()};
  std::array<std::size_t, kPiecesInFlight> lengths{};
  std::vector<std::size_t> free_pieces;
  for (std::size_t i = kPiecesInFlight; i > 0; --i) free_pieces.push_back(i - 1);
  std::uint64_t taken = 0;
  bool ended = false;
  const auto stop = [&](const Error& error) {
    if (outcome.status) outcome.status = error;
    ended = true;
  };
  const auto collect = [&](std::size_t at_least) {
    const Completions found = ring->queue().wait(at_least);
    for (Completion& completion : found) {
      free_pieces.push_back(completion.tag());
      if (completion.ok())
        outcome.bytes += lengths[completion.tag()];
      else
        stop(completion.error());
    }
    progress(outcome.bytes);
    return found.size();
  };

  while (!ended || ring->queue().size() > 0) {
    if (!ended && interrupted() != 0) stop(interruption());
    if (ended || free_pieces.empty()) {
      if (collect(1) == 0) break;  // what is left was never submitted
      continue;
    }
    // A producer may be silent for long; nothing of ours waits for it meanwhile.
    if (ring->queue().size() > 0 && !producer.ready()) collect(ring->queue().size());
    const std::size_t index = free_pieces.back();
    const Result<std::size_t> got = producer.read(ring->piece(index));
    if (!got || *got == 0) {
      ended = true;
      if (!got) stop(got.error());
      continue;
    }
    if (*got > limit_bytes - taken) {
      stop(Error{Code::kLimitExceeded, "write"}.with_limit(taken + *got, limit_bytes));
      continue;
    }
    free_pieces.pop_back();
    lengths[index] = *got;
    if (const Status put = ring->write(offset + taken, index, *got); !put) stop(put.error());
    taken += *got;
  }
  return outcome;
}

Transferred download(const Engine& engine, const Region& region, std::uint64_t offset,
                     std::uint64_t length, const Consumer& consumer) {
  Transferred outcome;
  auto ring = Ring::open(engine, region);
  if (!ring) return {.bytes = 0, .status = ring.error()};
  const auto length_of = [length](std::uint64_t piece) {
    return std::min<std::uint64_t>(kPieceBytes, length - piece * kPieceBytes);
  };
  const std::uint64_t piece_count = (length + kPieceBytes - 1) / kPieceBytes;
  std::array<bool, kPiecesInFlight> arrived{};
  std::uint64_t asked = 0;
  std::uint64_t consumed = 0;
  while (consumed < piece_count && outcome.status) {
    if (interrupted() != 0) outcome.status = interruption();
    for (; outcome.status && asked < piece_count && asked - consumed < kPiecesInFlight; ++asked)
      outcome.status =
          ring->read(offset + asked * kPieceBytes, asked % kPiecesInFlight, length_of(asked));
    if (!outcome.status) break;
    // One piece a turn, so that the next read is asked for before the piece after it is consumed.
    const std::size_t head = consumed % kPiecesInFlight;
    for (Completion& completion : ring->queue().wait(arrived[head] ? 0 : 1)) {
      arrived[completion.tag()] = completion.ok();
      if (!completion.ok() && outcome.status) outcome.status = completion.error();
    }
    if (!outcome.status || !arrived[head]) continue;
    outcome.status = consumer(ring->piece(head).first(length_of(consumed)));
    if (!outcome.status) break;
    outcome.bytes += length_of(consumed);
    arrived[head] = false;
    ++consumed;
  }
  return outcome;
}

}  // namespace remora::apps
