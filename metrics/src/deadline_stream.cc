#include "deadline_stream.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <poll.h>
#include <sys/socket.h>

namespace remora::metrics {

bool DeadlineStream::is_readable() const {
  return head_read_bytes_ < head_.size() || begin_ < end_ ||
         wait_for(fd_, POLLIN, stop_, deadline_) == Wait::kReady;
}

bool DeadlineStream::is_writable() const {
  return wait_for(fd_, POLLOUT, stop_, deadline_) == Wait::kReady;
}

ssize_t DeadlineStream::read(char* data, std::size_t size) {
  if (head_read_bytes_ < head_.size()) {
    const std::size_t length = head_.copy(data, size, head_read_bytes_);
    head_read_bytes_ += length;
    return static_cast<ssize_t>(length);
  }
  while (begin_ == end_) {
    if (received_bytes_ >= kRequestBytesMax) return -1;
    if (wait_for(fd_, POLLIN, stop_, deadline_) != Wait::kReady) return -1;
    const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return got;
    begin_ = 0;
    end_ = static_cast<std::size_t>(got);
    received_bytes_ += end_;
  }
  const std::size_t length = std::min(size, end_ - begin_);
  std::copy_n(buffer_.data() + begin_, length, data);
  begin_ += length;
  return static_cast<ssize_t>(length);
}

ssize_t DeadlineStream::write(const char* data, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    if (wait_for(fd_, POLLOUT, stop_, deadline_) != Wait::kReady) return -1;
    const ssize_t sent = ::send(fd_, data + done, size - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return -1;
    if (sent > 0) done += static_cast<std::size_t>(sent);
  }
  return static_cast<ssize_t>(size);
}

void DeadlineStream::get_remote_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void DeadlineStream::get_local_ip_and_port(std::string& ip, int& port) const {
  ip.clear();
  port = 0;
}

void DeadlineStream::finish() noexcept {
  constexpr std::chrono::milliseconds kPatience{300};
  constexpr int kReadsMax = 256;
  if (::shutdown(fd_, SHUT_WR) != 0) return;
  const Deadline until = std::min(deadline_, std::chrono::steady_clock::now() + kPatience);
  for (int i = 0; i < kReadsMax; ++i) {
    if (wait_for(fd_, POLLIN, stop_, until) != Wait::kReady) return;
    const ssize_t got = ::recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return;
  }
}

}  // namespace remora::metrics
