#pragma once

#include <cstdint>

namespace remora::detail {

/// The states of a client's session. Up may become down or ended; down: joining or ended; joining:
/// up, down or ended. An ended session stays ended.
enum class SessionState : std::uint8_t {
  kUp,
  kDown,     ///< interrupted: the engine connects again
  kJoining,  ///< has connected again, and says hello
  kEnded
};

[[nodiscard]] constexpr bool may_follow(SessionState from, SessionState next) noexcept {
  switch (from) {
    case SessionState::kUp: return next == SessionState::kDown || next == SessionState::kEnded;
    case SessionState::kDown: return next == SessionState::kJoining || next == SessionState::kEnded;
    case SessionState::kJoining: return next != SessionState::kJoining;
    case SessionState::kEnded: return false;
  }
  return false;
}

}  // namespace remora::detail
