/// A tcp server and peers that are no clients, slow, silent or malicious.

#include <array>
#include <atomic>
#include <chrono>
#include <gtest/gtest.h>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "support/fault_line.h"
#include "support/timed.h"
#include "tcp_peers_fixture.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::Opcode;
using transport::WorkRequest;
using transport::tcp::FrameHeader;
using transport::tcp::Introduction;
using transport::tcp::Purpose;

constexpr std::chrono::seconds kHandshake{3};

TEST_F(TcpPeersTest, NonsenseIsHungUpOn) {
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  for (std::size_t i = 0; i < 20; ++i) {
    const RawPeer peer{server_->port()};
    peer.say(noise(32 + i * 500, i));
    EXPECT_TRUE(peer.hung_up()) << i;
  }
  const RawPeer browser{server_->port()};
  const std::string_view text = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  browser.say(std::as_bytes(std::span{text}));
  EXPECT_TRUE(browser.hung_up());
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  EXPECT_TRUE(soon_sessions(1));
}

TEST_F(TcpPeersTest, SilenceIsHungUpOnAfterTheHandshakeTimeout) {
  config::ServerConfig config = plain();
  config.limits.handshake_timeout = kHandshake;
  start(config);
  const RawPeer silent{server_->port()};
  const RawPeer slow{server_->port()};
  const auto introduction = Introduction{}.to_wire();
  slow.say(std::span{introduction}.first(20));
  const RawPeer welcome_and_silent{server_->port()};
  ASSERT_TRUE(welcome_and_silent.welcome());
  const RawPeer half_a_hello{server_->port()};
  ASSERT_TRUE(half_a_hello.welcome());
  half_a_hello.say(FrameHeader{.length_bytes = 100}.to_wire());
  for (const RawPeer* peer : {&silent, &slow, &welcome_and_silent, &half_a_hello})
    EXPECT_TRUE(peer->hung_up());
  EXPECT_TRUE(soon_sessions(0));
}

TEST_F(TcpPeersTest, MessagesOutOfBoundsEndTheirSession) {
  const std::array frames{FrameHeader{.length_bytes = 16385}, FrameHeader{.length_bytes = 0},
                          FrameHeader{.length_bytes = UINT32_MAX}};
  for (const FrameHeader& frame : frames) {
    const RawPeer peer{server_->port()};
    ASSERT_TRUE(peer.welcome());
    peer.say(frame.to_wire());
    EXPECT_TRUE(peer.hung_up());
  }
  for (const std::size_t size : {1UL, 100UL, 16384UL}) {
    RawSession bad{address_, TransportKind::kTcp};
    bad.send_control(noise(size, size));
    EXPECT_TRUE(bad.ended()) << size;
  }
  EXPECT_TRUE(soon_sessions(0));
}

TEST_F(TcpPeersTest, LaneNeedsTheSecretOfItsSession) {
  RawSession session{address_, TransportKind::kTcp};
  const RawSession::Grant grant = session.open("target", Rights::kAll);
  const auto introduced = [&](std::uint64_t id, std::uint64_t secret) {
    RawPeer peer{server_->port()};
    peer.say(Introduction{.purpose = Purpose::kLane, .ticket = {.session_id = id, .secret = secret}}
                 .to_wire());
    return peer;
  };
  const auto& ticket = session.ticket();
  EXPECT_TRUE(introduced(ticket.session_id, ticket.secret ^ 1U).hung_up());
  EXPECT_TRUE(introduced(ticket.session_id + 1, ticket.secret).hung_up());
  EXPECT_TRUE(introduced(0, 0).hung_up());
  EXPECT_EQ(
      session.run(Opcode::kRead, grant.extents[0].remote_address, grant.extents[0].remote_key, 64),
      CompletionStatus::kSuccess);
}

TEST_F(TcpPeersTest, NonsenseOnALaneEndsItsSessionOnly) {
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  RawSession session{address_, TransportKind::kTcp};
  const RawPeer lane{server_->port()};
  lane.say(Introduction{.purpose = Purpose::kLane, .ticket = session.ticket()}.to_wire());
  lane.say(noise(4096, 3));
  EXPECT_TRUE(lane.hung_up());
  EXPECT_TRUE(session.ended());
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
}

TEST_F(TcpPeersTest, CrowdOfSilentPeersKeepsNoClientOut) {
  config::ServerConfig config = plain();
  config.limits.handshake_timeout = 5s;  // for the silent peers and the client alike
  start(config);
  std::vector<RawPeer> crowd;
  constexpr std::size_t kCrowd = 300;
  crowd.reserve(kCrowd);
  while (crowd.size() < kCrowd) crowd.emplace_back(server_->port());
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  EXPECT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), 0U);
  for (const RawPeer& peer : crowd) EXPECT_TRUE(peer.hung_up());
}

