#include "client/region/region_grant.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <limits>
#include <utility>

#include "client/datapath/end_tally.h"
#include "client/datapath/mapped_access.h"
#include "client/datapath/memory_use.h"
#include "client/datapath/striped_transfer.h"
#include "client/region/revocation_listener.h"
#include "client/services/engine_services.h"
#include "client/session/session_core.h"

namespace remora::detail {

using transport::Opcode;

namespace {

/// Whether Outcome::detail is the number of a piece of the local memory.
bool counts_pieces(Reason reason) noexcept {
  return reason == Reason::kZeroLength || reason == Reason::kNullPointer ||
         reason == Reason::kEmptySlot || reason == Reason::kOutsideMemory ||
         reason == Reason::kPieces;
}

/// Unit of Outcome::detail, which has 32 bits, if memory could not be locked.
constexpr std::uint64_t kLockedUnitBytes = 1024;

/// The offset of the operation's end in the region, or the largest number if it overflows.
std::uint64_t end_of(const OperationRecord& operation) noexcept {
  std::uint64_t end = 0;
  if (__builtin_add_overflow(operation.offset_bytes, operation.length_bytes, &end))
    return std::numeric_limits<std::uint64_t>::max();
  return end;
}

/// The only lane of the session, if `mapped` says whether it maps memory; else null.
LaneDriver* lane_if(const SessionCore& session, bool mapped) noexcept {
  if (session.lanes().size() != 1) return nullptr;
  LaneDriver* const lane = session.lanes().front().get();
  return lane->maps_memory() == mapped ? lane : nullptr;
}

}  // namespace

Result<std::shared_ptr<RegionGrant>> RegionGrant::open(std::shared_ptr<SessionCore> session,
                                                       const std::string& name, Rights rights,
                                                       std::string transport_reason,
                                                       Deadline deadline, Opening how) {
  auto opened = session->open(name, rights, deadline, how);
  if (!opened) return opened.error();
  SessionCore& of = *session;
  auto region = std::make_shared<RegionGrant>(std::move(session), std::move(opened->info), rights,
                                              opened->grant_id, std::move(opened->grant),
                                              std::move(transport_reason));
  of.revocations().add(region);
  if (of.channel().number() == opened->connection) return region;
  // The session was resumed meanwhile, and may have told the server which grants it has before it
  // had this one.
  return Error{Code::kConnectionLost, "open"}.with_reason(of.lost_reason());
}

RegionGrant::RegionGrant(std::shared_ptr<SessionCore> session, RegionInfo info, Rights rights,
                         std::uint64_t grant_id, transport::AttachedGrant grant,
                         std::string transport_reason)
    : session_{std::move(session)},
      info_{std::move(info)},
      rights_{rights},
      grant_id_{grant_id},
      grant_{std::move(grant)},
      transport_reason_{std::move(transport_reason)},
      atomics_here_{session_->kind() == TransportKind::kRdma
                        ? info_.atomic_domain == session_->server().device
                        : info_.atomic_domain == "cpu"},
      rail_device_{session_->lane_set().on_rails() ? transport::device_number(info_.atomic_domain)
                                                   : 0},
      quick_{.size_bytes = info_.size_bytes,
             .request_bytes_max = session_->lanes().front()->request_bytes_max(),
             .inline_bytes_max = session_->lanes().front()->inline_bytes_max(),
             .domain_index = session_->lanes().front()->needs_keys()
                                 ? session_->lanes().front()->domain_index()
                                 : kNoMemoryDomain,
             .needs_keys = session_->lanes().front()->needs_keys(),
             .remote_key = grant_.extents.front().remote_key,
             .remote_address = grant_.extents.front().remote_address,
             .bytes_max = {},
             .only_lane = lane_if(*session_, false),
             .one_extent_bytes_max = {}},
      extent_index_{grant_.extents},
      mapped_lane_{lane_if(*session_, true)},
      domain_index_{quick_.domain_index} {
  for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite})
    if (includes(rights_, right_for(opcode)))
      quick_.bytes_max[static_cast<std::size_t>(opcode)] =
          std::min<std::uint64_t>(quick_.size_bytes, quick_.request_bytes_max);
  if (grant_.extents.size() == 1) quick_.one_extent_bytes_max = quick_.bytes_max;
  session_->open_regions().add(grant_id_, {info_.name, transport_reason_});
  session_->lane_set().note_opened(rights_);
}

