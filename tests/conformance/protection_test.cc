/// What the server lets through: work requests with forged addresses and keys, posted below the
/// client library. Refused means refused by its NIC (rdma) or its process (tcp), with every byte of
/// the pool as it was.

#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

#include <remora/engine/engine.h>
#include <remora/engine/server.h>

#include "raw_session.h"
#include "support/expect.h"
#include "support/pattern.h"
#include "support/resources.h"
#include "support/server.h"
#include "support/transport.h"

namespace remora::test {
namespace {

using namespace remora::literals;  // NOLINT(google-build-using-namespace): literals only
using transport::Opcode;

constexpr std::uint64_t kRegionBytes = 64_KiB;

/// Three regions side by side; the one in the middle is what sessions are granted.
class ProtectionTest : public testing::TestWithParam<TransportKind> {
 protected:
  void SetUp() override {
    if (const std::string reason = why_unavailable(GetParam()); !reason.empty()) {
      if (device_required()) FAIL() << reason;
      GTEST_SKIP() << reason;
    }
    server_ = Server::start(server_config(GetParam(), {.piece_bytes = 1U << 20U})).value();
    address_ = {listen_address(GetParam()), server_->port()};
    for (const char* name : {"left", "target", "right"}) {
      make(name, kRegionBytes);
      models_.push_back(noise(kRegionBytes, std::string{name}.size()));
      ASSERT_TRUE(ok(server_->view(name).value().write(ByteOffset{0}, models_.back())));
    }
  }
  void TearDown() override {
    if (server_) server_->stop();
  }

  void make(const std::string& name, std::uint64_t size_bytes, Rights rights = Rights::kAll) {
    RegionSpec spec;
    spec.name = name;
    spec.size_bytes = size_bytes;
    spec.rights = rights;
    server_->create_region(spec).value();
  }

  /// Every byte of the three regions is as it was.
  testing::AssertionResult unchanged() {
    const char* const names[] = {"left", "target", "right"};
    for (std::size_t i = 0; i < models_.size(); ++i) {
      std::vector<std::byte> seen(kRegionBytes);
      server_->view(names[i]).value().read(ByteOffset{0}, seen).value();
      if (auto same = same_bytes(seen, models_[i]); !same) return same << " in " << names[i];
    }
    return testing::AssertionSuccess();
  }

  /// One forged request on a session of its own: it must be refused.
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

/// It is told, and neither stops nor says that it has.
TEST_P(ProtectionTest, ClientThatDoesNotGiveUpItsGrantLosesItByForce) {
  RawSession stubborn{address_, GetParam()};
  const RawSession::Grant target = stubborn.open("target", Rights::kAll);
  const auto [start, length, address, key] = target.extents[0];
  ASSERT_EQ(stubborn.run(Opcode::kRead, address, key, 64), CompletionStatus::kSuccess);
  const auto began = std::chrono::steady_clock::now();
  const Engine engine = Engine::open({}).value();
  const Region fenced =
      engine
          .fence_region("remora://" + address_.host + ":" + std::to_string(address_.port) +
                            "/target?transport=" + std::string{to_string(GetParam())},
                        Rights::kRead)
          .value();
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
      // Keys are each session's own, so that theirs may be the same number, for their own memory.
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

TEST_P(ProtectionTest, EachExtentEndsWhereItEnds) {
  // Large enough to be cut at every piece, with the pool's other regions around it.
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
    EXPECT_TRUE(bad.ended()) << size;
  }
  EXPECT_EQ(
      good.run(Opcode::kRead, grant.extents[0].remote_address, grant.extents[0].remote_key, 64),
      CompletionStatus::kSuccess);
}

std::vector<TransportKind> checked_transports() {
  std::vector<TransportKind> found = transports_under_test();
  std::erase(found, TransportKind::kShm);  // who may map a region may do anything to it
  return found;
}

INSTANTIATE_TEST_SUITE_P(Protection, ProtectionTest, testing::ValuesIn(checked_transports()),
                         [](const auto& made) { return std::string{to_string(made.param)}; });

}  // namespace
}  // namespace remora::test
