#include "transport/tcp/server_lane.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <utility>

#include "base/crc32c.h"
#include "transport/tcp/region_memory_access.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

namespace {

constexpr std::size_t kHeader = RequestHeader::kWireBytes;
constexpr std::size_t kInputBytes = std::size_t{256} * 1024;
/// From so many requests on, the answers to the first half of what has been received are sent
/// before the other half is served: the client goes on with these meanwhile.
constexpr std::size_t kHalfFrom = 12;
/// After a write of so many bytes only a header is received ahead of the next one's bytes, so that
/// these go straight to where they belong.
constexpr std::uint32_t kLargeWrite = 16 * 1024;
/// Of each read; the processor goes on by itself where bytes are read in order.
constexpr std::uint32_t kFetchedAhead = 512;
constexpr std::uint32_t kLine = 64;

}  // namespace

ServerLane::ServerLane(UniqueFd socket, std::shared_ptr<ServedSession> session, bool payload_crc)
    : socket_{std::move(socket)},
      session_{std::move(session)},
      payload_crc_{payload_crc},
      straight_from_{payload_crc ? UINT32_MAX : kStraightFrom},
      input_size_{kInputBytes + (payload_crc ? kMaxTransferBytes : 0)},
      input_{input_size_},
      outgoing_size_{kMaxRequests * AnswerHeader::kWireBytes +
                     (payload_crc ? kMaxBytes + kMaxTransferBytes : kMaxRequests * kStraightFrom)},
      outgoing_{outgoing_size_} {}

ServerLane::Progress ServerLane::step(const GrantTable& grants, ServedCounts& served) noexcept {
  moved_ = false;
  if (dead_) return Progress::kDead;
  if (output_pending())
    if (const Progress sent = flush(); sent != Progress::kIdle) return sent;
  if (refused_) return drain();
  filled_ = false;
  if (starved_ || target_left_ > 0)
    if (!receive()) return Progress::kDead;
  const Stop stop = serve(grants, served);
  if (dead_) return Progress::kDead;
  starved_ = stop == Stop::kNeedsBytes;
  if (output_pending())
    if (const Progress sent = flush(); sent != Progress::kIdle) return sent;
  if (stop == Stop::kNeedsRoom) {
    dead_ = hung_up;
    return dead_ ? Progress::kDead : Progress::kParked;
  }
  return starved_ && !filled_ && !refused_ ? Progress::kIdle : Progress::kMore;
}

