#include "client/datapath/mapped_memory_driver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <utility>

#include "client/datapath/end_tally.h"
#include "client/datapath/mapped_access.h"

namespace remora::detail {

using transport::Opcode;
using transport::WireExtent;

namespace {

/// A copy of this length takes about a millisecond. After each, the driver checks whether the
/// server has ended or the deadline has passed.
constexpr std::uint32_t kStepBytes = std::uint32_t{8} << 20U;
/// Operations in one call of run_batch().
constexpr std::size_t kMaxBatch = 64;
/// Shorter copies are not worth a task each, even if there are many.
constexpr std::uint64_t kTaskBytes = std::uint64_t{16} << 10U;

/// Blocks shorter than kSmallBytes are copied too fast to hide a cache miss, so all blocks of a
/// batch are prefetched before the first copy. Of a longer block the driver prefetches the
/// beginning, kAhead operations before its copy. So the cache misses of random blocks overlap.
constexpr std::uint64_t kSmallBytes = 1024;
constexpr std::size_t kAhead = 4;
/// Length of the prefetched beginning of a block. The processor's own prefetcher fetches the rest
/// once it has seen the direction.
constexpr std::uint32_t kAheadBytes = 256;
constexpr std::uint32_t kLineBytes = 64;

/// Prefetches the beginning of `operation` in the region.
[[gnu::always_inline]] inline void fetch_ahead(const OperationRecord& operation) noexcept {
  if (!operation.whole) return;
  const transport::WorkRequest& request = operation.request;
  const auto* const at = std::bit_cast<const std::byte*>(request.remote_address);
  if (request.length_bytes <= kLineBytes) [[likely]] {
    if (request.opcode == Opcode::kRead)
      __builtin_prefetch(at, 0);
    else
      __builtin_prefetch(at, 1);
    return;
  }
  const std::uint32_t length = std::min(request.length_bytes, kAheadBytes);
  if (request.opcode == Opcode::kRead)
    for (std::uint32_t i = 0; i < length; i += kLineBytes) __builtin_prefetch(at + i, 0);
  else
    for (std::uint32_t i = 0; i < length; i += kLineBytes) __builtin_prefetch(at + i, 1);
}

/// Copies a short block. Most of them are one line long; a copy of a constant length needs no call.
[[gnu::always_inline]] inline void copy_short_block(std::byte* to, const std::byte* from,
                                                    std::uint32_t length_bytes) noexcept {
  if (length_bytes == kLineBytes)
    std::memcpy(to, from, kLineBytes);
  else
    std::memcpy(to, from, length_bytes);
}

std::byte* mapped(const WireExtent& extent, std::uint64_t offset) noexcept {
  return std::bit_cast<std::byte*>(extent.remote_address) + (offset - extent.start_bytes);
}

}  // namespace

MappedMemoryDriver::MappedMemoryDriver(transport::DirectPath path,
                                       std::shared_ptr<ParallelCopy> copier, ClientMetrics metrics,
                                       BrokenHandler on_broken, Notifier notifier,
                                       SessionAwaiter await_session, SessionLook look_at_session)
    : path_{std::move(path)},
      copier_{std::move(copier)},
      metrics_{std::move(metrics)},
      on_broken_{std::move(on_broken)},
      notifier_{std::move(notifier)},
      await_session_{std::move(await_session)},
      look_at_session_{std::move(look_at_session)} {
  metrics_.lane_opened(0);
}

MappedMemoryDriver::~MappedMemoryDriver() {
  fail(Reason::kNone);
  metrics_.lane_closed(0);
}

void MappedMemoryDriver::fail(Reason reason) noexcept {
  // The reason for the end replaces the reason for an earlier interruption.
  if (!ended_.exchange(true) && broken()) broken_reason_.store(reason, std::memory_order_relaxed);
  stop(reason);
  wake_owners();
}

void MappedMemoryDriver::go_on() noexcept {
  if (ended_.load()) return;
  broken_reason_.store(Reason::kNone, std::memory_order_relaxed);
  fault_.store(LaneFault::kNone, std::memory_order_relaxed);
  broken_.store(false, std::memory_order_release);
  wake_owners();
}

void MappedMemoryDriver::stop(Reason reason) noexcept {
  // The first reason is the cause; later ones are its consequences.
  Reason none = Reason::kNone;
  broken_reason_.compare_exchange_strong(none, reason, std::memory_order_relaxed);
  stops_.fetch_add(1, std::memory_order_relaxed);
  if (broken_.exchange(true, std::memory_order_acq_rel)) return;
  if (reason != Reason::kNone) metrics_.lane_broken();
  if (on_broken_) on_broken_();
}

bool MappedMemoryDriver::usable() noexcept {
  if (broken()) return false;
  if (path_.serving()) return true;
  stop(Reason::kPeerGone);
  return false;
}

std::uint32_t MappedMemoryDriver::request_bytes_max() const noexcept { return kStepBytes; }

void MappedMemoryDriver::submit(OperationList operations) noexcept {
  OperationRecord* const first = operations.first;
  if (first == nullptr) return;
  CompletionSink& sink = *first->sink;
  const std::uint64_t stops = stops_.load(std::memory_order_relaxed);
  const bool interrupted = broken();
  ShortBlocks copied{.rest = first};
  if (first->next == nullptr) {
    carry_out(*first);
  } else {
    copied = copy_short_blocks(*first);
    if (copied.rest != nullptr)
      run_all(copied.rest, copied.count == 0 ? Clock::time_point{} : Clock::now());
  }
  if (interrupted || stops_.load(std::memory_order_relaxed) != stops) [[unlikely]]
    return submit_interrupted(operations);
  {
    EndTally tally{metrics_};
    if (copied.count != 0) tally.add_run(*first, copied.count, copied.sum_bytes);
    for (OperationRecord* at = copied.rest; at != nullptr; at = at->next) {
      if (!at->whole) [[unlikely]]
        tell(*at);
      tally.add(*at);
    }
  }
  sink.push(*first, operations.count);
  // All operations of one submission have the same sink, so there is one notifier.
  if (EventNotifier* const notifier = sink.notifier(); notifier != nullptr) notifier->notify();
}

void MappedMemoryDriver::run(OperationRecord& operation) noexcept {
  carry_out(operation);
  if (!operation.outcome.ok) [[unlikely]]
    carry_out_later(operation);
  tell(operation);
  EndTally{metrics_}.add(operation);
}

/// An operation that finds the session interrupted, and has had no effect, waits until the session
/// is resumed or ends, as over the other transports: only then is it known whether the server still
/// has the memory.
void MappedMemoryDriver::carry_out_later(OperationRecord& operation) noexcept {
  while (may_wait(operation)) {
    const std::optional<Outcome> awaited = await_session_(operation);
    if (!awaited) return;
    operation.outcome = *awaited;
    if (!awaited->ok) return;
    carry_out(operation);
    if (operation.outcome.ok) return;
  }
}

/// `now`: not read if the operations have just been submitted.
void MappedMemoryDriver::run_all(OperationRecord* first, Clock::time_point now) noexcept {
  std::array<OperationRecord*, kMaxBatch> batch{};
  while (first != nullptr) {
    std::size_t count = 0;
    std::uint64_t total_bytes = 0;
    for (; first != nullptr && count < kMaxBatch; first = first->next) {
      if (first->deadline <= now) [[unlikely]] {
        first->outcome = Outcome::failure(Code::kTimedOut, Reason::kExpired);
        continue;
      }
      batch[count++] = first;
      total_bytes += first->length_bytes;
    }
    if (count != 0) run_batch(std::span{batch}.first(count), total_bytes);
    if (first != nullptr) now = Clock::now();
  }
}

/// Copies the transfers of short blocks at the beginning of a submission that follow each other:
/// up to kMaxBatch blocks are prefetched, then copied. Before that it looks once whether the server
/// serves and, except for the first blocks, whether the deadline has passed. Each operation goes
/// through these loops, so they do nothing else.
MappedMemoryDriver::ShortBlocks MappedMemoryDriver::copy_short_blocks(
    OperationRecord& first) noexcept {
  ShortBlocks copied{.rest = &first};
  const Opcode opcode = first.request.opcode;
  if (!first.whole || !transport::is_transfer(opcode)) return copied;
  do {
    OperationRecord* const begin = copied.rest;
    if (broken() || !path_.serving()) break;
    if (copied.count != 0 && Clock::now() >= begin->deadline) break;
    OperationRecord* end = begin;
    std::size_t count = 0;
    while (end != nullptr && (end == &first || end->follows) && count < kMaxBatch &&
           end->request.length_bytes < kSmallBytes) {
      fetch_ahead(*end);
      copied.sum_bytes += end->request.length_bytes;
      ++count;
      end = end->next;
    }
    if (count == 0) break;
    for (const OperationRecord* at = begin; at != end; at = at->next) {
      const transport::WorkRequest& request = at->request;
      auto* const remote = std::bit_cast<std::byte*>(request.remote_address);
      if (opcode == Opcode::kRead)
        copy_short_block(request.local, remote, request.length_bytes);
      else
        copy_short_block(remote, request.local, request.length_bytes);
    }
    copied.count += count;
    copied.rest = end;
  } while (copied.rest != nullptr);
  return copied;
}

/// Operations in flight are unordered, so the helper threads may carry out those of a batch at the
/// same time.
void MappedMemoryDriver::run_batch(std::span<OperationRecord* const> batch,
                                   std::uint64_t total_bytes) noexcept {
  const auto one = [this, batch](std::size_t i) { carry_out(*batch[i]); };
  if (copier_->worth_it(total_bytes) && total_bytes / batch.size() >= kTaskBytes)
    return copier_->for_each(batch.size(), std::ref(one));
  const std::size_t ahead =
      total_bytes < kSmallBytes * batch.size() ? batch.size() : std::min(kAhead, batch.size());
  for (std::size_t i = 0; i < ahead; ++i) fetch_ahead(*batch[i]);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    if (i + ahead < batch.size()) fetch_ahead(*batch[i + ahead]);
    carry_out(*batch[i]);
  }
}