TEST_F(TcpPeersTest, PeerThatStopsReadingHoldsUpNoOtherClient) {
  std::vector<std::byte> into(1_MiB);
  RawSession lazy{address_, TransportKind::kTcp};
  const RawSession::Grant grant = lazy.open("target", Rights::kAll);
  const WorkRequest read{.local = into.data(),
                         .length_bytes = 1_MiB,
                         .remote_address = grant.extents[0].remote_address,
                         .remote_key = grant.extents[0].remote_key,
                         .opcode = Opcode::kRead};
  const std::vector<const WorkRequest*> chain(16, &read);
  ASSERT_EQ(lazy.lane().post(chain, 0).error, 0);
  const Region region = engine_->open_region(uri(), Rights::kAll).value();
  const Timed timed;
  for (std::uint64_t i = 0; i < 1000; ++i) ASSERT_EQ(region.fetch_add(ByteOffset{0}, 1).value(), i);
  EXPECT_TRUE(timed.took_at_most(30s));
  // The server serves the peer as soon as it reads again.
  std::array<transport::LaneCompletion, 16> found;
  std::uint64_t last = 0;
  for (Patience patience; last != 15 && !patience.over();)
    for (std::size_t i = 0, count = lazy.lane().poll(found); i < count; ++i) {
      ASSERT_EQ(found[i].status, CompletionStatus::kSuccess);
      last = found[i].sequence;
    }
  EXPECT_EQ(last, 15U);
}

TEST_F(TcpPeersTest, GrantIsTakenBackWhileItsRegionIsBusy) {
  std::vector<std::byte> into(1_MiB);
  RawSession session{address_, TransportKind::kTcp};
  const RawSession::Grant busy = session.open("target", Rights::kAll);
  const WorkRequest read{.local = into.data(),
                         .length_bytes = 1_MiB,
                         .remote_address = busy.extents[0].remote_address,
                         .remote_key = busy.extents[0].remote_key,
                         .opcode = Opcode::kRead};
  const std::vector<const WorkRequest*> chain(16, &read);
  ASSERT_EQ(session.lane().post(chain, 0).error, 0);
  // The session does not poll its lane, so the server has sent part of an answer. Its reply to
  // close() may be lost with the session.
  try {
    session.close(busy);
  } catch (const Exception&) {
  }
  EXPECT_TRUE(session.ended());
  EXPECT_TRUE(soon_sessions(0));
  EXPECT_TRUE(eventually([&] { return server_->status().grants == 0; }));
  EXPECT_TRUE(ok(server_->remove_region("target")));
}

TEST_F(TcpPeersTest, CraftyRequestsAreRefusedAndChangeNothing) {
  server_->create_region({.name = "plain", .size_bytes = 64_KiB, .atomic_domain = "none"}).value();
  const std::vector<std::byte> model = noise(64_KiB, 4);
  const RegionView view = server_->view("plain").value();
  ASSERT_TRUE(ok(view.write(ByteOffset{0}, model)));
  struct Case {
    Opcode opcode;
    std::uint64_t address;
    std::uint32_t length;
    CompletionStatus status;
  };
  constexpr auto kInvalid = CompletionStatus::kRemoteInvalidRequest;
  constexpr auto kRefused = CompletionStatus::kRemoteAccessError;
  const std::array cases{
      Case{Opcode::kFetchAdd, 0, 8, kRefused},  // the atomic domain is none
      Case{Opcode::kCompareSwap, 0, 8, kRefused},
      Case{Opcode::kFetchAdd, 4, 8, kInvalid},
      Case{Opcode::kFetchAdd, 0, 16, kInvalid},
      Case{Opcode::kRead, 0, 0, kInvalid},
      Case{Opcode::kWrite, UINT64_MAX - 63, 128, kRefused},  // wraps
      Case{Opcode::kRead, UINT64_MAX, 2, kRefused},
  };
  FaultLine line{.rounds = cases.size()};
  std::list<RawSession> sessions;
  for (const Case& wrong : cases) {
    RawSession& session = sessions.emplace_back(address_, TransportKind::kTcp);
    const RawSession::Grant grant = session.open("plain", Rights::kAll);
    const auto began = Clock::now();
    const CompletionStatus end =
        session.run(wrong.opcode, grant.extents[0].remote_address + wrong.address,
                    grant.extents[0].remote_key, wrong.length);
    line.ended(end == CompletionStatus::kSuccess ? "" : to_string(end), Clock::now() - began);
    EXPECT_EQ(end, wrong.status) << wrong.address << " " << wrong.length;
  }
  // The server gives each client a second to read the reason.
  for (RawSession& session : sessions) EXPECT_TRUE(session.ended());
  std::vector<std::byte> seen(64_KiB);
  ASSERT_TRUE(ok(view.read(ByteOffset{0}, seen)));
  EXPECT_TRUE(same_bytes(seen, model));
  line.print("tcp");
}

TEST_F(TcpPeersTest, GrantsComeAndGoWhileAnotherOfTheSessionIsBusy) {
  server_->create_region({.name = "other", .size_bytes = 64_KiB}).value();
  const Region busy = engine_->open_region(uri(), Rights::kAll).value();
  std::atomic<bool> stop{false};
  std::atomic<bool> failed{false};
  std::thread worker{[&] {
    std::vector<std::byte> bytes(256_KiB);
    while (!stop)
      if (!busy.read(ByteOffset{0}, bytes).ok() || !busy.write(ByteOffset{1_MiB}, bytes).ok())
        failed = true;
  }};
  const Timed timed;
  for (int i = 0; i < 100; ++i) {
    const Region region = engine_->open_region(uri("other"), Rights::kAll).value();
    EXPECT_TRUE(ok(region.fetch_add(ByteOffset{0}, 1)));
  }
  EXPECT_TRUE(timed.took_at_most(40s));
  stop = true;
  worker.join();
  EXPECT_FALSE(failed);
}

}  // namespace
}  // namespace remora::test
