#pragma once

#include <cstdint>

namespace remora::detail {

/// The states of a client's session. From kUp it changes to kDown or kEnded; from kDown to kJoining
/// or kEnded; from kJoining to kUp, kDown or kEnded. A session in kEnded stays there.
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
