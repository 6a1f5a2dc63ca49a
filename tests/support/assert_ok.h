#pragma once

/// Assertions on Result and Error by macros, which end the test, and names instead of bytes where a
/// code is printed. error() of a success is undefined: EXPECT_CODE and error_of() look first.

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

/// The error of what must have failed, for expressions and functions that return a value. If it has
/// succeeded, the test fails, and the error is a kInternal of its own.
template <typename T>
[[nodiscard]] Error error_of(const Result<T>& result) {
  if (!result.ok()) return result.error();
  ADD_FAILURE() << "an error was expected, and there was none";
  return Error{Code::kInternal, "error_of"};
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
