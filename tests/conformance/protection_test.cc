/// Work requests with forged addresses and keys, posted without the client library. The server's
/// NIC (rdma) or its process (tcp) refuses them, and no byte of the pool changes.

#include <array>
#include <gtest/gtest.h>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>
#include <remora/verbs/verbs.h>

#include "raw_session.h"
#include "support/expect.h"
#include "support/fault_line.h"
#include "support/held_before.h"
#include "support/pattern.h"
#include "support/server.h"
#include "support/transport.h"
#include "transport/rdma/wire.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::Opcode;

constexpr std::uint64_t kRegionBytes = 64_KiB;

/// Three regions side by side; sessions get a grant of the one in the middle.
class ProtectionTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (is_left_out(GetParam())) return;
    held_before_.emplace("protection " + std::string{to_string(GetParam())}, [this] {
      if (GetParam() == TransportKind::kRdma) (void)verbs::connection_manager_devices();
      start();
      make("target", kRegionBytes);
      RawSession session{address_, GetParam()};
      const RawSession::Grant grant = session.open("target", Rights::kAll);
      const auto& [start, length, address, key] = grant.extents.at(0);
      EXPECT_EQ(session.run(Opcode::kRead, address, key, 8), CompletionStatus::kSuccess);
      const Engine engine = Engine::open({}).value();
      const Region region = engine.open_region(uri(), Rights::kAll).value();
      EXPECT_TRUE(region.fetch_add(ByteOffset{0}, 1).ok());
      server_->stop();
      server_.reset();
    });
    start();
    for (const char* name : {"left", "target", "right"}) {
      make(name, kRegionBytes);
      models_.push_back(noise(kRegionBytes, std::string{name}.size()));
      ASSERT_TRUE(ok(server_->view(name).value().write(ByteOffset{0}, models_.back())));
    }
  }
  void TearDown() override {
    if (held_before_) held_before_->expect_again(server_);
  }
  void start() {
    // Raw sessions send no pings, and acknowledge no revocation.
    config::ServerConfig config =
        server_config(GetParam(), {.piece_bytes = 1U << 20U, .lease = std::chrono::minutes{10}});
    config.limits.revoke_grace = std::chrono::seconds{1};
    server_ = Server::start(config).value();
    address_ = {listen_address(GetParam()), server_->port()};
  }
  [[nodiscard]] std::string uri() const {
    return "remora://" + address_.host + ":" + std::to_string(address_.port) +
           "/target?transport=" + std::string{to_string(GetParam())};
  }

  void make(const std::string& name, std::uint64_t size_bytes, Rights rights = Rights::kAll) {
    RegionSpec spec;
    spec.name = name;
    spec.size_bytes = size_bytes;
    spec.rights = rights;
    server_->create_region(spec).value();
  }

  /// Whether every byte of the three regions is as it was.
  testing::AssertionResult unchanged() {
    const char* const names[] = {"left", "target", "right"};
    for (std::size_t i = 0; i < models_.size(); ++i) {
      std::vector<std::byte> seen(kRegionBytes);
      server_->view(names[i]).value().read(ByteOffset{0}, seen).value();
      if (auto same = same_bytes(seen, models_[i]); !same) return same << " in " << names[i];
    }
    return testing::AssertionSuccess();
  }

  /// Posts one forged request on a session of its own, and expects that it is refused.
  void expect_refused(Opcode opcode, std::int64_t from_start, std::uint32_t length_bytes,
                      Rights rights = Rights::kAll) {
    SCOPED_TRACE("opcode " + std::to_string(static_cast<int>(opcode)) + ", " +
                 std::to_string(length_bytes) + " bytes at " + std::to_string(from_start));
    RawSession session{address_, GetParam()};
    const RawSession::Grant grant = session.open("target", rights);
    ASSERT_EQ(grant.extents.size(), 1U);
    EXPECT_EQ(session.run(opcode,
                          grant.extents[0].remote_address + static_cast<std::uint64_t>(from_start),
                          grant.extents[0].remote_key, length_bytes),
              CompletionStatus::kRemoteAccessError);
    EXPECT_TRUE(unchanged());
  }

  std::optional<HeldBefore> held_before_;
  std::optional<Server> server_;
  ServerAddress address_;
  std::vector<std::vector<std::byte>> models_;
};

