#pragma once

// A client of an HTTP endpoint that sends just what a test asks for.

#include <arpa/inet.h>
#include <array>
#include <cstdint>
#include <netinet/in.h>
#include <poll.h>
#include <string>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace remora::metrics {

// A client that does just what a test asks for.
class RawClient {
 public:
  explicit RawClient(std::uint16_t port, bool v6 = false) {
    fd_ = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval limit{20, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (v6) {
      sockaddr_in6 address{};
      address.sin6_family = AF_INET6;
      address.sin6_addr = in6addr_loopback;
      address.sin6_port = htons(port);
      connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    } else {
      sockaddr_in address{};
      address.sin_family = AF_INET;
      address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      address.sin_port = htons(port);
      connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    }
  }
  RawClient(RawClient&& other) noexcept
      : fd_{std::exchange(other.fd_, -1)}, connected_{other.connected_} {}
  RawClient& operator=(RawClient&&) = delete;
  ~RawClient() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] bool connected() const { return connected_; }
  bool send(const std::string& bytes) const {
    return ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Whether the server has closed, or has sent something.
  [[nodiscard]] bool readable() const {
    pollfd waited{.fd = fd_, .events = POLLIN, .revents = 0};
    return ::poll(&waited, 1, 0) != 0;
  }
  // Everything until the server closes.
  [[nodiscard]] std::string receive_all() const {
    std::string all;
    std::array<char, 4096> buffer{};
    for (;;) {
      const ssize_t got = ::recv(fd_, buffer.data(), buffer.size(), 0);
      if (got <= 0) return all;
      all.append(buffer.data(), static_cast<std::size_t>(got));
    }
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
};

inline std::string get(std::uint16_t port, const std::string& path,
                       const std::string& method = "GET", const std::string& more = "") {
  const RawClient client{port};
  if (!client.connected()) return "not connected";
  client.send(method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n");
  return client.receive_all();
}

inline std::string body_of(const std::string& response) {
  const std::size_t at = response.find("\r\n\r\n");
  return at == std::string::npos ? std::string{} : response.substr(at + 4);
}

}  // namespace remora::metrics
