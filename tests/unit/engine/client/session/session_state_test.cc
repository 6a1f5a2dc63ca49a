#include "client/session/session_state.h"

#include <array>
#include <gtest/gtest.h>

namespace remora::detail {
namespace {

constexpr std::array kStates{SessionState::kUp, SessionState::kDown, SessionState::kJoining,
                             SessionState::kEnded};

TEST(SessionStates, EndedIsFollowedByNone) {
  for (const SessionState next : kStates) EXPECT_FALSE(may_follow(SessionState::kEnded, next));
}

TEST(SessionStates, NoneFollowsItself) {
  for (const SessionState state : kStates) EXPECT_FALSE(may_follow(state, state));
}

TEST(SessionStates, EachThatHasNotEndedMayEnd) {
  for (const SessionState state : kStates)
    EXPECT_EQ(may_follow(state, SessionState::kEnded), state != SessionState::kEnded);
}

TEST(SessionStates, AnInterruptedSessionComesUpByJoiningOnly) {
  EXPECT_FALSE(may_follow(SessionState::kDown, SessionState::kUp));
  EXPECT_TRUE(may_follow(SessionState::kDown, SessionState::kJoining));
  EXPECT_TRUE(may_follow(SessionState::kJoining, SessionState::kUp));
  EXPECT_FALSE(may_follow(SessionState::kUp, SessionState::kJoining));
}

}  // namespace
}  // namespace remora::detail
