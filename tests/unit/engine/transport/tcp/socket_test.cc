#include "transport/tcp/socket.h"

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <vector>

#include "support/timed.h"

namespace remora::transport::tcp {
namespace {

using namespace std::chrono_literals;

struct StreamPair {
  UniqueFd a, b;
  StreamPair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    a = UniqueFd{fds[0]};
    b = UniqueFd{fds[1]};
  }
};

std::vector<std::byte> bytes_of(std::size_t length) {
  std::vector<std::byte> bytes(length);
  for (std::size_t i = 0; i < length; ++i) bytes[i] = static_cast<std::byte>(i * 7);
  return bytes;
}

void raw(int socket, std::span<const std::byte> bytes) {
  ASSERT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST(TcpMessages, KeepTheirBoundaries) {
  StreamPair pair;
  MessageReader reader;
  EXPECT_FALSE(reader.receive(pair.b.get()).value().has_value());
  const std::array<std::size_t, 5> lengths{1, kMaxControlMessageBytes, 100, kMaxControlMessageBytes,
                                           2};
  for (const std::size_t length : lengths)
    ASSERT_TRUE(send_message(pair.a.get(), bytes_of(length), Clock::now()));
  for (const std::size_t length : lengths) {
    const auto message = reader.receive(pair.b.get()).value();
    ASSERT_TRUE(message.has_value());
    EXPECT_EQ(message->bytes, bytes_of(length));
  }
  EXPECT_FALSE(reader.receive(pair.b.get()).value().has_value());
}

TEST(TcpMessages, MayComeByteByByte) {
  StreamPair outgoing;
  ASSERT_TRUE(send_message(outgoing.a.get(), bytes_of(300), Clock::now()));
  std::vector<std::byte> stream(300 + FrameHeader::kWireBytes);
  ASSERT_EQ(::recv(outgoing.b.get(), stream.data(), stream.size(), 0),
            static_cast<ssize_t>(stream.size()));
  StreamPair pair;
  MessageReader reader;
  for (std::size_t i = 0; i < stream.size(); ++i) {
    EXPECT_FALSE(reader.receive(pair.b.get()).value().has_value()) << i;
    raw(pair.a.get(), std::span{stream}.subspan(i, 1));
  }
  EXPECT_EQ(reader.receive(pair.b.get()).value()->bytes, bytes_of(300));
}

TEST(TcpMessages, OutOfBoundsAreRefusedByEitherSide) {
  StreamPair pair;
  EXPECT_EQ(send_message(pair.a.get(), {}, Clock::now()).error().code(), Code::kLimitExceeded);
  EXPECT_EQ(send_message(pair.a.get(), bytes_of(kMaxControlMessageBytes + 1), Clock::now())
                .error()
                .code(),
            Code::kLimitExceeded);
  MessageReader reader;
  raw(pair.a.get(), FrameHeader{.length_bytes = kMaxControlMessageBytes + 1}.to_wire());
  EXPECT_EQ(reader.receive(pair.b.get()).error().code(), Code::kProtocol);
}

TEST(TcpMessages, NonsenseIsRefused) {
  StreamPair pair;
  MessageReader reader;
  raw(pair.a.get(), bytes_of(100));
  EXPECT_EQ(reader.receive(pair.b.get()).error().code(), Code::kProtocol);
}

TEST(TcpMessages, WrongByteIsNoticed) {
  StreamPair pair;
  MessageReader reader;
  raw(pair.a.get(), FrameHeader{.length_bytes = 10, .message_crc = 1}.to_wire());
  raw(pair.a.get(), bytes_of(10));
  EXPECT_EQ(reader.receive(pair.b.get()).error().code(), Code::kProtocol);
}

TEST(TcpMessages, HangUpAfterHalfAMessageIsALostConnection) {
  StreamPair pair;
  MessageReader reader;
  raw(pair.a.get(), FrameHeader{.length_bytes = 10}.to_wire());
  EXPECT_FALSE(reader.receive(pair.b.get()).value().has_value());
  pair.a.reset();
  EXPECT_EQ(reader.receive(pair.b.get()).error().code(), Code::kConnectionLost);
}

TEST(TcpMessages, PeerThatDoesNotReadIsWaitedForUntilTheDeadline) {
  StreamPair pair;
  const std::vector<std::byte> message = bytes_of(kMaxControlMessageBytes);
  Status status;
  for (int i = 0; i < 1000 && status; ++i)
    status = send_message(pair.a.get(), message, Clock::now() + (i == 0 ? 0ms : 50ms));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code(), Code::kTimedOut);
}

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
