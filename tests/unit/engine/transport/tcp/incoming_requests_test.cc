/// Bytes of requests as a server's lane receives them: into its buffer, or where they belong.

#include "transport/tcp/incoming_requests.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <span>
#include <sys/socket.h>
#include <vector>

#include "unit/engine/transport/tcp/lane_fixture.h"

namespace remora::transport::tcp {
namespace {

constexpr std::size_t kHeaderBytes = RequestHeader::kWireBytes;

void send_bytes(int socket, std::span<const std::byte> bytes) {
  ASSERT_EQ(::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL),
            static_cast<ssize_t>(bytes.size()));
}

TEST(TcpIncomingRequests, SilentSocketBringsNothing) {
  const LaneEnds ends;
  LaneBuffers buffers;
  IncomingRequests incoming{false};
  ASSERT_TRUE(incoming.begin_step(buffers));
  const auto received = incoming.receive(ends.b.get());
  EXPECT_FALSE(received.ended);
  EXPECT_FALSE(received.any);
  EXPECT_EQ(incoming.buffered_bytes(), 0U);
}

TEST(TcpIncomingRequests, HangUpIsTheEnd) {
  LaneEnds ends;
  ends.a.reset();
  LaneBuffers buffers;
  IncomingRequests incoming{false};
  ASSERT_TRUE(incoming.begin_step(buffers));
  EXPECT_TRUE(incoming.receive(ends.b.get()).ended);
}

TEST(TcpIncomingRequests, RestOfAWriteIsReceivedToItsPlace) {
  const LaneEnds ends;
  const std::vector<std::byte> sent = pattern(kHeaderBytes + 1000, 3);
  LaneBuffers buffers;
  IncomingRequests incoming{false};
  ASSERT_TRUE(incoming.begin_step(buffers));
  send_bytes(ends.a.get(), std::span{sent}.first(kHeaderBytes + 400));
  EXPECT_TRUE(incoming.receive(ends.b.get()).any);
  ASSERT_EQ(incoming.buffered_bytes(), kHeaderBytes + 400);
  EXPECT_EQ(std::memcmp(incoming.next(), sent.data(), kHeaderBytes + 400), 0);
  incoming.skip(kHeaderBytes + 400);
  std::vector<std::byte> memory(600);
  const RequestHeader header{.opcode = Opcode::kWrite, .length_bytes = 1000, .key = 5};
  incoming.begin_write(header, memory.data(), 600);
  EXPECT_TRUE(incoming.writes_by(5));
  EXPECT_FALSE(incoming.writes_by(6));
  send_bytes(ends.a.get(), std::span{sent}.subspan(kHeaderBytes + 400));
  EXPECT_TRUE(incoming.receive(ends.b.get()).any);
  EXPECT_TRUE(incoming.in_write());
  EXPECT_EQ(incoming.write_left_bytes(), 0U);
  EXPECT_EQ(std::memcmp(memory.data(), sent.data() + kHeaderBytes + 400, 600), 0);
  EXPECT_EQ(incoming.buffered_bytes(), 0U);
  EXPECT_EQ(incoming.end_write().length_bytes, 1000U);
  EXPECT_FALSE(incoming.writes_by(5));
}

TEST(TcpIncomingRequests, BehindALargeWriteAHeaderIsReceivedAlone) {
  const LaneEnds ends;
  LaneBuffers buffers;
  IncomingRequests incoming{false};
  ASSERT_TRUE(incoming.begin_step(buffers));
  incoming.expect_more_like({.opcode = Opcode::kWrite, .length_bytes = 1U << 20U});
  send_bytes(ends.a.get(), pattern(kHeaderBytes + 100, 4));
  const auto received = incoming.receive(ends.b.get());
  EXPECT_TRUE(received.filled);
  EXPECT_EQ(incoming.buffered_bytes(), kHeaderBytes);
}

TEST(TcpIncomingRequests, DroppedWriteReachesNoMemory) {
  const LaneEnds ends;
  LaneBuffers buffers;
  IncomingRequests incoming{false};
  ASSERT_TRUE(incoming.begin_step(buffers));
  std::vector<std::byte> memory(100);
  incoming.begin_write({.opcode = Opcode::kWrite, .length_bytes = 100, .key = 5}, memory.data(),
                       100);
  incoming.drop_write();
  EXPECT_FALSE(incoming.writes_by(5));
  send_bytes(ends.a.get(), pattern(100, 6));
  EXPECT_TRUE(incoming.receive(ends.b.get()).any);
  EXPECT_EQ(memory, std::vector<std::byte>(100));
}

TEST(TcpIncomingRequests, HalfIsPassedOnceForEachReceive) {
  const LaneEnds ends;
  LaneBuffers buffers;
  IncomingRequests incoming{false};
  ASSERT_TRUE(incoming.begin_step(buffers));
  send_bytes(ends.a.get(), pattern(4 * kHeaderBytes, 5));
  EXPECT_TRUE(incoming.receive(ends.b.get()).any);
  incoming.skip(kHeaderBytes);
  EXPECT_FALSE(incoming.passes_half());
  incoming.skip(kHeaderBytes);
  EXPECT_TRUE(incoming.passes_half());
  EXPECT_FALSE(incoming.passes_half());
}

TEST(TcpIncomingRequests, BufferIsThereWhileItHasBytes) {
  const LaneEnds ends;
  LaneBuffers buffers;
  IncomingRequests incoming{false};
  ASSERT_TRUE(incoming.begin_step(buffers));
  EXPECT_EQ(buffers.unused(), 0U);
  send_bytes(ends.a.get(), pattern(kHeaderBytes + 3, 7));
  EXPECT_TRUE(incoming.receive(ends.b.get()).any);
  incoming.skip(kHeaderBytes);
  incoming.end_step(buffers);
  EXPECT_EQ(buffers.unused(), 0U) << "three bytes of the next request";
  ASSERT_TRUE(incoming.begin_step(buffers));
  EXPECT_EQ(buffers.made(), 1U);
  EXPECT_EQ(std::memcmp(incoming.next(), pattern(kHeaderBytes + 3, 7).data() + kHeaderBytes, 3), 0);
  incoming.skip(3);
  incoming.end_step(buffers);
  EXPECT_EQ(buffers.unused(), 1U);
  incoming.end_step(buffers);
  EXPECT_EQ(buffers.unused(), 1U) << "put back once";
}

}  // namespace
}  // namespace remora::transport::tcp