TEST_P(ProtectionTest, FirstAndLastByteInsideAreReached) {
  RawSession session{address_, GetParam()};
  const RawSession::Grant grant = session.open("target", Rights::kAll);
  ASSERT_EQ(grant.extents.size(), 1U);
  const auto [start, length, address, key] = grant.extents[0];
  EXPECT_EQ(length, kRegionBytes);
  for (const std::uint64_t at : {std::uint64_t{0}, kRegionBytes - 1}) {
    ASSERT_EQ(session.run(Opcode::kRead, address + at, key, 1), CompletionStatus::kSuccess);
    EXPECT_EQ(session.local()[0], models_[1][at]);
    session.local()[0] = models_[1][at] = std::byte{0x77};
    ASSERT_EQ(session.run(Opcode::kWrite, address + at, key, 1), CompletionStatus::kSuccess);
  }
  EXPECT_TRUE(unchanged());
  ASSERT_EQ(session.run(Opcode::kFetchAdd, address + kRegionBytes - 8, key, 8),
            CompletionStatus::kSuccess);
}

TEST_P(ProtectionTest, OneByteBeforeTheRegionIsRefused) {
  expect_refused(Opcode::kRead, -1, 1);
  expect_refused(Opcode::kWrite, -1, 1);
  expect_refused(Opcode::kRead, -1, 2);
  expect_refused(Opcode::kWrite, -1, 2);
  expect_refused(Opcode::kWriteZeroes, -1, 2);
  expect_refused(Opcode::kFetchAdd, -8, 8);
  expect_refused(Opcode::kCompareSwap, -8, 8);
}

TEST_P(ProtectionTest, OneByteBehindTheRegionIsRefused) {
  const auto end = static_cast<std::int64_t>(kRegionBytes);
  expect_refused(Opcode::kRead, end, 1);
  expect_refused(Opcode::kWrite, end, 1);
  expect_refused(Opcode::kRead, end - 1, 2);
  expect_refused(Opcode::kWrite, end - 1, 2);
  expect_refused(Opcode::kWriteZeroes, end - 1, 2);
  expect_refused(Opcode::kFetchAdd, end, 8);
  expect_refused(Opcode::kCompareSwap, end, 8);
}

TEST_P(ProtectionTest, FarAwayIsRefused) {
  expect_refused(Opcode::kWrite, static_cast<std::int64_t>(1_GiB), 64);
  expect_refused(Opcode::kWrite, -static_cast<std::int64_t>(1_GiB), 64);
}

TEST_P(ProtectionTest, RightsThatWereNotGrantedAreRefused) {
  expect_refused(Opcode::kWrite, 0, 64, Rights::kRead);
  expect_refused(Opcode::kWriteZeroes, 0, 64, Rights::kRead);
  expect_refused(Opcode::kFetchAdd, 0, 8, Rights::kRead);
  expect_refused(Opcode::kRead, 0, 64, Rights::kWrite);
  expect_refused(Opcode::kFetchAdd, 0, 8, Rights::kReadWrite);
  expect_refused(Opcode::kWrite, 0, 64, Rights::kRead | Rights::kAtomic);
}

/// The client gets the event of the revocation, and neither stops its operations nor acknowledges.
TEST_P(ProtectionTest, ClientThatDoesNotGiveUpItsGrantLosesItByForce) {
  RawSession stubborn{address_, GetParam()};
  const RawSession::Grant target = stubborn.open("target", Rights::kAll);
  const auto [start, length, address, key] = target.extents[0];
  ASSERT_EQ(stubborn.run(Opcode::kRead, address, key, 64), CompletionStatus::kSuccess);
  const auto began = std::chrono::steady_clock::now();
  const Engine engine = Engine::open({}).value();
  const Region fenced = engine.fence_region(uri(), Rights::kRead).value();
  EXPECT_GE(std::chrono::steady_clock::now() - began, std::chrono::milliseconds{900});
  EXPECT_EQ(stubborn.run(Opcode::kWrite, address, key, 64), CompletionStatus::kRemoteAccessError);
  EXPECT_TRUE(stubborn.ended());
  EXPECT_TRUE(unchanged());
  std::vector<std::byte> seen(64);
  EXPECT_TRUE(ok(fenced.read(ByteOffset{0}, seen)));
}

