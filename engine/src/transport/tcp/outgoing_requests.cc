#include "transport/tcp/outgoing_requests.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <functional>
#include <sys/socket.h>
#include <sys/types.h>

#include "transport/tcp/socket.h"

namespace remora::transport::tcp {

OutgoingRequests::OutgoingRequests(std::size_t requests_max)
    : size_{requests_max * RequestHeader::kWireBytes + kCopiedBytes},
      buffer_{std::make_unique_for_overwrite<std::byte[]>(size_)} {
  parts_.reserve(2 * requests_max);
}

/// Moves the unsent bytes to the start of the buffer. They fit: headers of all requests in flight,
/// and payload only if it fitted behind them before.
void OutgoingRequests::compact() noexcept {
  std::byte* const begin = buffer_.get();
  const std::byte* const end = begin + end_;
  std::size_t gone = end_;
  for (std::size_t i = first_; i < parts_.size(); ++i) {
    auto* const at = static_cast<std::byte*>(parts_[i].iov_base);
    if (std::less<>{}(at, begin) || !std::less<>{}(at, end)) continue;  // a caller's memory
    gone = std::min(gone, static_cast<std::size_t>(at - begin));        // of the first part
    parts_[i].iov_base = at - gone;
  }
  std::memmove(begin, begin + gone, end_ - gone);
  end_ -= gone;
}

void OutgoingRequests::flush(int socket, const std::atomic<bool>& ended) noexcept {
  while (first_ < parts_.size() && !ended.load(std::memory_order_acquire)) {
    msghdr gathered{};
    gathered.msg_iov = parts_.data() + first_;
    gathered.msg_iovlen = std::min<std::size_t>(parts_.size() - first_, IOV_MAX);
    const ssize_t sent = gathered.msg_iovlen == 1
                             ? ::send(socket, gathered.msg_iov->iov_base, gathered.msg_iov->iov_len,
                                      MSG_NOSIGNAL | MSG_DONTWAIT)
                             : ::sendmsg(socket, &gathered, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {  // the lane handles received answers, then finds the end
      ::shutdown(socket, SHUT_RDWR);
      break;
    }
    sent_bytes_ += static_cast<std::size_t>(sent);
    first_ += advance(gathered.msg_iov, static_cast<std::size_t>(sent));
  }
  parts_.clear();
  first_ = end_ = 0;
  buffer_is_last_ = false;
}

}  // namespace remora::transport::tcp
