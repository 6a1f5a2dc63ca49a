#include "transport/tcp/socket.h"

#include <chrono>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "support/timed.h"

namespace remora::transport::tcp {
namespace {

using namespace std::chrono_literals;

TEST(TcpSocket, APortWithoutAListenerRefuses) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto address = verbs::Address::parse(host, 9).value();
    const auto socket = connect_socket(address, Clock::now() + 30s);
    ASSERT_FALSE(socket);
    EXPECT_EQ(socket.error().code(), Code::kConnectionRefused);
    EXPECT_EQ(socket.error().subject(), address.to_string());
  }
}

TEST(TcpSocket, SilentPeerTimesOut) {
  // A listener that accepts no connection: once its backlog is full, the kernel answers no more.
  const UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  const auto any = verbs::Address::parse("127.0.0.1", 0).value();
  ASSERT_EQ(::bind(listener.get(), any.raw(), any.raw_length_bytes()), 0);
  ASSERT_EQ(::listen(listener.get(), 0), 0);
  ASSERT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&bound), &length), 0);
  const auto address = verbs::Address::from(reinterpret_cast<sockaddr*>(&bound));
  std::vector<UniqueFd> waiting;
  for (int i = 0; i < 8; ++i) {
    const test::Timed timed;
    auto socket = connect_socket(address, timed.began() + 200ms);
    EXPECT_TRUE(timed.took_at_most(10s));
    if (!socket) {
      EXPECT_EQ(socket.error().code(), Code::kTimedOut) << socket.error();
      return;
    }
    waiting.push_back(std::move(*socket));
  }
  FAIL() << "the backlog never filled";
}

}  // namespace
}  // namespace remora::transport::tcp
