#include "proxy.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <iterator>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace remora::fault {
namespace {

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  made.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return made;
}

}  // namespace

TcpProxy::TcpProxy(std::uint16_t target)
    : listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)}, target_{target} {
  sockaddr_in address = loopback(0);
  socklen_t length = sizeof address;
  if (listener_ < 0 ||
      ::bind(listener_, reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener_, 256) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length) != 0)
    throw std::runtime_error("the proxy cannot listen");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread{[this] { serve(); }};
}

TcpProxy::~TcpProxy() {
  over_ = true;
  thread_.join();
  cut_all();
  ::close(listener_);
}

/// A reset, not an end: what is on its way is gone.
void TcpProxy::reset(Pair& pair) noexcept {
  const linger now{1, 0};
  for (const int socket : {pair.client, pair.target})
    if (socket >= 0) {
      ::setsockopt(socket, SOL_SOCKET, SO_LINGER, &now, sizeof now);
      ::close(socket);
    }
}

std::size_t TcpProxy::cut_all() {
  const std::lock_guard lock{mutex_};
  const std::size_t count = pairs_.size();
  for (Pair& pair : pairs_) reset(pair);
  pairs_.clear();
  return count;
}

void TcpProxy::cut_no_more() {
  const std::lock_guard lock{mutex_};
  cut_after_ = kNever;
  for (Pair& pair : pairs_) pair.left = kNever;
}

bool TcpProxy::cut_one(std::uint64_t which) {
  const std::lock_guard lock{mutex_};
  if (pairs_.empty()) return false;
  const auto found = std::next(pairs_.begin(), static_cast<std::ptrdiff_t>(which % pairs_.size()));
  reset(*found);
  pairs_.erase(found);
  return true;
}

void TcpProxy::take_newcomer() {
  Pair pair;
  pair.client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (pair.client < 0) return;
  ++accepted_;
  pair.silent = silent_;
  pair.left = cut_after_;
  if (pair.left == 0) {
    ++cut_short_;
    return reset(pair);
  }
  if (!pair.silent) {
    pair.target = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(target_);
    // A server that is gone refuses at once, on this host.
    if (::connect(pair.target, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return reset(pair);
    const int on = 1;
    ::setsockopt(pair.target, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ::setsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  pairs_.push_back(pair);
}

/// False: it is to be cut. Blocks where the receiver does not read, which its peer then feels too.
bool TcpProxy::relay(int from, int to, Pair& pair, std::uint64_t most) {
  std::array<char, 65536> buffer{};
  const ssize_t got =
      ::recv(from, buffer.data(), std::min<std::uint64_t>(most, buffer.size()), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN;
  if (got == 0) return false;
  const auto count = std::min<std::uint64_t>(static_cast<std::uint64_t>(got), pair.left);
  for (std::uint64_t sent = 0; sent < count;) {
    const ssize_t put = ::send(to, buffer.data() + sent, count - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) {
      sent += static_cast<std::uint64_t>(put);
      continue;
    }
    pollfd writable{to, POLLOUT, 0};
    if (errno != EAGAIN || over_ || ::poll(&writable, 1, 2000) <= 0) return false;
  }
  if (pair.left == kNever) return true;
  pair.left -= count;
  if (pair.left == 0) ++cut_short_;
  return pair.left != 0;
}

void TcpProxy::serve() {
  while (!over_) {
    std::vector<pollfd> wanted{{listener_, POLLIN, 0}};
    {
      const std::lock_guard lock{mutex_};
      for (const Pair& pair : pairs_) {
        wanted.push_back({pair.silent ? -1 : pair.client, POLLIN, 0});
        wanted.push_back({slow_ != 0 || hold_answers_ ? -1 : pair.target, POLLIN, 0});
      }
    }
    ::poll(wanted.data(), wanted.size(), 10);
    const std::lock_guard lock{mutex_};
    for (auto pair = pairs_.begin(); pair != pairs_.end();) {
      const std::uint64_t most = slow_ != 0 ? slow_.load() : kNever;
      const bool well =
          pair->silent || (relay(pair->client, pair->target, *pair, kNever) &&
                           (hold_answers_ || relay(pair->target, pair->client, *pair, most)));
      if (well) {
        ++pair;
        continue;
      }
      reset(*pair);
      pair = pairs_.erase(pair);
    }
    if ((wanted.front().revents & POLLIN) != 0) take_newcomer();
  }
}

}  // namespace remora::fault
