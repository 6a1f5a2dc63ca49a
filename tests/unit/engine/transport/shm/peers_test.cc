/// Which peers the two ends of the shm transport let in, and which memory a client maps: processes
/// of other users, and servers that hand out files which could be cut short under the client's
/// feet.

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "support/fault_line.h"
#include "transport/connect.h"
#include "transport/listen.h"
#include "transport/shm/socket.h"

namespace remora::transport {
namespace {

constexpr std::uint16_t kPort = 7471;
constexpr uid_t kOtherUser = 65534;
constexpr int kNoSuchUser = 99;  // a container may have root alone
constexpr int kSealed = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Deadline seconds_from_now(int seconds) { return Clock::now() + std::chrono::seconds{seconds}; }

/// A file of that size, with these seals.
UniqueFd sealed_memory(std::uint64_t size_bytes, int seals) {
  UniqueFd made{::memfd_create("peer", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  EXPECT_TRUE(made);
  EXPECT_EQ(::ftruncate(made.get(), static_cast<off_t>(size_bytes)), 0);
  EXPECT_EQ(::fcntl(made.get(), F_ADD_SEALS, seals), 0);
  return made;
}

/// A socket that listens where a server's would.
UniqueFd bound_socket() {
  const std::string path = shm_socket_path(kPort);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, path.size());
  UniqueFd made{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
  if (::bind(made.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(made.get(), 4) != 0)
    return UniqueFd{};
  return made;
}

class ShmPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    ::setenv("REMORA_RUNTIME_DIR", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unlink(shm_socket_path(kPort).c_str());
    EXPECT_EQ(::rmdir(folder_.c_str()), 0) << "something was left behind";
    ::unsetenv("REMORA_RUNTIME_DIR");
    line_.rounds = line_.operations;
    if (!IsSkipped()) line_.print("shm");
  }
  /// One more attempt, which has ended: with this code, or well.
  template <typename Ended>
  const Ended& counted(const Ended& ended) {
    line_.ended(ended ? std::string_view{} : to_string(ended.error().code()));
    return ended;
  }

  /// Starts a process that becomes another user, and does this; -1: only root can. Forks, so that
  /// no other thread may be there.
  static pid_t start_as_another_user(const std::function<int()>& work) {
    if (::geteuid() != 0) return -1;
    const pid_t child = ::fork();
    if (child == 0)
      ::_exit(::setgid(kOtherUser) == 0 && ::setuid(kOtherUser) == 0 ? work() : kNoSuchUser);
    return child;
  }
  /// Its exit status, or nothing: it could not become another user.
  static std::optional<int> end_of(pid_t child) {
    if (child < 0) return std::nullopt;
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kNoSuchUser) return std::nullopt;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string folder_ = "/tmp/remora-test-XXXXXX";
  test::FaultLine line_;
};

/// A false server, which says this to the first client; what connect_shm() thinks of it.
Result<std::unique_ptr<ClientEndpoint>> met_by(std::span<const std::byte> preface,
                                               std::span<const UniqueFd> descriptors) {
  const UniqueFd listening = bound_socket();
  EXPECT_TRUE(listening);
  UniqueFd accepted;
  std::thread server{[&] {
    accepted = UniqueFd{::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    EXPECT_TRUE(send_message(accepted.get(), preface, descriptors, seconds_from_now(5)));
  }};
  auto connected = connect_shm({.host = "localhost", .port = kPort}, seconds_from_now(10));
  server.join();
  return connected;
}

std::span<const std::byte> preface_bytes(const ShmPreface& preface) {
  return std::as_bytes(std::span{&preface, 1});
}

TEST_F(ShmPeersTest, SealedStatusPageIsTaken) {
  const std::array<UniqueFd, 1> page{sealed_memory(kShmStatusPageBytes, kSealed)};
  EXPECT_TRUE(counted(met_by(preface_bytes({}), page)).ok());
}

TEST_F(ShmPeersTest, StatusPageThatCouldBeCutShortIsRefused) {
  for (const int seals : {0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL}) {
    const std::array<UniqueFd, 1> page{sealed_memory(kShmStatusPageBytes, seals)};
    const auto refused = met_by(preface_bytes({}), page);
    ASSERT_FALSE(counted(refused)) << seals;
    EXPECT_EQ(refused.error().code(), Code::kProtocol) << refused.error().message();
    ::unlink(shm_socket_path(kPort).c_str());
  }
}

TEST_F(ShmPeersTest, StatusPageThatIsTooShortIsRefused) {
  const std::array<UniqueFd, 1> page{sealed_memory(kShmStatusPageBytes - 1, kSealed)};
  const auto refused = met_by(preface_bytes({}), page);
  ASSERT_FALSE(counted(refused));
  EXPECT_EQ(refused.error().code(), Code::kProtocol);
}

TEST_F(ShmPeersTest, FileWithoutSealsIsRefused) {
  std::array<UniqueFd, 1> page{UniqueFd{::open(folder_.c_str(), O_TMPFILE | O_RDWR, 0600)}};
  if (!page[0]) GTEST_SKIP() << "/tmp has no files without a name";
  ASSERT_EQ(::ftruncate(page[0].get(), kShmStatusPageBytes), 0);
  const auto refused = met_by(preface_bytes({}), page);
  ASSERT_FALSE(counted(refused));
  EXPECT_EQ(refused.error().code(), Code::kProtocol);
}

TEST_F(ShmPeersTest, PrefaceOfSomethingElseIsRefused) {
  ShmPreface other;
  other.version = 2;
  const ShmPreface right;
  for (const auto& said : {preface_bytes(other), preface_bytes(right).first(7)}) {
    const std::array<UniqueFd, 1> page{sealed_memory(kShmStatusPageBytes, kSealed)};
    const auto refused = met_by(said, page);
    ASSERT_FALSE(counted(refused));
    EXPECT_EQ(refused.error().code(), Code::kProtocol);
    ::unlink(shm_socket_path(kPort).c_str());
  }
}

TEST_F(ShmPeersTest, PrefaceWithoutADescriptorSaysWhatMayBeScarce) {
  const auto refused = met_by(preface_bytes({}), {});
  ASSERT_FALSE(counted(refused));
  EXPECT_EQ(refused.error().code(), Code::kLimitExceeded);
}

TEST_F(ShmPeersTest, RegionThatCouldBeCutShortOrIsTooShortIsRefused) {
  constexpr std::uint64_t kSize = 64U << 10U;
  const auto listener = listen_shm(kPort).value();
  std::unique_ptr<ClientEndpoint> client;
  const Deadline deadline = seconds_from_now(10);
  std::thread connecting{[&] {
    client = connect_shm({.host = "localhost", .port = kPort}, seconds_from_now(10)).value();
  }};
  std::vector<std::unique_ptr<ServerEndpoint>> server;
  while (server.empty() && Clock::now() < deadline) server = listener->accept().value();
  connecting.join();
  ASSERT_EQ(server.size(), 1U);
  const auto attach = [&](std::uint64_t bytes, int seals, WireExtent extent) {
    std::vector<UniqueFd> descriptors;
    descriptors.push_back(sealed_memory(bytes, seals));
    const auto attached = client->attach({extent}, std::move(descriptors), Rights::kAll);
    counted(attached);
    return attached ? std::nullopt : std::optional{attached.error().code()};
  };
  const WireExtent whole{.length_bytes = kSize};
  EXPECT_EQ(attach(kSize, kSealed, whole), std::nullopt);
  EXPECT_EQ(attach(kSize, F_SEAL_GROW, whole), Code::kProtocol);
  EXPECT_EQ(attach(kSize - 1, kSealed, whole), Code::kProtocol);
  EXPECT_EQ(attach(kSize, kSealed, {.length_bytes = kSize, .remote_address = 4096}),
            Code::kProtocol);
  EXPECT_EQ(attach(kSize, kSealed, {.length_bytes = kSize, .remote_address = ~std::uint64_t{4095}}),
            Code::kProtocol)
      << "beyond the last address";
  EXPECT_EQ(attach(kSize, kSealed, {}), Code::kProtocol) << "nothing of it";
  EXPECT_EQ(counted(client->attach({whole}, {}, Rights::kAll)).error().code(),
            Code::kLimitExceeded);
  std::vector<UniqueFd> two;
  two.reserve(2);
  for (int i = 0; i < 2; ++i) two.push_back(sealed_memory(kSize, kSealed));
  EXPECT_EQ(counted(client->attach({whole}, std::move(two), Rights::kAll)).error().code(),
            Code::kProtocol);
}

TEST_F(ShmPeersTest, AnotherUserDoesNotReachTheSocket) {
  const auto listener = listen_shm(kPort).value();
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  const auto status = end_of(start_as_another_user([] {
    const auto connected = connect_shm({.host = "localhost", .port = kPort}, seconds_from_now(5));
    return !connected && connected.error().code() == Code::kPermissionDenied ? 0 : 1;
  }));
  if (!status) GTEST_SKIP() << "it takes root, and another user, to become one";
  EXPECT_EQ(status, 0);
  line_.ended(status == 0 ? to_string(Code::kPermissionDenied) : std::string_view{});
  EXPECT_TRUE(listener->accept().value().empty());
}

/// The socket's file is open to all users: the server checks the peer by itself.
TEST_F(ShmPeersTest, AnotherUserThatReachesTheSocketIsHungUpOn) {
  const auto listener = listen_shm(kPort).value();
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  ASSERT_EQ(::chmod(shm_socket_path(kPort).c_str(), 0666), 0);
  const pid_t child = start_as_another_user([] {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = shm_socket_path(kPort);
    path.copy(address.sun_path, path.size());
    const UniqueFd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      return 2;
    std::array<char, 64> said{};
    return ::recv(socket.get(), said.data(), said.size(), 0) == 0 ? 0 : 3;
  });
  std::size_t let_in = 0;
  siginfo_t ended{};
  while (child > 0 && ended.si_pid == 0) {
    let_in += listener->accept().value().size();
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
    if (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOHANG | WNOWAIT) != 0) break;
  }
  const auto status = end_of(child);
  if (!status) GTEST_SKIP() << "it takes root, and another user, to become one";
  EXPECT_EQ(status, 0) << "2: not connected; 3: something was said";
  line_.ended(status == 0 ? "hung up" : "");
  EXPECT_EQ(let_in, 0U);
}

/// A user that may write to the folder can put a socket there before the server does.
TEST_F(ShmPeersTest, ServerOfAnotherUserIsRefused) {
  ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
  std::array<int, 2> ready{};
  std::array<int, 2> done{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(done.data(), O_CLOEXEC), 0);
  const UniqueFd hear_ready{ready[0]};
  const UniqueFd hear_done{done[0]};
  UniqueFd say_ready{ready[1]};
  UniqueFd say_done{done[1]};
  const pid_t child = start_as_another_user([&] {
    say_done.reset();
    const UniqueFd listening = bound_socket();
    char byte = listening ? 'y' : 'n';
    if (::write(say_ready.get(), &byte, 1) != 1) return 1;
    return ::read(hear_done.get(), &byte, 1) == 0 ? 0 : 2;
  });
  say_ready.reset();
  char said = 'n';
  const bool there = ::read(hear_ready.get(), &said, 1) == 1;
  const auto refused = connect_shm({.host = "localhost", .port = kPort}, seconds_from_now(5));
  say_done.reset();
  const auto status = end_of(child);
  if (!status) GTEST_SKIP() << "it takes root, and another user, to become one";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(there);
  EXPECT_EQ(said, 'y');
  ASSERT_FALSE(counted(refused));
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_EQ(refused.error().reason(), Reason::kOtherUser);
}

/// In a folder of that user, where a server of a third would not listen.
TEST_F(ShmPeersTest, RootMayUseAServerOfAnotherUser) {
  if (::geteuid() != 0) GTEST_SKIP() << "it takes root";
  ASSERT_EQ(::chown(folder_.c_str(), kOtherUser, kOtherUser), 0);
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
  const UniqueFd hear_ready{ready[0]};
  UniqueFd say_ready{ready[1]};
  const pid_t child = start_as_another_user([&] {
    const auto listener = listen_shm(kPort);
    if (!listener) return 1;
    say_ready.reset();
    const Deadline deadline = seconds_from_now(10);
    while (Clock::now() < deadline) {
      const auto met = (*listener)->accept();
      if (met && met->size() == 1)
        // Until it hangs up.
        while (met->front()->receive().ok() && Clock::now() < deadline)
          std::this_thread::sleep_for(std::chrono::milliseconds{1});
      if (met && met->size() == 1) return 0;
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
    return 2;
  });
  say_ready.reset();
  char byte = 0;
  EXPECT_EQ(::read(hear_ready.get(), &byte, 1), 0);
  const auto refused_code = [&] {
    const auto connected = connect_shm({.host = "localhost", .port = kPort}, seconds_from_now(10));
    counted(connected);
    return connected ? std::nullopt : std::optional{connected.error().code()};
  };
  EXPECT_EQ(refused_code(), std::nullopt);
  const auto status = end_of(child);
  if (!status) GTEST_SKIP() << "it takes another user to become one";
  EXPECT_EQ(status, 0) << "1: it did not listen; 2: no client came";
}

/// The descriptor a reader gets could be opened for writing by its own user, which is why shm is
/// for one trust domain; by no other.
TEST_F(ShmPeersTest, AnotherUserDoesNotOpenADescriptorAnew) {
  const UniqueFd page = sealed_memory(4096, kSealed);
  ASSERT_EQ(::fchmod(page.get(), 0600), 0);
  const std::string path = "/proc/self/fd/" + std::to_string(page.get());
  const auto opens = [&path](int flags) { return UniqueFd{::open(path.c_str(), flags)} ? 1 : 0; };
  EXPECT_EQ(opens(O_RDWR), 1) << "the same user can";
  const auto status =
      end_of(start_as_another_user([&] { return opens(O_RDWR) + 2 * opens(O_RDONLY); }));
  if (!status) GTEST_SKIP() << "it takes root, and another user, to become one";
  EXPECT_EQ(status, 0);
  // For writing, and for reading.
  for (const int way : {1, 2})
    line_.ended((status.value() & way) == 0 ? to_string(Code::kPermissionDenied)
                                            : std::string_view{});
}

}  // namespace
}  // namespace remora::transport
