#include "transport/tcp/lane.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <optional>
#include <sys/socket.h>
#include <utility>

#include "base/crc32c.h"
#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} * 1024;
/// Small writes are copied behind their headers within the first bytes of outgoing_, so many; what
/// finds no room is sent from where it is. Beyond there is room for the headers of all requests
/// that can be in flight.
constexpr std::size_t kCopiedBytes = std::size_t{32} * 1024;
/// From so many requests on, a chain of writes is answered in the middle too: the caller goes on
/// with that half while the server still works at the other.
constexpr std::size_t kHalvedFrom = 24;
/// Receives in vain, about a third of a microsecond each, for the rest of an answer.
constexpr int kMaxVain = 64;
/// Receives of one poll(), however little each of them brings.
constexpr int kMaxTries = 256;
/// One receive brings about so much at most, so that a caller gets to see it.
constexpr std::uint64_t kMaxReceiveBytes = std::uint64_t{1} << 20U;

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
      straight_from_{payload_crc ? UINT32_MAX : kStraightFrom},
      answer_interval_{std::max<std::uint64_t>(1, depth / 4)},
      ring_(std::bit_ceil(depth)),
      mask_{ring_.size() - 1},
      results_(ring_.size()),
      outgoing_size_{ring_.size() * RequestHeader::kWireBytes + kCopiedBytes},
      outgoing_{std::make_unique_for_overwrite<std::byte[]>(outgoing_size_)},
      staging_size_{payload_crc ? kStagingBytes + kMaxTransferBytes : kStagingBytes},
      staging_{std::make_unique_for_overwrite<std::byte[]>(staging_size_)} {
  output_.reserve(2 * ring_.size());
}

/// So many bytes in outgoing_, behind all that is to be sent.
std::byte* TcpLane::add_outgoing(std::size_t length) noexcept {
  if (outgoing_end_ + length > outgoing_size_) compact_outgoing();
  std::byte* const at = outgoing_.get() + outgoing_end_;
  outgoing_end_ += length;
  if (outgoing_last_) {
    output_.back().iov_len += length;
    queued_bytes_ += length;
  } else {
    add_output(at, length);
    outgoing_last_ = true;
  }
  return at;
}

[[gnu::always_inline]] inline void TcpLane::enqueue(const WorkRequest& request,
                                                    std::uint64_t sequence,
                                                    bool answered) noexcept {
  const bool flush = request.opcode == Opcode::kFlush;
  const Opcode opcode = flush ? Opcode::kRead : request.opcode;
  Posted& record = posted(sequence);
  record = {.local = flush ? result(sequence) : request.local,
            .length_bytes = request.length_bytes,
            .opcode = opcode,
            .answered = answered};
  if (answered) {
    const std::uint32_t payload = answer_bytes(opcode, request.length_bytes);
    awaited_bytes_ += kHeader + payload;
    if (goes_straight(payload)) ++awaited_straight_;
  }
  const bool write = opcode == Opcode::kWrite;
  const RequestHeader header{
      .opcode = opcode,
      .answered = answered,
      .length_bytes = request.length_bytes,
      .address = request.remote_address,
      .key = request.remote_key,
      .sequence = static_cast<std::uint32_t>(sequence),
      .compare_or_add = request.compare_or_add,
      .swap = request.swap,
      .payload_crc = write && payload_crc_ ? crc32c({request.local, request.length_bytes}) : 0};
  constexpr std::size_t kRequest = RequestHeader::kWireBytes;
  const bool copied = write && request.length_bytes < kStraightFrom &&
                      outgoing_end_ + kRequest + request.length_bytes <= kCopiedBytes;
  std::byte* const at = add_outgoing(kRequest + (copied ? request.length_bytes : 0));
  header.to_wire(std::span<std::byte, kRequest>{at, kRequest});
  if (copied)
    std::memcpy(at + kRequest, request.local, request.length_bytes);
  else if (write)
    add_output(request.local, request.length_bytes);
  record.queued_through = queued_bytes_;
}

