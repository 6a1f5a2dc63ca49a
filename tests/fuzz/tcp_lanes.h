#pragma once

/// What the two halves of tcp_frames_fuzz share: a pair of sockets whose bytes go on when the input
/// says so.

#include <cerrno>
#include <cstddef>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "base/unique_fd.h"
#include "input.h"

namespace remora::fuzz {

using Bytes = std::vector<std::byte>;

/// A connected pair. Non-blocking, in one thread.
struct SocketPair {
  /// `buffer_bytes`: of the sockets; 0: the system's.
  explicit SocketPair(int buffer_bytes) {
    int fds[2];
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0,
            "socketpair");
    ours = UniqueFd{fds[0]};
    lane = UniqueFd{fds[1]};
    if (buffer_bytes == 0) return;
    for (const int fd : fds)
      ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &buffer_bytes, sizeof buffer_bytes);
  }
  UniqueFd ours;
  UniqueFd lane;  ///< to be given to the lane
};

/// The peer's side of a lane: what it says, of which part has left, and what it has heard.
class Peer {
 public:
  explicit Peer(UniqueFd socket) : socket_{std::move(socket)} {}

  void say(std::span<const std::byte> bytes) {
    said_.insert(said_.end(), bytes.begin(), bytes.end());
  }
  /// Sends at most `most` bytes of what is to be said. How many have left.
  std::size_t deliver(std::size_t most) {
    const std::size_t part = std::min(most, said_.size() - delivered_);
    if (part == 0) return 0;
    const ssize_t sent =
        ::send(socket_.get(), said_.data() + delivered_, part, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent <= 0) {
      if (sent < 0 && errno != EAGAIN && errno != EINTR) hung_up_ = true;
      return 0;
    }
    delivered_ += static_cast<std::size_t>(sent);
    return static_cast<std::size_t>(sent);
  }
  /// Receives at most `most` bytes. How many came.
  std::size_t hear(std::size_t most) {
    if (most == 0) return 0;
    const std::size_t before = heard_.size();
    heard_.resize(before + most);
    const ssize_t got = ::recv(socket_.get(), heard_.data() + before, most, MSG_DONTWAIT);
    heard_.resize(before + (got > 0 ? static_cast<std::size_t>(got) : 0));
    return heard_.size() - before;
  }
  void hang_up() { socket_ = UniqueFd{}; }

  [[nodiscard]] bool hung_up() const noexcept { return hung_up_; }
  [[nodiscard]] bool all_delivered() const noexcept { return delivered_ == said_.size(); }
  [[nodiscard]] const Bytes& said() const noexcept { return said_; }
  [[nodiscard]] std::size_t delivered() const noexcept { return delivered_; }
  [[nodiscard]] const Bytes& heard() const noexcept { return heard_; }

 private:
  UniqueFd socket_;
  Bytes said_;
  std::size_t delivered_ = 0;
  Bytes heard_;
  bool hung_up_ = false;
};

/// Any bytes against the server's end of a lane.
void fuzz_server_lane(Input& input);
/// Any bytes against the client's end of a lane.
void fuzz_client_lane(Input& input);

}  // namespace remora::fuzz
