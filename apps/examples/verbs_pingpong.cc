// verbs_pingpong DEVICE PORT COUNT [SERVER]: COUNT messages of 4 KiB there and back, over a queue
// pair whose endpoints go over TCP. Speaks the protocol of rdma-core's ibv_rc_pingpong, so either
// side may be that: `ibv_rc_pingpong -d DEVICE -g GID_INDEX -p PORT -n COUNT [SERVER]`.
//
// Its message: "LID:QPN:PSN:GID" in hexadecimal digits (4, 6, 6 and 32) with a zero at the end. The
// client sends first; once it has the server's answer it says "done".
#include <array>
#include <cstdio>
#include <iostream>
#include <netdb.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <unistd.h>

#include <remora/verbs/verbs.h>

namespace verbs = remora::verbs;
using remora::Exception;

namespace {

constexpr std::size_t kMessageBytes = 52;
constexpr std::uint32_t kBytes = 4096;
using Message = std::array<char, kMessageBytes>;

Message to_message(const verbs::Endpoint& endpoint) {
  Message text{};
  std::snprintf(text.data(), text.size(), "%04x:%06x:%06x:", endpoint.lid, endpoint.qp_number,
                endpoint.psn);
  for (std::size_t i = 0; i < 16; ++i)
    std::snprintf(text.data() + 19 + 2 * i, 3, "%02x", endpoint.gid.bytes[i]);
  return text;
}

verbs::Endpoint from_message(const Message& text) {
  const std::string all{text.data(), text.size() - 1};
  const auto number = [&](std::size_t at, std::size_t digits) {
    return static_cast<std::uint32_t>(std::stoul(all.substr(at, digits), nullptr, 16));
  };
  verbs::Endpoint endpoint;
  endpoint.lid = static_cast<std::uint16_t>(number(0, 4));
  endpoint.qp_number = number(5, 6);
  endpoint.psn = number(12, 6);
  for (std::size_t i = 0; i < 16; ++i)
    endpoint.gid.bytes[i] = static_cast<std::uint8_t>(number(19 + 2 * i, 2));
  endpoint.mtu = IBV_MTU_1024;  // what ibv_rc_pingpong takes unless told otherwise
  return endpoint;
}

/// A connected TCP socket; a server takes one client.
int connect_socket(const char* server, const char* port) {
  addrinfo hints{};
  hints.ai_flags = server == nullptr ? AI_PASSIVE : 0;
  hints.ai_family = server == nullptr ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(server, port, &hints, &found) != 0) throw std::runtime_error{"no such host"};
  const int fd = ::socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  int result = -1;
  for (int tries = 0; tries < 50 && server != nullptr && result != 0; ++tries)
    if (result = ::connect(fd, found->ai_addr, found->ai_addrlen); result != 0) ::usleep(100'000);
  if (server == nullptr) result = ::bind(fd, found->ai_addr, found->ai_addrlen);
  ::freeaddrinfo(found);
  if (server == nullptr && result == 0) result = ::listen(fd, 1);
  if (result != 0) throw std::runtime_error{"cannot connect or listen"};
  if (server != nullptr) return fd;
  const int client = ::accept4(fd, nullptr, nullptr, SOCK_CLOEXEC);
  ::close(fd);
  return client;
}

void send_all(int fd, const void* bytes, std::size_t length) {
  if (::send(fd, bytes, length, MSG_NOSIGNAL) != static_cast<ssize_t>(length))
    throw std::runtime_error{"the peer is gone"};
}
Message receive_message(int fd) {
  Message text{};
  if (::recv(fd, text.data(), text.size(), MSG_WAITALL) != static_cast<ssize_t>(text.size()))
    throw std::runtime_error{"the peer is gone"};
  return text;
}

void play(verbs::QueuePair<verbs::Rc>& pair, const verbs::MemoryRegion& memory, int count,
          bool first) {
  std::array<verbs::Completion, 16> storage;
  auto batch = pair.start();
  int sent = 0;
  int received = 0;
  const auto send = [&] {
    // Room in the send queue comes back with completions only, on some NICs.
    const auto id = static_cast<std::uint64_t>(++sent);
    batch.send(id, memory.slice(0, kBytes)).signaled(sent % 2 == 0 || sent == count);
    batch.post().value();
  };
  if (first) send();
  for (bool last_done = false; received < count || !last_done;) {
    const auto deadline = verbs::deadline_in(std::chrono::seconds{30});
    for (const auto& done : pair.send_queue().wait(storage, deadline).value()) {
      if (!done.ok()) throw Exception{done.error()};
      if (!done.is_receive()) {
        last_done = done.id() == static_cast<std::uint64_t>(count);
        continue;
      }
      ++received;
      pair.post_receive(2, memory.slice(kBytes, kBytes)).value();
      if (sent < count) send();
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::cerr << "usage: verbs_pingpong DEVICE PORT COUNT [SERVER]\n", 2;
  const char* const server = argc > 4 ? argv[4] : nullptr;
  try {
    const auto device = verbs::devices().value().find(argv[1]).value().open().value();
    const auto domain = device.allocate_domain().value();
    const auto queue = device.create_completion_queue({.depth = 600, .events = true}).value();
    const auto memory =
        verbs::MemoryRegion::allocate(domain, std::size_t{2} * kBytes, verbs::Access::kLocalWrite)
            .value();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain, queue, queue};
    builder.send_depth(4).receive_depth(64).mtu(IBV_MTU_1024).timeout(18).initiator_depth(1);
    auto prepared = builder.responder_depth(1).build().value();
    for (int i = 0; i < 32; ++i)
      prepared.pair().post_receive(2, memory.slice(kBytes, kBytes)).value();

    const int fd = connect_socket(server, argv[2]);
    const Message self = to_message(prepared.endpoint());
    if (server != nullptr) send_all(fd, self.data(), self.size());
    const verbs::Endpoint peer = from_message(receive_message(fd));
    auto pair = std::move(prepared).connect(peer).value();
    if (server == nullptr) send_all(fd, self.data(), self.size());
    std::array<char, 5> done{"done"};
    if (server != nullptr) send_all(fd, done.data(), done.size());
    if (server == nullptr) static_cast<void>(::recv(fd, done.data(), done.size(), MSG_WAITALL));
    ::close(fd);
    play(pair, memory, std::stoi(argv[3]), server != nullptr);
    std::cout << argv[3] << " messages there and back with " << peer << std::endl;
  } catch (const std::exception& failed) {
    std::cerr << failed.what() << '\n';
    return 1;
  }
}