PostOutcome TcpLane::post(Chain chain, std::uint64_t first_sequence) noexcept {
  signaled_within_ = 0;
  if (failed_ || in_error_.load(std::memory_order_acquire)) return {.taken = 0, .error = ENOTCONN};
  if (next_sequence_ == 0) unreported_ = done_end_ = expected_ = first_sequence;
  const std::size_t half = chain.size() < kHalvedFrom ? 0 : chain.size() / 2;
  std::uint32_t all_answered = 0;
  for (std::size_t i = 0; i < chain.size(); ++i) {
    const std::uint64_t sequence = first_sequence + i;
    // The end of a chain, and now and then within a long one so that its room comes back early.
    const bool answered = !is_write(chain[i]->opcode) || i + 1 == chain.size() || i + 1 == half ||
                          (sequence + 1) % answer_interval_ == 0;
    enqueue(*chain[i], sequence, answered);
    all_answered += answered ? 1 : 0;
  }
  next_sequence_ = first_sequence + chain.size();
  expected_ = next_answered(expected_);
  input_count_ = 0;
  flush();
  // Wakes the thread that sleeps, or is about to, when the socket has room for the rest.
  if (output_first_ < output_.size()) (void)arm();
  signaled_within_ = all_answered - 1;  // the end always is
  return {.taken = chain.size()};
}

/// Takes the place of what has been sent. What is left fits: of the requests in flight all headers,
/// and payload only where these fitted behind it.
void TcpLane::compact_outgoing() noexcept {
  std::byte* const begin = outgoing_.get();
  const std::byte* const end = begin + outgoing_end_;
  std::size_t gone = outgoing_end_;
  for (std::size_t i = output_first_; i < output_.size(); ++i) {
    auto* const at = static_cast<std::byte*>(output_[i].iov_base);
    if (std::less<>{}(at, begin) || !std::less<>{}(at, end)) continue;  // a caller's memory
    gone = std::min(gone, static_cast<std::size_t>(at - begin));        // the first one's
    output_[i].iov_base = at - gone;
  }
  std::memmove(begin, begin + gone, outgoing_end_ - gone);
  outgoing_end_ -= gone;
}

void TcpLane::add_output(const std::byte* bytes, std::size_t length) noexcept {
  queued_bytes_ += length;
  outgoing_last_ = false;
  if (output_.size() == output_.capacity()) {  // what is left is of requests in flight: it fits
    output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(output_first_));
    output_first_ = 0;
  }
  // sendmsg(2) does not write through the vectors it is given.
  output_.push_back({.iov_base = const_cast<std::byte*>(bytes), .iov_len = length});
}

