#include "transport/tcp/incoming_answers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <span>
#include <sys/socket.h>

#include <remora/assert.h>

#include "base/crc32c.h"

namespace remora::transport::tcp {

namespace {

constexpr std::size_t kStagingBytes = std::size_t{64} * 1024;
/// The most bytes that one receive brings, so that the caller soon gets the completions.
constexpr std::uint64_t kMaxReceiveBytes = std::uint64_t{1} << 20U;

}  // namespace

IncomingAnswers::IncomingAnswers(int socket, PostedRequests& requests,
                                 const OutgoingRequests& outgoing, bool payload_crc)
    : socket_{socket},
      requests_{requests},
      outgoing_{outgoing},
      payload_crc_{payload_crc},
      straight_from_{payload_crc ? UINT32_MAX : kStraightFrom},
      size_{payload_crc ? kStagingBytes + kMaxTransferBytes : kStagingBytes},
      buffer_{std::make_unique_for_overwrite<std::byte[]>(size_)} {}

/// Prepares vectors for the next answers, at least one of which is not staged.
void IncomingAnswers::plan() noexcept {
  std::size_t count = 0;
  std::uint64_t bytes = 0;
  std::size_t cursor = staged_;
  const auto add = [&](std::byte* at, std::size_t length) {
    bytes += length;
    if (count > 0 &&
        static_cast<std::byte*>(parts_[count - 1].iov_base) + parts_[count - 1].iov_len == at)
      parts_[count - 1].iov_len += length;
    else
      parts_[count++] = {.iov_base = at, .iov_len = length};
  };
  std::uint64_t sequence = requests_.expected();
  for (std::size_t answers = 0; answers < kMaxAnswers && sequence != requests_.next_sequence();
       ++answers) {
    const PostedRequests::Request& request = requests_.at(sequence);
    const std::uint32_t payload = request.payload_bytes();
    const bool straight = goes_straight(payload);
    const bool first = sequence == requests_.expected();
    std::size_t staged = kHeader + (straight ? 0 : payload);
    staged -= !first ? 0 : header_taken_ ? kHeader : staged_;
    if (cursor + staged > size_) break;
    if (staged > 0) add(buffer_.get() + cursor, staged);
    cursor += staged;
    const std::uint32_t got = first ? straight_got_ : 0;
    if (straight) add(request.local + got, payload - got);
    if (bytes >= kMaxReceiveBytes) break;
    sequence = requests_.next_answered(sequence + 1);
  }
  part_count_ = count;
}

/// Receives answers that are all staged; no more bytes than their length, since only they may come.
ssize_t IncomingAnswers::receive_staged() noexcept {
  const std::size_t room = std::min<std::uint64_t>(size_ - staged_, awaited_bytes_);
  return ::recv(socket_, buffer_.get() + staged_, room, MSG_DONTWAIT);
}

ssize_t IncomingAnswers::receive_scattered() noexcept {
  if (part_count_ == 0) plan();
  REMORA_ASSERT_HOT(part_count_ != 0, "an answer that is awaited has a place");
  msghdr scattered{};
  scattered.msg_iov = parts_.data();
  scattered.msg_iovlen = part_count_;
  return ::recvmsg(socket_, &scattered, MSG_DONTWAIT);
}

bool IncomingAnswers::receive() noexcept {
  const ssize_t got = awaited_straight_ == 0 ? receive_staged() : receive_scattered();
  if (got > 0) {
    take(static_cast<std::size_t>(got));
    return true;
  }
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  // EFAULT: the local memory of one of these answers cannot be written to. A receive with one
  // vector shows which answer it is: after its header, which is staged, it is the expected answer.
  if (got < 0 && errno == EFAULT && part_count_ > 1) {
    part_count_ = 1;
    return receive();
  }
  const bool no_place = got < 0 && errno == EFAULT && header_taken_;
  fail(no_place ? requests_.expected() : requests_.done_end(),
       no_place ? CompletionStatus::kLocalProtectionError : CompletionStatus::kFlushed);
  return false;
}

/// The fast path for nearly all answers: staged, complete and good. Takes those from `staged` on,
/// and returns how many of the `length` bytes they had; take_staged() handles the rest.
std::size_t IncomingAnswers::take_good(const std::byte* staged, std::size_t length) noexcept {
  if (payload_crc_) return 0;
  std::size_t taken = 0;
  std::uint64_t done = requests_.done_end();
  std::uint64_t expected = requests_.expected();
  while (expected != requests_.next_sequence()) {
    const PostedRequests::Request& request = requests_.at(expected);
    const std::uint32_t payload = request.payload_bytes();
    const std::byte* const at = staged + taken;
    if (payload >= kStraightFrom || length - taken < kHeader + payload ||
        request.queued_through > outgoing_.sent_bytes() ||
        !AnswerHeader::tells_of_success(std::span<const std::byte, kHeader>{at, kHeader},
                                        request.opcode, static_cast<std::uint32_t>(expected),
                                        payload))
      break;
    if (payload != 0) std::memcpy(requests_.destination(expected), at + kHeader, payload);
    taken += kHeader + payload;
    done = expected + 1;
    expected = requests_.next_answered(done);
  }
  requests_.advance(done, expected);
  return taken;
}

/// Handles the bytes of one receive.
void IncomingAnswers::take(std::size_t received) noexcept {
  part_count_ = 0;
  REMORA_ASSERT(received <= awaited_bytes_, "no more bytes are received than are awaited");
  awaited_bytes_ -= received;
  const std::byte* at = buffer_.get();
  if (staged_ == 0 && !header_taken_) {
    const std::size_t good = take_good(at, received);
    at += good;
    received -= good;
  }
  while (received > 0) {
    const PostedRequests::Request& request = requests_.at(requests_.expected());
    const std::uint32_t payload = request.payload_bytes();
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
      REMORA_ASSERT_HOT(awaited_straight_ != 0, "each answer that goes straight was counted");
      --awaited_straight_;
    }
    const std::uint64_t done = requests_.expected() + 1;
    requests_.advance(done, requests_.next_answered(done));
  }
}

