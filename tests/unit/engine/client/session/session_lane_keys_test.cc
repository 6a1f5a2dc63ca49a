/// Sessions that resume with grants whose keys are those of a lane: a new lane has new keys.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <gtest/gtest.h>
#include <mutex>
#include <vector>

#include "session_resume_fixture.h"

namespace remora::detail {
namespace {

TEST_F(SessionResumeTest, WaitingOperationsGoOnWithNewKeysOfLanes) {
  script_->by_lane = true;
  start();
  const Region first = open();
  const Region second = open();
  std::array<std::byte, 64> bytes{};
  Queue queue = second.queue({.depth = 4}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  ASSERT_TRUE(last_lane()->soon_posted(1));
  const std::uint32_t token = last_lane()->posted[0].request.remote_key;
  EXPECT_EQ(key_of(1, token, 0), 10'200U) << "of the first connection, grant and lane";
  EXPECT_EQ(script_->tables.at(0)->used(), 2U);
  set_reachable(false);
  hang_up();
  ASSERT_TRUE(told_soon("I"));
  EXPECT_EQ(queue.wait(1).size(), 1U) << "what was posted is lost";
  queue.read(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  set_reachable(true);
  ASSERT_TRUE(told_soon("IR"));
  const auto pages = asked(&Request::has_extents);
  ASSERT_EQ(pages.size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(pages[i].connection, 2);
    EXPECT_EQ(pages[i].request.extents().grant_id(), i + 1);
    EXPECT_EQ(pages[i].request.extents().first(), 0U);
  }
  ASSERT_EQ(script_->tables.size(), 2U);
  EXPECT_EQ(script_->tables[0], script_->tables[1]) << "the tokens stay";
  EXPECT_EQ(key_of(2, token, 0), 20'200U);
  ASSERT_TRUE(last_lane()->soon_posted(1));
  EXPECT_EQ(last_lane()->posted[0].request.remote_key, token);
  last_lane()->finish(0);
}

/// The client does not wait for the keys of one grant before it requests those of the next.
TEST_F(SessionResumeTest, KeysOfSeveralGrantsAreRequestedAtOnce) {
  script_->by_lane = true;
  start();
  constexpr std::size_t kTogether = ControlChannel::kMaxTogether;
  std::vector<Region> regions;
  for (std::size_t i = 0; i < kTogether + 1; ++i) regions.push_back(open());
  {
    const std::lock_guard lock{script_->mutex};
    script_->withheld = [](const Request& request) { return request.has_extents(); };
  }
  hang_up();
  const auto requested = [this](std::size_t count) {
    return soon([&] { return asked(&Request::has_extents).size() == count; });
  };
  ASSERT_TRUE(requested(kTogether));
  // The server answers in any order.
  auto pages = asked(&Request::has_extents);
  std::reverse(pages.begin(), pages.end());
  const auto server = endpoint();
  {
    const std::lock_guard lock{script_->mutex};
    for (const Script::Asked& page : pages) server->answer(page.id, page.request);
  }
  ASSERT_TRUE(requested(kTogether + 1));
  const Script::Asked last = asked(&Request::has_extents).back();
  {
    const std::lock_guard lock{script_->mutex};
    script_->withheld = [](const Request& /*request*/) { return false; };
    server->answer(last.id, last.request);
  }
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 2U) << "on one connection";
  for (std::uint32_t token = 1; token <= kTogether + 1; ++token)
    EXPECT_NE(key_of(2, token, 0), transport::RkeyTable::kNoKey) << token;
}

TEST_F(SessionResumeTest, LossOfTheConnectionEndsAllRequestsForKeys) {
  script_->by_lane = true;
  start();
  const Region first = open();
  const Region second = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->withheld = [](const Request& request) { return request.has_extents(); };
  }
  hang_up();
  ASSERT_TRUE(soon([&] { return asked(&Request::has_extents).size() == 2; }));
  {
    const std::lock_guard lock{script_->mutex};
    script_->withheld = [](const Request& /*request*/) { return false; };
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 3U);
  EXPECT_EQ(asked(&Request::has_extents).size(), 4U);
  for (std::uint32_t token = 1; token <= 2; ++token)
    EXPECT_NE(key_of(3, token, 0), transport::RkeyTable::kNoKey) << token;
}

TEST_F(SessionResumeTest, TokensGoBackWithTheirRegion) {
  script_->by_lane = true;
  start();
  {
    const Region region = open();
    EXPECT_EQ(script_->tables.at(0)->used(), 1U);
  }
  EXPECT_TRUE(soon([&] { return script_->tables.at(0)->used() == 0; }));
}

TEST_F(SessionResumeTest, GrantThatGetsNoKeysIsRevokedAndOthersGoOn) {
  script_->by_lane = true;
  start();
  const Region loses = open();
  const Region stays = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->keyless_grant = 1;
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  std::array<std::byte, 64> bytes{};
  const Status refused = loses.write(ByteOffset{0}, bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kAccessRefused);
  EXPECT_EQ(refused.error().reason(), Reason::kRevoked);
  EXPECT_EQ(key_of(2, 1, 0), transport::RkeyTable::kNoKey) << "it had one of a lane that is gone";
  EXPECT_NE(key_of(2, 2, 0), transport::RkeyTable::kNoKey);
  Queue queue = stays.queue({.depth = 4}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  EXPECT_TRUE(last_lane()->soon_posted(1));
  session_->fail(Reason::kPeerGone);
}

/// Other sessions may free their keys of the device a moment later.
TEST_F(SessionResumeTest, GrantThatGetsItsKeysAMomentLaterGoesOn) {
  script_->by_lane = true;
  start();
  const Region region = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->keyless_grant = 1;
    script_->keyless_times = 2;
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 2U) << "on one connection";
  EXPECT_EQ(asked(&Request::has_extents).size(), 3U);
  EXPECT_NE(key_of(2, 1, 0), transport::RkeyTable::kNoKey);
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 4}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  EXPECT_TRUE(last_lane()->soon_posted(1));
  session_->fail(Reason::kPeerGone);
}

TEST_F(SessionResumeTest, KeysOfAnotherGrantAreNotTaken) {
  script_->by_lane = true;
  start();
  const Region region = open();
  script_->strange_pages = 1;
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 3U) << "the second connection was of no use";
  EXPECT_EQ(asked(&Request::has_extents).size(), 2U);
}

TEST_F(SessionResumeTest, RailWithoutRoomForAGrantIsLeftAndTheGrantGoesOn) {
  script_->rails = script_->by_lane = true;
  start();
  const Region region = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->roomless_lane = 0;
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 3U) << "the second connection was over that rail";
  EXPECT_NE(key_of(3, 1, 0), transport::RkeyTable::kNoKey);
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 4}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  EXPECT_TRUE(last_lane()->soon_posted(1));
  session_->fail(Reason::kPeerGone);
}

TEST_F(SessionResumeTest, GrantWithoutAKeyForEachLaneIsNotOpened) {
  script_->by_lane = true;
  script_->keyless_lanes = 8;
  start();
  const auto opened = RegionGrant::open(session_, "r", Rights::kAll, "test", deadline());
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code(), Code::kProtocol);
  EXPECT_EQ(script_->tables.at(0)->used(), 0U);
}

TEST_F(SessionResumeTest, ServerThatChangesItsMindAboutKeysHasGivenTheSessionUp) {
  start();
  const Region region = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->by_lane = true;
  }
  hang_up();
  EXPECT_TRUE(told_soon("IL"));
  EXPECT_EQ(session_->lost_reason(), Reason::kLapsed);
}

}  // namespace
}  // namespace remora::detail
