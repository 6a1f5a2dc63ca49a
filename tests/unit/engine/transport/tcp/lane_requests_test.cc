/// A server whose client is the test, which sends any request.

#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "lane_fixture.h"

namespace remora::transport::tcp {
namespace {

/// Crafted requests of a client that is the test.
class TcpRequestsTest : public testing::Test {
 protected:
  void send(std::span<const std::byte> bytes) {
    ASSERT_EQ(::send(pair.b.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void request(const RequestHeader& header, std::span<const std::byte> payload = {}) {
    std::array<std::byte, RequestHeader::kWireBytes> wire{};
    header.to_wire(wire);
    send(wire);
    send(payload);
  }
  void serve(ServerSide& server) {
    for (int i = 0; i < 20 && server.step() != ServerLane::Progress::kDead; ++i) {
    }
  }
  CompletionStatus status() {
    std::array<std::byte, AnswerHeader::kWireBytes> wire{};
    if (::recv(pair.b.get(), wire.data(), wire.size(), MSG_DONTWAIT) !=
        static_cast<ssize_t>(wire.size()))
      return CompletionStatus::kFlushed;
    return AnswerHeader::from_wire(wire).value().status;
  }
  LaneEnds pair;
};

TEST_F(TcpRequestsTest, CorruptWriteIsRefusedAndChangesNothing) {
  ServerSide server{std::move(pair.a), true};
  const std::vector<std::byte> before = server.memory;
  request({.opcode = Opcode::kWrite, .length_bytes = 64, .key = server.key(), .payload_crc = 1},
          pattern(64, 2));
  serve(server);
  EXPECT_EQ(status(), CompletionStatus::kRemoteOperationError);
  EXPECT_TRUE(test::same_bytes(server.memory, before));
  EXPECT_EQ(server.served.corrupt, 1U);
}

TEST_F(TcpRequestsTest, MayBeCutAnywhere) {
  // A small read, a small write, an atomic and a read of both: the same answers wherever they are
  // cut.
  std::vector<std::byte> stream;
  const auto put = [&](RequestHeader header, std::span<const std::byte> payload = {}) {
    std::array<std::byte, RequestHeader::kWireBytes> wire{};
    header.to_wire(wire);
    stream.insert(stream.end(), wire.begin(), wire.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
  };
  const std::vector<std::byte> bytes = pattern(70, 7);
  std::vector<std::byte> answers;
  std::size_t length = 1;
  for (std::size_t cut = 0; cut < length; ++cut) {
    LaneEnds ends;
    ServerSide server{std::move(ends.a), false, Rights::kAll, true, 4096};
    stream.clear();
    put({.length_bytes = 100, .address = 3, .key = server.key(), .sequence = 9});
    put({.opcode = Opcode::kWrite,
         .answered = false,
         .length_bytes = 70,
         .address = 8,
         .key = server.key(),
         .sequence = 10},
        bytes);
    put({.opcode = Opcode::kFetchAdd,
         .length_bytes = 8,
         .address = 80,
         .key = server.key(),
         .sequence = 11,
         .compare_or_add = 5});
    put({.length_bytes = 100, .key = server.key(), .sequence = 12});
    length = stream.size();
    for (const auto& part : {std::span{stream}.first(cut), std::span{stream}.subspan(cut)}) {
      if (part.empty()) continue;
      ASSERT_EQ(::send(ends.b.get(), part.data(), part.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(part.size()));
      for (int i = 0; i < 4; ++i) ASSERT_NE(server.step(), ServerLane::Progress::kDead) << cut;
    }
    std::vector<std::byte> got(1000);
    const ssize_t count = ::recv(ends.b.get(), got.data(), got.size(), MSG_DONTWAIT);
    ASSERT_EQ(count, static_cast<ssize_t>(3 * AnswerHeader::kWireBytes + 100 + 8 + 100)) << cut;
    got.resize(static_cast<std::size_t>(count));
    if (cut == 0) answers = got;
    EXPECT_EQ(got, answers) << cut;
    EXPECT_EQ(std::memcmp(got.data() + got.size() - 92, bytes.data(), 70), 0) << cut;
    EXPECT_EQ(std::memcmp(server.memory.data() + 8, bytes.data(), 70), 0) << cut;
    EXPECT_EQ(server.served.operations, (std::array<std::uint64_t, 4>{2, 1, 0, 1})) << cut;
  }
}

TEST_F(TcpRequestsTest, NonsenseHangsUp) {
  ServerSide server{std::move(pair.a)};
  send(pattern(4096, 3));
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
}

TEST_F(TcpRequestsTest, SequenceThatJumpsHangsUp) {
  ServerSide server{std::move(pair.a)};
  request({.length_bytes = 8, .key = server.key(), .sequence = 5});
  request({.length_bytes = 8, .key = server.key(), .sequence = 7});
  serve(server);
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
  EXPECT_EQ(server.served.operations[0], 1U);
}

TEST_F(TcpRequestsTest, TruncatedWriteHangsUpWithItsClient) {
  ServerSide server{std::move(pair.a)};
  request({.opcode = Opcode::kWrite, .length_bytes = 4096, .key = server.key()}, pattern(100, 4));
  EXPECT_EQ(server.step(), ServerLane::Progress::kIdle);
  pair.b.reset();
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
}

TEST_F(TcpRequestsTest, RefusedClientHasTimeToHearOfIt) {
  ServerSide server{std::move(pair.a)};
  request({.length_bytes = 8, .address = kRegionBytes, .key = server.key()});
  for (std::uint32_t i = 1; i < 50; ++i)
    request({.length_bytes = 8, .key = server.key(), .sequence = i});
  for (int i = 0; i < 20; ++i) EXPECT_NE(server.step(), ServerLane::Progress::kDead);
  EXPECT_TRUE(server.lane->refused());
  EXPECT_EQ(server.served.operations[0], 0U);
  EXPECT_EQ(status(), CompletionStatus::kRemoteAccessError);
  pair.b.reset();
  EXPECT_EQ(server.step(), ServerLane::Progress::kDead);
}

TEST_F(TcpRequestsTest, PeerThatDoesNotReadIsNotReadFrom) {
  ServerSide server{std::move(pair.a)};
  std::uint32_t sequence = 0;
  bool blocked = false;
  for (int i = 0; i < 200 && !blocked; ++i) {
    request({.length_bytes = 65536, .key = server.key(), .sequence = sequence++});
    blocked = server.step() == ServerLane::Progress::kBlocked;
  }
  EXPECT_TRUE(blocked);
  const std::uint64_t served = server.served.operations[0];
  request({.length_bytes = 65536, .key = server.key(), .sequence = sequence++});
  for (int i = 0; i < 10; ++i) EXPECT_EQ(server.step(), ServerLane::Progress::kBlocked);
  EXPECT_EQ(server.served.operations[0], served);
}

}  // namespace
}  // namespace remora::transport::tcp
