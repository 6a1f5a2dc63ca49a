/// What the shell tests cannot do themselves:
///
///   probe notify SOCKET    stands in for a service manager: prints each state it is told
///   probe silence SOCKET   connects to a server's control socket and says nothing
///   probe noise SOCKET     says random bytes until the server hangs up
///   probe foreign SOCKET   connects 200 times, and sends each time bytes that are not the protocol
///   probe flood SOCKET     opens many connections and sends messages of every length
///   probe full SOCKET      a service manager that reads nothing, and whose queue is full
///   probe signal STEP SIGNAL PROGRAM [ARGUMENT...]
///                          runs the program and sends it the signal at a defined step: signal_at.h
///   probe refuse-userfaultfd PROGRAM [ARGUMENT...]
///                          runs the program with a seccomp filter that refuses userfaultfd(2)

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <random>
#include <string>
#include <string_view>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "signal_at.h"

namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  return address;
}

int notify(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path);
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 1;
  std::array<char, 4096> text{};
  for (;;) {
    const ssize_t got = ::recv(socket, text.data(), text.size(), 0);
    if (got <= 0) return 1;
    std::cout << std::string_view{text.data(), static_cast<std::size_t>(got)} << std::endl;
  }
}

int full(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const sockaddr_un address = address_of(path + ".new");
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 1;
  const int sender = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  while (::sendto(sender, "X=1", 3, 0, reinterpret_cast<const sockaddr*>(&address),
                  sizeof address) == 3) {
  }
  if (errno != EAGAIN || ::rename(address.sun_path, path.c_str()) != 0) return 1;
  for (;;) ::pause();
}

int connect_to(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const sockaddr_un address = address_of(path);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    std::cerr << path << ": " << std::strerror(errno) << '\n';
    std::exit(1);
  }
  return socket;
}

/// Sends messages of `length` random bytes until the peer hangs up, at most `most` of them.
void say_noise(int socket, std::size_t length, int most, std::mt19937& random) {
  std::vector<char> bytes(length);
  for (int i = 0; i < most; ++i) {
    std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
    if (::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0 && errno != EAGAIN) return;
    pollfd waited{.fd = socket, .events = POLLIN, .revents = 0};
    ::poll(&waited, 1, 1);
    if ((waited.revents & POLLHUP) != 0) return;
  }
}

int silence(const std::string& path) {
  const int socket = connect_to(path);
  ::usleep(300'000);
  ::close(socket);
  return 0;
}

int noise(const std::string& path) {
  std::mt19937 random{1};
  const int socket = connect_to(path);
  say_noise(socket, 512, 1000, random);
  ::close(socket);
  return 0;
}

int foreign(const std::string& path) {
  std::mt19937 random{3};
  for (int i = 0; i < 200; ++i) {
    const int socket = connect_to(path);
    say_noise(socket, 64, 20, random);
    ::close(socket);
  }
  return 0;
}

int flood(const std::string& path) {
  std::mt19937 random{2};
  constexpr std::array<std::size_t, 10> kLengths{0,    1,     4,     8,     100,
                                                 4096, 16384, 16385, 65536, 100'000};
  for (const std::size_t length : kLengths) {
    const int socket = connect_to(path);
    say_noise(socket, length, 20, random);
    ::close(socket);
  }
  return 0;
}

/// What a container with a strict profile does. Source: seccomp(2).
int refuse_userfaultfd(char** program) {
  std::array<sock_filter, 4> filter{{
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_userfaultfd},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EPERM},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  }};
  const sock_fprog all{.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) != 0) {
    std::cerr << "seccomp: " << std::strerror(errno) << '\n';
    return 77;
  }
  ::execvp(program[0], program);
  std::cerr << program[0] << ": " << std::strerror(errno) << '\n';
  return 127;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 4 && argv[1] == std::string_view{"signal"})
    return remora::testing::signal_at(argv[2], std::atoi(argv[3]), argv + 4);
  if (argc > 2 && argv[1] == std::string_view{"refuse-userfaultfd"})
    return refuse_userfaultfd(argv + 2);
  const std::string_view kind = argc == 3 ? argv[1] : "";
  if (kind == "notify") return notify(argv[2]);
  if (kind == "silence") return silence(argv[2]);
  if (kind == "noise") return noise(argv[2]);
  if (kind == "flood") return flood(argv[2]);
  if (kind == "foreign") return foreign(argv[2]);
  if (kind == "full") return full(argv[2]);
  std::cerr << "usage: probe notify|silence|noise|foreign|flood|full SOCKET\n"
               "       probe signal STEP SIGNAL PROGRAM [ARGUMENT...]\n"
               "       probe refuse-userfaultfd PROGRAM [ARGUMENT...]\n";
  return 2;
}
