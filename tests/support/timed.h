#pragma once

/// Upper bounds on time, as tests assert them: a host that stood still does not break one, and a
/// hang does.

#include <chrono>
#include <gtest/gtest.h>

#include "stall_watch.h"

namespace remora::test {

/// A clock that begins when it is made, and what this process was not run since then.
///
/// Only measured stalls are deducted (see StallWatch): an operation that hangs while this process
/// runs is late by all of its time. Has a thread of its own; make it where the measured time
/// begins, and let it end before threads are counted.
///
/// Thread-safe.
class Timed {
 public:
  using Clock = StallWatch::Clock;

  [[nodiscard]] Clock::time_point began() const noexcept { return began_; }

  /// What began with this object has taken at most `limit` until now, less what this process stood
  /// still meanwhile. Says all three times where it has not.
  [[nodiscard]] ::testing::AssertionResult took_at_most(std::chrono::nanoseconds limit) const {
    return took_at_most(limit, began_);
  }
  /// The same of what began at `from`. What the process stood still before this object was made is
  /// not known, and not deducted.
  [[nodiscard]] ::testing::AssertionResult took_at_most(std::chrono::nanoseconds limit,
                                                        Clock::time_point from) const;

 private:
  StallWatch watch_;
  Clock::time_point began_ = Clock::now();  ///< when the watch is there
};

}  // namespace remora::test
