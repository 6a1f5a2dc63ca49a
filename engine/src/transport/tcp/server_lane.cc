#include "transport/tcp/server_lane.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/socket.h>
#include <utility>

#include "base/crc32c.h"
#include "base/log.h"
#include "transport/tcp/region_memory_access.h"

namespace remora::transport::tcp {

namespace {

constexpr std::size_t kHeader = RequestHeader::kWireBytes;
constexpr std::uint64_t kAnswerHeaders = kMaxStepRequests * AnswerHeader::kWireBytes;
/// From this number of requests on, the answers to the first half of the received requests are sent
/// before the other half is served, so that the client continues meanwhile.
constexpr std::size_t kHalfFrom = 12;

}  // namespace

ServerLane::ServerLane(UniqueFd socket, std::shared_ptr<ServedSession> session, bool payload_crc)
    : socket_{std::move(socket)},
      session_{std::move(session)},
      payload_crc_{payload_crc},
      incoming_{payload_crc},
      outgoing_{payload_crc} {}

ServerLane::Progress ServerLane::step(const GrantTable& grants, LaneBuffers& buffers,
                                      ServedCounts& served, std::uint64_t bytes_max) noexcept {
  moved_ = false;
  // With payload CRC the answers of a step have to fit into its buffer.
  step_bytes_max_ = payload_crc_ ? kMaxStepBytes : bytes_max;
  if (!dead_ && !(incoming_.begin_step(buffers) && outgoing_.begin_step(buffers))) {
    log::warn({"connection.no_memory"},
              "tcp: a connection ends: there is no memory for its requests");
    dead_ = true;
  }
  const Progress progress = dead_ ? Progress::kDead : go_on(grants, served);
  if (progress == Progress::kDead) outgoing_.drop();
  incoming_.end_step(buffers);
  outgoing_.end_step(buffers);
  return progress;
}

/// A step of a lane that has its buffers.
ServerLane::Progress ServerLane::go_on(const GrantTable& grants, ServedCounts& served) noexcept {
  if (outgoing_.pending())
    if (const Progress sent = flush(); sent != Progress::kIdle) return sent;
  if (refused_) return drain();
  bool filled = false;
  if (starved_ || incoming_.write_left_bytes() > 0) {
    const IncomingRequests::Received received = incoming_.receive(socket_.get());
    dead_ = received.ended;
    if (dead_) return Progress::kDead;
    moved_ = moved_ || received.any;
    filled = received.filled;
  }
  const Stop stop = serve(grants, served);
  if (dead_) return Progress::kDead;
  starved_ = stop == Stop::kNeedsBytes;
  if (outgoing_.pending())
    if (const Progress sent = flush(); sent != Progress::kIdle) return sent;
  if (stop == Stop::kNeedsRoom) {
    dead_ = hung_up;
    return dead_ ? Progress::kDead : Progress::kParked;
  }
  return starved_ && !filled && !refused_ ? Progress::kIdle : Progress::kMore;
}

/// Serves the buffered requests, in order.
ServerLane::Stop ServerLane::serve(const GrantTable& grants, ServedCounts& served) noexcept {
  if (incoming_.in_write()) {
    if (incoming_.write_left_bytes() > 0) return Stop::kNeedsBytes;
    const RequestHeader& write = incoming_.end_write();
    if (write.answered) outgoing_.answer(write);
  }
  incoming_.fetch_ahead(grants);
  std::uint64_t bytes = 0;
  for (std::size_t requests = 0; requests < kMaxStepRequests - 1; ++requests) {
    if (bytes >= step_bytes_max_) return Stop::kLimit;
    if (incoming_.passes_half() && requests >= kHalfFrom && outgoing_.pending())
      return Stop::kLimit;
    if (incoming_.buffered_bytes() < kHeader) return Stop::kNeedsBytes;
    const auto request =
        RequestHeader::from_wire(std::span<const std::byte, kHeader>{incoming_.next(), kHeader});
    if (!request || (next_sequence_ && request->sequence != *next_sequence_)) {
      dead_ = true;
      return Stop::kEnded;
    }
    if (request->opcode == Opcode::kNotify) {
      if (!session_->put_notice(request->notice())) return Stop::kNeedsRoom;
      outgoing_.answer(*request);
      incoming_.skip(kHeader);
      next_sequence_ = request->sequence + 1;
      continue;
    }
    const GrantTable::Target target = grants.resolve(*request);
    if (target.status != CompletionStatus::kSuccess) {
      ++served.refused;
      refuse(*request, target.status);
      return Stop::kEnded;
    }
    if (request->opcode == Opcode::kRead) {
      if (!serve_read(*request, target.memory)) return Stop::kLimit;
      incoming_.skip(kHeader);
    } else {
      // The bytes of a read are sent at the end of the step: the write must not change them before.
      if (outgoing_.overlaps(target.memory, request->length_bytes)) return Stop::kLimit;
      if (request->opcode == Opcode::kWrite) {
        const Stop stop = serve_write(*request, target.memory, served);
        if (stop != Stop::kLimit) return stop;
      } else if (request->opcode == Opcode::kWriteZeroes) {
        region_memory::zero(target.memory, request->length_bytes);
        if (request->answered) outgoing_.answer(*request);
        incoming_.skip(kHeader);
      } else {
        serve_atomic(*request, target.memory);
        incoming_.skip(kHeader);
      }
    }
    incoming_.expect_more_like(*request);
    next_sequence_ = request->sequence + 1;
    count(*request, served);
    bytes += request->length_bytes;
  }
  return Stop::kLimit;
}

void ServerLane::count(const RequestHeader& request, ServedCounts& served) noexcept {
  const bool zeroes = request.opcode == Opcode::kWriteZeroes;
  ++served.operations[static_cast<std::size_t>(zeroes ? Opcode::kWrite : request.opcode)];
  if (request.opcode == Opcode::kRead) served.bytes[0] += request.length_bytes;
  if (zeroes) served.bytes[1] += request.length_bytes;
}

/// Copies the write's bytes to `memory`. kLimit: all of them are there; continue with the next
/// request.
ServerLane::Stop ServerLane::serve_write(const RequestHeader& request, std::byte* memory,
                                         ServedCounts& served) noexcept {
  const std::size_t buffered = incoming_.buffered_bytes() - kHeader;
  const std::byte* const payload = incoming_.next() + kHeader;
  if (payload_crc_) {
    if (buffered < request.length_bytes) return Stop::kNeedsBytes;  // it holds the largest write
    if (crc32c({payload, request.length_bytes}) != request.payload_crc) {
      ++served.corrupt;
      refuse(request, CompletionStatus::kRemoteOperationError);
      return Stop::kEnded;
    }
  }
  served.bytes[1] += request.length_bytes;
  const auto part =
      static_cast<std::uint32_t>(std::min<std::size_t>(buffered, request.length_bytes));
  region_memory::copy(memory, payload, part);
  incoming_.skip(kHeader + part);
  if (part == request.length_bytes) {
    if (request.answered) outgoing_.answer(request);
    return Stop::kLimit;
  }
  incoming_.begin_write(request, memory + part, request.length_bytes - part);
  incoming_.expect_more_like(request);
  next_sequence_ = request.sequence + 1;
  ++served.operations[static_cast<std::size_t>(Opcode::kWrite)];
  return Stop::kNeedsBytes;
}

/// False: this step has no room for the copy.
bool ServerLane::serve_read(const RequestHeader& request, const std::byte* memory) noexcept {
  const std::uint32_t length = request.length_bytes;
  if (outgoing_.goes_straight(length)) {
    outgoing_.answer_read(request, memory);
    return true;
  }
  if (!outgoing_.has_room(length)) return false;
  region_memory::copy(outgoing_.next_payload(), memory, length);
  outgoing_.answer(request);
  return true;
}

void ServerLane::serve_atomic(const RequestHeader& request, std::byte* memory) noexcept {
  const std::atomic_ref<std::uint64_t> word{*reinterpret_cast<std::uint64_t*>(memory)};
  std::uint64_t old = request.compare_or_add;
  if (request.opcode == Opcode::kFetchAdd)
    old = word.fetch_add(request.compare_or_add);
  else
    word.compare_exchange_strong(old, request.swap);
  std::memcpy(outgoing_.next_payload(), &old, sizeof old);
  outgoing_.answer(request);
}

/// Adds the last answer of this lane. Requests behind this one are not served.
void ServerLane::refuse(const RequestHeader& request, CompletionStatus status) noexcept {
  refused_ = true;
  outgoing_.answer(request, status);
}

/// One send. kIdle: nothing is left.
ServerLane::Progress ServerLane::flush() noexcept {
  // Headers do not count: else those of a step that is full would need a send of their own.
  switch (outgoing_.flush(socket_.get(), step_bytes_max_ + kAnswerHeaders, moved_)) {
    case OutgoingAnswers::Sent::kAll: return Progress::kIdle;
    case OutgoingAnswers::Sent::kMore: return Progress::kMore;
    case OutgoingAnswers::Sent::kBlocked: return Progress::kBlocked;
    case OutgoingAnswers::Sent::kFailed: break;
  }
  dead_ = true;
  return Progress::kDead;
}

/// After a refusal: ends the stream and waits until the client disconnects, so that a reset of the
/// connection does not lose the refusal.
ServerLane::Progress ServerLane::drain() noexcept {
  if (!std::exchange(said_all_, true)) ::shutdown(socket_.get(), SHUT_WR);
  const ssize_t got = incoming_.discard(socket_.get());
  if (got > 0) return Progress::kMore;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kIdle;
  dead_ = true;
  return Progress::kDead;
}

bool ServerLane::touches(std::uint32_t key) const noexcept {
  return incoming_.writes_by(key) || outgoing_.reads_by(key);
}

void ServerLane::abort() noexcept {
  dead_ = true;
  aborted_.store(true, std::memory_order_relaxed);
  incoming_.drop_write();
  outgoing_.drop();
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace remora::transport::tcp
