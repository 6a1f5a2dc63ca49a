/// Remote memory over TCP as one would write it by hand for two busy-polling programs: the least
/// that a request can cost on this machine's loopback. No sessions, no checks, no errors handled.
///
///   peer_sockets [--mode polling|blocking] [--region-mib 1024] [--core 1] [--server-core 0]
///
/// A request is 16 bytes, then the payload of a write. The answer of a read is its payload, that of
/// a write 8 bytes, sent when the payload is in its place. Answers come in the order of requests.

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <vector>

#include "jobs.h"

namespace remora::bench {
namespace {

struct Request {
  std::uint64_t offset = 0;
  std::uint32_t length = 0;
  std::uint32_t is_write = 0;
};
constexpr std::size_t kAnswerBytes = 8;
/// Answers smaller than this are copied together, larger ones gathered from their places.
constexpr std::size_t kCopyMax = 1024;
constexpr std::size_t kVectorsMax = 64;

/// Bytes received, at least one; 0 at the end of the connection.
std::size_t receive(int socket, void* into, std::size_t room, bool polling) {
  for (;;) {
    const ssize_t got = ::recv(socket, into, room, polling ? MSG_DONTWAIT : 0);
    if (got >= 0) return static_cast<std::size_t>(got);
    require(errno == EAGAIN || errno == EINTR, "recv");
  }
}

void send_vectors(int socket, iovec* vectors, std::size_t count) {
  while (count > 0) {
    msghdr message{};
    message.msg_iov = vectors;
    message.msg_iovlen = count;
    ssize_t sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EPIPE) std::_Exit(0);
    require(sent >= 0, "sendmsg");
    for (; count > 0 && static_cast<std::size_t>(sent) >= vectors->iov_len; ++vectors, --count)
      sent -= static_cast<ssize_t>(vectors->iov_len);
    if (count == 0) break;
    vectors->iov_base = static_cast<char*>(vectors->iov_base) + sent;
    vectors->iov_len -= static_cast<std::size_t>(sent);
  }
}

/// The server's side of one connection.
class Service {
 public:
  Service(int socket, std::byte* region, bool polling)
      : socket_{socket},
        region_{region},
        polling_{polling},
        input_(kInputBytes),
        copied_(kInputBytes) {}

  [[noreturn]] void run() {
    for (;;) {
      const std::size_t got =
          receive(socket_, input_.data() + filled_, input_.size() - filled_, polling_);
      if (got == 0) std::_Exit(0);
      filled_ += got;
      std::size_t used = 0;
      while (filled_ - used >= sizeof(Request)) {
        Request request;
        std::memcpy(&request, input_.data() + used, sizeof request);
        used += sizeof request;
        if (request.is_write != 0)
          used += take_payload(request, used);
        else
          answer_with(region_ + request.offset, request.length);
      }
      flush();
      std::memmove(input_.data(), input_.data() + used, filled_ - used);
      filled_ -= used;
    }
  }

 private:
  static constexpr std::size_t kInputBytes = 256U << 10U;

  /// What of it stands in the input already; the rest is received into its place.
  std::size_t take_payload(const Request& request, std::size_t from) {
    const std::size_t here = std::min<std::size_t>(filled_ - from, request.length);
    std::memcpy(region_ + request.offset, input_.data() + from, here);
    for (std::size_t have = here; have < request.length;) {
      flush();
      have += receive(socket_, region_ + request.offset + have, request.length - have, polling_);
    }
    answer_with(region_ + request.offset, kAnswerBytes);
    return here;
  }

  void answer_with(std::byte* bytes, std::size_t length) {
    if (count_ == kVectorsMax || copied_.size() - copied_bytes_ < kCopyMax) flush();
    if (length > kCopyMax) {
      vectors_[count_++] = {bytes, length};
      return;
    }
    std::byte* place = copied_.data() + copied_bytes_;
    std::memcpy(place, bytes, length);
    copied_bytes_ += length;
    if (count_ > 0 &&
        static_cast<std::byte*>(vectors_[count_ - 1].iov_base) + vectors_[count_ - 1].iov_len ==
            place)
      vectors_[count_ - 1].iov_len += length;
    else
      vectors_[count_++] = {place, length};
  }

  void flush() {
    send_vectors(socket_, vectors_.data(), count_);
    count_ = 0;
    copied_bytes_ = 0;
  }

