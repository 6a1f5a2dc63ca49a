/// What becomes of an operation that a tcp server refuses: always the same, whichever of answer and
/// hang-up comes first.

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <gtest/gtest.h>
#include <list>
#include <netinet/in.h>
#include <optional>
#include <poll.h>
#include <span>
#include <stdexcept>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/metrics/registry.h>
#include <remora/verbs/address.h>

#include "base/unique_fd.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/runtime_dir.h"
#include "support/server.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::tcp::Introduction;
using transport::tcp::Purpose;
using transport::tcp::RequestHeader;

/// Stands between clients and a server, passes all bytes on, and puts a key that the server has
/// never given into the next request of a lane where it is told to.
class KeyForger {
 public:
  explicit KeyForger(std::uint16_t server_port)
      : server_{verbs::Address::parse("127.0.0.1", server_port).value()},
        listening_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)},
        end_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)} {
    const verbs::Address any = verbs::Address::parse("127.0.0.1", 0).value();
    sockaddr_in own{};
    socklen_t length = sizeof own;
    if (::bind(listening_.get(), any.raw(), any.raw_length_bytes()) != 0 ||
        ::listen(listening_.get(), SOMAXCONN) != 0 ||
        ::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
      throw std::runtime_error("the forger does not listen");
    port_ = ntohs(own.sin_port);
    thread_ = std::thread{[this] { run(); }};
  }
  ~KeyForger() {
    ::eventfd_write(end_.get(), 1);
    thread_.join();
  }
  KeyForger(const KeyForger&) = delete;
  KeyForger& operator=(const KeyForger&) = delete;

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  void forge_next() noexcept { forges_ = true; }
  /// As forge_next(); what the client says on its control channel then cuts that.
  void forge_next_and_cut() noexcept {
    forge_next();
    cuts_ = true;
  }
  /// The next one has come.
  [[nodiscard]] bool forged() const noexcept { return !forges_; }

 private:
  struct Line {
    UniqueFd client;
    UniqueFd server;
    std::uint64_t from_client = 0;
    bool lane = false;
    int open = 2;
  };

  void run() {
    std::vector<std::byte> bytes(std::size_t{256} * 1024);
    for (;;) {
      std::vector<pollfd> wanted{{end_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
      for (const Line& line : lines_) {
        wanted.push_back({line.client.get(), POLLIN, 0});
        wanted.push_back({line.server.get(), POLLIN, 0});
      }
      ::poll(wanted.data(), wanted.size(), -1);
      if (wanted[0].revents != 0) return;
      std::size_t at = 2;
      for (Line& line : lines_) {
        if (wanted[at++].revents != 0) pass_on(line, line.client, line.server, bytes);
        if (wanted[at++].revents != 0 && line.open != 0)
          pass_on(line, line.server, line.client, bytes);
      }
      std::erase_if(lines_, [](const Line& line) { return line.open == 0; });
      if (wanted[1].revents != 0) accept();
    }
  }
  void accept() {
    UniqueFd client{::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK)};
    auto server = transport::tcp::connect_socket(server_, Clock::now() + 30s);
    if (client && server && transport::tcp::prepare_socket(client.get()))
      lines_.push_back({.client = std::move(client), .server = std::move(*server)});
  }
  void pass_on(Line& line, UniqueFd& from, UniqueFd& to, std::vector<std::byte>& bytes) {
    const ssize_t got = ::recv(from.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) {
      ::shutdown(to.get(), SHUT_WR);
      from = {};  // not looked at any more
      line.open = got < 0 ? 0 : line.open - 1;
      return;
    }
    const std::span some{bytes.data(), static_cast<std::size_t>(got)};
    if (&from == &line.client) look_at(line, some);
    if (&from == &line.client && !line.lane && !forges_ && cuts_.exchange(false)) {
      line.open = 0;
      return;
    }
    if (!transport::tcp::send_all(to.get(), some, Clock::now() + 10s)) line.open = 0;
  }
  void look_at(Line& line, std::span<std::byte> bytes) {
    constexpr std::size_t kHeader = RequestHeader::kWireBytes;
    if (line.from_client == 0 && bytes.size() >= Introduction::kWireBytes) {
      const auto introduction = Introduction::from_wire(bytes.first<Introduction::kWireBytes>());
      line.lane = introduction && introduction->purpose == Purpose::kLane;
    } else if (line.lane && bytes.size() >= kHeader && forges_) {
      auto request = RequestHeader::from_wire(bytes.first<kHeader>());
      if (request) {
        request->key ^= 0x5A5U;
        request->to_wire(bytes.first<kHeader>());
        forges_ = false;
      }
    }
    line.from_client += bytes.size();
  }

  verbs::Address server_;
  UniqueFd listening_;
  UniqueFd end_;
  std::uint16_t port_ = 0;
  std::atomic<bool> forges_{false};
  std::atomic<bool> cuts_{false};
  std::list<Line> lines_;
  std::thread thread_;
};

class TcpRefusalTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = Server::start(server_config(TransportKind::kTcp)).value();
    server_->create_region({.name = "target", .size_bytes = 1_MiB}).value();
    forger_.emplace(server_->port());
  }
  [[nodiscard]] std::string uri() const {
    return "remora://127.0.0.1:" + std::to_string(forger_->port()) + "/target?transport=tcp";
  }

  RuntimeDir folder_;
  std::optional<Server> server_;
  std::optional<KeyForger> forger_;
};

TEST_F(TcpRefusalTest, EndsAsRefusedEachTimeAndTheSessionGoesOn) {
  const Engine engine = Engine::open({}).value();
  const Region region = engine.open_region(uri(), Rights::kAll).value();
  constexpr int kRounds = 40;
  std::vector<std::byte> bytes(64);
  for (int round = 0; round < kRounds; ++round) {
    const bool reads = round % 2 == 0;
    forger_->forge_next();
    const Status refused =
        reads ? region.read(ByteOffset{0}, bytes) : region.write(ByteOffset{0}, bytes);
    ASSERT_TRUE(forger_->forged());
    EXPECT_TRUE(fails_with(refused, Code::kAccessRefused)) << "round " << round;
    ASSERT_TRUE(ok(region.write(ByteOffset{64}, bytes, 20s)));
  }
  EXPECT_EQ(server_->registry().sum("remora_server_tcp_refused_total").value(), kRounds);
}

TEST_F(TcpRefusalTest, EndsAsRefusedThoughTheConnectionIsLostBeforeItIsKnownWhy) {
  const Engine engine = Engine::open({}).value();
  const Region region = engine.open_region(uri(), Rights::kAll).value();
  std::vector<std::byte> bytes(64);
  for (int round = 0; round < 10; ++round) {
    forger_->forge_next_and_cut();
    const Status refused =
        round % 2 == 0 ? region.read(ByteOffset{0}, bytes) : region.write(ByteOffset{0}, bytes);
    EXPECT_TRUE(fails_with(refused, Code::kAccessRefused)) << "round " << round;
    ASSERT_TRUE(ok(region.write(ByteOffset{64}, bytes, 20s)));
  }
}

}  // namespace
}  // namespace remora::test
