#include "transport/shm/socket.h"

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <string>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

#include "transport/connect.h"
#include "transport/listen.h"

namespace remora::transport {
namespace {

class RuntimeFolder {
 public:
  RuntimeFolder() {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
    ::setenv("REMORA_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~RuntimeFolder() {
    EXPECT_EQ(::rmdir(path_.c_str()), 0) << "something was left behind";
    ::unsetenv("REMORA_RUNTIME_DIR");
  }
  RuntimeFolder(const RuntimeFolder&) = delete;
  RuntimeFolder& operator=(const RuntimeFolder&) = delete;

 private:
  std::string path_ = "/tmp/remora-test-XXXXXX";
};

struct Pair {
  UniqueFd a, b;
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    a = UniqueFd{fds[0]};
    b = UniqueFd{fds[1]};
  }
};

TEST(ShmSocket, MessageKeepsItsBoundariesAndDescriptors) {
  Pair pair;
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  std::array<UniqueFd, 1> descriptors;
  descriptors[0] = UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)};
  ASSERT_TRUE(send_message(pair.a.get(), bytes, descriptors, Clock::now()));
  ASSERT_TRUE(send_message(pair.a.get(), std::span{bytes}.first(1), {}, Clock::now()));
  auto first = receive_message(pair.b.get());
  ASSERT_TRUE(first && first->has_value());
  EXPECT_EQ((*first)->bytes.size(), 3U);
  EXPECT_EQ((*first)->descriptors.size(), 1U);
  auto second = receive_message(pair.b.get());
  ASSERT_TRUE(second && second->has_value());
  EXPECT_EQ((*second)->bytes.size(), 1U);
  auto none = receive_message(pair.b.get());
  ASSERT_TRUE(none);
  EXPECT_FALSE(none->has_value());
}

TEST(ShmSocket, HangUpIsAConnectionLost) {
  Pair pair;
  pair.a.reset();
  EXPECT_EQ(receive_message(pair.b.get()).error().code(), Code::kConnectionLost);
  const std::array<std::byte, 1> byte{};
  EXPECT_EQ(send_message(pair.b.get(), byte, {}, Clock::now()).error().code(),
            Code::kConnectionLost);
}

TEST(ShmSocket, WhatWasSaidBeforeAHangUpWithSomethingUnreadIsHeard) {
  Pair pair;
  const std::array<std::byte, 3> bytes{std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_TRUE(send_message(pair.b.get(), bytes, {}, Clock::now()));
  ASSERT_TRUE(send_message(pair.a.get(), bytes, {}, Clock::now()));
  pair.a = {};
  const auto said = receive_message(pair.b.get());
  ASSERT_TRUE(said) << said.error();
  ASSERT_TRUE(said->has_value());
  EXPECT_EQ((*said)->bytes.size(), bytes.size());
  const auto end = receive_message(pair.b.get());
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().code(), Code::kConnectionLost);
}

TEST(ShmSocket, TooLongMessageIsAViolation) {
  Pair pair;
  const std::vector<std::byte> bytes(kMaxControlMessageBytes + 1);
  EXPECT_EQ(send_message(pair.a.get(), bytes, {}, Clock::now()).error().code(),
            Code::kLimitExceeded);
  ASSERT_GT(::send(pair.a.get(), bytes.data(), bytes.size(), 0), 0);
  EXPECT_EQ(receive_message(pair.b.get()).error().code(), Code::kProtocol);
}

TEST(ShmListener, SocketIsPrivateAndGoesWithTheListener) {
  const RuntimeFolder folder;
  auto listener = listen_shm(7471).value();
  const std::string path = shm_socket_path(7471);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777U, 0600U);
  listener.reset();
  EXPECT_NE(::stat(path.c_str(), &status), 0);
}

TEST(ShmListener, SecondListenerIsAddressInUseAndLeavesTheFirstAlone) {
  const RuntimeFolder folder;
  auto first = listen_shm(7471).value();
  EXPECT_EQ(listen_shm(7471).error().code(), Code::kAddressInUse);
  struct stat status {};
  EXPECT_EQ(::stat(shm_socket_path(7471).c_str(), &status), 0);
}

