#include "waiting_requests.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <sys/socket.h>
#include <utility>

namespace remora::metrics {

bool begins_as_http(std::string_view head) noexcept {
  constexpr std::size_t kLooked = 16;
  const std::string_view first = head.substr(0, kLooked);
  return std::none_of(first.begin(), first.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 && c != '\r' && c != '\n' && c != '\t';
  });
}

void WaitingRequests::add(Descriptor socket, Deadline deadline) {
  if (connections_.size() >= max_) close_oldest();
  connections_.push_back({std::move(socket), {}, deadline});
}

bool WaitingRequests::close_oldest() noexcept {
  if (connections_.empty()) return false;
  connections_.pop_front();
  return true;
}

void WaitingRequests::poll_for(std::vector<pollfd>& polled) const {
  for (const Asked& connection : connections_)
    polled.push_back({.fd = connection.socket.fd(), .events = POLLIN, .revents = 0});
}

bool WaitingRequests::receive(Asked& connection, bool& complete) {
  std::array<char, 4096> buffer;
  const ssize_t got = ::recv(connection.socket.fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  // A peer that sends no more still gets the answer to its request.
  if (got == 0) return complete = !connection.head.empty();
  const std::size_t before = connection.head.size();
  connection.head.append(buffer.data(), static_cast<std::size_t>(got));
  // The end of the head may have arrived in two parts.
  const std::size_t from = before < 3 ? 0 : before - 3;
  complete = connection.head.find("\r\n\r\n", from) != std::string::npos ||
             connection.head.find("\n\n", from) != std::string::npos ||
             connection.head.size() >= kRequestBytesMax || !begins_as_http(connection.head);
  return true;
}

std::vector<Asked> WaitingRequests::read(const pollfd* polled, Deadline now) {
  std::vector<Asked> asked;
  std::deque<Asked> left;
  for (Asked& connection : connections_) {
    bool complete = false;
    const bool readable = (polled++)->revents != 0;
    if (readable ? !receive(connection, complete) : now >= connection.deadline) continue;
    (complete ? asked.emplace_back() : left.emplace_back()) = std::move(connection);
  }
  connections_ = std::move(left);
  return asked;
}

std::optional<Deadline> WaitingRequests::next_deadline() const noexcept {
  if (connections_.empty()) return std::nullopt;
  return connections_.front().deadline;
}

}  // namespace remora::metrics
