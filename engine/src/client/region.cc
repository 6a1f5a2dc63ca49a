#include <array>
#include <limits>
#include <utility>

#include <remora/engine/region.h>

#include "client/engine_core.h"
#include "client/queue_core.h"

namespace remora::detail {

using transport::Opcode;

Error error_of(const Outcome& outcome, Operation operation) noexcept {
  Error error = Error{outcome.code, operation}.with_reason(outcome.reason);
  if (outcome.status != CompletionStatus::kSuccess)
    error = error.with_completion(outcome.status, outcome.vendor_error);
  return error;
}

Outcome RegionCore::judge(const OperationRecord& operation, bool buffer_valid) const noexcept {
  if (!session_->connected()) return Outcome::failure(Code::kConnectionLost, Reason::kPeerGone);
  const bool atomic = is_atomic(operation.opcode);
  if (!atomic) {
    // Memory is known but the part is not within it, or there is no buffer at all.
    if (!buffer_valid)
      return Outcome::failure(operation.memory != nullptr ? Code::kOutOfRange
                                                          : Code::kInvalidArgument);
    if (operation.length_bytes == 0 || operation.local == nullptr)
      return Outcome::failure(Code::kInvalidArgument);
  }
  if (!includes(rights_, right_for(operation.opcode))) return Outcome::failure(Code::kNoRight);
  if (operation.offset_bytes > info_.size_bytes ||
      operation.length_bytes > info_.size_bytes - operation.offset_bytes)
    return Outcome::failure(Code::kOutOfRange);
  if (atomic && operation.offset_bytes % sizeof(std::uint64_t) != 0)
    return Outcome::failure(Code::kMisaligned);
  if (atomic && !atomics_here_)
    return Outcome::failure(Code::kWrongAtomicDomain,
                            info_.atomic_domain == "none" ? Reason::kNoAtomics : Reason::kNone);
  return {};
}

bool RegionCore::check_closely(OperationRecord& operation, bool buffer_valid) const noexcept {
  operation.outcome = judge(operation, buffer_valid);
  if (operation.outcome.ok && needs_keys_ && operation.memory != nullptr &&
      !operation.memory->registered(domain_index_)) [[unlikely]] {
    const Status registered =
        operation.memory->register_with(*session_->memory_domain(), domain_index_);
    if (!registered)
      operation.outcome = Outcome::failure(registered.error().code(), registered.error().reason());
  }
  if (operation.outcome.ok) [[likely]]
    return true;
  session_->metrics().misuse(operation.opcode);
  return false;
}

void RegionCore::run(OperationRecord& operation, bool buffer_valid,
                     std::chrono::nanoseconds deadline) const noexcept {
  if (!check(operation, buffer_valid)) return;
  if (deadline <= deadline.zero()) deadline = session_->engine().options().operation_deadline;
  std::array<OperationRecord*, 1> ring{};
  CompletionSink sink{ring};
  operation.sink = &sink;
  operation.submitted = Clock::now();
  operation.deadline = deadline_after(operation.submitted, deadline);
  // The record belongs to the lane until it is in the sink.
  const Deadline until = operation.deadline;
  LaneDriver& lane = session_->lane();
  lane.submit(&operation);
  const auto earliest = [until] { return until; };
  lane.wait(sink, 1, DeadlineSource{earliest});
}

namespace {

OperationRecord transfer(Opcode opcode, ByteOffset offset, std::byte* local,
                         std::size_t length_bytes, LocalMemory* memory) noexcept {
  OperationRecord operation;
  operation.opcode = opcode;
  operation.local = local;
  operation.length_bytes = length_bytes;
  operation.offset_bytes = offset.bytes;
  operation.memory = memory;
  return operation;
}

OperationRecord atomic(Opcode opcode, ByteOffset offset, std::uint64_t compare_or_add,
                       std::uint64_t swap) noexcept {
  OperationRecord operation;
  operation.opcode = opcode;
  operation.length_bytes = sizeof(std::uint64_t);
  operation.offset_bytes = offset.bytes;
  operation.compare_or_add = compare_or_add;
  operation.swap = swap;
  return operation;
}

Status status_of(const OperationRecord& operation) noexcept {
  if (operation.outcome.ok) return {};
  return error_of(operation.outcome, operation_name(operation.opcode));
}

Result<std::uint64_t> old_value_of(const OperationRecord& operation) noexcept {
  if (operation.outcome.ok) return operation.old_value;
  return error_of(operation.outcome, operation_name(operation.opcode));
}

}  // namespace

ByteOffset offset_of(Block block, const RegionInfo& info) noexcept {
  // Past the end whatever the block's size: saturates, so that it is refused as out of range.
  std::uint64_t offset = 0;
  if (__builtin_mul_overflow(block.index, info.block_bytes, &offset))
    return ByteOffset{std::numeric_limits<std::uint64_t>::max()};
  return ByteOffset{offset};
}

}  // namespace remora::detail

namespace remora {

using detail::offset_of;
using transport::Opcode;

const RegionInfo& Region::info() const noexcept { return core_->info(); }
Rights Region::rights() const noexcept { return core_->rights(); }
TransportKind Region::transport() const noexcept { return core_->session().kind(); }
const std::string& Region::transport_reason() const noexcept { return core_->transport_reason(); }
bool Region::connected() const noexcept { return core_->session().connected(); }

Result<Queue> Region::queue(const QueueOptions& options) const {
  auto core = detail::QueueCore::create(core_, options);
  if (!core) return core.error();
  return Queue{std::move(*core)};
}

Status Region::read(ByteOffset from, Target into, std::chrono::nanoseconds deadline) const {
  auto operation = detail::transfer(Opcode::kRead, from, into.bytes().data(), into.bytes().size(),
                                    into.memory());
  core_->run(operation, into.valid(), deadline);
  return detail::status_of(operation);
}

Status Region::read(Block from, Target into, std::chrono::nanoseconds deadline) const {
  return read(offset_of(from, info()), into, deadline);
}

Status Region::write(ByteOffset to, Source from, std::chrono::nanoseconds deadline) const {
  // The record has one pointer for both directions; a write's bytes are only read.
  auto* const bytes = const_cast<std::byte*>(from.bytes().data());
  auto operation = detail::transfer(Opcode::kWrite, to, bytes, from.bytes().size(), from.memory());
  core_->run(operation, from.valid(), deadline);
  return detail::status_of(operation);
}

Status Region::write(Block to, Source from, std::chrono::nanoseconds deadline) const {
  return write(offset_of(to, info()), from, deadline);
}

Result<std::uint64_t> Region::compare_swap(ByteOffset at, std::uint64_t expected,
                                           std::uint64_t desired,
                                           std::chrono::nanoseconds deadline) const {
  auto operation = detail::atomic(Opcode::kCompareSwap, at, expected, desired);
  core_->run(operation, true, deadline);
  return detail::old_value_of(operation);
}

Result<std::uint64_t> Region::fetch_add(ByteOffset at, std::uint64_t delta,
                                        std::chrono::nanoseconds deadline) const {
  auto operation = detail::atomic(Opcode::kFetchAdd, at, delta, 0);
  core_->run(operation, true, deadline);
  return detail::old_value_of(operation);
}

}  // namespace remora
