#include "transport/tcp/incoming_requests.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <sys/socket.h>
#include <sys/uio.h>
#include <utility>

#include "transport/tcp/grant_table.h"
#include "transport/tcp/region_memory_access.h"
#include "transport/tcp/step_limits.h"

namespace remora::transport::tcp {

namespace {

constexpr std::size_t kInputBytes = std::size_t{256} * 1024;
/// Bytes of each read that are prefetched; the processor continues by itself when bytes are read in
/// order.
constexpr std::uint32_t kFetchedAhead = 512;
constexpr std::uint32_t kLine = 64;

}  // namespace

IncomingRequests::IncomingRequests(bool payload_crc)
    : straight_from_{payload_crc ? UINT32_MAX : kStraightFrom},
      size_{kInputBytes + (payload_crc ? kMaxTransferBytes : 0)} {
  static_assert(kInputBytes + kMaxTransferBytes <= LaneBuffers::kBytes);
}

IncomingRequests::Received IncomingRequests::receive(int socket) noexcept {
  if (begin_ != 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  std::array<iovec, 2> parts{};
  std::size_t count = 0;
  std::size_t room = 0;
  const std::size_t straight = std::min<std::size_t>(target_left_, kMaxStepBytes);
  if (straight > 0) parts[count++] = {.iov_base = target_, .iov_len = straight};
  if (straight == target_left_) {
    const std::size_t ahead = size_ - end_;
    parts[count++] = {.iov_base = buffer_.data() + end_,
                      .iov_len = large_writes_ && end_ < kHeader ? kHeader - end_ : ahead};
  }
  for (std::size_t i = 0; i < count; ++i) room += parts[i].iov_len;
  const ssize_t got = region_memory::receive(socket, parts.data(), count);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return {};
  if (got <= 0) return {.ended = true};
  const auto bytes = static_cast<std::size_t>(got);
  const auto direct = static_cast<std::uint32_t>(std::min(bytes, straight));
  target_ += direct;
  target_left_ -= direct;
  end_ += bytes - direct;
  half_ = end_ / 2;
  fetched_ = 0;
  return {.any = true, .filled = bytes == room};
}

ssize_t IncomingRequests::discard(int socket) noexcept {
  return ::recv(socket, buffer_.data(), size_, MSG_DONTWAIT);
}

void IncomingRequests::fetch_ahead(const GrantTable& grants) noexcept {
  std::size_t at = std::max(begin_, fetched_);
  for (std::size_t ahead = 0; ahead < kMaxStepRequests && at < end_ && end_ - at >= kHeader;
       ++ahead) {
    const std::byte* const header = buffer_.data() + at;
    const RequestHeader::Place place =
        RequestHeader::place_of(std::span<const std::byte, kHeader>{header, kHeader});
    const std::byte* const memory = grants.locate(place.key, place.address, place.length_bytes);
    if (memory == nullptr) break;
    // A long copy overwrites whole cache lines of its destination, without reading them.
    const std::uint32_t wanted =
        place.payload_bytes >= straight_from_ ? 0 : std::min(place.length_bytes, kFetchedAhead);
    for (std::uint32_t line = 0; line < wanted; line += kLine) __builtin_prefetch(memory + line);
    at += kHeader + place.payload_bytes;
  }
  fetched_ = at;
}

}  // namespace remora::transport::tcp