void MappedMemoryDriver::move_bytes(Opcode opcode, std::byte* local, std::byte* remote,
                                    std::size_t length_bytes) noexcept {
  if (opcode == Opcode::kWriteZeroes) {
    std::memset(remote, 0, length_bytes);
    return;
  }
  std::byte* const to = opcode == Opcode::kRead ? local : remote;
  const std::byte* const from = opcode == Opcode::kRead ? remote : local;
  if (copier_->worth_it(length_bytes))
    copier_->copy(to, from, length_bytes);
  else
    std::memcpy(to, from, length_bytes);
}

/// Not inline, so that the usual path saves no registers for it.
void MappedMemoryDriver::end_unserved(OperationRecord& operation) noexcept {
  (void)usable();  // stops the driver if the server has ended
  operation.outcome = session_gone(broken_reason_);
}

void MappedMemoryDriver::carry_out(OperationRecord& operation) noexcept {
  if (broken() || !path_.serving()) [[unlikely]]
    return end_unserved(operation);
  if (!operation.whole) return copy_in_steps(operation);
  const transport::WorkRequest& request = operation.request;
  auto* const remote = std::bit_cast<std::byte*>(request.remote_address);
  if (!is_atomic(request.opcode)) {
    if (request.opcode != Opcode::kFlush)
      move_bytes(request.opcode, request.local, remote, request.length_bytes);
    else  // a full barrier, so that threads that read later see the copied bytes
      order_.exchange(true);
    return;
  }
  const std::atomic_ref<std::uint64_t> word{*reinterpret_cast<std::uint64_t*>(remote)};
  const transport::AtomicOperands& operands = request.operands.atomic;
  if (request.opcode == Opcode::kFetchAdd) {
    operation.old_value = word.fetch_add(operands.compare_or_add);
  } else {
    operation.old_value = operands.compare_or_add;
    word.compare_exchange_strong(operation.old_value, operands.swap);
  }
}

