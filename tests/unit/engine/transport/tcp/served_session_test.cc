#include "transport/tcp/served_session.h"

#include <array>
#include <atomic>
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>
#include <thread>
#include <vector>

#include <remora/sanitizers.h>

#include "transport/tcp/server_lane.h"

namespace remora::transport::tcp {
namespace {

TEST(TcpSession, GrantHasAKeyForEachExtentAndAddressesOfTheRegion) {
  const auto session = ServedSession::create().value();
  std::vector<std::byte> memory(8192);
  const std::array stretches{MemoryStretch{memory.data(), 4096},
                             MemoryStretch{memory.data() + 4096, 100}};
  const Grant grant = session->grant({.extents = stretches, .rights = Rights::kRead}).value();
  ASSERT_EQ(grant.extents.size(), 2U);
  EXPECT_EQ(grant.extents[1].start_bytes, 4096U);
  EXPECT_EQ(grant.extents[1].remote_address, 4096U);
  EXPECT_EQ(grant.extents[1].length_bytes, 100U);
  EXPECT_NE(grant.extents[0].remote_key, grant.extents[1].remote_key);
  EXPECT_TRUE(grant.descriptors.empty());
}

TEST(TcpSession, EndedSessionGrantsNothing) {
  const auto session = ServedSession::create().value();
  session->end();
  session->end();
  EXPECT_EQ(session->grant({}).error().code(), Code::kConnectionLost);
}

/// A lane that dies while its session is resumed: the new life does not break of it.
TEST(TcpSession, EndOfAnOldLaneDoesNotBreakTheSessionThatBeganAgain) {
  const auto session = ServedSession::create().value();
  for (int round = 0; round < 2000; ++round) {
    std::array<int, 2> sockets{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets.data()),
              0);
    const UniqueFd peer{sockets[0]};
    const auto lane = std::make_shared<ServerLane>(UniqueFd{sockets[1]}, session, false);
    ASSERT_TRUE(session->add_lane(lane));
    std::atomic<bool> ready{false};
    std::thread serving{[&] {
      ready = true;
      session->lane_ended(*lane);
    }};
    while (!ready) std::this_thread::yield();
    session->end();
    session->begin_again();
    serving.join();
    ASSERT_FALSE(session->broken()) << "round " << round;
  }
}

TEST(TcpSession, LaneThatEndsByItselfBreaksItsSession) {
  const auto session = ServedSession::create().value();
  std::array<int, 2> sockets{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets.data()),
            0);
  const UniqueFd peer{sockets[0]};
  const auto lane = std::make_shared<ServerLane>(UniqueFd{sockets[1]}, session, false);
  ASSERT_TRUE(session->add_lane(lane));
  session->lane_ended(*lane);
  EXPECT_TRUE(session->broken());
  session->end();
  session->begin_again();
  EXPECT_FALSE(session->broken());
  session->lane_ended(*lane);
  EXPECT_FALSE(session->broken()) << "it has been told of before";
}

#if !REMORA_ADDRESS_SANITIZER && !REMORA_THREAD_SANITIZER  // they have a malloc of their own
/// What malloc keeps of a lane that has gone stays resident for as long as the server runs.
TEST(TcpSession, LaneWithoutTrafficHasLittleOfTheHeap) {
  const auto used_bytes = [] {
    const auto now = ::mallinfo2();
    return now.uordblks + now.hblkhd;
  };
  constexpr std::size_t kLanes = 8;
  const auto session = ServedSession::create().value();
  std::vector<std::shared_ptr<ServerLane>> lanes;
  lanes.reserve(kLanes);
  const std::size_t before = used_bytes();
  for (std::size_t i = 0; i < kLanes; ++i)
    lanes.push_back(std::make_shared<ServerLane>(UniqueFd{}, session, i % 2 == 1));
  EXPECT_LT(used_bytes() - before, kLanes * 2 * 1024);
}
#endif

}  // namespace
}  // namespace remora::transport::tcp
