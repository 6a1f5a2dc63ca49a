/// Messages of a control channel, over a socket pair.

#include "transport/tcp/message_reader.h"

#include <array>
#include <chrono>
#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "transport/tcp/socket.h"

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

}  // namespace
}  // namespace remora::transport::tcp
