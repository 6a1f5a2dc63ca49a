#include "client/datapath/parallel_copy.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "client/datapath/helper_threads.h"

namespace remora::detail {

namespace {
/// The piece that one task copies: it takes long compared with the cost of a task, and is short
/// compared with a transfer.
constexpr std::size_t kPieceBytes = std::size_t{128} << 10U;
}  // namespace

ParallelCopy::ParallelCopy(std::size_t threads, const Placement& placement) {
  if (threads > 1) helpers_ = std::make_unique<HelperThreads>(threads - 1, placement);
}

ParallelCopy::~ParallelCopy() = default;

void ParallelCopy::for_each(std::size_t count,
                            const std::function<void(std::size_t)>& one) noexcept {
  if (helpers_ != nullptr) return helpers_->for_each(count, one);
  for (std::size_t i = 0; i < count; ++i) one(i);
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