TEST_P(ProtectionTest, KeyOfAnotherSessionIsRefusedAndThatSessionGoesOn) {
  RawSession owner{address_, GetParam()};
  const RawSession::Grant right = owner.open("right", Rights::kAll);
  const RawSession::Grant target = owner.open("target", Rights::kAll);
  for (const RawSession::Grant& grant : {right, target})
    for (const Opcode opcode : {Opcode::kRead, Opcode::kWrite, Opcode::kFetchAdd}) {
      RawSession thief{address_, GetParam()};
      const RawSession::Grant own = thief.open("target", Rights::kAll);
      // Each session has its own keys, so two sessions may have the same number for different
      // memory.
      if (own.extents[0].remote_key == grant.extents[0].remote_key) continue;
      EXPECT_EQ(thief.run(opcode, grant.extents[0].remote_address, grant.extents[0].remote_key, 8),
                CompletionStatus::kRemoteAccessError);
      EXPECT_TRUE(unchanged());
    }
  EXPECT_EQ(
      owner.run(Opcode::kRead, right.extents[0].remote_address, right.extents[0].remote_key, 64),
      CompletionStatus::kSuccess);
}

TEST_P(ProtectionTest, GuessedKeysAreRefused) {
  for (const std::uint32_t difference : {0x1U, 0x80U, 0x100U, 0x300U}) {
    RawSession session{address_, GetParam()};
    const RawSession::Grant grant = session.open("target", Rights::kAll);
    EXPECT_EQ(session.run(Opcode::kWrite, grant.extents[0].remote_address,
                          grant.extents[0].remote_key ^ difference, 64),
              CompletionStatus::kRemoteAccessError);
    EXPECT_TRUE(unchanged());
  }
}

TEST_P(ProtectionTest, KeyOfAClosedGrantIsRefused) {
  RawSession session{address_, GetParam()};
  const RawSession::Grant grant = session.open("target", Rights::kAll);
  ASSERT_EQ(
      session.run(Opcode::kRead, grant.extents[0].remote_address, grant.extents[0].remote_key, 64),
      CompletionStatus::kSuccess);
  session.close(grant);
  EXPECT_EQ(
      session.run(Opcode::kWrite, grant.extents[0].remote_address, grant.extents[0].remote_key, 64),
      CompletionStatus::kRemoteAccessError);
  EXPECT_TRUE(unchanged());
}

/// Each refusal breaks a lane. The client resumes the session each time, to try another key.
TEST_P(ProtectionTest, SessionThatIsRefusedTooOftenEndsAndIsToldWhy) {
  constexpr std::uint32_t kMaxResumes =
      2;  // few, so that the token bucket does not refill meanwhile
  server_->stop();
  config::ServerConfig config = server_config(GetParam(), {.piece_bytes = 1U << 20U});
  config.limits.resumes_per_minute = kMaxResumes;
  config.limits.session_keep = std::chrono::seconds{1};  // TearDown() waits until it is over
  server_ = Server::start(config).value();
  address_ = {listen_address(GetParam()), server_->port()};
  for (const char* name : {"left", "target", "right"}) {
    make(name, kRegionBytes);
    ASSERT_TRUE(ok(server_->view(name).value().write(
        ByteOffset{0}, models_[static_cast<std::size_t>(name[0] == 't') +
                               2 * static_cast<std::size_t>(name[0] == 'r')])));
  }
  transport::LaneTicket first{};
  std::optional<RawSession> session{std::in_place, address_, GetParam(), &first};
  first = session->ticket();
  for (std::uint32_t times = 0; times <= kMaxResumes; ++times) {
    const auto [start, length, address, key] = session->open("target", Rights::kRead).extents[0];
    EXPECT_EQ(session->run(Opcode::kWrite, address, key, 8), CompletionStatus::kRemoteAccessError);
    session.reset();
    if (times < kMaxResumes) {
      session.emplace(address_, GetParam(), &first);
      ASSERT_EQ(session->ticket().session_id, first.session_id) << "it was not resumed";
      continue;
    }
    try {
      session.emplace(address_, GetParam(), &first);
      ADD_FAILURE() << "it was resumed once more";
    } catch (const Exception& refused) {
      EXPECT_EQ(refused.error().code(), Code::kLimitExceeded) << refused.what();
      EXPECT_EQ(refused.error().reason(), Reason::kTooOften);
      EXPECT_EQ(refused.error().subject(), "limits.resumes_per_minute");
    }
  }
  EXPECT_TRUE(unchanged());
  // The session has ended, and its client may begin a new one.
  session.emplace(address_, GetParam(), &first);
  EXPECT_NE(session->ticket().session_id, first.session_id);
}

TEST_P(ProtectionTest, EachExtentEndsWhereItEnds) {
  // Large enough to have an extent in each piece of the pool, between other regions.
  make("long", 3_MiB);
  std::size_t extents = 1;
  for (std::size_t i = 0; i < extents; ++i)
    for (const bool before : {true, false}) {
      RawSession session{address_, GetParam()};
      const RawSession::Grant grant = session.open("long", Rights::kAll);
      extents = grant.extents.size();
      const auto& extent = grant.extents[i];
      EXPECT_EQ(session.run(Opcode::kWrite,
                            before ? extent.remote_address - 1
                                   : extent.remote_address + extent.length_bytes,
                            extent.remote_key, 1),
                CompletionStatus::kRemoteAccessError)
          << "extent " << i;
      EXPECT_TRUE(unchanged());
    }
  EXPECT_GE(extents, 3U);
}

