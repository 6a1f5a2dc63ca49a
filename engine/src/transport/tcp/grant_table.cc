#include "transport/tcp/grant_table.h"

#include <sys/random.h>

#include <remora/assert.h>

#include "transport/work_request.h"

namespace remora::transport::tcp {

namespace {

constexpr unsigned kGenerationBits = GrantTable::kGenerationBits;
constexpr std::uint32_t kGenerationMask = (1U << kGenerationBits) - 1;

std::uint32_t key_of(std::size_t index, std::uint32_t generation) noexcept {
  return static_cast<std::uint32_t>(index) << kGenerationBits | (generation & kGenerationMask);
}

}  // namespace

Result<std::uint32_t> GrantTable::add(const GrantedExtent& extent) {
  if (free_.empty()) {
    if (slots_.size() == kMaxExtents)
      return Error{Code::kLimitExceeded, "extents open in one session"}.with_limit(kMaxExtents + 1,
                                                                                   kMaxExtents);
    add_slot();
  }
  Slot& slot = slots_[free_.back()];
  free_.pop_back();
  REMORA_ASSERT(!slot.used, "a slot on the free list is not in use");
  slot.extent = extent;
  slot.used = true;
  return slot.key;
}

void GrantTable::add_slot() {
  std::uint32_t generation = 0;
  if (::getrandom(&generation, sizeof generation, 0) != sizeof generation) generation = 0;
  free_.push_back(static_cast<std::uint32_t>(slots_.size()));
  slots_.push_back({.extent = {}, .key = key_of(slots_.size(), generation)});
}

Status GrantTable::add_as(std::uint32_t key, const GrantedExtent& extent) {
  const std::size_t index = key >> kGenerationBits;
  if (index >= kMaxNamedExtents)
    return Error{Code::kLimitExceeded, "extents attached again"}.with_limit(index + 1,
                                                                            kMaxNamedExtents);
  while (slots_.size() <= index) add_slot();
  if (slots_[index].used) return Error{Code::kInvalidArgument, "key of another extent"};
  const std::size_t erased = std::erase(free_, static_cast<std::uint32_t>(index));
  REMORA_ASSERT(erased == 1, "a slot that is not in use is on the free list once");
  slots_[index] = {.extent = extent, .key = key, .used = true};
  return {};
}

void GrantTable::remove(std::uint32_t key) noexcept {
  const std::size_t index = key >> kGenerationBits;
  if (index >= slots_.size() || !slots_[index].used || slots_[index].key != key) return;
  slots_[index] = {.extent = {}, .key = key_of(index, key + 1)};
  REMORA_ASSERT(free_.size() < slots_.size(), "a slot is on the free list once");
  free_.push_back(static_cast<std::uint32_t>(index));  // the vector has held as many before
}

GrantTable::Target GrantTable::resolve(const RequestHeader& request) const noexcept {
  const bool atomic = is_atomic(request.opcode);
  const bool whole = atomic
                         ? request.length_bytes == sizeof(std::uint64_t) &&
                               request.address % sizeof(std::uint64_t) == 0
                         : request.length_bytes != 0 && request.length_bytes <= kMaxTransferBytes;
  if (!whole) return {.status = CompletionStatus::kRemoteInvalidRequest};
  const Target refused{.status = CompletionStatus::kRemoteAccessError};
  std::byte* const memory = locate(request.key, request.address, request.length_bytes);
  if (memory == nullptr) return refused;
  const GrantedExtent& extent = slots_[request.key >> kGenerationBits].extent;
  if (!includes(extent.rights, right_for(request.opcode))) return refused;
  if (atomic && !extent.cpu_atomics) return refused;
  return {.memory = memory};
}

}  // namespace remora::transport::tcp
