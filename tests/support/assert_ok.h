#pragma once

/// Assertions on Result and Error by macros, which end the test, and names instead of bytes where a
/// code is printed.

#include <gtest/gtest.h>
#include <ostream>

#include <remora/result.h>

namespace remora {

inline std::ostream& operator<<(std::ostream& out, Code code) { return out << to_string(code); }
inline std::ostream& operator<<(std::ostream& out, Reason reason) {
  return out << to_string(reason);
}
inline std::ostream& operator<<(std::ostream& out, CompletionStatus status) {
  return out << to_string(status);
}

}  // namespace remora

/// Fails with the error's text.
#define ASSERT_OK(expression)                                                \
  do {                                                                       \
    const auto& asserted_ = (expression);                                    \
    ASSERT_TRUE(asserted_.ok()) << #expression << ": " << asserted_.error(); \
  } while (false)

/// Failed, with that code and no other.
#define EXPECT_CODE(expression, expected_code)                                   \
  do {                                                                           \
    const auto& checked_ = (expression);                                         \
    ASSERT_FALSE(checked_.ok()) << #expression;                                  \
    EXPECT_EQ(checked_.error().code(), Code::expected_code) << checked_.error(); \
  } while (false)