TEST_P(ProtectionTest, NonsenseOnTheControlChannelEndsThatSessionOnly) {
  RawSession good{address_, GetParam()};
  const RawSession::Grant grant = good.open("target", Rights::kAll);
  for (const std::size_t size : {1UL, 100UL, 4000UL}) {
    RawSession bad{address_, GetParam()};
    bad.send_control(noise(size, size));
    control::Event::Ending why;
    EXPECT_TRUE(bad.ended(&why)) << size;
    EXPECT_EQ(why.code(), static_cast<std::uint32_t>(Code::kProtocol)) << "it is not told why";
  }
  EXPECT_EQ(
      good.run(Opcode::kRead, grant.extents[0].remote_address, grant.extents[0].remote_key, 64),
      CompletionStatus::kSuccess);
}

std::vector<TransportKind> checked_transports() {
  std::vector<TransportKind> found = transports_under_test();
  std::erase(found, TransportKind::kShm);  // a client that maps a region may do anything to it
  return found;
}

/// The fault of a forged request: each has one.
enum class Forgery : std::uint8_t {
  kWrongKey,
  kOldKey,
  kOthersKey,
  kBefore,    // begins before the region, ends in it
  kBeyond,    // begins in the region, ends after it
  kBehind,    // begins at the end of the region
  kWrapping,  // ends beyond the last address
  kReadOnly,
  kZeroLength,  // wrong key, or at the end of the region: devices refuse it or it has no effect
  kCount
};

