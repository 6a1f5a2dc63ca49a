/// A client that dies, is paused or sends nonsense loses its own session. The server and the other
/// clients continue.

#include <array>
#include <chrono>
#include <cstring>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include "conformance_test.h"
#include "support/child.h"

namespace remora::test {
namespace {

using Clock = std::chrono::steady_clock;

class ClientLossTest : public ConformanceTest {
 protected:
  /// The server keeps no sessions of lost clients. resume_test.cc has clients that come back.
  void configure(config::ServerConfig& config) const override { config.limits.session_keep = 0s; }
  [[nodiscard]] bool needs_own_server() const override { return true; }
  Child holder(const std::string& region, std::uint64_t offset) {
    Child child{"hold", {"uri=" + uri(region), "offset=" + std::to_string(offset)}};
    EXPECT_EQ(child.read_line(), "ready");
    return child;
  }
  [[nodiscard]] bool soon_sessions(std::uint64_t wanted) {
    return eventually([&] { return server().status().sessions == wanted; });
  }
};

TEST_P(ClientLossTest, KilledClientLosesItsGrants) {
  const RegionInfo made = create();
  Child child = holder(made.name, 0);
  EXPECT_TRUE(fails_with(session().remove_region(made.name), Code::kBusy));
  std::this_thread::sleep_for(50ms);  // in the middle of an operation
  child.kill();
  EXPECT_TRUE(soon_sessions(1));
  EXPECT_TRUE(eventually([&] { return session().stat(made.name).value().open_count == 0; }));
  EXPECT_EQ(session().stat(made.name).value().open_count, 0U);
}

TEST_P(ClientLossTest, PausedClientDisturbsNoOtherClient) {
  const RegionInfo made = create();
  Child child = holder(made.name, 0);
  const Region region = open(made.name);
  std::this_thread::sleep_for(50ms);
  child.pause();
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_EQ(region.fetch_add(ByteOffset{8}, 1).value(), i);
  EXPECT_EQ(session().stat(made.name).value().open_count, 2U);
  child.send_signal(SIGCONT);
  child.write_line("enough");
  EXPECT_EQ(child.read_line(), "ended ok");
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(soon_sessions(1));
}

TEST_P(ClientLossTest, PausedClientDoesNotHoldUpTheServersEnd) {
  const RegionInfo made = create();
  Child child = holder(made.name, 0);
  child.pause();
  const Timed timed;
  server().stop();
  EXPECT_TRUE(timed.took_at_most(15s));
  child.send_signal(SIGCONT);
  const auto line = child.read_line();
  ASSERT_TRUE(line.has_value()) << "the client never noticed";
  EXPECT_TRUE(*line == "ended connection lost" || *line == "ended indeterminate") << *line;
  EXPECT_EQ(child.wait(), 0);
  forget(made.name);  // the region ended with the server, even if our session does not know yet
}

TEST_P(ClientLossTest, ManyClientsKilledAtOnceAreAllForgotten) {
  const RegionInfo made = create();
  {
    std::vector<Child> children;
    for (std::uint64_t i = 0; i < 4; ++i) children.push_back(holder(made.name, 8 * i));
    EXPECT_EQ(server().status().sessions, 5U);
  }
  EXPECT_TRUE(soon_sessions(1));
}

/// A connection to the control socket that sends the bytes of the test.
class RejectedConnection {
 public:
  explicit RejectedConnection(const std::string& path)
      : socket_{::socket(AF_UNIX, SOCK_STREAM, 0)} {
    connect_to(path);
    if (connected_) return;
    ::close(socket_);
    socket_ = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
    connect_to(path);
  }
  ~RejectedConnection() { ::close(socket_); }
  RejectedConnection(const RejectedConnection&) = delete;
  RejectedConnection& operator=(const RejectedConnection&) = delete;

  [[nodiscard]] bool connected() const { return connected_; }
  void send_bytes(std::span<const std::byte> bytes) const {
    (void)!::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  /// Waits until the server hangs up. False: it has not within 30 s.
  [[nodiscard]] bool hung_up() const {
    const timeval limit{30, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    std::array<std::byte, 4096> buffer{};
    ssize_t got = 0;
    do got = ::recv(socket_, buffer.data(), buffer.size(), 0);
    while (got > 0);
    return got == 0 || errno == ECONNRESET;
  }

 private:
  void connect_to(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    connected_ =
        ::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  int socket_;
  bool connected_ = false;
};

class RejectedConnectionTest : public ClientLossTest {
 protected:
  void SetUp() override {
    if (!over_shm()) GTEST_SKIP() << "about the control socket of shm";
    ClientLossTest::SetUp();
  }
  void configure(config::ServerConfig& config) const override {
    config.limits.handshake_timeout = 1s;
  }
  [[nodiscard]] static std::string socket_path() {
    const auto entries = runtime_dir().entries();
    return entries.empty() ? std::string{} : runtime_dir().path() + "/" + entries.front();
  }
};

TEST_P(RejectedConnectionTest, NonsenseIsHungUpOn) {
  const Region region = make_region();
  for (std::size_t i = 0; i < 20; ++i) {
    const RejectedConnection connection{socket_path()};
    ASSERT_TRUE(connection.connected()) << socket_path();
    connection.send_bytes(noise(1 + i * 500, 80 + i));
    EXPECT_TRUE(connection.hung_up()) << i;
  }
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  EXPECT_TRUE(soon_sessions(1));
}

TEST_P(RejectedConnectionTest, SilenceIsHungUpOnAfterTheHandshakeTimeout) {
  const Timed timed;
  const RejectedConnection connection{socket_path()};
  ASSERT_TRUE(connection.connected());
  EXPECT_TRUE(connection.hung_up());
  EXPECT_TRUE(timed.took_at_most(1s + kGrace));
  EXPECT_TRUE(ok(session().regions()));
}

TEST_P(RejectedConnectionTest, MessageBeyondTheLimitIsHungUpOn) {
  const RejectedConnection connection{socket_path()};
  ASSERT_TRUE(connection.connected());
  connection.send_bytes(std::vector<std::byte>(100'000, std::byte{0xff}));
  EXPECT_TRUE(connection.hung_up());
}

REMORA_CONFORMANCE(ClientLossTest);
REMORA_CONFORMANCE(RejectedConnectionTest);

}  // namespace
}  // namespace remora::test
