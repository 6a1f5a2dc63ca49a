#pragma once

/// A tcp server, and connections to it that send the bytes of a test.

#include <array>
#include <chrono>
#include <cstdint>
#include <gtest/gtest.h>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/verbs/address.h>

#include "raw_session.h"
#include "support/eventually.h"
#include "support/expect.h"
#include "support/held_before.h"
#include "support/pattern.h"
#include "support/runtime_dir.h"
#include "support/server.h"
#include "transport/tcp/socket.h"
#include "transport/tcp/wire.h"

namespace remora::test {

/// A connection to the server that sends the bytes of the test.
class RawPeer {
 public:
  explicit RawPeer(std::uint16_t port)
      : socket_{transport::tcp::connect_socket(verbs::Address::parse("127.0.0.1", port).value(),
                                               Clock::now() + 30s)
                    .value()} {}

  void say(std::span<const std::byte> bytes) const {
    (void)transport::tcp::send_all(socket_.get(), bytes, Clock::now() + 20s);
  }
  /// Introduces itself as a client. Whether the server welcomes it.
  [[nodiscard]] bool welcome() const {
    say(transport::tcp::Introduction{}.to_wire());
    std::array<std::byte, transport::tcp::Welcome::kWireBytes> answer{};
    return transport::tcp::receive_all(socket_.get(), answer, Clock::now() + 20s).ok() &&
           transport::tcp::Welcome::from_wire(answer).has_value();
  }
  /// The bytes that the server sends until it hangs up.
  [[nodiscard]] std::string hear_all() const {
    std::string all;
    std::byte next{};
    while (transport::tcp::receive_all(socket_.get(), {&next, 1}, Clock::now() + 30s))
      all += static_cast<char>(next);
    return all;
  }
  /// Whether the server hangs up within 30 s: for silence alone, most tests let it wait 60 s.
  [[nodiscard]] bool hung_up() const {
    std::array<std::byte, 4096> bytes{};
    const Status end = transport::tcp::receive_all(socket_.get(), bytes, Clock::now() + 30s);
    return !end && end.error().code() == Code::kConnectionLost;
  }

 private:
  UniqueFd socket_;
};

class TcpPeersTest : public testing::Test {
 protected:
  void SetUp() override {
    engine_.emplace(Engine::open({}).value());
    start(plain());
  }
  void TearDown() override {
    engine_.reset();
    held_before_.expect_again(server_);
  }
  [[nodiscard]] static config::ServerConfig plain() {
    config::ServerConfig config = server_config(TransportKind::kTcp, {.piece_bytes = 1U << 20U});
    config.limits.handshake_timeout = 60s;
    return config;
  }
  void start(const config::ServerConfig& config) {
    if (server_) server_->stop();
    host_ = config.listen.address;
    server_ = Server::start(config).value();
    address_ = {host_, server_->port()};
    server_->create_region({.name = "target", .size_bytes = 4U << 20U}).value();
  }
  [[nodiscard]] std::string uri(const std::string& region = "target",
                                const std::string& options = "transport=tcp") const {
    const bool v6 = host_.find(':') != std::string::npos;
    return "remora://" + (v6 ? "[" + host_ + "]" : host_) + ":" + std::to_string(server_->port()) +
           "/" + region + (options.empty() ? "" : "?" + options);
  }
  [[nodiscard]] bool soon_sessions(std::uint64_t wanted) const {
    return eventually([&] { return server_->status().sessions == wanted; });
  }
  /// Writes and reads the whole region, and adds to a word.
  static void expect_works(const Region& region, std::uint64_t seed) {
    const std::vector<std::byte> model = noise(region.size_bytes(), seed);
    ASSERT_TRUE(ok(region.write(ByteOffset{0}, model)));
    std::vector<std::byte> seen(region.size_bytes());
    ASSERT_TRUE(ok(region.read(ByteOffset{0}, seen)));
    EXPECT_TRUE(same_bytes(seen, model));
    const std::uint64_t before = region.fetch_add(ByteOffset{8}, 5).value();
    EXPECT_EQ(region.fetch_add(ByteOffset{8}, 0).value(), before + 5);
  }

  RuntimeDir folder_;
  std::optional<Server> server_;
  std::string host_;
  ServerAddress address_;
  const HeldBefore held_before_{
      "tcp_peers", [this] {
        start(server_config(TransportKind::kTcp, {.all_transports = true}));
        {
          const Engine engine = Engine::open({}).value();
          for (const char* const options : {"transport=tcp", ""})
            expect_works(engine.open_region(uri("target", options), Rights::kAll).value(), 1);
          RawSession session{address_, TransportKind::kTcp};
          (void)session.open("target", Rights::kAll);
        }
        server_->stop();
        server_.reset();
      }};
  std::optional<Engine> engine_;
};

}  // namespace remora::test
