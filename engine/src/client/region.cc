#include <array>
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
  const Opcode opcode = operation.request.opcode;
  const bool atomic = is_atomic(opcode);
  if (!atomic) {
    // Memory is known but the part is not within it, or there is no buffer at all.
    if (!buffer_valid)
      return Outcome::failure(operation.memory != nullptr ? Code::kOutOfRange
                                                          : Code::kInvalidArgument);
    if (operation.length_bytes == 0 || operation.request.local == nullptr)
      return Outcome::failure(Code::kInvalidArgument);
  }
  if (!includes(rights_, right_for(opcode))) return Outcome::failure(Code::kNoRight);
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
  const bool registered = quick_.needs_keys && operation.memory != nullptr;
  if (operation.outcome.ok && registered && !operation.memory->registered(quick_.domain_index)) {
    const Status made =
        operation.memory->register_with(*session_->memory_domain(), quick_.domain_index);
    if (!made) operation.outcome = Outcome::failure(made.error().code(), made.error().reason());
  }
  if (!operation.outcome.ok) {
    session_->metrics().misuse(operation.request.opcode);
    return false;
  }
  const Opcode opcode = operation.request.opcode;
  const bool keyless = !quick_.needs_keys || is_atomic(opcode) ||
                       (opcode == Opcode::kWrite && operation.memory == nullptr &&
                        operation.length_bytes <= quick_.inline_bytes_max);
  if (registered) operation.request.local_key = operation.memory->key(quick_.domain_index);
  // What has no key is bounced, a slot at a time.
  if ((!keyless && !registered) || !make_whole(operation, grant_.extents, quick_.request_bytes_max))
    make_split(operation, grant_.extents);
  return true;
}

void RegionCore::run(OperationRecord& operation, std::chrono::nanoseconds deadline) const noexcept {
  if (deadline <= deadline.zero()) deadline = session_->engine().options().operation_deadline;
  std::array<OperationRecord*, 1> ring{};
  CompletionSink sink{ring};
  operation.sink = &sink;
  operation.submitted = Clock::now();
  operation.deadline = deadline_after(operation.submitted, deadline);
  session_->lane().run(operation, sink);
}

namespace {

Status status_of(const OperationRecord& operation) noexcept {
  if (operation.outcome.ok) return {};
  return error_of(operation.outcome, operation_name(operation.request.opcode));
}

}  // namespace

Result<std::uint64_t> RegionCore::atomic(Opcode opcode, ByteOffset at, std::uint64_t compare_or_add,
                                         std::uint64_t swap,
                                         std::chrono::nanoseconds deadline) const noexcept {
  OperationRecord operation;
  operation.request.opcode = opcode;
  operation.request.compare_or_add = compare_or_add;
  operation.request.swap = swap;
  operation.length_bytes = sizeof(std::uint64_t);
  operation.offset_bytes = at.bytes;
  if (check_atomic(operation)) run(operation, deadline);
  if (operation.outcome.ok) return operation.old_value;
  return error_of(operation.outcome, operation_name(opcode));
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
  detail::OperationRecord operation;
  operation.request.opcode = Opcode::kRead;
  operation.request.local = into.bytes().data();
  operation.length_bytes = into.bytes().size();
  operation.offset_bytes = from.bytes;
  operation.memory = into.memory();
  if (core_->check(operation, into.valid())) core_->run(operation, deadline);
  return detail::status_of(operation);
}

Status Region::read(Block from, Target into, std::chrono::nanoseconds deadline) const {
  return read(offset_of(from, info()), into, deadline);
}

Status Region::write(ByteOffset to, Source from, std::chrono::nanoseconds deadline) const {
  detail::OperationRecord operation;
  operation.request.opcode = Opcode::kWrite;
  // The record has one pointer for both directions; a write's bytes are only read.
  operation.request.local = const_cast<std::byte*>(from.bytes().data());
  operation.length_bytes = from.bytes().size();
  operation.offset_bytes = to.bytes;
  operation.memory = from.memory();
  if (core_->check(operation, from.valid())) core_->run(operation, deadline);
  return detail::status_of(operation);
}

Status Region::write(Block to, Source from, std::chrono::nanoseconds deadline) const {
  return write(offset_of(to, info()), from, deadline);
}

Result<std::uint64_t> Region::compare_swap(ByteOffset at, std::uint64_t expected,
                                           std::uint64_t desired,
                                           std::chrono::nanoseconds deadline) const {
  return core_->atomic(Opcode::kCompareSwap, at, expected, desired, deadline);
}

Result<std::uint64_t> Region::fetch_add(ByteOffset at, std::uint64_t delta,
                                        std::chrono::nanoseconds deadline) const {
  return core_->atomic(Opcode::kFetchAdd, at, delta, 0, deadline);
}

}  // namespace remora
