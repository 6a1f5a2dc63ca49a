#include "client/parallel_copy.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

namespace remora::detail {

namespace {
/// A piece that one task copies: long against the cost of a task, short against a transfer.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10U;
}  // namespace

struct ParallelCopy::Arena {
  explicit Arena(int threads) : tasks{threads, 1} {}
  tbb::task_arena tasks;
};

ParallelCopy::ParallelCopy(std::size_t threads) {
  if (threads > 1) arena_ = std::make_unique<Arena>(static_cast<int>(threads));
}

ParallelCopy::~ParallelCopy() = default;

void ParallelCopy::for_each(std::size_t count,
                            const std::function<void(std::size_t)>& one) noexcept {
  if (arena_ == nullptr) {
    for (std::size_t i = 0; i < count; ++i) one(i);
    return;
  }
  // What the library may throw here is that memory for its tasks ran out: nothing to go on with.
  arena_->tasks.execute([&] {
    tbb::parallel_for(std::size_t{0}, count, std::size_t{1}, one, tbb::simple_partitioner{});
  });
}

void ParallelCopy::copy(std::byte* to, const std::byte* from, std::size_t length_bytes) noexcept {
  if (!worth_it(length_bytes)) {
    std::memcpy(to, from, length_bytes);
    return;
  }
  const auto one = [=](std::size_t piece) {
    const std::size_t at = piece * kPieceBytes;
    std::memcpy(to + at, from + at, std::min(kPieceBytes, length_bytes - at));
  };
  for_each((length_bytes + kPieceBytes - 1) / kPieceBytes, std::ref(one));
}

}  // namespace remora::detail