/// Sends what the socket takes.
void TcpLane::flush() noexcept {
  while (output_first_ < output_.size() && !in_error_.load(std::memory_order_acquire)) {
    msghdr gathered{};
    gathered.msg_iov = output_.data() + output_first_;
    gathered.msg_iovlen = std::min<std::size_t>(output_.size() - output_first_, IOV_MAX);
    const ssize_t sent = gathered.msg_iovlen == 1
                             ? ::send(socket_.get(), gathered.msg_iov->iov_base,
                                      gathered.msg_iov->iov_len, MSG_NOSIGNAL | MSG_DONTWAIT)
                             : ::sendmsg(socket_.get(), &gathered, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {  // poll() takes what has been answered, and then finds the end
      ::shutdown(socket_.get(), SHUT_RDWR);
      break;
    }
    sent_bytes_ += static_cast<std::size_t>(sent);
    output_first_ += advance(gathered.msg_iov, static_cast<std::size_t>(sent));
  }
  output_.clear();
  output_first_ = outgoing_end_ = 0;
  outgoing_last_ = false;
}

std::size_t TcpLane::poll(std::span<LaneCompletion> completions) noexcept {
  if (output_first_ < output_.size()) flush();
  // The rest of an answer that has begun is on its way: looking for it costs less than a sleep.
  const std::uint64_t done = done_end_;
  int vain = 0;
  for (int tries = 0; tries < kMaxTries && vain < kMaxVain; ++tries) {
    if (failed_ || done_end_ == next_sequence_) break;
    vain = receive() ? 0 : vain + 1;
    if (done_end_ != done || !header_taken_) break;
  }
  return report(completions);
}

std::uint64_t TcpLane::next_answered(std::uint64_t sequence) const noexcept {
  while (sequence != next_sequence_ && !ring_[sequence & mask_].answered) ++sequence;
  return sequence;
}

std::byte* TcpLane::destination(std::uint64_t sequence) noexcept {
  if (posted(sequence).opcode == Opcode::kRead) return posted(sequence).local;
  return result(sequence);
}

std::byte* TcpLane::result(std::uint64_t sequence) noexcept {
  return reinterpret_cast<std::byte*>(&results_[sequence & mask_]);
}

/// Vectors for the answers that come next, of which one at least is not staged.
void TcpLane::plan() noexcept {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  std::size_t cursor = staged_;
  const auto add = [&](std::byte* at, std::size_t length) {
    bytes += length;
    if (count > 0 &&
        static_cast<std::byte*>(input_[count - 1].iov_base) + input_[count - 1].iov_len == at)
      input_[count - 1].iov_len += length;
    else
      input_[count++] = {.iov_base = at, .iov_len = length};
  };
  std::uint64_t sequence = expected_;
  for (std::size_t answers = 0; answers < kMaxAnswers && sequence != next_sequence_; ++answers) {
    const Posted& request = posted(sequence);
    const std::uint32_t payload = answer_bytes(request.opcode, request.length_bytes);
    const bool straight = goes_straight(payload);
    const bool first = sequence == expected_;
    std::size_t staged = kHeader + (straight ? 0 : payload);
    staged -= !first ? 0 : header_taken_ ? kHeader : staged_;
    if (cursor + staged > staging_size_) break;
    if (staged > 0) add(staging_.get() + cursor, staged);
    cursor += staged;
    const std::uint32_t got = first ? straight_got_ : 0;
    if (straight) add(request.local + got, payload - got);
    if (bytes >= kMaxReceiveBytes) break;
    sequence = next_answered(sequence + 1);
  }
  input_count_ = count;
}

/// Answers that are all staged. No more than they are long: nothing else may come.
ssize_t TcpLane::receive_staged() noexcept {
  const std::size_t room = std::min<std::uint64_t>(staging_size_ - staged_, awaited_bytes_);
  return ::recv(socket_.get(), staging_.get() + staged_, room, MSG_DONTWAIT);
}

ssize_t TcpLane::receive_scattered() noexcept {
  if (input_count_ == 0) plan();
  msghdr scattered{};
  scattered.msg_iov = input_.data();
  scattered.msg_iovlen = input_count_;
  return ::recvmsg(socket_.get(), &scattered, MSG_DONTWAIT);
}

/// True when anything came.
bool TcpLane::receive() noexcept {
  const ssize_t got = awaited_straight_ == 0 ? receive_staged() : receive_scattered();
  if (got > 0) {
    take(static_cast<std::size_t>(got));
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  // EFAULT: the local memory of one of these answers cannot be written to. A receive with one
  // vector shows whose: after its header, staged, the answer that is expected.
  if (got < 0 && errno == EFAULT && input_count_ > 1) {
    input_count_ = 1;
    return receive();
  }
  const bool no_place = got < 0 && errno == EFAULT && header_taken_;
  fail(no_place ? expected_ : done_end_,
       no_place ? CompletionStatus::kLocalProtectionError : CompletionStatus::kFlushed);
  return false;
}

/// The short way for what nearly all answers are: staged, whole, and as they should be. Takes those
/// from `staged` on, and says of how many of `length` bytes they were; what comes then is for
/// take_staged() to judge.
std::size_t TcpLane::take_good(const std::byte* staged, std::size_t length) noexcept {
  if (payload_crc_) return 0;
  std::size_t taken = 0;
  std::uint64_t expected = expected_;
  while (expected != next_sequence_) {
    const Posted& request = posted(expected);
    const std::uint32_t payload = answer_bytes(request.opcode, request.length_bytes);
    const std::byte* const at = staged + taken;
    if (payload >= kStraightFrom || length - taken < kHeader + payload ||
        request.queued_through > sent_bytes_ ||
        !AnswerHeader::tells_of_success(std::span<const std::byte, kHeader>{at, kHeader},
                                        request.opcode, static_cast<std::uint32_t>(expected),
                                        payload))
      break;
    if (payload != 0) std::memcpy(destination(expected), at + kHeader, payload);
    taken += kHeader + payload;
    done_end_ = expected + 1;
    expected = next_answered(expected + 1);
  }
  expected_ = expected;
  return taken;
}

/// Takes what a receive has brought.
void TcpLane::take(std::size_t received) noexcept {
  input_count_ = 0;
  awaited_bytes_ -= received;
  const std::byte* at = staging_.get();
  if (staged_ == 0 && !header_taken_) {
    const std::size_t good = take_good(at, received);
    at += good;
    received -= good;
  }
  while (received > 0) {
    const Posted& request = posted(expected_);
    const std::uint32_t payload = answer_bytes(request.opcode, request.length_bytes);
    const bool straight = goes_straight(payload);
    if (!header_taken_) {
      const std::size_t whole = kHeader + (straight ? 0 : payload);
      const std::size_t part = std::min(received, whole - staged_);
      staged_ += part;
      received -= part;
      if (!take_staged(at, whole)) return;
      at += whole;
      staged_ = 0;
    }
    if (straight) {
      header_taken_ = true;
      const auto part =
          static_cast<std::uint32_t>(std::min<std::size_t>(received, payload - straight_got_));
      straight_got_ += part;
      received -= part;
      if (straight_got_ < payload) return;
      header_taken_ = false;
      straight_got_ = 0;
      --awaited_straight_;
    }
    done_end_ = expected_ + 1;
    expected_ = next_answered(done_end_);
  }
}

/// The expected answer as far as it is staged: `staged_` of `whole` bytes from `staged` on. True
/// when it is whole and good; what is not whole is kept for the next receive.
bool TcpLane::take_staged(const std::byte* staged, std::size_t whole) noexcept {
  std::optional<AnswerHeader> answer;
  if (staged_ >= kHeader) {
    answer = AnswerHeader::from_wire(std::span<const std::byte, kHeader>{staged, kHeader});
    if (!answer) fail(done_end_, CompletionStatus::kBadResponse);
    if (!answer || !check(*answer)) return false;
  }
  if (staged_ < whole) {
    std::memmove(staging_.get(), staged, staged_);
    return false;
  }
  const std::span payload{staged + kHeader, whole - kHeader};
  if (payload.empty()) return true;
  if (payload_crc_ && crc32c(payload) != answer->payload_crc) {
    fail(expected_, CompletionStatus::kBadResponse);
    return false;
  }
  std::memcpy(destination(expected_), payload.data(), payload.size());
  return true;
}

/// Whether it is the answer that is expected, and a good one.
bool TcpLane::check(const AnswerHeader& answer) noexcept {
  // An answer also stands for the writes before it, so a failure may be of one of these.
  const std::uint64_t back = static_cast<std::uint32_t>(expected_) - answer.sequence;
  const std::uint64_t sequence = expected_ - back;
  const bool known = back <= expected_ - done_end_;
  if (answer.status != CompletionStatus::kSuccess && known) {
    fail(sequence, answer.status);
    return false;
  }
  const Posted& request = posted(expected_);
  // A request that has not left whole cannot have succeeded: its buffer is still being read.
  const bool sent = request.queued_through <= sent_bytes_;
  const bool has_sum = payload_crc_ && answer.length_bytes != 0;
  if (answer.status == CompletionStatus::kSuccess && sent && back == 0 &&
      answer.opcode == request.opcode && (has_sum || answer.payload_crc == 0) &&
      answer.length_bytes == answer_bytes(request.opcode, request.length_bytes))
    return true;
  // Not even that what stands before it has succeeded is known.
  fail(done_end_, CompletionStatus::kBadResponse);
  return false;
}

/// The end of the lane: what stands before `sequence` has succeeded, it has not, and the rest is
/// flushed.
void TcpLane::fail(std::uint64_t sequence, CompletionStatus status) noexcept {
  failed_ = true;
  fault_ = sequence;
  fault_status_ = status;
  done_end_ = std::max(done_end_, sequence);
  ::shutdown(socket_.get(), SHUT_RD);  // the server hears of it by close()
}

std::size_t TcpLane::report(std::span<LaneCompletion> completions) noexcept {
  std::size_t count = 0;
  if (done_end_ > unreported_ && count < completions.size()) {
    completions[count++] = {
        .sequence = done_end_ - 1, .status = CompletionStatus::kSuccess, .vendor_error = 0};
    unreported_ = done_end_;
  }
  for (; failed_ && unreported_ != next_sequence_ && count < completions.size(); ++unreported_)
    completions[count++] = {
        .sequence = unreported_,
        .status = unreported_ == fault_ ? fault_status_ : CompletionStatus::kFlushed,
        .vendor_error = 0};
  return count;
}

Status TcpLane::arm() noexcept {
  const bool wanted = output_first_ < output_.size();
  if (wanted == waits_for_room_) return {};
  waits_for_room_ = wanted;
  return events_.change(socket_.get(), wanted ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

void TcpLane::move_to_error() noexcept {
  if (!in_error_.exchange(true, std::memory_order_acq_rel)) ::shutdown(socket_.get(), SHUT_RD);
}

void TcpLane::close() noexcept {
  move_to_error();
  // An ended connection is readable for ever, and must not wake the thread that watches event_fd().
  events_.remove(socket_.get());
  abort_connection(socket_.get());
}

}  // namespace remora::transport::tcp
