/// A client whose server is the test, which sends any answer.

#include <array>
#include <cstring>
#include <gtest/gtest.h>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "lane_fixture.h"

namespace remora::transport::tcp {
namespace {

/// A client whose server is the test: it says what the test wants.
class TcpAnswersTest : public testing::Test {
 protected:
  void answer(const AnswerHeader& header, std::span<const std::byte> payload = {}) {
    std::array<std::byte, AnswerHeader::kWireBytes> wire{};
    header.to_wire(wire);
    raw(wire);
    raw(payload);
  }
  void raw(std::span<const std::byte> bytes) {
    EXPECT_EQ(::send(pair.a.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void expect_lost(CompletionStatus first) {
    until_told(client, [] {});
    EXPECT_EQ(client.statuses.front(), first);
    EXPECT_NE(client.statuses.back(), CompletionStatus::kSuccess);
  }
  LaneEnds pair;
  ClientSide client{std::move(pair.b)};
  std::vector<std::byte> into = std::vector<std::byte>(100);
};

TEST_F(TcpAnswersTest, ByteByByteIsAsGood) {
  std::vector<std::byte> large(5000);
  client.post({client.read(1, 0, into), client.read(1, 0, large), client.add(1, 0, 1)});
  const std::vector<std::byte> small_bytes = pattern(100, 1);
  const std::vector<std::byte> large_bytes = pattern(5000, 2);
  const std::vector<std::byte> value = pattern(8, 3);
  std::vector<std::byte> stream;
  const auto put = [&](std::uint32_t sequence, Opcode opcode, std::span<const std::byte> bytes) {
    std::array<std::byte, AnswerHeader::kWireBytes> wire{};
    AnswerHeader{.opcode = opcode,
                 .sequence = sequence,
                 .length_bytes = static_cast<std::uint32_t>(bytes.size())}
        .to_wire(wire);
    stream.insert(stream.end(), wire.begin(), wire.end());
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  };
  put(0, Opcode::kRead, small_bytes);
  put(1, Opcode::kRead, large_bytes);
  put(2, Opcode::kFetchAdd, value);
  for (std::size_t i = 0; i < stream.size(); ++i) {
    EXPECT_FALSE(client.all_told()) << i;
    raw(std::span{stream}.subspan(i, 1));
    client.poll();
  }
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(into, small_bytes);
  EXPECT_EQ(large, large_bytes);
  EXPECT_EQ(std::memcmp(&client.lane->atomic_results()[2], value.data(), 8), 0);
}

TEST_F(TcpAnswersTest, SmallOnesMayBeCutAnywhere) {
  const std::vector<std::byte> bytes = pattern(100, 1);
  const std::vector<std::byte> value = pattern(8, 3);
  std::uint32_t sequence = 0;
  const auto stream = [&] {  // of a read, a write, an atomic
    std::vector<std::byte> all;
    const auto put = [&](Opcode opcode, std::span<const std::byte> payload) {
      std::array<std::byte, AnswerHeader::kWireBytes> wire{};
      AnswerHeader{.opcode = opcode,
                   .sequence = sequence,
                   .length_bytes = static_cast<std::uint32_t>(payload.size())}
          .to_wire(wire);
      all.insert(all.end(), wire.begin(), wire.end());
      all.insert(all.end(), payload.begin(), payload.end());
      ++sequence;
    };
    put(Opcode::kRead, bytes);
    put(Opcode::kWrite, {});
    put(Opcode::kFetchAdd, value);
    return all;
  };
  for (std::size_t cut = 1; cut < 3 * AnswerHeader::kWireBytes + 108; ++cut) {
    std::fill(into.begin(), into.end(), std::byte{0});
    std::vector<std::byte> source(9);
    client.post({client.read(1, 0, into), client.write(1, 0, source)});
    client.post({client.add(1, 0, 1)});
    std::array<std::byte, 512> requests;
    while (::recv(pair.a.get(), requests.data(), requests.size(), MSG_DONTWAIT) > 0) {
    }
    const std::vector<std::byte> all = stream();
    raw(std::span{all}.first(cut));
    client.poll();
    EXPECT_FALSE(client.all_told()) << cut;
    raw(std::span{all}.subspan(cut));
    client.poll();
    ASSERT_TRUE(client.all_good()) << cut;
    EXPECT_EQ(into, bytes) << cut;
    const auto results = client.lane->atomic_results();
    EXPECT_EQ(std::memcmp(&results[(client.next - 1) & (results.size() - 1)], value.data(), 8), 0);
  }
}

TEST_F(TcpAnswersTest, UnrequestedBytesEndTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 100}, pattern(100, 9));
  raw(pattern(AnswerHeader::kWireBytes, 4));
  client.poll();
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(into, pattern(100, 9));
  client.post({client.read(1, 0, into)});
  until_told(client, [] {});
  EXPECT_EQ(client.statuses.back(), CompletionStatus::kBadResponse);
  EXPECT_EQ(into, pattern(100, 9));
}

TEST_F(TcpAnswersTest, FailureNeedsNothingBehindIt) {
  client.post({client.read(1, 0, into), client.read(1, 0, into)});
  answer({.status = CompletionStatus::kRemoteInvalidRequest, .sequence = 0});
  expect_lost(CompletionStatus::kRemoteInvalidRequest);
}

TEST_F(TcpAnswersTest, FailureOfAnUnansweredWriteIsThatOnes) {
  client.post({3, client.write(1, 0, into)});
  answer({.status = CompletionStatus::kRemoteAccessError, .opcode = Opcode::kWrite, .sequence = 1});
  until_told(client, [] {});
  EXPECT_EQ(client.statuses,
            (std::vector{CompletionStatus::kSuccess, CompletionStatus::kRemoteAccessError,
                         CompletionStatus::kFlushed}));
}

TEST_F(TcpAnswersTest, HeaderWithAWrongSumEndsTheLane) {
  client.post({client.read(1, 0, into)});
  raw(pattern(AnswerHeader::kWireBytes, 1));
  expect_lost(CompletionStatus::kBadResponse);
}

TEST_F(TcpAnswersTest, AnswerToAnotherRequestEndsTheLane) {
  client.post({client.read(1, 0, into), client.read(1, 0, into)});
  answer({.sequence = 1, .length_bytes = 100}, into);
  expect_lost(CompletionStatus::kBadResponse);
}

TEST_F(TcpAnswersTest, FailureOfARequestNeverPostedEndsTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.status = CompletionStatus::kRemoteAccessError, .sequence = 7});
  expect_lost(CompletionStatus::kBadResponse);
}

TEST_F(TcpAnswersTest, AnswerOfAnotherLengthOrKindEndsTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 101}, into);
  expect_lost(CompletionStatus::kBadResponse);
  ClientSide other{std::move(LaneEnds{}.b)};
  LaneEnds second;
  ClientSide another{std::move(second.b)};
  another.post({another.read(1, 0, into)});
  std::array<std::byte, AnswerHeader::kWireBytes> wire{};
  AnswerHeader{.opcode = Opcode::kFetchAdd, .length_bytes = 100}.to_wire(wire);
  EXPECT_GT(::send(second.a.get(), wire.data(), wire.size(), MSG_NOSIGNAL), 0);
  until_told(another, [] {});
  EXPECT_EQ(another.statuses, std::vector{CompletionStatus::kBadResponse});
}