/// Handles the expected answer as far as it is staged: `staged_` of `whole` bytes from `staged` on.
/// True: it was complete and good. An incomplete answer is kept for the next receive.
bool IncomingAnswers::take_staged(const std::byte* staged, std::size_t whole) noexcept {
  std::optional<AnswerHeader> answer;
  if (staged_ >= kHeader) {
    answer = AnswerHeader::from_wire(std::span<const std::byte, kHeader>{staged, kHeader});
    if (!answer) fail(requests_.done_end(), CompletionStatus::kBadResponse);
    if (!answer || !check(*answer)) return false;
  }
  if (staged_ < whole) {
    std::memmove(buffer_.get(), staged, staged_);
    return false;
  }
  const std::span payload{staged + kHeader, whole - kHeader};
  if (payload.empty()) return true;
  if (payload_crc_ && crc32c(payload) != answer->payload_crc) {
    fail(requests_.expected(), CompletionStatus::kBadResponse);
    return false;
  }
  std::memcpy(requests_.destination(requests_.expected()), payload.data(), payload.size());
  return true;
}

/// Whether it is the expected answer, and reports success.
bool IncomingAnswers::check(const AnswerHeader& answer) noexcept {
  // An answer also covers the writes before it, so a failure may be that of one of them.
  const std::uint64_t expected = requests_.expected();
  const std::uint64_t back = static_cast<std::uint32_t>(expected) - answer.sequence;
  const bool known = back <= expected - requests_.done_end();
  if (answer.status != CompletionStatus::kSuccess && known) {
    fail(expected - back, answer.status);
    return false;
  }
  const PostedRequests::Request& request = requests_.at(expected);
  // A request that has not been sent completely cannot have succeeded: its buffer is still being
  // read.
  const bool sent = request.queued_through <= outgoing_.sent_bytes();
  const bool has_sum = payload_crc_ && answer.length_bytes != 0;
  if (answer.status == CompletionStatus::kSuccess && sent && back == 0 &&
      answer.opcode == request.opcode && (has_sum || answer.payload_crc == 0) &&
      answer.length_bytes == request.payload_bytes())
    return true;
  // It is not even known whether the requests before it have succeeded.
  fail(requests_.done_end(), CompletionStatus::kBadResponse);
  return false;
}

/// Ends the lane: the requests before `sequence` have succeeded, `sequence` has failed, and the
/// rest is flushed.
void IncomingAnswers::fail(std::uint64_t sequence, CompletionStatus status) noexcept {
  requests_.fail(sequence, status);
  ::shutdown(socket_, SHUT_RD);  // close() of the lane tells the server
}

}  // namespace remora::transport::tcp