void MappedMemoryDriver::copy_in_steps(OperationRecord& operation) noexcept {
  const std::uint64_t& done = operation.planned_bytes;
  while (done < operation.length_bytes) {
    const bool late = done > 0 && Clock::now() >= operation.deadline;
    if (late || !usable()) {
      // A write that stops here has written some of its bytes.
      const bool uncertain = transport::is_write(operation.request.opcode) && done > 0;
      const Reason why = late ? Reason::kExpired : broken_reason_.load();
      operation.outcome = uncertain ? Outcome::failure(Code::kIndeterminate, why)
                          : late    ? Outcome::failure(Code::kTimedOut, why)
                                    : session_gone(why);
      return;
    }
    const std::uint64_t at = operation.offset_bytes + done;
    const WireExtent& extent = extent_of(operation.extents, at);
    const LocalPiece piece = next_piece(operation);
    const std::uint64_t length =
        std::min({piece.length_bytes, extent.length_bytes - (at - extent.start_bytes),
                  std::uint64_t{kStepBytes}});
    move_bytes(operation.request.opcode, piece.bytes, mapped(extent, at), length);
    advance(operation, length);
  }
}

/// Delivers the operation's notification. Runs in the caller's thread, since helper threads never
/// wait.
void MappedMemoryDriver::tell(OperationRecord& operation) noexcept {
  if (operation.whole || operation.notice.grant_id == 0 || !operation.outcome.ok) return;
  // The copy is done, so a revocation need not wait for the server's application.
  MappedAccess::end_early();
  const Status told = notifier_(operation.notice, operation.deadline);
  // The bytes are written even if the notification is not delivered.
  if (!told) operation.outcome = Outcome::failure(Code::kIndeterminate, told.error().reason());
}

}  // namespace remora::detail