  int socket_;
  std::byte* region_;
  bool polling_;
  std::vector<std::byte> input_;
  std::vector<std::byte> copied_;
  std::size_t filled_ = 0;
  std::size_t copied_bytes_ = 0;
  std::size_t count_ = 0;
  std::array<iovec, kVectorsMax> vectors_{};
};

void no_delay(int socket) {
  const int on = 1;
  require(::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0, "TCP_NODELAY");
}

void serve(std::size_t region_bytes, bool polling, int where) {
  std::byte* const region = populated_pages(region_bytes);
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const plain = reinterpret_cast<sockaddr*>(&address);
  require(::bind(listener, plain, size) == 0 && ::listen(listener, 1) == 0, "listen");
  require(::getsockname(listener, plain, &size) == 0, "getsockname");
  ServerProcess::tell(where, std::to_string(ntohs(address.sin_port)));
  const int socket = ::accept(listener, nullptr, nullptr);
  require(socket >= 0, "accept");
  no_delay(socket);
  Service{socket, region, polling}.run();
}

class SocketClient final : public PipelinedClient {
 public:
  SocketClient(std::uint16_t port, std::size_t region_bytes, bool polling)
      : socket_{::socket(AF_INET, SOCK_STREAM, 0)}, region_bytes_{region_bytes}, polling_{polling} {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    require(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
            "connect");
    no_delay(socket_);
  }
  ~SocketClient() override { ::close(socket_); }

  bool prepare(const Job& job) override {
    if (job.op != Op::kRead && job.op != Op::kWrite) return false;
    begin(job, region_bytes_);
    answer_bytes_ = job.op == Op::kRead ? job.block_bytes : kAnswerBytes;
    slots_.assign(job.depth * job.block_bytes, std::byte{1});
    requests_.assign(job.depth, {});
    vectors_.assign(2 * job.depth, {});
    in_flight_ = place_ = arrived_ = 0;
    return true;
  }

  std::size_t advance() override {
    hand_over();
    return collect();
  }

 private:
  /// All that there is room for, in one system call.
  void hand_over() {
    std::size_t count = 0;
    std::size_t taken = 0;
    for (; in_flight_ < job_.depth; ++in_flight_, ++taken) {
      Request& request = requests_[taken];
      request.offset = blocks_->next();
      request.length = static_cast<std::uint32_t>(job_.block_bytes);
      request.is_write = job_.op == Op::kWrite ? 1 : 0;
      if (job_.op == Op::kRead) continue;
      vectors_[count++] = {&request, sizeof request};
      vectors_[count++] = {slots_.data() + taken * job_.block_bytes, job_.block_bytes};
    }
    if (taken == 0) return;
    if (job_.op == Op::kRead) vectors_[count++] = {requests_.data(), taken * sizeof(Request)};
    send_vectors(socket_, vectors_.data(), count);
  }

  /// Answers fill the slots in turn: one call takes as many as have come.
  std::size_t collect() override {
    const std::size_t ring = job_.depth * answer_bytes_;
    std::size_t done = 0;
    while (done == 0) {
      const std::size_t got = receive(socket_, slots_.data() + place_, ring - place_, polling_);
      if (got == 0) give_up("the server has closed the connection");
      place_ = (place_ + got) % ring;
      arrived_ += got;
      done = arrived_ / answer_bytes_;
      arrived_ %= answer_bytes_;
    }
    in_flight_ -= done;
    return done;
  }

  int socket_;
  std::size_t region_bytes_;
  bool polling_;
  std::size_t answer_bytes_ = 0;
  std::vector<std::byte> slots_;
  std::vector<Request> requests_;
  std::vector<iovec> vectors_;
  std::size_t arrived_ = 0;
};

}  // namespace
}  // namespace remora::bench

int main(int argc, char** argv) {
  using namespace remora::bench;  // NOLINT(google-build-using-namespace)
  const Arguments arguments{argc, argv};
  const std::size_t region_bytes = arguments.region_bytes();
  const bool polling = arguments.polling();
  const auto server =
      ServerProcess::start(arguments, [=](int where) { serve(region_bytes, polling, where); });
  SocketClient client{static_cast<std::uint16_t>(std::stoi(server->told())), region_bytes, polling};
  return answer_jobs(client, server.get());
}
