#include "transport/tcp/lane.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <utility>

#include "base/crc32c.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

namespace {

/// From this length on a chain of writes is also answered in the middle: the caller continues with
/// the first half while the server still works on the other.
constexpr std::size_t kHalvedFrom = 24;
/// The number of empty receives, about a third of a microsecond each, while the rest of an answer
/// is awaited.
constexpr int kMaxVain = 64;
/// The most receives of one poll(), however few bytes each of them brings.
constexpr int kMaxTries = 256;

}  // namespace

Result<std::unique_ptr<Lane>> TcpLane::create(UniqueFd socket, std::uint32_t depth,
                                              bool payload_crc) {
  auto events = FdSet::create();
  if (!events) return events.error();
  if (auto status = events->add(socket.get()); !status) return status.error();
  return std::unique_ptr<Lane>{
      std::make_unique<TcpLane>(std::move(socket), std::move(*events), depth, payload_crc)};
}

TcpLane::TcpLane(UniqueFd socket, FdSet events, std::uint32_t depth, bool payload_crc)
    : socket_{std::move(socket)},
      events_{std::move(events)},
      limits_{.depth = depth,
              .transfer_bytes_max = kMaxTransferBytes,
              .inline_bytes_max = 0,
              .writes_zeroes = true},
      payload_crc_{payload_crc},
      answer_interval_{std::max<std::uint64_t>(1, depth / 4)},
      requests_{depth},
      outgoing_{requests_.capacity()},
      incoming_{socket_.get(), requests_, outgoing_, payload_crc} {}

[[gnu::always_inline]] inline void TcpLane::enqueue(const WorkRequest& request,
                                                    std::uint64_t sequence,
                                                    bool answered) noexcept {
  if (request.opcode == Opcode::kNotify || request.opcode == Opcode::kFlush) [[unlikely]]
    return enqueue_notice_or_flush(request, sequence);
  PostedRequests::Request& record = requests_.at(sequence);
  record = {.local = request.local,
            .length_bytes = request.length_bytes,
            .opcode = request.opcode,
            .answered = answered};
  if (answered) incoming_.expect(record.payload_bytes());
  const bool write = request.opcode == Opcode::kWrite;
  const RequestHeader header{
      .opcode = request.opcode,
      .answered = answered,
      .length_bytes = request.length_bytes,
      .address = request.remote_address,
      .key = request.remote_key,
      .sequence = static_cast<std::uint32_t>(sequence),
      .compare_or_add = request.operands.atomic.compare_or_add,
      .swap = request.operands.atomic.swap,
      .payload_crc = write && payload_crc_ ? crc32c({request.local, request.length_bytes}) : 0};
  constexpr std::size_t kRequest = RequestHeader::kWireBytes;
  const bool copied = write && request.length_bytes < kStraightFrom &&
                      outgoing_.has_room_for_copy(kRequest + request.length_bytes);
  std::byte* const at = outgoing_.add(kRequest + (copied ? request.length_bytes : 0));
  header.to_wire(std::span<std::byte, kRequest>{at, kRequest});
  if (copied)
    std::memcpy(at + kRequest, request.local, request.length_bytes);
  else if (write)
    outgoing_.add_from(request.local, request.length_bytes);
  record.queued_through = outgoing_.queued_bytes();
}

/// A notice, or a flush: a read into memory of the lane.
void TcpLane::enqueue_notice_or_flush(const WorkRequest& request, std::uint64_t sequence) noexcept {
  RequestHeader header = request.opcode == Opcode::kNotify
                             ? RequestHeader::notify(request.notice())
                             : RequestHeader{.opcode = Opcode::kRead,
                                             .length_bytes = request.length_bytes,
                                             .address = request.remote_address,
                                             .key = request.remote_key};
  header.sequence = static_cast<std::uint32_t>(sequence);
  PostedRequests::Request& record = requests_.at(sequence);
  record = {.local = requests_.result(sequence),
            .length_bytes = header.length_bytes,
            .opcode = header.opcode,
            .answered = true};
  incoming_.expect(record.payload_bytes());
  constexpr std::size_t kRequest = RequestHeader::kWireBytes;
  header.to_wire(std::span<std::byte, kRequest>{outgoing_.add(kRequest), kRequest});
  record.queued_through = outgoing_.queued_bytes();
}

PostOutcome TcpLane::post(Chain chain, std::uint64_t first_sequence) noexcept {
  signaled_within_ = 0;
  if (requests_.failed() || in_error_.load(std::memory_order_acquire))
    return {.taken = 0, .error = ENOTCONN};
  requests_.begin_chain(first_sequence);
  const std::size_t half = chain.size() < kHalvedFrom ? 0 : chain.size() / 2;
  std::uint32_t all_answered = 0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::uint64_t sequence = first_sequence + i;
    // The end of a chain, and some requests within a long chain, so that their room is free early.
    const bool answered = !is_write(chain[i]->opcode) || i + 1 == chain.size() || i + 1 == half ||
                          (sequence + 1) % answer_interval_ == 0;
    enqueue(*chain[i], sequence, answered);
    all_answered += answered ? 1 : 0;
  }
  requests_.end_chain(first_sequence + chain.size());
  incoming_.plan_anew();
  outgoing_.flush(socket_.get(), in_error_);
  // Wakes the thread that sleeps, or is about to sleep, when the socket has room for the rest.
  if (outgoing_.pending()) (void)arm();
  signaled_within_ = all_answered - 1;  // the last request is always answered
  return {.taken = chain.size()};
}

std::size_t TcpLane::poll(std::span<LaneCompletion> completions) noexcept {
  if (outgoing_.pending()) outgoing_.flush(socket_.get(), in_error_);
  // The rest of an answer that has begun will come soon: polling for it costs less than a sleep.
  const std::uint64_t done = requests_.done_end();
  int vain = 0;
  for (int tries = 0; tries < kMaxTries && vain < kMaxVain; ++tries) {
    if (requests_.failed() || requests_.done_end() == requests_.next_sequence()) break;
    vain = incoming_.receive() ? 0 : vain + 1;
    if (requests_.done_end() != done || !incoming_.within_payload()) break;
  }
  return requests_.report(completions);
}

Status TcpLane::arm() noexcept {
  const bool wanted = outgoing_.pending();
  if (wanted == waits_for_room_) return {};
  waits_for_room_ = wanted;
  return events_.change(socket_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void TcpLane::move_to_error() noexcept {
  if (!in_error_.exchange(true, std::memory_order_acq_rel)) ::shutdown(socket_.get(), SHUT_RD);
}

void TcpLane::close() noexcept {
  move_to_error();
  // An ended connection stays readable, and must not wake the thread that watches event_fd().
  events_.remove(socket_.get());
  abort_connection(socket_.get());
}

}  // namespace remora::transport::tcp
