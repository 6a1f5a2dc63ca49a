/// Buffers of a thread's lanes: how many there are, and which lane has one.

#include "transport/tcp/lane_buffers.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "unit/engine/transport/tcp/lane_fixture.h"

namespace remora::transport::tcp {
namespace {

using remora::detail::PageBuffer;

TEST(TcpLaneBuffers, BufferThatWasPutBackIsTakenAgain) {
  LaneBuffers buffers;
  PageBuffer first = buffers.take();
  ASSERT_EQ(first.size(), LaneBuffers::kBytes);
  PageBuffer second = buffers.take();
  EXPECT_NE(first.data(), second.data());
  const std::byte* const last = first.data();
  buffers.put_back(std::move(second));
  buffers.put_back(std::move(first));
  EXPECT_EQ(buffers.take().data(), last) << "the one that the processor's cache has";
  EXPECT_EQ(buffers.made(), 2U);
  buffers.put_back({});
  EXPECT_EQ(buffers.unused(), 1U);
}

TEST(TcpLaneBuffers, TrimLeavesThoseOfOneLane) {
  LaneBuffers buffers;
  std::vector<PageBuffer> taken(5);
  for (PageBuffer& each : taken) each = buffers.take();
  EXPECT_FALSE(buffers.has_spare());
  for (PageBuffer& each : taken) buffers.put_back(std::move(each));
  EXPECT_TRUE(buffers.has_spare());
  buffers.trim(4);
  EXPECT_EQ(buffers.unused(), 4U);
  buffers.trim();
  EXPECT_EQ(buffers.unused(), LaneBuffers::kKept);
  EXPECT_FALSE(buffers.has_spare());
}

/// The memory of sessions that are idle does not depend on what they have transferred, and steps
/// allocate nothing.
TEST(TcpLaneBuffers, LanesThatAreIdleHaveNone) {
  constexpr std::size_t kLanes = 16;
  LaneBuffers buffers;
  std::vector<std::unique_ptr<ServerSide>> servers;
  std::vector<std::unique_ptr<ClientSide>> clients;
  for (std::size_t i = 0; i < kLanes; ++i) {
    LaneEnds ends;
    servers.push_back(std::make_unique<ServerSide>(std::move(ends.a), i % 4 == 3, Rights::kAll,
                                                   true, std::size_t{256} << 10U));
    clients.push_back(std::make_unique<ClientSide>(std::move(ends.b), 64, i % 4 == 3));
  }
  std::vector<std::byte> block(std::size_t{64} << 10U);
  for (int round = 0; round < 3; ++round) {
    for (std::size_t i = 0; i < kLanes; ++i) {
      ClientSide& client = *clients[i];
      client.post({client.write(servers[i]->key(), 0, block),
                   client.read(servers[i]->key(), block.size(), block),
                   client.add(servers[i]->key(), 0, 1)});
      until_told(client, [&] { servers[i]->step(buffers); });
      EXPECT_TRUE(client.all_good());
      EXPECT_EQ(buffers.unused(), buffers.made()) << "lane " << i;
    }
  }
  EXPECT_EQ(buffers.made(), 2U);
}

TEST(TcpLaneBuffers, LaneInTheMiddleOfATransferKeepsItsOwn) {
  LaneBuffers buffers;
  LaneEnds ends;
  ServerSide server{std::move(ends.a)};
  const auto half = RequestHeader{.opcode = Opcode::kRead, .length_bytes = 8};
  std::array<std::byte, RequestHeader::kWireBytes> bytes{};
  half.to_wire(bytes);
  ASSERT_EQ(::send(ends.b.get(), bytes.data(), 10, MSG_NOSIGNAL), 10);
  EXPECT_EQ(server.step(buffers), ServerLane::Progress::kIdle);
  EXPECT_EQ(buffers.made() - buffers.unused(), 1U) << "half of a request";
}

TEST(TcpLaneBuffers, LaneWhosePeerDoesNotReadKeepsItsAnswers) {
  LaneBuffers buffers;
  LaneEnds ends{4096};
  ServerSide server{std::move(ends.a)};
  ClientSide client{std::move(ends.b)};
  std::vector<std::byte> into(kMaxTransferBytes);
  client.post({client.read(server.key(), 0, into)});
  while (server.step(buffers) != ServerLane::Progress::kBlocked) {
  }
  EXPECT_EQ(buffers.made() - buffers.unused(), 1U);
  until_told(client, [&] { server.step(buffers); });
  EXPECT_TRUE(client.all_good());
  EXPECT_EQ(buffers.made(), buffers.unused());
}

TEST(TcpLaneBuffers, LaneThatEndsPutsItsAnswersBackOnce) {
  LaneBuffers buffers;
  LaneEnds ends{4096};
  ServerSide server{std::move(ends.a)};
  ClientSide client{std::move(ends.b)};
  std::vector<std::byte> into(kMaxTransferBytes);
  client.post({client.read(server.key(), 0, into)});
  while (server.step(buffers) != ServerLane::Progress::kBlocked) {
  }
  server.grant.handle.reset();
  EXPECT_EQ(server.step(buffers), ServerLane::Progress::kDead);
  EXPECT_EQ(buffers.unused(), 2U);
  EXPECT_EQ(server.step(buffers), ServerLane::Progress::kDead);
  EXPECT_EQ(buffers.unused(), 2U);
  EXPECT_EQ(buffers.made(), 2U);
  until_told(client, [] {});
}

TEST(TcpLaneBuffers, OtherLanesDoNotTouchHalfARequest) {
  LaneBuffers buffers;
  LaneEnds halted;
  ServerSide server{std::move(halted.a)};
  const auto read = RequestHeader{.opcode = Opcode::kRead, .length_bytes = 8, .key = server.key()};
  std::array<std::byte, RequestHeader::kWireBytes> request{};
  read.to_wire(request);
  const auto say = [&](std::size_t from, std::size_t length) {
    EXPECT_EQ(::send(halted.b.get(), request.data() + from, length, MSG_NOSIGNAL),
              static_cast<ssize_t>(length));
    (void)server.step(buffers);
  };
  say(0, 30);
  LaneEnds ends;
  ServerSide other{std::move(ends.a)};
  ClientSide client{std::move(ends.b)};
  std::vector<std::byte> block(500);
  for (int i = 0; i < 4; ++i) {
    client.post({client.write(other.key(), 0, block), client.read(other.key(), 0, block)});
    until_told(client, [&] { other.step(buffers); });
  }
  EXPECT_TRUE(client.all_good());
  say(30, request.size() - 30);
  std::array<std::byte, AnswerHeader::kWireBytes + 8> answer{};
  ASSERT_EQ(::recv(halted.b.get(), answer.data(), answer.size(), MSG_DONTWAIT),
            static_cast<ssize_t>(answer.size()));
  EXPECT_EQ(std::memcmp(answer.data() + AnswerHeader::kWireBytes, server.memory.data(), 8), 0);
  EXPECT_EQ(buffers.made(), 3U) << "one more for the lane that has half a request";
  EXPECT_EQ(buffers.unused(), 3U);
}

TEST(TcpLaneBuffers, StepSendsAsManyBytesAsItMay) {
  constexpr std::size_t kBytes = std::size_t{64} << 10U;
  const auto steps_for = [](std::uint64_t bytes_max) {
    LaneBuffers buffers;
    LaneEnds ends;
    ServerSide server{std::move(ends.a)};
    ClientSide client{std::move(ends.b)};
    std::vector<std::byte> into(kBytes);
    client.post({client.read(server.key(), 0, into)});
    int steps = 0;
    until_told(client, [&] {
      server.step(buffers, bytes_max);
      ++steps;
    });
    EXPECT_TRUE(client.all_good());
    return steps;
  };
  EXPECT_EQ(steps_for(kMaxLoneStepBytes), 1) << "one receive, one send";
  EXPECT_EQ(steps_for(kBytes / 4), 4) << "the header needs no send of its own";
}

}  // namespace
}  // namespace remora::transport::tcp