/// One receive: the rest of a write to where it belongs, then what comes behind it.
bool ServerLane::receive() noexcept {
  if (begin_ != 0) {
    std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  std::size_t room = 0;
  const std::size_t straight = std::min<std::size_t>(target_left_, kMaxBytes);
  if (straight > 0) parts[count++] = {.iov_base = target_, .iov_len = straight};
  if (straight == target_left_) {
    const std::size_t ahead = input_size_ - end_;
    parts[count++] = {.iov_base = input_.data() + end_,
                      .iov_len = large_writes_ && end_ < kHeader ? kHeader - end_ : ahead};
  }
  for (std::size_t i = 0; i < count; ++i) room += parts[i].iov_len;
  const ssize_t got = region_memory::receive(socket_.get(), parts.data(), count);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
  if (got <= 0) {
    dead_ = true;
    return false;
  }
  const auto bytes = static_cast<std::size_t>(got);
  filled_ = bytes == room;
  moved_ = true;
  const auto direct = static_cast<std::uint32_t>(std::min(bytes, straight));
  target_ += direct;
  target_left_ -= direct;
  end_ += bytes - direct;
  half_ = end_ / 2;
  fetched_ = 0;
  return true;
}

/// Asks the processor for the memory of the requests that are buffered, for all at once: served one
/// by one, each would wait for its page and its lines. Headers are not judged here, so nothing is
/// done with what they say.
void ServerLane::fetch_ahead(const GrantTable& grants) noexcept {
  std::size_t at = std::max(begin_, fetched_);
  for (std::size_t ahead = 0; ahead < kMaxRequests && at < end_ && end_ - at >= kHeader; ++ahead) {
    const std::byte* const header = input_.data() + at;
    const RequestHeader::Place place =
        RequestHeader::place_of(std::span<const std::byte, kHeader>{header, kHeader});
    const std::byte* const memory = grants.locate(place.key, place.address, place.length_bytes);
    if (memory == nullptr) break;
    // A long copy to a place overwrites whole lines: it reads nothing there.
    const std::uint32_t wanted =
        goes_straight(place.payload_bytes) ? 0 : std::min(place.length_bytes, kFetchedAhead);
    for (std::uint32_t line = 0; line < wanted; line += kLine) __builtin_prefetch(memory + line);
    at += kHeader + place.payload_bytes;
  }
  fetched_ = at;
}

/// Serves what is buffered, in order.
ServerLane::Stop ServerLane::serve(const GrantTable& grants, ServedCounts& served) noexcept {
  if (target_ != nullptr) {
    if (target_left_ > 0) return Stop::kNeedsBytes;
    target_ = nullptr;
    if (write_.answered) answer(write_);
  }
  fetch_ahead(grants);
  std::uint64_t bytes = 0;
  for (std::size_t requests = 0; requests < kMaxRequests - 1; ++requests) {
    if (bytes >= kMaxBytes) return Stop::kLimit;
    if (begin_ >= half_) {
      half_ = input_size_;
      if (requests >= kHalfFrom && output_pending()) return Stop::kLimit;
    }
    if (end_ - begin_ < kHeader) return Stop::kNeedsBytes;
    const auto request = RequestHeader::from_wire(
        std::span<const std::byte, kHeader>{input_.data() + begin_, kHeader});
    if (!request || (next_sequence_ && request->sequence != *next_sequence_)) {
      dead_ = true;
      return Stop::kEnded;
    }
    if (request->opcode == Opcode::kNotify) {
      if (!session_->put_notice({.grant_id = request->swap,
                                 .offset_bytes = request->address,
                                 .length_bytes = request->compare_or_add,
                                 .tag = request->key}))
        return Stop::kNeedsRoom;
      answer(*request);
      begin_ += kHeader;
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
      begin_ += kHeader;
    } else {
      // What is read is sent at the end of the step: it must be what stood there before.
      if (overlaps_pending(target.memory, request->length_bytes)) return Stop::kLimit;
      if (request->opcode == Opcode::kWrite) {
        const Stop stop = serve_write(*request, target.memory, served);
        if (stop != Stop::kLimit) return stop;
      } else if (request->opcode == Opcode::kWriteZeroes) {
        region_memory::zero(target.memory, request->length_bytes);
        if (request->answered) answer(*request);
        begin_ += kHeader;
      } else {
        serve_atomic(*request, target.memory);
        begin_ += kHeader;
      }
    }
    large_writes_ = request->opcode == Opcode::kWrite && request->length_bytes >= kLargeWrite;
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

/// Puts the write's bytes there. kLimit: all of them are, go on with the next request.
ServerLane::Stop ServerLane::serve_write(const RequestHeader& request, std::byte* memory,
                                         ServedCounts& served) noexcept {
  const std::size_t buffered = end_ - begin_ - kHeader;
  const std::byte* const payload = input_.data() + begin_ + kHeader;
  if (payload_crc_) {
    if (buffered < request.length_bytes) return Stop::kNeedsBytes;  // the buffer holds the largest
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
  begin_ += kHeader + part;
  if (part == request.length_bytes) {
    if (request.answered) answer(request);
    return Stop::kLimit;
  }
  write_ = request;
  target_ = memory + part;
  target_left_ = request.length_bytes - part;
  large_writes_ = request.length_bytes >= kLargeWrite;
  next_sequence_ = request.sequence + 1;
  ++served.operations[static_cast<std::size_t>(Opcode::kWrite)];
  return Stop::kNeedsBytes;
}

/// False: no room for the copy in this step.
bool ServerLane::serve_read(const RequestHeader& request, const std::byte* memory) noexcept {
  const std::uint32_t length = request.length_bytes;
  if (goes_straight(length)) {
    reads_[read_count_++] = {memory, length, request.key};
    answer(request);
    add_output(memory, length);
    return true;
  }
  if (outgoing_size_ - outgoing_end_ < AnswerHeader::kWireBytes + length) return false;
  region_memory::copy(next_payload(), memory, length);
  answer(request);
  return true;
}

void ServerLane::serve_atomic(const RequestHeader& request, std::byte* memory) noexcept {
  const std::atomic_ref<std::uint64_t> word{*reinterpret_cast<std::uint64_t*>(memory)};
  std::uint64_t old = request.compare_or_add;
  if (request.opcode == Opcode::kFetchAdd)
    old = word.fetch_add(request.compare_or_add);
  else
    word.compare_exchange_strong(old, request.swap);
  std::memcpy(next_payload(), &old, sizeof old);
  answer(request);
}

/// The last answer of this lane. What the client has sent behind the request is not served.
void ServerLane::refuse(const RequestHeader& request, CompletionStatus status) noexcept {
  refused_ = true;
  answer(request, status);
}

/// What follows the header is at next_payload(), or goes straight.
void ServerLane::answer(const RequestHeader& request, CompletionStatus status) noexcept {
  const std::uint32_t payload_bytes =
      status == CompletionStatus::kSuccess ? answer_bytes(request.opcode, request.length_bytes) : 0;
  const std::size_t length =
      AnswerHeader::kWireBytes + (goes_straight(payload_bytes) ? 0 : payload_bytes);
  std::byte* const at = outgoing_.data() + outgoing_end_;
  AnswerHeader{.status = status,
               .opcode = request.opcode,
               .sequence = request.sequence,
               .length_bytes = payload_bytes,
               .payload_crc = payload_crc_ ? crc32c({next_payload(), payload_bytes}) : 0}
      .to_wire(std::span<std::byte, AnswerHeader::kWireBytes>{at, AnswerHeader::kWireBytes});
  add_output(at, length);
  outgoing_end_ += length;
}

void ServerLane::add_output(const std::byte* bytes, std::size_t length) noexcept {
  if (output_count_ > 0) {
    iovec& last = output_[output_count_ - 1];
    if (static_cast<std::byte*>(last.iov_base) + last.iov_len == bytes) {
      last.iov_len += length;
      return;
    }
  }
  // sendmsg(2) does not write through the vectors it is given.
  output_[output_count_++] = {.iov_base = const_cast<std::byte*>(bytes), .iov_len = length};
}

bool ServerLane::overlaps_pending(const std::byte* memory, std::uint32_t length) const noexcept {
  return std::any_of(reads_.begin(), reads_.begin() + static_cast<std::ptrdiff_t>(read_count_),
                     [&](const PendingRead& read) {
                       return memory < read.memory + read.length_bytes &&
                              read.memory < memory + length;
                     });
}

/// One send of at most kMaxBytes. kIdle: nothing is left.
ServerLane::Progress ServerLane::flush() noexcept {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  while (output_first_ + count < output_count_ && bytes < kMaxBytes)
    bytes += output_[output_first_ + count++].iov_len;
  iovec& last = output_[output_first_ + count - 1];
  const std::size_t beyond = bytes > kMaxBytes ? bytes - kMaxBytes : 0;
  last.iov_len -= beyond;
  iovec* const first = output_.data() + output_first_;
  const ssize_t sent = region_memory::send(socket_.get(), first, count);
  last.iov_len += beyond;
  if (sent < 0) {
    if (errno == EAGAIN) return Progress::kBlocked;
    if (errno == EINTR) return Progress::kMore;
    dead_ = true;
    return Progress::kDead;
  }
  moved_ = true;
  output_first_ += advance(first, static_cast<std::size_t>(sent));
  if (output_pending())
    return static_cast<std::uint64_t>(sent) == bytes - beyond ? Progress::kMore
                                                              : Progress::kBlocked;
  output_first_ = output_count_ = outgoing_end_ = read_count_ = 0;
  return Progress::kIdle;
}

/// After a refusal: says that nothing more comes and waits for the client's hang-up, so that the
/// refusal is not lost with a connection that is reset.
ServerLane::Progress ServerLane::drain() noexcept {
  if (!std::exchange(said_all_, true)) ::shutdown(socket_.get(), SHUT_WR);
  const ssize_t got = ::recv(socket_.get(), input_.data(), input_size_, MSG_DONTWAIT);
  if (got > 0) return Progress::kMore;
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Progress::kIdle;
  dead_ = true;
  return Progress::kDead;
}

bool ServerLane::touches(std::uint32_t key) const noexcept {
  if (target_ != nullptr && write_.key == key) return true;
  return std::any_of(reads_.begin(), reads_.begin() + static_cast<std::ptrdiff_t>(read_count_),
                     [key](const PendingRead& read) { return read.key == key; });
}

void ServerLane::abort() noexcept {
  dead_ = true;
  aborted_.store(true, std::memory_order_relaxed);
  target_ = nullptr;
  target_left_ = 0;
  read_count_ = 0;
  output_first_ = output_count_ = outgoing_end_ = 0;
  ::shutdown(socket_.get(), SHUT_RDWR);
}

}  // namespace remora::transport::tcp