/// A hundred forged requests (a thousand with the long counts) of all kinds, from a seed, each on a
/// session of its own. Beside them is a session whose requests all succeed.
TEST_P(ProtectionTest, ForgeriesOfEveryKindAreRefused) {
  FaultLine line{.rounds = rounds_of(100, 1000)};
  std::mt19937_64 random{2471};
  const auto below = [&](std::uint64_t bound) { return random() % bound; };
  RawSession neighbour{address_, GetParam()};
  const RawSession::Grant right = neighbour.open("right", Rights::kAll);
  for (std::uint64_t i = 0; i < line.rounds; ++i) {
    const auto forgery = static_cast<Forgery>(i % static_cast<std::uint64_t>(Forgery::kCount));
    SCOPED_TRACE("request " + std::to_string(i) + ", kind " + std::to_string(i % 9));
    RawSession forger{address_, GetParam()};
    const bool read_only = forgery == Forgery::kReadOnly;
    const RawSession::Grant own = forger.open("target", read_only ? Rights::kRead : Rights::kAll);
    std::uint64_t address = own.extents[0].remote_address;
    std::uint32_t key = own.extents[0].remote_key;
    constexpr std::array kOpcodes{Opcode::kRead, Opcode::kWrite, Opcode::kFetchAdd,
                                  Opcode::kCompareSwap};
    const Opcode opcode = read_only ? kOpcodes[1 + below(3)] : kOpcodes[below(4)];
    const bool atomic = opcode == Opcode::kFetchAdd || opcode == Opcode::kCompareSwap;
    std::uint32_t length = atomic ? 8 : static_cast<std::uint32_t>(8 + below(4000));
    switch (forgery) {
      case Forgery::kWrongKey: key ^= static_cast<std::uint32_t>(1 + below(0xffff'fffe)); break;
      case Forgery::kOldKey: forger.close(own); break;
      case Forgery::kOthersKey:
        if (key == right.extents[0].remote_key) continue;  // sessions may have the same number
        address = right.extents[0].remote_address;
        key = right.extents[0].remote_key;
        break;
      case Forgery::kBefore: address -= atomic ? 8 : 1 + below(length - 1); break;
      case Forgery::kBeyond: address += kRegionBytes - (atomic ? 0 : length - 1); break;
      case Forgery::kBehind: address += kRegionBytes; break;
      case Forgery::kWrapping: address = std::uint64_t{0} - 8; break;
      case Forgery::kReadOnly: break;
      case Forgery::kZeroLength:
        length = atomic ? 8 : 0;
        if (atomic || below(2) == 0)
          key ^= 0x500;
        else
          address += kRegionBytes - 1 + below(3);
        break;
      case Forgery::kCount: FAIL();
    }
    SCOPED_TRACE(
        "opcode " + std::to_string(static_cast<int>(opcode)) + ", " + std::to_string(length) +
        " bytes, " +
        std::to_string(static_cast<std::int64_t>(address - own.extents[0].remote_address)));
    CompletionStatus end{};
    const auto began = Clock::now();
    ASSERT_NO_THROW(end = forger.run(opcode, address, key, length));
    line.ended(end == CompletionStatus::kSuccess ? "" : to_string(end), Clock::now() - began);
    EXPECT_TRUE(end == CompletionStatus::kRemoteAccessError || length == 0) << to_string(end);
    ASSERT_EQ(neighbour.run(Opcode::kRead, right.extents[0].remote_address,
                            right.extents[0].remote_key, 64),
              CompletionStatus::kSuccess);
    if (i % 10 != 9) continue;
    ASSERT_TRUE(unchanged());
    neighbour.close(neighbour.open("left", Rights::kRead));  // renews the lease
  }
  EXPECT_TRUE(unchanged());
  line.print(to_string(GetParam()));
}

/// A send-with-invalidate that names the key of another session's grant.
TEST_P(ProtectionTest, ForeignInvalidationTakesNoGrant) {
  if (GetParam() != TransportKind::kRdma) GTEST_SKIP() << "only a NIC has such a message";
  RawSession owner{address_, GetParam()};
  const RawSession::Grant target = owner.open("target", Rights::kAll);
  FaultLine line{.rounds = rounds_of(100, 1000)};
  for (std::uint64_t i = 0; i < line.rounds; ++i) {
    RawSession attacker{address_, GetParam()};
    const Deadline deadline = Clock::now() + std::chrono::seconds{20};
    const auto server = verbs::Address::parse(address_.host, address_.port).value();
    auto connector = verbs::Connector::resolve(server, deadline).value();
    const auto domain = connector.device().allocate_domain().value();
    const auto queue = connector.device().create_completion_queue({.depth = 4}).value();
    verbs::QueuePairBuilder<verbs::Rc> builder{domain, queue, queue};
    builder.send_depth(4).receive_depth(1).timeout(transport::rdma::kAckTimeoutSoftware);
    connector.create_queue_pair(builder).value();
    const auto introduction =
        transport::rdma::Introduction{.purpose = transport::rdma::Purpose::kLane,
                                      .ticket = attacker.ticket()}
            .to_wire();
    auto lane = connector.connect(deadline, {.private_data = introduction}).value();
    std::vector<std::byte> message(transport::rdma::kNoticeWireBytes);
    const auto memory = domain.register_bytes(message, verbs::Access::kLocalWrite).value();
    auto batch = lane.queue_pair().start();
    batch.send_with_invalidate(1, memory.slice(0, message.size()), target.extents[0].remote_key);
    batch.post().value();
    std::array<verbs::Completion, 1> storage;
    // The server closes the lane when it sees that the message is no notification. It may destroy
    // the queue pair before the device has sent the acknowledgement: then the client sees a
    // disconnect instead.
    CompletionStatus end = CompletionStatus::kFlushed;
    bool ended = false, hung_up = false;
    while (!ended && !hung_up && Clock::now() < deadline) {
      if (const auto event = lane.next_event().value())
        hung_up = event->kind == verbs::ConnectionEvent::Kind::kDisconnected;
      if (const auto found = queue.poll(storage).value(); !found.empty()) {
        ended = true;
        end = found[0].status();
      }
    }
    ASSERT_TRUE(ended || hung_up) << "it was never sent";
    // The message has arrived: as one that is no notification, or as one refused for its key.
    const bool arrived = end == CompletionStatus::kSuccess ||
                         end == CompletionStatus::kRemoteAccessError ||
                         end == CompletionStatus::kRemoteInvalidRequest ||
                         end == CompletionStatus::kRemoteOperationError ||
                         (hung_up && end == CompletionStatus::kFlushed);
    EXPECT_TRUE(arrived) << to_string(end);
    line.ended(end == CompletionStatus::kSuccess ? "" : to_string(end));
    for (const Opcode opcode : {Opcode::kRead, Opcode::kFetchAdd})
      ASSERT_EQ(
          owner.run(opcode, target.extents[0].remote_address, target.extents[0].remote_key, 8),
          CompletionStatus::kSuccess)
          << "round " << i;
  }
  line.print(to_string(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Protection, ProtectionTest, testing::ValuesIn(checked_transports()),
                         [](const auto& made) { return std::string{to_string(made.param)}; });

}  // namespace
}  // namespace remora::test
