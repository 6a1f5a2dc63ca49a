#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <string_view>
#include <utility>

#include <remora/engine/region.h>

#include "base/closed.h"
#include "client/datapath/memory_use.h"
#include "client/datapath/striped_transfer.h"
#include "client/region/region_grant.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

using transport::Opcode;

namespace {

Status status_of(const Result<std::uint64_t>& found) noexcept {
  if (!found) return found.error();
  return {};
}

/// Fills in a transfer of one piece, which is checked after that.
template <typename Piece>
void fill(OperationRecord& operation, Opcode opcode, ByteOffset at, const Piece& piece) noexcept {
  operation.request.opcode = opcode;
  // The record has one pointer for both directions; a write's bytes are only read.
  operation.request.local = const_cast<std::byte*>(piece.bytes().data());
  operation.length_bytes = piece.bytes().size();
  operation.offset_bytes = at.bytes;
  operation.memory = piece.memory();
}

Status status_of(const RegionGrant& core, const OperationRecord& operation) noexcept {
  if (operation.outcome.ok) [[likely]]
    return {};
  return core.error_of(operation);
}

/// A transfer of one piece, from the check to its end. Inline in each caller, also in those that
/// take blocks, which are on the data path, too.
template <typename Piece>
[[gnu::always_inline]] inline Status transfer(const RegionGrant& core, Opcode opcode, ByteOffset at,
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
  PieceUses(const RegionGrant& core, std::span<const Piece> pieces) noexcept
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

}  // namespace remora::detail

namespace remora {

using detail::closed;
using detail::offset_of;
using transport::Opcode;

const RegionInfo& Region::info() const noexcept {
  if (core_ != nullptr) [[likely]]
    return core_->info();
  static const RegionInfo none;  // for a region that was moved from
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
  auto fenced = detail::RegionGrant::open(
      session.shared_from_this(), info().name, rights(), core_->transport_reason(),
      deadline_after(session.engine().options().control_deadline), detail::Opening::kFence);
  if (!fenced && fenced.error().subject().empty()) return core_->named(fenced.error());
  if (!fenced) return fenced.error();
  (*fenced)->set_origin(core_->uri(), core_->opener());
  return Region{std::move(*fenced)};
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
  return core_->run_alone(transport::WorkRequest::compare_swap(expected, desired), at,
                          sizeof(std::uint64_t), deadline);
}

Result<std::uint64_t> Region::fetch_add(ByteOffset at, std::uint64_t delta,
                                        std::chrono::nanoseconds deadline) const {
  if (core_ == nullptr) [[unlikely]]
    return closed("fetch_add", core_);
  return core_->run_alone(transport::WorkRequest::fetch_add(delta), at, sizeof(std::uint64_t),
                          deadline);
}

}  // namespace remora
