#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>

#include <remora/engine/region.h>

#include "base/closed.h"
#include "client/datapath/striped_transfer.h"
#include "client/engine/engine_core.h"
#include "client/queue/queue_core.h"

namespace remora::detail {

using transport::Opcode;

namespace {

/// Outcome::detail is a number of the local memory's pieces.
bool counts_pieces(Reason reason) noexcept {
  return reason == Reason::kZeroLength || reason == Reason::kNullPointer ||
         reason == Reason::kEmptySlot || reason == Reason::kOutsideMemory ||
         reason == Reason::kPieces;
}

/// The number of bytes from the region's beginning to the end of the operation, or the largest
/// number where that wraps.
std::uint64_t end_of(const OperationRecord& operation) noexcept {
  std::uint64_t end = 0;
  if (__builtin_add_overflow(operation.offset_bytes, operation.length_bytes, &end))
    return std::numeric_limits<std::uint64_t>::max();
  return end;
}

}  // namespace

Error RegionCore::named(const Error& error) const noexcept {
  return error.with_server(session_->server_address()).with_subject(info_.name);
}

Error RegionCore::error_of(const OperationRecord& operation) const noexcept {
  const Outcome& outcome = operation.outcome;
  const Opcode opcode = operation.request.opcode;
  Error error = named(
      Error{outcome.code, operation_name(opcode)}.with_reason(session_->explained(outcome.reason)));
  // A flush is of the session: its place is any byte.
  if (opcode != Opcode::kFlush)
    error = error.with_place(operation.offset_bytes, operation.length_bytes);
  if (outcome.status != CompletionStatus::kSuccess)
    return error.with_completion(outcome.status, outcome.detail);
  if (outcome.code == Code::kOutOfRange && outcome.reason == Reason::kNone)
    return error.with_limit(end_of(operation), info_.size_bytes);
  if (outcome.code == Code::kLimitExceeded && outcome.reason == Reason::kPieces)
    return error.with_limit(outcome.detail, kPiecesMax);
  if (outcome.detail == 0) return error;
  if (!counts_pieces(outcome.reason)) return error.with_errno(static_cast<int>(outcome.detail));
  std::array<char, Error::kSubjectBytes> text{};
  const int length = std::snprintf(text.data(), text.size(), "%s, piece %u", info_.name.c_str(),
                                   static_cast<unsigned>(outcome.detail));
  return error.with_subject(
      {text.data(), std::min(text.size() - 1, static_cast<std::size_t>(std::max(length, 0)))});
}

Outcome RegionCore::judge(const OperationRecord& operation) const noexcept {
  if (const Reason why = revoked(); why != Reason::kNone)
    return Outcome::failure(Code::kAccessRefused, why);
  if (session_->ended()) return session_gone(session_->lost_reason());
  const Opcode opcode = operation.request.opcode;
  const bool atomic = is_atomic(opcode);
  if (transport::is_transfer(opcode) && operation.request.local == nullptr) {
    if (operation.memory == LocalMemory::of_empty_slot())
      return Outcome::failure(Code::kInvalidArgument, Reason::kEmptySlot);
    // Memory is known but the part is not within it.
    if (operation.memory != nullptr)
      return Outcome::failure(Code::kOutOfRange, Reason::kOutsideMemory);
    if (operation.length_bytes != 0)
      return Outcome::failure(Code::kInvalidArgument, Reason::kNullPointer);
  }
  if (operation.length_bytes == 0)
    return Outcome::failure(Code::kInvalidArgument, Reason::kZeroLength);
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

/// Registers the application's memory where that has to be and is not yet.
Outcome RegionCore::admit_memory(LocalMemory* memory) const noexcept {
  if (!quick_.needs_keys || memory == nullptr || memory->registered(domain_index_)) return {};
  const Status made = memory->register_with(*session_->memory_domain(), domain_index_);
  if (made) return {};
  Outcome failed = Outcome::failure(made.error().code(), made.error().reason());
  failed.detail = static_cast<std::uint32_t>(made.error().system_errno());
  return failed;
}

/// False: it was not sound, or the grant has gone.
bool RegionCore::count_refused(OperationRecord& operation) const noexcept {
  // By these owns() knows it, for its error; nothing else is done with it.
  operation.whole = false;
  operation.extents = grant_.extents;
  if (operation.outcome.code == Code::kAccessRefused)
    EndTally{session_->metrics()}.add(operation);
  else
    session_->metrics().misuse(operation.request.opcode);
  return false;
}

bool RegionCore::check_closely(OperationRecord& operation) const noexcept {
  if (fits(operation, quick_.bytes_max) &&
      make_whole(operation, grant_.extents, quick_.request_bytes_max))
    return true;
  operation.outcome = judge(operation);
  if (operation.outcome.ok) operation.outcome = admit_memory(operation.memory);
  if (!operation.outcome.ok) return count_refused(operation);
  const Opcode opcode = operation.request.opcode;
  const bool registered = quick_.needs_keys && operation.memory != nullptr;
  if (registered) operation.request.local_key = operation.memory->key(domain_index_);
  const bool inlined = opcode == Opcode::kWrite && operation.memory == nullptr &&
                       operation.length_bytes <= quick_.inline_bytes_max;
  // What needs a key and has none goes through memory of the engine's, a part at a time.
  const bool keyed =
      !quick_.needs_keys || registered || inlined || is_atomic(opcode) || opcode == Opcode::kFlush;
  if (!keyed || !make_whole(operation, grant_.extents, quick_.request_bytes_max))
    make_split(operation, grant_.extents);
  return true;
}

template <typename Piece>
bool RegionCore::check_pieces(OperationRecord& operation,
                              std::span<const Piece> pieces) const noexcept {
  operation.request.local = nullptr;
  operation.name_memory(nullptr);
  operation.length_bytes = 0;
  Outcome outcome;
  if (pieces.empty()) outcome = Outcome::failure(Code::kInvalidArgument, Reason::kPieces);
  if (pieces.size() > kPiecesMax) {
    outcome = Outcome::failure(Code::kLimitExceeded, Reason::kPieces);
    outcome.detail = static_cast<std::uint32_t>(
        std::min<std::size_t>(pieces.size(), std::numeric_limits<std::uint32_t>::max()));
  }
  for (std::size_t i = 0; outcome.ok && i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    OperationRecord alone;
    alone.request.opcode = operation.request.opcode;
    alone.request.local = const_cast<std::byte*>(piece.bytes().data());
    alone.offset_bytes = operation.offset_bytes + operation.length_bytes;
    alone.length_bytes = piece.bytes().size();
    alone.memory = piece.memory();
    outcome = judge(alone);
    if (counts_pieces(outcome.reason)) outcome.detail = static_cast<std::uint32_t>(i + 1);
    if (outcome.ok) outcome = admit_memory(piece.memory());
    operation.length_bytes += piece.bytes().size();
  }
  operation.outcome = outcome;
  if (!outcome.ok) return count_refused(operation);
  make_split(operation, grant_.extents);
  operation.pieces = pieces.data();
  operation.piece_end_bytes = 0;
  return true;
}

bool RegionCore::check(OperationRecord& operation, std::span<const Target> pieces) const noexcept {
  return check_pieces(operation, pieces);
}
bool RegionCore::check(OperationRecord& operation, std::span<const Source> pieces) const noexcept {
  return check_pieces(operation, pieces);
}

void RegionCore::run(OperationRecord& operation, std::chrono::nanoseconds deadline) const noexcept {
  if (deadline <= deadline.zero()) deadline = session_->engine().options().operation_deadline;
  operation.submitted = clock_now();
  operation.deadline = deadline_after(operation.submitted, deadline);
  if (!operation.whole || quick_.only_lane == nullptr) [[unlikely]]
    return run_closely(operation);
  quick_.only_lane->run(operation);
}

void RegionCore::run_counted(OperationRecord& operation,
                             std::chrono::nanoseconds deadline) const noexcept {
  const MemoryUse use{needs_keys() ? operation.memory : nullptr};
  if (check(operation)) run(operation, deadline);
}

/// What needs a registration first, or has several lanes to go over.
void RegionCore::run_closely(OperationRecord& operation) const noexcept {
  LaneDriver& lane = session_->lane_of_thread();
  if (!operation.whole && lane.acquire_lease(operation, LaneDriver::Lease::kNew) &&
      Clock::now() >= operation.deadline) [[unlikely]] {
    lane.release_lease(operation);
    operation.outcome = Outcome::failure(Code::kTimedOut, Reason::kExpired);
    EndTally{session_->metrics()}.add(operation);
    return;
  }
  // Pinning pages takes longer than what is taken back is waited for.
  if (const Reason why = revoked(); why != Reason::kNone) [[unlikely]] {
    if (!operation.whole) lane.release_lease(operation);
    operation.outcome = Outcome::failure(Code::kAccessRefused, why);
    (void)count_refused(operation);
    return;
  }
  if (quick_.only_lane != nullptr || !goes_over_lanes(operation)) return lane.run(operation);
  run_over_lanes(*this, operation);
  if (!operation.whole) lane.release_lease(operation);
}

namespace {

Status status_of(const Result<std::uint64_t>& found) noexcept {
  if (!found) return found.error();
  return {};
}

/// A transfer of one piece, to be checked.
template <typename Piece>
void fill(OperationRecord& operation, Opcode opcode, ByteOffset at, const Piece& piece) noexcept {
  operation.request.opcode = opcode;
  // The record has one pointer for both directions; a write's bytes are only read.
  operation.request.local = const_cast<std::byte*>(piece.bytes().data());
  operation.length_bytes = piece.bytes().size();
  operation.offset_bytes = at.bytes;
  operation.memory = piece.memory();
}

Status status_of(const RegionCore& core, const OperationRecord& operation) noexcept {
  if (operation.outcome.ok) [[likely]]
    return {};
  return core.error_of(operation);
}

/// One piece, from the check to its end. Inline in each caller, also in those by block, which are
/// on the data path too.
template <typename Piece>
[[gnu::always_inline]] inline Status transfer(const RegionCore& core, Opcode opcode, ByteOffset at,
                                              const Piece& piece,
                                              std::chrono::nanoseconds deadline) noexcept {
  OperationRecord operation;
  fill(operation, opcode, at, piece);
  core.run_transfer(operation, deadline);
  return status_of(core, operation);
}

/// Counts a synchronous operation as a use of the memory of all its pieces.
template <typename Piece>
class PieceUses {
 public:
  PieceUses(const RegionCore& core, std::span<const Piece> pieces) noexcept
      : pieces_{core.needs_keys() ? pieces : std::span<const Piece>{}} {
    for (const Piece& piece : pieces_)
      if (counts(piece)) piece.memory()->begin_use();
  }
  ~PieceUses() {
    for (const Piece& piece : pieces_)
      if (counts(piece)) piece.memory()->end_use();
  }
  PieceUses(const PieceUses&) = delete;
  PieceUses& operator=(const PieceUses&) = delete;

 private:
  static bool counts(const Piece& piece) noexcept {
    return piece.memory() != nullptr && piece.memory()->has_handles();
  }
  std::span<const Piece> pieces_;
};

}  // namespace

Result<std::uint64_t> RegionCore::run_alone(const transport::WorkRequest& request, ByteOffset at,
                                            std::uint64_t length_bytes,
                                            std::chrono::nanoseconds deadline) const noexcept {
  OperationRecord operation;
  operation.request = request;
  operation.length_bytes = length_bytes;
  operation.offset_bytes = at.bytes;
  operation.memory = nullptr;
  operation.old_value = 0;  // of those that find none
  if (check(operation)) run(operation, deadline);
  if (operation.outcome.ok) return operation.old_value;
  return error_of(operation);
}

}  // namespace remora::detail

namespace remora {

using detail::closed;
using detail::offset_of;
using transport::Opcode;

const RegionInfo& Region::info() const noexcept {
  if (core_ != nullptr) [[likely]]
    return core_->info();
  static const RegionInfo none;  // of a region that has been moved from
  return none;
}
Rights Region::rights() const noexcept {
  return core_ == nullptr ? Rights::kNone : core_->rights();
}
TransportKind Region::transport() const noexcept {
  return core_ == nullptr ? TransportKind::kAuto : core_->session().kind();
}
const std::string& Region::transport_reason() const noexcept {
  if (core_ != nullptr) return core_->transport_reason();
  static const std::string none;
  return none;
}
bool Region::connected() const noexcept { return core_ != nullptr && core_->session().connected(); }
Status Region::settled(std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) return closed("settled", core_);
  const Status settled = core_->session().settled(deadline_after(deadline));
  return settled ? settled : core_->named(settled.error());
}

Result<Region> Region::fence() const {
  if (core_ == nullptr) return closed("fence", core_);
  detail::SessionCore& session = core_->session();
  auto fenced = session.open(info().name, rights(), core_->transport_reason(),
                             deadline_after(session.engine().options().control_deadline),
                             detail::Opening::kFence);
  if (!fenced && fenced.error().subject().empty()) return core_->named(fenced.error());
  if (!fenced) return fenced.error();
  (*fenced)->set_uri(core_->uri());
  return Region{std::move(*fenced)};
}

Result<Queue> Region::queue(const QueueOptions& options) const {
  if (core_ == nullptr) return closed("queue", core_);
  auto core = detail::QueueCore::create(core_.pointer(), options);
  if (!core) return core.error();
  return Queue{std::move(*core)};
}

Status Region::read(ByteOffset from, Target into, std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("read", core_);
  return detail::transfer(*core_, Opcode::kRead, from, into, deadline);
}

Status Region::read(Block from, Target into, std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("read", core_);
  return detail::transfer(*core_, Opcode::kRead, offset_of(from, core_->info()), into, deadline);
}

Status Region::write(ByteOffset to, Source from, std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("write", core_);
  return detail::transfer(*core_, Opcode::kWrite, to, from, deadline);
}

Status Region::write(Block to, Source from, std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("write", core_);
  return detail::transfer(*core_, Opcode::kWrite, offset_of(to, core_->info()), from, deadline);
}

Status Region::read(ByteOffset from, std::span<const Target> into,
                    std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("read", core_);
  detail::OperationRecord operation;
  operation.request.opcode = Opcode::kRead;
  operation.offset_bytes = from.bytes;
  const detail::PieceUses uses{*core_, into};
  if (core_->check(operation, into)) core_->run(operation, deadline);
  return detail::status_of(*core_, operation);
}

Status Region::write(ByteOffset to, std::span<const Source> from,
                     std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("write", core_);
  detail::OperationRecord operation;
  operation.request.opcode = Opcode::kWrite;
  operation.offset_bytes = to.bytes;
  const detail::PieceUses uses{*core_, from};
  if (core_->check(operation, from)) core_->run(operation, deadline);
  return detail::status_of(*core_, operation);
}

Status Region::write_notify(ByteOffset to, Source from, std::uint32_t notice,
                            std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("write_notify", core_);
  detail::OperationRecord operation;
  detail::fill(operation, Opcode::kWrite, to, from);
  const detail::MemoryUse use{core_->needs_keys() ? from.memory() : nullptr};
  if (core_->check(operation)) {
    core_->add_notice(operation, notice);
    core_->run(operation, deadline);
  }
  return detail::status_of(*core_, operation);
}

Status Region::write_zeroes(ByteOffset at, std::uint64_t length_bytes,
                            std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("write_zeroes", core_);
  return detail::status_of(
      core_->run_alone({.opcode = Opcode::kWriteZeroes}, at, length_bytes, deadline));
}

Status Region::flush_visible(std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("flush_visible", core_);
  return detail::status_of(
      core_->run_alone({.opcode = Opcode::kFlush}, ByteOffset{0}, 1, deadline));
}

Result<std::uint64_t> Region::compare_swap(ByteOffset at, std::uint64_t expected,
                                           std::uint64_t desired,
                                           std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("compare_swap", core_);
  return core_->run_alone(
      {.opcode = Opcode::kCompareSwap, .compare_or_add = expected, .swap = desired}, at,
      sizeof(std::uint64_t), deadline);
}

Result<std::uint64_t> Region::fetch_add(ByteOffset at, std::uint64_t delta,
                                        std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("fetch_add", core_);
  return core_->run_alone({.opcode = Opcode::kFetchAdd, .compare_or_add = delta}, at,
                          sizeof(std::uint64_t), deadline);
}

}  // namespace remora
