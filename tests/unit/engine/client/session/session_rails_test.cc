/// A session takes a rail back that has answered again: no operation ends by that.

#include <array>
#include <chrono>
#include <gtest/gtest.h>
#include <mutex>

#include "session_resume_fixture.h"

namespace remora::detail {
namespace {

class SessionRailReturnTest : public SessionResumeTest {
 protected:
  SessionRailReturnTest() { script_->rails = true; }
  void let_rail_return() {
    const std::lock_guard lock{script_->mutex};
    script_->rail_returns_on = 1;
  }
  double interrupted(const char* reason) {
    return engine_->registry()
        .sum("remora_client_sessions_interrupted_total", {{"reason", reason}})
        .value();
  }
};

TEST_F(SessionRailReturnTest, IdleSessionConnectsAnewAndGoesOn) {
  script_->lease_ms = 1'000;  // the session looks at its rails ten times a second
  start();
  const Region region = open();
  let_rail_return();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(reasons_.front(), Reason::kNone) << "nothing has failed";
  EXPECT_TRUE(session_->connected());
  EXPECT_EQ(interrupted("lane_broken"), 0);
  EXPECT_EQ(engine_->registry().sum("remora_client_lanes_broken_total").value(), 0);
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 1}).value();
  queue.read(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  ASSERT_TRUE(last_lane()->soon_posted(1)) << "on the next connection's lane";
  last_lane()->finish(0);
  EXPECT_EQ(queue.wait(1).size(), 1U);
}

TEST_F(SessionRailReturnTest, SessionWaitsUntilNothingIsPosted) {
  script_->lease_ms = 1'000;
  start();
  const Region region = open();
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 2, .deadline = std::chrono::seconds{30}}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  ASSERT_TRUE(last_lane()->soon_posted(1));
  let_rail_return();
  std::this_thread::sleep_for(milliseconds{500});
  EXPECT_EQ(told(), "") << "the write is posted";
  last_lane()->finish(0);
  ASSERT_TRUE(told_soon("IR"));
  Completions ended = queue.wait(1);
  ASSERT_EQ(ended.size(), 1U);
  EXPECT_TRUE(ended.begin()->ok()) << "no operation ends by the return of a rail";
}

/// Operations that take longer than the first try are no reason to go on without the rail for ever.
TEST_F(SessionRailReturnTest, SessionWaitsLongerAtEachTryForWhatIsPosted) {
  script_->lease_ms = 1'000;
  start();
  const Region region = open();
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 2, .deadline = std::chrono::minutes{5}}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  ResumedLane& lane = *last_lane();
  ASSERT_TRUE(lane.soon_posted(1));
  lane.forget_polls();
  let_rail_return();
  ASSERT_TRUE(soon([&] { return lane.longest_polled() >= milliseconds{200}; }));
  EXPECT_EQ(told(), "") << "the write is posted";
  lane.finish(0);
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(queue.wait(1).size(), 1U);
}

/// Neither a connection event nor the end of the channel tells of a path that carries no data.
TEST_F(SessionRailReturnTest, RailOfALaneWhoseRequestIsNotAcknowledgedHasFailed) {
  start();
  const Region region = open();
  const auto failed = [&] {
    const std::lock_guard lock{script_->mutex};
    return script_->failed_rails;
  };
  std::array<std::byte, 64> bytes{};
  Queue queue = region.queue({.depth = 1}).value();
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  ASSERT_TRUE(last_lane()->soon_posted(1));
  last_lane()->fail(0, CompletionStatus::kFlushed);
  EXPECT_EQ(queue.wait(1).size(), 1U);
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_TRUE(failed().empty()) << "the server has ended the lane";
  queue.write(ByteOffset{0}, bytes);
  ASSERT_TRUE(queue.submit());
  ASSERT_TRUE(last_lane()->soon_posted(1));
  last_lane()->fail(0);
  EXPECT_EQ(queue.wait(1).size(), 1U);
  ASSERT_TRUE(told_soon("IRIR"));
  EXPECT_EQ(failed(), (std::vector<std::size_t>{0}));
}

/// Private addresses of two hosts may be alike.
TEST_F(SessionRailReturnTest, AnotherServerAtAnAddressThatWasToldEndsNoSession) {
  start();
  const Region region = open();
  {
    const std::lock_guard lock{script_->mutex};
    script_->other_server_on = 2;
  }
  hang_up();
  ASSERT_TRUE(told_soon("IR"));
  EXPECT_EQ(asked(&Request::has_hello).size(), 3U);
  EXPECT_EQ(reasons_.back(), Reason::kPeerGone);
  EXPECT_TRUE(session_->connected());
}

}  // namespace
}  // namespace remora::detail