TEST_F(TcpAnswersTest, WhatCameBeforeTheHangUpCounts) {
  client.post({client.read(1, 0, into), client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 100}, pattern(100, 9));
  pair.a.reset();
  until_told(client, [] {});
  EXPECT_EQ(client.statuses, (std::vector{CompletionStatus::kSuccess, CompletionStatus::kFlushed}));
  EXPECT_EQ(into, pattern(100, 9));
}

TEST(TcpPayloadCrc, CorruptReadIsABadResponse) {
  LaneEnds pair;
  ClientSide client{std::move(pair.b), 8, true};
  std::vector<std::byte> into(64);
  client.post({client.read(1, 0, into)});
  std::array<std::byte, AnswerHeader::kWireBytes> wire{};
  AnswerHeader{.length_bytes = 64, .payload_crc = 12345}.to_wire(wire);
  ASSERT_GT(::send(pair.a.get(), wire.data(), wire.size(), MSG_NOSIGNAL), 0);
  ASSERT_GT(::send(pair.a.get(), pattern(64, 1).data(), 64, MSG_NOSIGNAL), 0);
  until_told(client, [] {});
  EXPECT_EQ(client.statuses, std::vector{CompletionStatus::kBadResponse});
  EXPECT_EQ(into, std::vector<std::byte>(64)) << "staged, checked, and not copied";
}

/// Whether or not the lane has sums: by such an answer nothing is known to have succeeded.
TEST_F(TcpAnswersTest, SumOfNothingEndsTheLane) {
  client.post({client.read(1, 0, into)});
  answer({.sequence = 0, .length_bytes = 100, .payload_crc = 7}, into);
  expect_lost(CompletionStatus::kBadResponse);
  LaneEnds second;
  ClientSide summed{std::move(second.b), 8, true};
  summed.post({summed.write(1, 0, into)});
  std::array<std::byte, AnswerHeader::kWireBytes> wire{};
  AnswerHeader{.opcode = Opcode::kWrite, .payload_crc = 7}.to_wire(wire);
  ASSERT_GT(::send(second.a.get(), wire.data(), wire.size(), MSG_NOSIGNAL), 0);
  until_told(summed, [] {});
  EXPECT_EQ(summed.statuses, std::vector{CompletionStatus::kBadResponse});
}

}  // namespace
}  // namespace remora::transport::tcp