RegionGrant::~RegionGrant() {
  session_->open_regions().remove(grant_id_);
  session_->revocations().remove(*this);
  session_->channel().close_grant(grant_id_);
}

HeldGrant RegionGrant::held() const {
  return {.grant_id = grant_id_,
          .name = info_.name,
          .rights = rights_,
          .size_bytes = info_.size_bytes,
          .incarnation = info_.incarnation,
          .epoch = info_.epoch,
          .extents = grant_.extents};
}

Error RegionGrant::named(const Error& error) const noexcept {
  return error.with_server(session_->server_address()).with_subject(info_.name);
}

Error RegionGrant::error_of(const OperationRecord& operation) const noexcept {
  const Outcome& outcome = operation.outcome;
  const Opcode opcode = operation.request.opcode;
  Error error = named(
      Error{outcome.code, operation_name(opcode)}.with_reason(session_->explain(outcome.reason)));
  // A flush covers the whole session, so it has no place in the region.
  if (opcode != Opcode::kFlush)
    error = error.with_place(operation.offset_bytes, operation.length_bytes);
  if (outcome.status != CompletionStatus::kSuccess)
    return error.with_completion(outcome.status, outcome.detail);
  if (outcome.code == Code::kOutOfRange && outcome.reason == Reason::kNone)
    return error.with_limit(end_of(operation), info_.size_bytes);
  if (outcome.code == Code::kLimitExceeded && outcome.reason == Reason::kPieces)
    return error.with_limit(outcome.detail, kMaxPieces);
  if (outcome.reason == Reason::kMemlock && session_->memory_domain() != nullptr)
    return error.with_limit(outcome.detail * kLockedUnitBytes,
                            session_->memory_domain()->lockable_bytes());
  if (outcome.detail == 0) return error;
  if (!counts_pieces(outcome.reason)) return error.with_errno(static_cast<int>(outcome.detail));
  std::array<char, Error::kSubjectBytes> text{};
  const int length = std::snprintf(text.data(), text.size(), "%s, piece %u", info_.name.c_str(),
                                   static_cast<unsigned>(outcome.detail));
  return error.with_subject(
      {text.data(), std::min(text.size() - 1, static_cast<std::size_t>(std::max(length, 0)))});
}

