#include "client/direct_driver.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

namespace remora::detail {

using transport::Opcode;
using transport::WireExtent;

namespace {

/// A copy this long takes about a millisecond: the server's end and the deadline are seen between.
constexpr std::uint64_t kStepBytes = std::uint64_t{4} << 20U;

std::byte* mapped(const WireExtent& extent, std::uint64_t offset) noexcept {
  return std::bit_cast<std::byte*>(extent.remote_address) + (offset - extent.start_bytes);
}

void move_bytes(Opcode opcode, std::byte* local, std::byte* remote,
                std::size_t length_bytes) noexcept {
  if (opcode == Opcode::kRead)
    std::memcpy(local, remote, length_bytes);
  else
    std::memcpy(remote, local, length_bytes);
}

}  // namespace

DirectDriver::DirectDriver(transport::DirectPath path, ClientMetrics metrics,
                           BrokenHandler on_broken)
    : path_{std::move(path)}, metrics_{std::move(metrics)}, on_broken_{std::move(on_broken)} {
  metrics_.lane_opened(0);
}

DirectDriver::~DirectDriver() {
  fail(Reason::kNone);
  metrics_.lane_closed(0);
}

void DirectDriver::fail(Reason reason) noexcept {
  broken_reason_.store(reason, std::memory_order_relaxed);
  if (broken_.exchange(true, std::memory_order_acq_rel)) return;
  if (reason != Reason::kNone) metrics_.lane_broken();
  if (on_broken_) on_broken_();
}

bool DirectDriver::usable() noexcept {
  if (broken_.load(std::memory_order_relaxed)) return false;
  if (path_.serving()) return true;
  fail(Reason::kPeerGone);
  return false;
}

void DirectDriver::submit(OperationRecord* first) noexcept {
  if (first == nullptr) return;
  OperationRecord* const all = first;
  const CompletionSink& sink = *first->sink;
  for (OperationRecord* at = first; at != nullptr; at = at->next) run(*at);
  EndTally tally{metrics_};
  for (OperationRecord* at = all; at != nullptr;) {
    OperationRecord& operation = *std::exchange(at, at->next);
    tally.add(operation);
    operation.sink->push(operation);
  }
  // All of one submission have one sink, whose owner is here.
  if (const int event = sink.event(); event >= 0) signal_event(event);
}

void DirectDriver::wait(CompletionSink& /*sink*/, std::size_t /*at_least*/,
                        DeadlineSource /*earliest_deadline*/) noexcept {
  // Everything completed when it was submitted.
}

void DirectDriver::progress_and_arm(CompletionSink& /*sink*/,
                                    DeadlineSource /*earliest_deadline*/) noexcept {}

bool DirectDriver::cancel(OperationRecord& /*operation*/) noexcept { return false; }

void DirectDriver::run(OperationRecord& operation) noexcept {
  if (!usable()) {
    operation.outcome = Outcome::failure(Code::kConnectionLost, broken_reason_);
    return;
  }
  if (!is_atomic(operation.opcode)) return copy(operation);
  const WireExtent& extent = extent_of(operation.extents, operation.offset_bytes);
  const std::atomic_ref<std::uint64_t> word{
      *reinterpret_cast<std::uint64_t*>(mapped(extent, operation.offset_bytes))};
  if (operation.opcode == Opcode::kFetchAdd) {
    operation.old_value = word.fetch_add(operation.compare_or_add);
  } else {
    operation.old_value = operation.compare_or_add;
    word.compare_exchange_strong(operation.old_value, operation.swap);
  }
}

void DirectDriver::copy(OperationRecord& operation) noexcept {
  const WireExtent& extent = extent_of(operation.extents, operation.offset_bytes);
  const std::uint64_t into = operation.offset_bytes - extent.start_bytes;
  if (operation.length_bytes > std::min(kStepBytes, extent.length_bytes - into))
    return copy_in_steps(operation);
  move_bytes(operation.opcode, operation.local, mapped(extent, operation.offset_bytes),
             operation.length_bytes);
}

void DirectDriver::copy_in_steps(OperationRecord& operation) noexcept {
  std::uint64_t& done = operation.planned_bytes;
  while (done < operation.length_bytes) {
    const bool late = done > 0 && Clock::now() >= operation.deadline;
    if (late || !usable()) {
      // A write in part has had its effect in part.
      const bool uncertain = operation.opcode == Opcode::kWrite && done > 0;
      operation.outcome = uncertain ? Outcome::failure(Code::kIndeterminate, broken_reason_)
                          : late    ? Outcome::failure(Code::kTimedOut)
                                    : Outcome::failure(Code::kConnectionLost, broken_reason_);
      return;
    }
    const std::uint64_t at = operation.offset_bytes + done;
    const WireExtent& extent = extent_of(operation.extents, at);
    const std::uint64_t length =
        std::min({operation.length_bytes - done, extent.length_bytes - (at - extent.start_bytes),
                  kStepBytes});
    move_bytes(operation.opcode, operation.local + done, mapped(extent, at), length);
    done += length;
  }
}

}  // namespace remora::detail
