#include "transport/rkey_table.h"

#include <algorithm>
#include <cerrno>
#include <sys/mman.h>

#include <remora/assert.h>

namespace remora::transport {

namespace {
constexpr std::size_t kTableBytes =
    RkeyTable::kMaxLanes * RkeyTable::kMaxTokens * sizeof(std::uint32_t);
}  // namespace

Result<std::shared_ptr<RkeyTable>> RkeyTable::create() {
  void* const mapped = ::mmap(nullptr, kTableBytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED)
    return Error{Code::kOutOfMemory, "keys of lanes"}.with_errno(errno).with_limit(kTableBytes, 0);
  return std::shared_ptr<RkeyTable>{new RkeyTable{static_cast<std::uint32_t*>(mapped)}};
}

RkeyTable::~RkeyTable() { ::munmap(keys_, kTableBytes); }

Result<std::vector<std::uint32_t>> RkeyTable::take(std::size_t count) {
  const remora::detail::MutexLock lock{mutex_};
  const std::size_t room = free_.size() + (kMaxTokens - next_);
  if (count > room)
    return Error{Code::kLimitExceeded, "extents open in one session"}.with_limit(
        kMaxTokens - 1 - room + count, kMaxTokens - 1);
  std::vector<std::uint32_t> taken;
  taken.reserve(count);
  const std::size_t again = std::min(count, free_.size());
  const auto fresh = static_cast<std::uint32_t>(count - again);
  // Reserves memory now, so that giving tokens back needs none.
  const std::size_t assigned = std::size_t{next_} + fresh;
  if (free_.capacity() < assigned) free_.reserve(std::max(assigned, 2 * free_.capacity()));
  taken.assign(free_.end() - static_cast<std::ptrdiff_t>(again), free_.end());
  free_.resize(free_.size() - again);
  for (std::uint32_t i = 0; i < fresh; ++i) taken.push_back(next_++);
  return taken;
}

void RkeyTable::give_back(std::span<const std::uint32_t> tokens) noexcept {
  const remora::detail::MutexLock lock{mutex_};
  REMORA_ASSERT(free_.size() + tokens.size() < next_, "no token is given back twice");
  for (const std::uint32_t token : tokens) {
    REMORA_ASSERT(token != 0 && token < next_, "a token that is given back was taken");
    for (std::size_t lane = 0; lane < kMaxLanes; ++lane) put(token, lane, kNoKey);
    free_.push_back(token);
  }
}

void RkeyTable::set(std::uint32_t token, std::size_t lane, std::uint32_t key) noexcept {
  REMORA_ASSERT(token != 0 && token < kMaxTokens && lane < kMaxLanes,
                "the table has a place for the key");
  put(token, lane, key);
}

void RkeyTable::forget_keys() noexcept {
  const remora::detail::MutexLock lock{mutex_};
  for (std::size_t lane = 0; lane < kMaxLanes; ++lane)
    for (std::uint32_t token = 1; token < next_; ++token) put(token, lane, kNoKey);
}

std::size_t RkeyTable::used() const {
  const remora::detail::MutexLock lock{mutex_};
  return next_ - 1 - free_.size();
}

}  // namespace remora::transport