Outcome RegionGrant::judge(const OperationRecord& operation) const noexcept {
  if (const Reason why = revoked(); why != Reason::kNone)
    return Outcome::failure(Code::kAccessRefused, why);
  if (session_->ended()) return session_gone(session_->lost_reason());
  const Opcode opcode = operation.request.opcode;
  const bool atomic = is_atomic(opcode);
  if (transport::is_transfer(opcode) && operation.request.local == nullptr) {
    if (operation.memory == LocalMemory::of_empty_slot())
      return Outcome::failure(Code::kInvalidArgument, Reason::kEmptySlot);
    // The memory is known, but the part is not within it.
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
  if (atomic && !has_atomics_here())
    return Outcome::failure(Code::kWrongAtomicDomain,
                            info_.atomic_domain == "none" ? Reason::kNoAtomics : Reason::kNone);
  return {};
}

/// With rails: whether a lane leads to the device of the atomics now.
bool RegionGrant::has_atomics_here() const noexcept {
  if (rail_device_ == 0) return atomics_here_;
  return session_->lane_set().leading_to(rail_device_) != nullptr;
}

bool RegionGrant::check_atomic_on(OperationRecord& operation,
                                  const LaneDriver& lane) const noexcept {
  if (!is_atomic(operation.request.opcode) || lane.server_device() == rail_device_) return true;
  operation.outcome = Outcome::failure(Code::kWrongAtomicDomain);
  return count_refused(operation);
}

LaneDriver& RegionGrant::lane_for_queue() const noexcept {
  return session_->next_lane(SessionLanes::use_of(rights_),
                             includes(rights_, Rights::kAtomic) ? rail_device_ : 0);
}

/// Registers the application's memory, if that is necessary and has not been done.
Outcome RegionGrant::admit_memory(LocalMemory* memory) const noexcept {
  if (!quick_.needs_keys || memory == nullptr || memory->registered(domain_index_)) return {};
  const Status made = memory->register_with(*session_->memory_domain(), domain_index_);
  if (made) return {};
  Outcome failed = Outcome::failure(made.error().code(), made.error().reason());
  failed.detail = static_cast<std::uint32_t>(made.error().system_errno());
  if (failed.reason == Reason::kMemlock)
    failed.detail = static_cast<std::uint32_t>(
        std::min<std::uint64_t>((made.error().asked() + kLockedUnitBytes - 1) / kLockedUnitBytes,
                                std::numeric_limits<std::uint32_t>::max()));
  return failed;
}

/// Counts an operation that was invalid, or whose grant was revoked. Returns false.
bool RegionGrant::count_refused(OperationRecord& operation) const noexcept {
  // owns() needs these members to find the operation's region for its error; they have no other
  // use.
  operation.whole = false;
  operation.extents = grant_.extents;
  if (operation.outcome.code == Code::kAccessRefused)
    EndTally{session_->metrics()}.add(operation);
  else
    session_->metrics().misuse(operation.request.opcode);
  return false;
}

/// As make_whole(), with a search only where extent_index_ does not find the operation.
bool RegionGrant::make_whole_here(OperationRecord& operation) const noexcept {
  if (!extent_index_.empty() && operation.length_bytes <= quick_.request_bytes_max &&
      make_whole_by_index(operation))
    return true;
  return make_whole(operation, grant_.extents, quick_.request_bytes_max);
}

bool RegionGrant::check_closely(OperationRecord& operation) const noexcept {
  if (has_length_below(quick_.bytes_max, operation) && fits_besides(operation) &&
      make_whole_here(operation))
    return true;
  operation.outcome = judge(operation);
  if (operation.outcome.ok) operation.outcome = admit_memory(operation.memory);
  if (!operation.outcome.ok) return count_refused(operation);
  const Opcode opcode = operation.request.opcode;
  const bool registered = quick_.needs_keys && operation.memory != nullptr;
  if (registered) operation.request.local_key = operation.memory->key(domain_index_);
  const bool inlined = opcode == Opcode::kWrite && operation.memory == nullptr &&
                       operation.length_bytes <= quick_.inline_bytes_max;
  // If memory needs a key and has none, its bytes are copied through bounce slots, part by part.
  const bool keyed =
      !quick_.needs_keys || registered || inlined || is_atomic(opcode) || opcode == Opcode::kFlush;
  if (!keyed || !make_whole_here(operation)) make_split(operation, grant_.extents);
  return true;
}

template <typename Piece>
bool RegionGrant::check_pieces(OperationRecord& operation,
                               std::span<const Piece> pieces) const noexcept {
  operation.request.local = nullptr;
  operation.name_memory(nullptr);
  operation.length_bytes = 0;
  Outcome outcome;
  if (pieces.empty()) outcome = Outcome::failure(Code::kInvalidArgument, Reason::kPieces);
  if (pieces.size() > kMaxPieces) {
    outcome = Outcome::failure(Code::kLimitExceeded, Reason::kPieces);
    outcome.detail = static_cast<std::uint32_t>(
        std::min<std::size_t>(pieces.size(), std::numeric_limits<std::uint32_t>::max()));
  }
  for (std::size_t i = 0; outcome.ok && i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    OperationRecord single;
    single.request.opcode = operation.request.opcode;
    single.request.local = const_cast<std::byte*>(piece.bytes().data());
    single.offset_bytes = operation.offset_bytes + operation.length_bytes;
    single.length_bytes = piece.bytes().size();
    single.memory = piece.memory();
    outcome = judge(single);
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

bool RegionGrant::check(OperationRecord& operation, std::span<const Target> pieces) const noexcept {
  return check_pieces(operation, pieces);
}
bool RegionGrant::check(OperationRecord& operation, std::span<const Source> pieces) const noexcept {
  return check_pieces(operation, pieces);
}

void RegionGrant::run(OperationRecord& operation,
                      std::chrono::nanoseconds deadline) const noexcept {
  if (deadline <= deadline.zero()) deadline = session_->engine().options().operation_deadline;
  operation.submitted = clock_now();
  operation.deadline = deadline_after(operation.submitted, deadline);
  if (operation.whole && quick_.only_lane != nullptr) [[likely]]
    return quick_.only_lane->run(operation);
  if (mapped_lane_ == nullptr) return run_closely(operation);
  // This thread does the work, and a revocation waits for it.
  const MappedAccess access{serial()};
  if (const Reason why = revoked(); why != Reason::kNone) [[unlikely]]
    return end_revoked(operation, why);
  mapped_lane_->run(operation);
}

void RegionGrant::run_counted(OperationRecord& operation,
                              std::chrono::nanoseconds deadline) const noexcept {
  const MemoryUse use{needs_keys() ? operation.memory : nullptr};
  if (check(operation)) run(operation, deadline);
}

/// Ends an operation that has passed its check before its grant was revoked.
void RegionGrant::end_revoked(OperationRecord& operation, Reason why) const noexcept {
  operation.outcome = Outcome::failure(Code::kAccessRefused, why);
  (void)count_refused(operation);
}

/// Runs an operation that first needs a registration, or that may use several lanes.
void RegionGrant::run_closely(OperationRecord& operation) const noexcept {
  LaneDriver& lane = session_->lane_of_thread(SessionLanes::use_of(operation.request.opcode));
  if (rail_device_ != 0 && is_atomic(operation.request.opcode)) [[unlikely]]
    return run_on_rails(operation);
  if (!operation.whole && lane.acquire_lease(operation, LaneDriver::Lease::kNew) &&
      Clock::now() >= operation.deadline) [[unlikely]] {
    lane.release_lease(operation);
    operation.outcome = Outcome::failure(Code::kTimedOut, Reason::kExpired);
    EndTally{session_->metrics()}.add(operation);
    return;
  }
  // Pinning pages may take longer than a revocation waits for operations.
  if (const Reason why = revoked(); why != Reason::kNone) [[unlikely]] {
    if (!operation.whole) lane.release_lease(operation);
    return end_revoked(operation, why);
  }
  if (quick_.only_lane != nullptr || !uses_all_lanes(operation)) return lane.run(operation);
  std::function<bool()> repeats;
  if (session_->lane_set().on_rails()) repeats = [this] { return !session_->ended(); };
  run_striped({.lanes = session_->lanes(),
               .extents = grant_.extents,
               .metrics = session_->metrics(),
               .spin = session_->engine().options().spin,
               .by_rate = session_->lane_set().on_rails(),
               .repeats = std::move(repeats)},
              operation);
  if (!operation.whole) lane.release_lease(operation);
}

/// An atomic uses a lane to the device of its domain, or fails.
void RegionGrant::run_on_rails(OperationRecord& operation) const noexcept {
  if (LaneDriver* const lane = session_->lane_set().leading_to(rail_device_))
    return lane->run(operation);
  operation.outcome = Outcome::failure(Code::kWrongAtomicDomain);
  (void)count_refused(operation);
}

void RegionGrant::revoke(Reason reason) noexcept {
  Reason none = Reason::kNone;
  revoked_.compare_exchange_strong(none, reason, std::memory_order_acq_rel);
  // From now on check_closely() checks each operation, since no memory has a key in this domain.
  __atomic_store_n(&quick_.domain_index, kKeylessDomain, __ATOMIC_RELAXED);
}

bool RegionGrant::owns(const OperationRecord& operation) const noexcept {
  if (!operation.whole) return operation.extents.data() == grant_.extents.data();
  return std::any_of(grant_.extents.begin(), grant_.extents.end(), [&](const auto& extent) {
    return operation.request.remote_key == extent.remote_key &&
           operation.request.remote_address - extent.remote_address < extent.length_bytes;
  });
}

void RegionGrant::add_queue(RevocationListener& queue) {
  const MutexLock lock{queues_mutex_};
  queues_.push_back({&queue, false});
}

void RegionGrant::remove_queue(const RevocationListener& queue) noexcept {
  const MutexLock lock{queues_mutex_};
  std::erase_if(queues_, [&](const QueueToTell& each) { return each.queue == &queue; });
}

bool RegionGrant::tell_queues() noexcept {
  bool all = true;
  const MutexLock lock{queues_mutex_};
  for (QueueToTell& each : queues_) {
    each.told = each.told || each.queue->request_refusal();
    all = all && each.told;
  }
  return all;
}

}  // namespace remora::detail
