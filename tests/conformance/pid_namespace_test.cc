/// A server in a PID namespace of its own, as in a container, and clients in another: a fence waits
/// for no client that has died.

#include <cerrno>
#include <cstring>
#include <fstream>
#include <future>
#include <optional>
#include <sched.h>
#include <string>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "conformance_test.h"
#include "support/child.h"

namespace remora::test {
namespace {

/// Whether the kernel tells of a process at the other end of a socket: from Linux 6.5 on.
bool tells_of_peers() {
  constexpr int kPeerProcess = 77;  // SO_PEERPIDFD, asm-generic/socket.h
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return false;
  int descriptor = -1;
  socklen_t length = sizeof descriptor;
  const bool told = ::getsockopt(ends[0], SOL_SOCKET, kPeerProcess, &descriptor, &length) == 0;
  for (const int end : {ends[0], ends[1], descriptor})
    if (end >= 0) ::close(end);
  return told;
}

/// A server that is the first process of a PID namespace.
class NamespaceServer {
 public:
  explicit NamespaceServer(const ServerOptions& options) {
    std::promise<std::string> started;
    // What a thread starts is in the namespace that it has left for; it cannot start threads.
    thread_ = std::thread{[&started, &options, this] {
      if (::unshare(CLONE_NEWPID) != 0)
        return started.set_value(std::string{"unshare(CLONE_NEWPID): "} + std::strerror(errno));
      server_.emplace(TransportKind::kShm, options);
      started.set_value({});
      over_.get_future().wait();  // a helper ends with the thread that has started it
      EXPECT_EQ(server_->stop(), 0);
      server_.reset();
    }};
    why_not_ = started.get_future().get();
  }
  ~NamespaceServer() {
    over_.set_value();
    thread_.join();
  }
  NamespaceServer(const NamespaceServer&) = delete;
  NamespaceServer& operator=(const NamespaceServer&) = delete;

  [[nodiscard]] const std::string& why_not() const { return why_not_; }
  [[nodiscard]] std::string uri(std::string_view region) const {
    return make_uri({listen_address(TransportKind::kShm), server_->port()}, TransportKind::kShm,
                    region);
  }

 private:
  std::optional<ServerProcess> server_;
  std::promise<void> over_;
  std::string why_not_;
  std::thread thread_;
};

class PidNamespaceTest : public ::testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (GetParam() != TransportKind::kShm) GTEST_SKIP() << "only what is mapped is waited for";
    // Long enough that the end of the keeping is not taken for the answer.
    server_.emplace(ServerOptions{.keep = std::chrono::minutes{2}});
    if (!server_->why_not().empty()) GTEST_SKIP() << server_->why_not();
    engine_.emplace(open_engine());
    const Session session = engine_->connect(server_->uri("r")).value();
    RegionSpec spec;
    spec.name = "r";
    spec.size_bytes = 64_KiB;
    spec.shm = true;
    session.create_region(spec).value();
  }
  void TearDown() override {
    engine_.reset();
    server_.reset();
  }

  std::optional<NamespaceServer> server_;
  std::optional<Engine> engine_;
};

TEST_P(PidNamespaceTest, ClientThatHasDiedIsNotWaitedFor) {
  if (!tells_of_peers()) GTEST_SKIP() << "no SO_PEERPIDFD: Linux 6.5 and later have it";
  Child client{"write-late", {"uri=" + server_->uri("r"), "comes_back=1"}};
  ASSERT_EQ(client.read_line(), "ready");
  client.kill();
  Result<Region> fenced = engine_->fence_region(server_->uri("r"), Rights::kAll);
  for (Patience patience{20s}; !fenced && !patience.over();)
    fenced = engine_->fence_region(server_->uri("r"), Rights::kAll);
  EXPECT_TRUE(ok(fenced));
}

TEST_P(PidNamespaceTest, ClientThatStandsStillIsBusy) {
  Child client{"write-late", {"uri=" + server_->uri("r"), "comes_back=1"}};
  ASSERT_EQ(client.read_line(), "ready");
  client.pause();
  EXPECT_TRUE(fails_with(engine_->fence_region(server_->uri("r"), Rights::kAll), Code::kBusy));
}

/// Else the death of a client would not prove that its mapping has gone.
TEST_P(PidNamespaceTest, ChildOfAClientHasNoMapping) {
  const Region region = engine_->open_region(server_->uri("r"), Rights::kAll).value();
  std::ifstream maps{"/proc/self/smaps"};
  ASSERT_TRUE(maps);
  int found = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:") != std::string::npos)
      ours = line.find("remora-status") == std::string::npos;
    if (!line.starts_with("VmFlags:") || !std::exchange(ours, false)) continue;
    ++found;
    EXPECT_NE((line + ' ').find(" dc "), std::string::npos) << line;
  }
  EXPECT_EQ(found, 1);
}

REMORA_CONFORMANCE(PidNamespaceTest);

}  // namespace
}  // namespace remora::test
