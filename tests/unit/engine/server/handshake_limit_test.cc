/// Which connection makes room when more of them are in their handshake than may be.

#include "server/handshake_limit.h"

#include <cstdint>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <vector>

namespace remora::detail {
namespace {

struct PendingSession {
  std::uint64_t number = 0;
  bool complete = false;
  bool waits = false;  ///< it has said something that the server has not answered
  [[nodiscard]] std::uint64_t id() const { return number; }
  [[nodiscard]] bool handshake_complete() const { return complete; }
  [[nodiscard]] bool waits_for_server() const { return waits; }
};

class HandshakeLimitTest : public testing::Test {
 protected:
  static constexpr std::size_t kMax = 3;
  std::optional<std::uint64_t> add(bool waits = false) {
    sessions_.push_back(std::make_shared<PendingSession>(
        PendingSession{.number = sessions_.size(), .complete = false, .waits = waits}));
    return limit_.add(sessions_.back(), kMax);
  }

  std::vector<std::shared_ptr<PendingSession>> sessions_;
  BasicHandshakeLimit<PendingSession> limit_;
};

TEST_F(HandshakeLimitTest, OldestSilentOneMakesRoom) {
  for (std::size_t i = 0; i < kMax; ++i) EXPECT_EQ(add(), std::nullopt);
  EXPECT_EQ(add(), 0U);
  EXPECT_EQ(add(), 1U);
}

TEST_F(HandshakeLimitTest, CompleteAndEndedOnesTakeNoRoom) {
  for (std::size_t i = 0; i < kMax; ++i) EXPECT_EQ(add(), std::nullopt);
  sessions_[0]->complete = true;
  EXPECT_EQ(add(), std::nullopt);
  sessions_[2].reset();
  EXPECT_EQ(add(), std::nullopt);
  EXPECT_EQ(add(), 1U);
}

TEST_F(HandshakeLimitTest, ThoseThatWaitForTheServerAreNotSentAway) {
  EXPECT_EQ(add(true), std::nullopt);
  EXPECT_EQ(add(), std::nullopt);
  EXPECT_EQ(add(true), std::nullopt);
  EXPECT_EQ(add(true), 1U) << "the only silent one";
  EXPECT_EQ(add(), std::nullopt) << "it has had no time to say anything";
}

TEST_F(HandshakeLimitTest, NoMoreAreTakenWhileAllWaitForTheServer) {
  EXPECT_FALSE(limit_.any_waits_for_server());
  (void)add(true);
  (void)add();
  (void)add(true);
  EXPECT_TRUE(limit_.any_waits_for_server());
  EXPECT_FALSE(limit_.all_wait_for_server(kMax)) << "a silent one can make room";
  sessions_[1]->waits = true;
  EXPECT_TRUE(limit_.all_wait_for_server(kMax));
  sessions_[0]->complete = true;
  EXPECT_FALSE(limit_.all_wait_for_server(kMax));
  for (const auto& session : sessions_) session->complete = true;
  EXPECT_FALSE(limit_.any_waits_for_server());
}

}  // namespace
}  // namespace remora::detail
