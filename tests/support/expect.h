#pragma once

/// Assertions on Result and Error: `EXPECT_TRUE(ok(region.read(...)))` prints the error's text.

#include <gtest/gtest.h>

#include <remora/result.h>

namespace remora::test {

template <typename T>
::testing::AssertionResult ok(const Result<T>& result) {
  if (result.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << result.error().message();
}

/// Failed, with that code and no other.
template <typename T>
::testing::AssertionResult fails_with(const Result<T>& result, Code code) {
  if (result.ok())
    return ::testing::AssertionFailure() << "succeeded, expected \"" << to_string(code) << '"';
  if (result.error().code() == code) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "failed with \"" << result.error().message()
                                       << "\", expected \"" << to_string(code) << '"';
}

}  // namespace remora::test
