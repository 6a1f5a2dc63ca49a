/// Bytes of requests that leave at once, later, or not at all.

#include "transport/tcp/outgoing_requests.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <vector>

#include "unit/engine/transport/tcp/lane_fixture.h"

namespace remora::transport::tcp {
namespace {

std::vector<std::byte> take_all(int socket) {
  std::vector<std::byte> all;
  std::array<std::byte, 65'536> some;
  for (ssize_t got = 0; (got = ::recv(socket, some.data(), some.size(), MSG_DONTWAIT)) > 0;)
    all.insert(all.end(), some.begin(), some.begin() + got);
  return all;
}

TEST(TcpOutgoingRequests, BytesLeaveInTheOrderInWhichTheyWereAdded) {
  const LaneEnds ends;
  const std::vector<std::byte> sent = pattern(300, 7);
  OutgoingRequests outgoing{4};
  std::memcpy(outgoing.add(100), sent.data(), 100);
  outgoing.add_from(sent.data() + 100, 100);
  std::memcpy(outgoing.add(50), sent.data() + 200, 50);
  std::memcpy(outgoing.add(50), sent.data() + 250, 50);
  EXPECT_EQ(outgoing.queued_bytes(), 300U);
  EXPECT_TRUE(outgoing.pending());
  outgoing.flush(ends.a.get(), std::atomic<bool>{false});
  EXPECT_FALSE(outgoing.pending());
  EXPECT_EQ(outgoing.sent_bytes(), 300U);
  EXPECT_EQ(take_all(ends.b.get()), sent);
}

TEST(TcpOutgoingRequests, SocketWithoutRoomGetsTheRestLater) {
  const LaneEnds ends{4096};
  const std::vector<std::byte> sent = pattern(std::size_t{1} << 20U, 8);
  OutgoingRequests outgoing{4};
  outgoing.add_from(sent.data(), sent.size());
  const std::atomic<bool> ended{false};
  outgoing.flush(ends.a.get(), ended);
  ASSERT_TRUE(outgoing.pending());
  EXPECT_LT(outgoing.sent_bytes(), sent.size());
  std::vector<std::byte> got;
  while (outgoing.pending()) {
    const std::vector<std::byte> more = take_all(ends.b.get());
    ASSERT_FALSE(more.empty());
    got.insert(got.end(), more.begin(), more.end());
    outgoing.flush(ends.a.get(), ended);
  }
  const std::vector<std::byte> rest = take_all(ends.b.get());
  got.insert(got.end(), rest.begin(), rest.end());
  EXPECT_EQ(got, sent);
}

TEST(TcpOutgoingRequests, NothingLeavesOnceTheLaneHasEnded) {
  const LaneEnds ends;
  const std::vector<std::byte> sent = pattern(100, 9);
  OutgoingRequests outgoing{4};
  outgoing.add_from(sent.data(), sent.size());
  outgoing.flush(ends.a.get(), std::atomic<bool>{true});
  EXPECT_FALSE(outgoing.pending());
  EXPECT_EQ(outgoing.sent_bytes(), 0U);
  EXPECT_TRUE(take_all(ends.b.get()).empty());
}

}  // namespace
}  // namespace remora::transport::tcp