TEST(ShmListener, SocketOfAKilledServerIsReplaced) {
  const RuntimeFolder folder;
  const std::string path = shm_socket_path(7471);
  {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, path.size());
    const UniqueFd dead{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    ASSERT_EQ(::bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  EXPECT_TRUE(listen_shm(7471).ok());
}

/// Moved away by hand, the file of a server that still runs makes room for another server.
TEST(ShmListener, SocketOfALaterServerStays) {
  const RuntimeFolder folder;
  const std::string path = shm_socket_path(7471);
  auto first = listen_shm(7471).value();
  ASSERT_EQ(::unlink(path.c_str()), 0);
  const auto second = listen_shm(7471).value();
  first.reset();
  EXPECT_EQ(::access(path.c_str(), F_OK), 0);
}

TEST(ShmListener, FileThatIsNoSocketStaysAndIsNamed) {
  const RuntimeFolder folder;
  const std::string path = shm_socket_path(7471);
  const UniqueFd file{::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600)};
  ASSERT_EQ(::write(file.get(), "x", 1), 1);
  const auto refused = listen_shm(7471);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kAlreadyExists);
  EXPECT_EQ(refused.error().subject(), path);
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 1);
  ::unlink(path.c_str());
  ASSERT_EQ(::symlink("nowhere", path.c_str()), 0);
  EXPECT_EQ(listen_shm(7471).error().code(), Code::kAlreadyExists);
  ::unlink(path.c_str());
}

TEST(ShmListener, PortZeroTakesAFreeOne) {
  const RuntimeFolder folder;
  auto first = listen_shm(0).value();
  auto second = listen_shm(0).value();
  EXPECT_NE(first->port(), 0);
  EXPECT_NE(first->port(), second->port());
}

TEST(ShmListener, FolderThatOthersMayWriteToIsRefusedUnlessSticky) {
  const RuntimeFolder folder;
  const std::string path = std::getenv("REMORA_RUNTIME_DIR");
  ASSERT_EQ(::chmod(path.c_str(), 0777), 0);
  const auto refused = listen_shm(7471);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_EQ(refused.error().reason(), Reason::kWorldWritable);
  EXPECT_EQ(refused.error().subject(), path);
  EXPECT_NE(refused.error().remedy(), "");
  ASSERT_EQ(::chmod(path.c_str(), 01777), 0);
  EXPECT_TRUE(listen_shm(7471).ok());
}

TEST(ShmListener, NamedFolderThatDoesNotExistIsRefusedAndNotMade) {
  const RuntimeFolder folder;
  const std::string parent = std::getenv("REMORA_RUNTIME_DIR");
  const std::string path = parent + "/nosuch";
  ::setenv("REMORA_RUNTIME_DIR", path.c_str(), 1);
  const auto refused = listen_shm(7471);
  ::setenv("REMORA_RUNTIME_DIR", parent.c_str(), 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNotFound);
  EXPECT_EQ(refused.error().subject(), path);
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(ShmListener, FolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  const RuntimeFolder folder;
  ASSERT_EQ(::chown(std::getenv("REMORA_RUNTIME_DIR"), 65534, 65534), 0);
  const auto refused = listen_shm(7471);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kPermissionDenied);
  EXPECT_EQ(refused.error().reason(), Reason::kOtherUser);
}

TEST(ShmClient, WithoutAServerIsRefusedAndNamesTheSocket) {
  const RuntimeFolder folder;
  const auto connected = connect_shm({.host = "localhost", .port = 7471}, Clock::now());
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code(), Code::kConnectionRefused);
  EXPECT_NE(connected.error().subject().find("remora-7471.sock"), std::string_view::npos);
  EXPECT_NE(connected.error().remedy().find("REMORA_RUNTIME_DIR"), std::string_view::npos);
}

TEST(ShmClient, ServerThatNeverAnswersTimesOut) {
  const RuntimeFolder folder;
  auto listener = listen_shm(7471).value();  // no thread calls accept()
  const auto connected = connect_shm({.host = "localhost", .port = 7471},
                                     Clock::now() + std::chrono::milliseconds{20});
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code(), Code::kTimedOut);
}

}  // namespace
}  // namespace remora::transport
