/// How a QueuedLaneDriver cuts operations that are not whole into requests: at extents, at pieces
/// of local memory, at the lane's limits, and at bounce slots. Also how these requests get local
/// keys, and how the driver joins whole operations that follow each other.

#include <algorithm>
#include <cstring>

#include <remora/assert.h>

#include "client/datapath/batch_order.h"
#include "client/datapath/queued_lane_driver.h"

namespace remora::detail {

using transport::Opcode;
using transport::WireExtent;
using transport::WorkRequest;

bool QueuedLaneDriver::acquire_lease(OperationRecord& operation, Lease which) noexcept {
  if (options_.cache == nullptr || operation.pieces != nullptr || operation.memory != nullptr ||
      !transport::is_transfer(operation.request.opcode) ||
      operation.length_bytes < options_.cache_from_bytes)
    return false;
  const std::span<std::byte> bytes{operation.request.local, operation.length_bytes};
  if (which == Lease::kOld) {
    operation.lease = options_.cache->find_lease(bytes);
    return false;
  }
  // Leaves half of the time for the transfer: without a lease its bytes are copied through bounce
  // slots.
  const Deadline until = operation.submitted + (operation.deadline - operation.submitted) / 2;
  operation.lease = options_.cache->acquire_lease(bytes, until);
  return true;
}

void QueuedLaneDriver::release_lease(OperationRecord& operation) noexcept {
  if (!operation.lease) return;
  REMORA_ASSERT(options_.cache != nullptr, "a lease goes back to the cache that it came from");
  options_.cache->release_lease(std::exchange(operation.lease, {}));
}

/// Releases the lease of an operation that is not whole, and counts the operation. A striped
/// transfer does both for its parts.
void QueuedLaneDriver::finish_split(OperationRecord& operation, EndTally& tally) noexcept {
  if (operation.part) return;
  release_lease(operation);
  tally.add(operation);
}

/// Adds requests for the rest of an operation that is not whole to the chain. False: the chain had
/// no room for all of them.
bool QueuedLaneDriver::plan(OperationRecord& operation, std::size_t room) noexcept {
  if (!operation.outcome.ok) return true;  // failed in part
  while (operation.planned_bytes != operation.length_bytes) {
    if (room == 0) return false;
    --room;
    const std::uint64_t at = operation.offset_bytes + operation.planned_bytes;
    const WireExtent& extent = extent_of(operation.extents, at);
    const std::uint64_t into = at - extent.start_bytes;
    const LocalPiece piece = next_piece(operation);
    WorkRequest& request = chain_.pieces[chain_.length];
    request = operation.request;
    request.remote_address = extent.remote_address + into;
    request.remote_key = extent.remote_key;
    request.length_bytes = static_cast<std::uint32_t>(
        std::min({piece.length_bytes, std::uint64_t{limits_.transfer_bytes_max},
                  extent.length_bytes - into}));
    Posted in_flight{.operation = &operation};
    if (!use_local(request, piece.memory, in_flight)) return false;
    add_split(in_flight, request);
    advance(operation, request.length_bytes);
    ++operation.requests_in_flight;
  }
  if (all_planned(operation)) return true;
  if (room == 0) return false;
  // After all requests of the write: requests of a lane take effect in order.
  WorkRequest& request = chain_.pieces[chain_.length];
  request = WorkRequest::notify(operation.notice);
  add_split({.operation = &operation}, request);
  operation.notice_planned = true;
  ++operation.requests_in_flight;
  return true;
}

/// Gives the request a local key: that of its memory, of a lease, or of a bounce slot. False: no
/// bounce slot is free now.
bool QueuedLaneDriver::use_local(WorkRequest& request, LocalMemory* memory,
                                 Posted& posted) noexcept {
  // A flush reads into memory that belongs to the lane.
  if (!options_.needs_keys || request.opcode == Opcode::kFlush) return true;
  if (request.opcode == Opcode::kWriteZeroes) {
    const std::span<std::byte> zeroes = options_.zeroes->bytes();
    request.opcode = Opcode::kWrite;
    request.local = zeroes.data();
    request.length_bytes =
        static_cast<std::uint32_t>(std::min<std::size_t>(request.length_bytes, zeroes.size()));
    memory = options_.zeroes.get();
  }
  if (memory == nullptr && posted.operation->lease) {
    const auto key = options_.cache->key_of(posted.operation->lease,
                                            {request.local, std::size_t{request.length_bytes}});
    request.local_key = key.local_key;
    request.length_bytes =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(request.length_bytes, key.length_bytes));
    return true;
  }
  if (memory == nullptr) return bounce(request, posted);
  request.local_key = memory->key(options_.domain_index);
  return true;
}

/// Gives unregistered memory a bounce slot, which has a key. An inline write needs no key.
bool QueuedLaneDriver::bounce(WorkRequest& request, Posted& posted) noexcept {
  if (request.opcode == Opcode::kWrite && request.length_bytes <= limits_.inline_bytes_max)
    return true;
  const std::uint32_t slot = options_.bounce->take();
  if (slot == SlotStore::kNone) return false;
  const std::span<std::byte> bytes = options_.bounce->slot(slot);
  request.length_bytes =
      static_cast<std::uint32_t>(std::min<std::size_t>(request.length_bytes, bytes.size()));
  if (request.opcode == Opcode::kWrite)
    std::memcpy(bytes.data(), request.local, request.length_bytes);
  else
    posted.user = request.local;
  posted.length_bytes = request.length_bytes;
  posted.bounce_slot = slot;
  request.local = bytes.data();
  request.local_key = options_.bounce->memory()->key(options_.domain_index);
  return true;
}

/// Whether `operation`, which begins in the region where the chain ends, can be a part of the
/// chain's last request.
bool QueuedLaneDriver::continues_chain(const OperationRecord& operation) const noexcept {
  if (chain_.end == kNowhere) return false;
  const WorkRequest& last = chain_.last->request;
  const WorkRequest& next = operation.request;
  return transport::is_transfer(next.opcode) && next.opcode == last.opcode &&
         next.remote_key == last.remote_key && next.local == last.local + last.length_bytes &&
         // An inline operation has no key that the joined request could use.
         operation.memory == chain_.last->memory &&
         (operation.memory != nullptr || !options_.needs_keys) &&
         chain_.requests[chain_.length - 1]->length_bytes + next.length_bytes <=
             std::min(kMaxJoinedBytes, limits_.transfer_bytes_max);
}

void QueuedLaneDriver::join_chain(OperationRecord& operation) noexcept {
  REMORA_ASSERT_HOT(chain_.length != 0 && chain_.last != nullptr,
                    "an operation is joined to one of the same chain");
  const std::size_t place = chain_.length - 1;
  const std::uint64_t sequence = next_sequence_ + place;
  if (Posted& run = posted_at(chain_.run); run.run_count > 1) {
    --run.run_count;
    run.run_bytes -= chain_.last->length_bytes;
    chain_.run = sequence;
    posted_at(sequence) = {.operation = chain_.last};
  }
  Posted& posted = posted_at(sequence);
  posted.run_count = 0;
  if (!std::exchange(posted.joined, true)) {
    chain_.pieces[place] = *chain_.requests[place];
    chain_.requests[place] = &chain_.pieces[place];
  }
  chain_.pieces[place].length_bytes += operation.request.length_bytes;
  chain_.last->next = &operation;
  operation.next = nullptr;
  chain_.last = &operation;
  chain_.end += operation.request.length_bytes;
}

}  // namespace remora::detail
