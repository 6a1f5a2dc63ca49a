#include "client/parallel_copy.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <tbb/parallel_for.h>

#include "client/arena.h"

namespace remora::detail {

namespace {
/// A piece that one task copies: long against the cost of a task, short against a transfer.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10U;
}  // namespace

ParallelCopy::ParallelCopy(std::size_t threads, const Placement& placement) {
  if (threads > 1) arena_ = std::make_unique<Arena>(static_cast<int>(threads), 1, placement);
}

ParallelCopy::~ParallelCopy() = default;

void ParallelCopy::for_each(std::size_t count,
                            const std::function<void(std::size_t)>& one) noexcept {
  if (arena_ == nullptr) {
    for (std::size_t i = 0; i < count; ++i) one(i);
    return;
  }
  // The library orders what tasks do after what the caller did, and the other way round at the end.
  // It is not built with ThreadSanitizer: this word says the same where that sees it.
  std::atomic<std::size_t> done{0};
  done.store(0, std::memory_order_release);
  const auto task = [&](std::size_t i) {
    (void)done.load(std::memory_order_acquire);
    one(i);
    done.fetch_add(1, std::memory_order_release);
  };
  // What the library may throw here is that memory for its tasks ran out: nothing to go on with.
  arena_->tasks().execute([&] {
    tbb::parallel_for(std::size_t{0}, count, std::size_t{1}, task, tbb::simple_partitioner{});
  });
  (void)done.load(std::memory_order_acquire);
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
